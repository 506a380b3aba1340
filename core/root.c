#include "core/root.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"

static const char root_variable[] = "AGENT_DESKTOP_HOME";
static const char root_name[] = ".agent-desktop"; /* in the home directory */
static const char other_place[] = "Set AGENT_DESKTOP_HOME to a directory on a local file system.";

/* ---- where it is ---- */

static const char *find_home(void)
{
    const char *home = getenv("HOME");
    const struct passwd *user;

    if (home != NULL && home[0] != '\0')
        return home;
    user = getpwuid(geteuid());
    return user != NULL ? user->pw_dir : NULL;
}

/* A name at the end, so that O_NOFOLLOW looks at the root itself: "link/" and "link/." would go through. */
static int check_last_component(const char *path, struct error *e)
{
    const char *last = strrchr(path, '/') + 1;

    if (last[0] != '\0' && strcmp(last, ".") != 0 && strcmp(last, "..") != 0)
        return 0;
    return error_set(e, ERROR_INVALID_ARGS, 0, "the state root '%s' does not end with a directory's name",
                     path);
}

static int find_path(char out[ROOT_PATH_MAX], struct error *e)
{
    const char *set = getenv(root_variable);
    const char *home = set != NULL ? NULL : find_home();
    int length;

    if (set != NULL && set[0] == '\0')
        return error_set(e, ERROR_INVALID_ARGS, 0, "%s is set but empty", root_variable);
    if (set == NULL && home == NULL)
        return error_set(e, ERROR_INVALID_ARGS, 0, "there is no home directory; set %s", root_variable);
    if ((set != NULL ? set : home)[0] != '/')
        return error_set(e, ERROR_INVALID_ARGS, 0, "%s is '%s', which is not an absolute path",
                         set != NULL ? root_variable : "HOME", set != NULL ? set : home);
    length = set != NULL ? snprintf(out, ROOT_PATH_MAX, "%s", set)
                         : snprintf(out, ROOT_PATH_MAX, "%s/%s", home, root_name);
    if (length >= ROOT_PATH_MAX)
        return error_set(e, ERROR_INVALID_ARGS, 0, "the path of the state root is longer than %d bytes",
                         ROOT_PATH_MAX - 1);
    while (length > 1 && out[length - 1] == '/')
        out[--length] = '\0';
    return check_last_component(out, e);
}

/* ---- whether it may be trusted ---- */

static int check_stat(const char *path, const struct stat *st, struct error *e)
{
    if (S_ISLNK(st->st_mode))
        return error_set(e, ERROR_INVALID_ARGS, 0, "the state root '%s' is a symbolic link", path);
    if (!S_ISDIR(st->st_mode))
        return error_set(e, ERROR_INVALID_ARGS, 0, "the state root '%s' is not a directory", path);
    if (st->st_uid != geteuid())
        return error_set(e, ERROR_INVALID_ARGS, 0, "the state root '%s' belongs to another user (uid %u)",
                         path, (unsigned int)st->st_uid);
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return error_set(e, ERROR_INVALID_ARGS, 0, "the state root '%s' is writable by others (mode %04o)",
                         path, (unsigned int)(st->st_mode & 07777));
    return 0;
}

/* The descriptor is what counts; the look at the path before only found the better words. */
static int check_opened(const char *path, int fd, struct error *e)
{
    const char *network = file_network_filesystem(fd);
    struct stat st;

    if (fstat(fd, &st) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot look at the state root '%s'", path);
    if (check_stat(path, &st, e) < 0)
        return -1;
    if (network == NULL)
        return 0;
    error_set(e, ERROR_INVALID_ARGS, 0, "the state root '%s' is on %s, where locks cannot be trusted", path,
              network);
    e->suggestion = other_place;
    return -1;
}

static int open_existing(const char *path, struct error *e)
{
    AUTO_CLOSE int fd = file_open_dir(AT_FDCWD, path);

    if (fd < 0)
        return error_set_errno(e, ERROR_INVALID_ARGS, errno, "cannot open the state root '%s'", path);
    if (check_opened(path, fd, e) < 0)
        return -1;
    return steal_fd(&fd);
}

/* ---- making it ---- */

/* Only the last component: a mistyped path must not grow a tree of directories. */
static int make_missing(const char *path, struct error *e)
{
    char parent[ROOT_PATH_MAX];
    size_t length = (size_t)(strrchr(path, '/') - path);
    AUTO_CLOSE int above = -1;
    AUTO_CLOSE int fd = -1;

    snprintf(parent, sizeof(parent), "%.*s/", (int)length, path); /* "/" below the root directory */
    above = RETRY_EINTR(open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (above < 0)
        return error_set_errno(e, ERROR_INVALID_ARGS, errno,
                               "cannot make the state root '%s': cannot open the directory above it", path);
    fd = file_make_dir(above, path + length + 1, 0700, e);
    if (fd < 0 || check_opened(path, fd, e) < 0)
        return -1;
    return steal_fd(&fd);
}

/* *out stays -1 when there is none and none is to be made. */
static int open_top(enum root_mode mode, const char *path, int *out, struct error *e)
{
    struct stat st;

    if (lstat(path, &st) == 0)
        *out = check_stat(path, &st, e) < 0 ? -1 : open_existing(path, e);
    else if (errno != ENOENT)
        return error_set_errno(e, ERROR_INVALID_ARGS, errno, "cannot look at the state root '%s'", path);
    else if (mode == ROOT_READ)
        return 0;
    else
        *out = make_missing(path, e);
    return *out < 0 ? -1 : 0;
}

static int open_below(enum root_mode mode, int dir, const char *name, int *out, struct error *e)
{
    if (mode == ROOT_WRITE) {
        *out = file_make_dir(dir, name, 0700, e);
        return *out < 0 ? -1 : 0;
    }
    *out = file_open_dir(dir, name);
    if (*out < 0 && errno != ENOENT)
        return error_set_errno(e, ERROR_PERM_DENIED, errno,
                               "cannot open the directory '%s' of the state root", name);
    return 0;
}

int root_open(enum root_mode mode, struct root *out, struct error *e)
{
    struct root root = { .dir = -1, .sandboxes = -1, .locks = -1 };

    if (find_path(root.path, e) < 0 || open_top(mode, root.path, &root.dir, e) < 0)
        return -1;
    if (root.dir >= 0 && (open_below(mode, root.dir, "sandboxes", &root.sandboxes, e) < 0 ||
                          open_below(mode, root.dir, "locks", &root.locks, e) < 0)) {
        root_close(&root);
        return -1;
    }
    *out = root;
    return 0;
}

void root_close(struct root *root)
{
    util_close_fd(&root->locks);
    util_close_fd(&root->sandboxes);
    util_close_fd(&root->dir);
    root->dir = root->sandboxes = root->locks = -1;
}

/* ---- names ---- */

static bool is_name(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return length >= 1 && length <= NAME_MAX_LENGTH && name[length] == '\0' && name[0] != '-';
}

int root_check_name(const char *name, struct error *e)
{
    if (is_name(name))
        return 0;
    return error_set(e, ERROR_INVALID_ARGS, 0,
                     "'%s' is not a name: 1 to %d of a-z, 0-9 and '-', starting with a letter or a digit",
                     name, NAME_MAX_LENGTH);
}

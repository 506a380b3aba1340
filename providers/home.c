#include "providers/home.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/lock.h"
#include "core/log.h"

#define LOCK_WAIT_MS 1000
#define GONE_SIZE    48

/* --- in ----------------------------------------------------------------------------------------------- */

int home_open(const struct root *root, const char *name, int *fd, struct error *e)
{
    if (*fd >= 0)
        return 1;
    if (root->sandboxes < 0)
        return 0;
    *fd = file_open_dir(root->sandboxes, name);
    if (*fd >= 0)
        return 1;
    if (errno == ENOENT)
        return 0;
    if (errno == ENOTDIR || errno == ELOOP)
        return error_set(e, ERROR_ACTION_FAILED, 0, "'%s/sandboxes/%s' is not a directory", root->path, name);
    return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open '%s/sandboxes/%s'", root->path, name);
}

int home_make(const struct root *root, const char *name, bool ran_before, int *fd, struct error *e)
{
    if (mkdirat(root->sandboxes, name, 0700) < 0 && (errno != EEXIST || !ran_before)) {
        if (errno == EEXIST)
            return error_set(e, ERROR_SANDBOX_EXISTS, 0,
                             "'%s/sandboxes/%s' exists but is no sandbox: move it away", root->path, name);
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot make '%s/sandboxes/%s'", root->path,
                               name);
    }
    int found = home_open(root, name, fd, e);

    if (found < 0)
        return -1;
    if (found == 0)
        return error_set(e, ERROR_ACTION_FAILED, 0, "'%s/sandboxes/%s' is gone", root->path, name);
    if (fchmod(*fd, 0700) < 0) /* the umask applied to mkdir */
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot set the mode of '%s/sandboxes/%s'",
                               root->path, name);
    return 0;
}

/* --- out ---------------------------------------------------------------------------------------------- */

bool home_is_named(int dir, const char *name, int fd)
{
    struct stat here, there;

    return fstat(fd, &here) == 0 && fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

int home_lock(int fd, struct error *e)
{
    int locked = lock_take_fd(fd, LOCK_EXCLUSIVE, LOCK_WAIT_MS, e);

    if (locked == 0)
        return error_set(e, ERROR_SANDBOX_BUSY, 0, "another command works on the sandbox's files");
    return locked < 0 ? -1 : 0;
}

/* -1 with errno. */
static int open_to_claim(int sandboxes, const char *name)
{
    int fd = file_open_dir(sandboxes, name);

    if (fd >= 0 || errno != EACCES)
        return fd;
    (void)!fchmodat(sandboxes, name, 0700, AT_SYMLINK_NOFOLLOW); /* its mode: ours to change */
    return file_open_dir(sandboxes, name);
}

int home_claim(const struct root *root, const char *name, int *fd, struct error *e)
{
    util_close_fd(fd);
    *fd = open_to_claim(root->sandboxes, name);
    if (*fd >= 0)
        return home_lock(*fd, e) < 0 ? -1 : 1;
    if (errno == ENOENT)
        return 0;
    if (errno == EACCES) /* two who remove it do no harm */
        return 1;
    if (errno != ENOTDIR && errno != ELOOP)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open '%s/sandboxes/%s'", root->path,
                               name);
    if (unlinkat(root->sandboxes, name, 0) < 0 && errno != ENOENT)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot remove '%s/sandboxes/%s'", root->path,
                               name);
    return 0;
}

static void print_gone(char out[GONE_SIZE], const char *token)
{
    snprintf(out, GONE_SIZE, HOME_GONE "%.32s", token);
}

int home_set_aside(const struct root *root, const char *name, const char *token, struct error *e)
{
    char gone[GONE_SIZE];

    print_gone(gone, token);
    if (renameat(root->sandboxes, name, root->sandboxes, gone) < 0 && errno != ENOENT)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot rename '%s/sandboxes/%s'", root->path,
                               name);
    return file_sync_dir(root->sandboxes, e);
}

int home_delete(const struct root *root, const char *token, home_remove_fn *remove, struct error *e)
{
    char gone[GONE_SIZE];

    print_gone(gone, token);
    if (remove(root->sandboxes, gone, e) < 0)
        return -1;
    home_sweep(root->sandboxes, HOME_GONE, remove);
    return 0;
}

/* --- what was left ------------------------------------------------------------------------------------ */

static void sweep_one(int dir, const char *name, home_remove_fn *remove)
{
    AUTO_CLOSE int fd = file_open_dir(dir, name);
    struct error e = { 0 };

    if (fd >= 0 && (lock_take_fd(fd, LOCK_EXCLUSIVE, 0, &e) != 1 || !home_is_named(dir, name, fd)))
        return; /* its owner lives, or has removed it and perhaps made another */
    if (remove(dir, name, &e) < 0)
        log_debug("cannot remove the leftover %s: %s", name, e.message);
}

void home_sweep(int dir, const char *prefix, home_remove_fn *remove)
{
    int fd = file_open_dir(dir, "."); /* a position of its own */
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (stream == NULL) {
        util_close_fd(&fd);
        return;
    }
    while ((entry = readdir(stream)) != NULL)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            sweep_one(dir, entry->d_name, remove);
    closedir(stream);
}

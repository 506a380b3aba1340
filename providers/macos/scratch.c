#include "providers/macos/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/util.h"

#define MAKE_ATTEMPTS 100 /* each is lost to a sweep in a window of microseconds */

static bool is_still_named(int dir, const char *name, int fd)
{
    struct stat here, there;

    return fstat(fd, &here) == 0 && fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* 1 with *fd, 0 when a sweep was faster, -1. */
static int make_locked(int dir, const char *name, int *fd, struct error *e)
{
    struct error cause = { 0 };
    AUTO_CLOSE int made = file_make_dir(dir, name, 0700, &cause);
    int locked = made < 0 ? -1 : lock_take_fd(made, LOCK_EXCLUSIVE, 0, &cause);

    if (made < 0 && cause.sys == ENOENT)
        return 0; /* swept before it was opened */
    if (locked < 0) {
        *e = cause;
        return -1;
    }
    if (locked == 0 || !is_still_named(dir, name, made))
        return 0;
    *fd = steal_fd(&made);
    return 1;
}

int scratch_make(int dir, const char *prefix, char out[SCRATCH_NAME_SIZE], struct error *e)
{
    char id[17];
    int fd = -1, made = 0;

    for (int i = 0; made == 0 && i < MAKE_ATTEMPTS; i++) {
        util_random_id(id);
        snprintf(out, SCRATCH_NAME_SIZE, "%s%s", prefix, id);
        made = make_locked(dir, out, &fd, e);
    }
    if (made == 0)
        return error_set(e, ERROR_STORE_BUSY, 0, "another command keeps removing '%s'", out);
    return made < 0 ? -1 : fd;
}

static void sweep_one(int dir, const char *name)
{
    AUTO_CLOSE int fd = file_open_dir(dir, name);
    struct error e = { 0 };

    if (fd >= 0 && (lock_take_fd(fd, LOCK_EXCLUSIVE, 0, &e) != 1 || !is_still_named(dir, name, fd)))
        return; /* its owner lives, or was faster */
    if (file_remove_tree(dir, name, &e) < 0)
        log_debug("cannot remove the leftover %s: %s", name, e.message);
}

void scratch_sweep(int dir, const char *prefix)
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
            sweep_one(dir, entry->d_name);
    closedir(stream);
}

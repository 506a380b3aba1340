#include "providers/macos/scratch.h"

#include <errno.h>
#include <stdio.h>

#include "core/file.h"
#include "core/lock.h"
#include "core/util.h"
#include "providers/home.h"

#define MAKE_ATTEMPTS 100 /* each is lost to a sweep in a window of microseconds */

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
    if (locked == 0 || !home_is_named(dir, name, made))
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

#include "providers/linux/leftovers.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/lock.h"
#include "providers/home.h"
#include "providers/linux/namespace.h"

#define LOCK_WAIT_MS  1000
#define MAKE_ATTEMPTS 100 /* each is lost to a sweep in a window of microseconds */

struct removal {
    int dir;
    const char *name;
};

static int remove_in_namespace(void *self, struct error *e)
{
    const struct removal *r = self;

    return file_remove_tree(r->dir, r->name, e);
}

int leftover_remove(int dir, const char *name, struct error *e)
{
    struct removal r = { .dir = dir, .name = name };
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    return namespace_run_with_files(remove_in_namespace, &r, e);
}

/* 1 with *fd, 0 when a sweep was faster, -1. */
static int make_locked(int dir, const char *name, int *fd, struct error *e)
{
    AUTO_CLOSE int made = -1;
    int locked;

    if (mkdirat(dir, name, 0700) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot make '%s'", name);
    made = file_open_dir(dir, name);
    if (made < 0)
        return errno == ENOENT ? 0 : error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open '%s'", name);
    if (fchmod(made, 0700) < 0) /* the umask */
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot set the mode of '%s'", name);
    locked = lock_take_fd(made, LOCK_EXCLUSIVE, LOCK_WAIT_MS, e);
    if (locked <= 0 || !home_is_named(dir, name, made))
        return locked < 0 ? -1 : 0;
    *fd = steal_fd(&made);
    return 1;
}

/* Under its lock, or a sweep that has it would remove the new one in its place. */
static int remove_earlier(int dir, const char *name, struct error *e)
{
    AUTO_CLOSE int fd = file_open_dir(dir, name);

    if (fd >= 0 && home_lock(fd, e) < 0)
        return -1;
    return leftover_remove(dir, name, e);
}

int leftover_make(int dir, const char *name, struct error *e)
{
    for (int i = 0; i < MAKE_ATTEMPTS; i++) {
        int fd = -1;
        int made;

        if (remove_earlier(dir, name, e) < 0)
            return -1;
        made = make_locked(dir, name, &fd, e);
        if (made != 0)
            return made < 0 ? -1 : fd;
    }
    return error_set(e, ERROR_SANDBOX_BUSY, 0, "another command keeps removing '%s'", name);
}

void leftovers_sweep(int dir)
{
    static const char *const prefixes[] = { ".tmp-", HOME_GONE };

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        home_sweep(dir, prefixes[i], leftover_remove);
}

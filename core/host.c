#include "core/host.h"

#include <assert.h>
#include <stdio.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/lock.h"
#include "core/root.h"

#define LOCK_NAME_SIZE 64

static const char *const lock_suffixes[] = { [HOST_LOCK_OP] = "op", [HOST_LOCK_RUN] = "run" };

static void format_lock_name(char out[LOCK_NAME_SIZE], enum host_lock which, const char *name)
{
    int length = snprintf(out, LOCK_NAME_SIZE, "%s.%s", name, lock_suffixes[which]);

    assert(length > 0 && length < LOCK_NAME_SIZE); /* names are checked where they come in */
    (void)length;
}

static int64_t system_wall_ms(void *self)
{
    (void)self;
    return clock_wall_ms();
}

static int64_t system_boot_ms(void *self)
{
    (void)self;
    return clock_boot_ms();
}

static const char *system_boot_id(void *self)
{
    (void)self;
    return process_boot_id();
}

static void system_sleep_ms(void *self, int ms)
{
    (void)self;
    clock_sleep_ms(ms);
}

static void system_random_id(void *self, char out[17])
{
    (void)self;
    util_random_id(out);
}

static int system_lock(void *self, enum host_lock which, const char *name, int wait_ms, int *fd,
                       struct error *e)
{
    struct root *root = self;
    char file[LOCK_NAME_SIZE];

    format_lock_name(file, which, name);
    if (root->dir < 0)
        return error_set(e, ERROR_INTERNAL, 0, "there is no state root to lock '%s' in", file);
    /* A root opened for reading may lack the directory; who wants a lock is about to write. */
    if (root->locks < 0)
        root->locks = file_make_dir(root->dir, "locks", 0700, e);
    if (root->locks < 0)
        return -1;
    return lock_take(root->locks, file, LOCK_EXCLUSIVE, wait_ms, fd, e);
}

static void system_unlock(void *self, int fd)
{
    (void)self;
    util_close_fd(&fd);
}

static int system_is_locked(void *self, enum host_lock which, const char *name, struct error *e)
{
    const struct root *root = self;
    char file[LOCK_NAME_SIZE];

    if (root->locks < 0)
        return 0;
    format_lock_name(file, which, name);
    return lock_is_held(root->locks, file, e);
}

static int system_end_process(void *self, const struct process_id *id, int grace_ms, struct error *e)
{
    (void)self;
    return process_end(id, grace_ms, e);
}

const struct host_ops host_system = {
    .wall_ms = system_wall_ms,
    .boot_ms = system_boot_ms,
    .boot_id = system_boot_id,
    .sleep_ms = system_sleep_ms,
    .random_id = system_random_id,
    .lock = system_lock,
    .unlock = system_unlock,
    .is_locked = system_is_locked,
    .end_process = system_end_process,
};

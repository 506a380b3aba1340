/* core/host.h - the seam to the machine that the engine needs: time, chance, locks, ending an owner.
 *
 * host_system is the real one; tests turn the clock by hand. */
#ifndef CORE_HOST_H
#define CORE_HOST_H

#include <stdint.h>

#include "core/error.h"
#include "core/process.h"

enum host_lock { HOST_LOCK_OP, HOST_LOCK_RUN };

struct host_ops {
    int64_t (*wall_ms)(void *self);
    int64_t (*boot_ms)(void *self);
    const char *(*boot_id)(void *self);
    void (*sleep_ms)(void *self, int ms);
    void (*random_id)(void *self, char out[17]); /* 64 random bits in hex */

    /* Takes the sandbox's lock for this process, waiting at most WAIT_MS. 1 with *fd, 0 busy, -1. */
    int (*lock)(void *self, enum host_lock which, const char *name, int wait_ms, int *fd, struct error *e);
    void (*unlock)(void *self, int fd);

    /* Does a live process hold it? 1, 0, -1. Takes nothing. */
    int (*is_locked)(void *self, enum host_lock which, const char *name, struct error *e);

    /* Ends the process that owns an operation, as process_end(). */
    int (*end_process)(void *self, const struct process_id *id, int grace_ms, struct error *e);
};

struct root;

extern const struct host_ops host_system; /* self: struct root *, opened ROOT_WRITE or ROOT_READ */

#endif

/* core/lock.h - flock(2) on files in locks/: liveness that the kernel frees.
 *
 * A lock belongs to the open file description: it lives until the last copy of the descriptor is closed,
 * so a forked child keeps it and an exec drops it (close-on-exec). Lock files are never deleted: a
 * deleted one would let two owners in. Getting a lock proves that its last owner is gone. */
#ifndef CORE_LOCK_H
#define CORE_LOCK_H

#include "core/error.h"

enum lock_mode { LOCK_SHARED, LOCK_EXCLUSIVE };

/* Opens DIR/NAME, making it if missing, and locks it, waiting at most WAIT_MS (polling from 0.1 ms up to
 * 10 ms). 1 with the descriptor in *fd; 0 when somebody else has it; -1 on error. */
int lock_take(int dir, const char *name, enum lock_mode mode, int wait_ms, int *fd, struct error *e);

/* The same on a descriptor that is open already. */
int lock_take_fd(int fd, enum lock_mode mode, int wait_ms, struct error *e);

/* Is it held exclusively by anybody? Takes nothing that lasts; a missing file is free. 1, 0 or -1. */
int lock_is_held(int dir, const char *name, struct error *e);

#endif

/* providers/linux/leftovers.h - directories on their way in (.tmp-TOKEN) and out (.gone-TOKEN) beside the
 * sandboxes, and what remains of them when their owner died.
 *
 * Who works on one holds an exclusive flock(2) on the directory itself; a child that copies or deletes
 * inherits it. So "the lock can be had" means "nobody works on it any more", whatever the token: a sweep
 * needs no journal. Two orders make that free of races. In: the directory is made, then locked, then
 * looked at again, since a sweep can have taken it in between. Out: the directory is locked under its old
 * name, then renamed. */
#ifndef PROVIDERS_LINUX_LEFTOVERS_H
#define PROVIDERS_LINUX_LEFTOVERS_H

#include "core/error.h"

#define LEFTOVER_NAME_SIZE 32

/* Makes DIR/NAME anew (what an earlier try left is removed), locked. Returns the descriptor that holds the
 * lock. */
int leftover_make(int dir, const char *name, struct error *e);

/* Locks the directory FD for its removal; SANDBOX_BUSY when somebody works on it. */
int leftover_lock(int fd, struct error *e);

/* Removes DIR/NAME and all in it, whatever its modes; a link or a file of that name is unlinked itself. By
 * the owner of its lock. A missing one is success. */
int leftover_remove(int dir, const char *name, struct error *e);

/* Removes all leftovers in DIR that nobody works on. What cannot be removed stays for the next one. */
void leftovers_sweep(int dir);

#endif

/* providers/home.h - sandboxes/<name>, the directory of one sandbox: made by a create, set aside by a
 * removal, deleted; and what remains of such when their owner died.
 *
 * Who works on a directory that is on its way out (".gone-TOKEN", and where a provider copies in,
 * ".tmp-TOKEN") holds an exclusive flock(2) on it; a child that copies or deletes inherits that. So "the lock
 * can be had" means "nobody works on it any more", whatever the token: a sweep needs no journal, and no guess
 * from an age. Two orders make that free of races. Out: it is locked under its old name, then renamed. In: it
 * is made, locked, then looked at again, since a sweep can have taken it in between. */
#ifndef PROVIDERS_HOME_H
#define PROVIDERS_HOME_H

#include <stdbool.h>

#include "core/error.h"
#include "core/root.h"

#define HOME_GONE ".gone-"

/* Removes DIR/NAME and all below it; a missing one is success. file_remove_tree(), or the provider's own
 * where not all of it is the caller's. */
typedef int home_remove_fn(int dir, const char *name, struct error *e);

/* Opens the sandbox's directory into *FD, unless that is open already. 1, 0 when it is missing, -1. */
int home_open(const struct root *root, const char *name, int *fd, struct error *e);

/* Makes and opens it, mode 0700; its name is not durable yet. What somebody put there by hand is not ours to
 * fill: SANDBOX_EXISTS, unless this operation RAN_BEFORE. */
int home_make(const struct root *root, const char *name, bool ran_before, int *fd, struct error *e);

/* For a removal: opens it anew into *FD and locks it, so that no sweep takes it from us once it has its new
 * name. 1 (without a descriptor where its mode forbids that); 0 when there is none, or something that is no
 * directory: that is unlinked, and what it may point to is not ours; -1, SANDBOX_BUSY when somebody works on
 * it. */
int home_claim(const struct root *root, const char *name, int *fd, struct error *e);

/* Out of the way, as HOME_GONE TOKEN, durably: what is claimed. One that is missing was faster. */
int home_set_aside(const struct root *root, const char *name, const char *token, struct error *e);

/* Deletes what was set aside with TOKEN, and what interrupted removals left. */
int home_delete(const struct root *root, const char *token, home_remove_fn *remove, struct error *e);

/* Removes everything in DIR whose name begins with PREFIX and that nobody works on. What cannot be removed
 * stays for the next one. */
void home_sweep(int dir, const char *prefix, home_remove_fn *remove);

/* The lock of a directory that is on its way; SANDBOX_BUSY when somebody else has it. */
int home_lock(int fd, struct error *e);

/* Is FD what DIR/NAME is now? */
bool home_is_named(int dir, const char *name, int fd);

#endif

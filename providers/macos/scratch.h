/* providers/macos/scratch.h - directories on their way in (".tmp-", ".build-") and out (".gone-"), and what
 * remains of them when their owner died.
 *
 * Who works on one holds an exclusive flock(2) on the directory itself. So "the lock can be had" means
 * "nobody works on it any more": a sweep needs no journal, and no guess from an age. What is made is looked
 * at again once it is locked, since a sweep can have taken it in between; what goes is locked under its old
 * name, then renamed. */
#ifndef PROVIDERS_MACOS_SCRATCH_H
#define PROVIDERS_MACOS_SCRATCH_H

#include "core/error.h"

#define SCRATCH_NAME_SIZE 24 /* ".build-", 16 digits, NUL */

/* Makes a new directory in DIR, mode 0700, locked; its name, which begins with PREFIX, is in OUT. Gives the
 * descriptor that holds the lock. */
int scratch_make(int dir, const char *prefix, char out[SCRATCH_NAME_SIZE], struct error *e);

/* Removes everything in DIR whose name begins with PREFIX and that nobody works on. What cannot be removed
 * stays for the next one. */
void scratch_sweep(int dir, const char *prefix);

#endif

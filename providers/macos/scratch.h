/* providers/macos/scratch.h - directories on their way in (".tmp-", ".build-"), locked as home.h says, so
 * that home_sweep() removes what remains of them when their owner died. */
#ifndef PROVIDERS_MACOS_SCRATCH_H
#define PROVIDERS_MACOS_SCRATCH_H

#include "core/error.h"

#define SCRATCH_NAME_SIZE 24 /* ".build-", 16 digits, NUL */

/* Makes a new directory in DIR, mode 0700, locked; its name, which begins with PREFIX, is in OUT. Gives the
 * descriptor that holds the lock. */
int scratch_make(int dir, const char *prefix, char out[SCRATCH_NAME_SIZE], struct error *e);

#endif

/* providers/linux/leftovers.h - what is deleted of a sandbox here, where a guest may have given files to
 * users of its own; and the directories that a clone is copied in (".tmp-TOKEN"), locked as home.h says. */
#ifndef PROVIDERS_LINUX_LEFTOVERS_H
#define PROVIDERS_LINUX_LEFTOVERS_H

#include "core/error.h"

#define LEFTOVER_NAME_SIZE 32

/* Makes DIR/NAME anew (what an earlier try left is removed), locked. Returns the descriptor that holds the
 * lock. */
int leftover_make(int dir, const char *name, struct error *e);

/* Removes DIR/NAME and all in it, whatever its modes; a link or a file of that name is unlinked itself. By
 * the owner of its lock. A missing one is success. */
int leftover_remove(int dir, const char *name, struct error *e);

/* What owners that died have left in DIR, beside the sandboxes: home_sweep() of all that is on its way. */
void leftovers_sweep(int dir);

#endif

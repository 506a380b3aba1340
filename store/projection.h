/* store/projection.h - sandboxes/<name>/sandbox.json: name, provider and creation time.
 *
 * A projection of the journal, never read as the truth: deleted, truncated or edited, it is put back by
 * the next command that names the sandbox. */
#ifndef STORE_PROJECTION_H
#define STORE_PROJECTION_H

#include "core/error.h"
#include "core/journal.h"
#include "core/root.h"

/* Makes the file say what RECORD says, if the sandbox's directory is there. Compares first: writes only when
 * it differs. */
int projection_restore(const struct root *root, const struct journal_record *record, struct error *e);

/* Does any sandbox have one, whatever it says? 1, 0, -1. For who finds no journal: what lies in sandboxes/
 * and has none is somebody else's. */
int projection_find_any(const struct root *root, struct error *e);

#endif

/* store/entries.h - walks over the entries, in batches, with no transaction open in between.
 *
 * One name's entries are found through the table history, so the cost is that of what is given, not of
 * what the journal holds. */
#ifndef STORE_ENTRIES_H
#define STORE_ENTRIES_H

#include "core/error.h"
#include "store/database.h"
#include "store/journal.h"

/* As journal_each_entry(). */
int entries_each(struct database *db, const struct journal_filter *filter, journal_entry_fn *fn, void *self,
                 struct error *e);

#endif

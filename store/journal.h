/* store/journal.h - what was decided and what was done, in order: the one user of LMDB and msgpack-c.
 *
 * Append-only and hash-chained. When a commit returns, its entries are on disk and may be acted on. One
 * LMDB environment in journal/ under the state root, MDB_NOLOCK, each transaction under our own flock:
 * shared to read, exclusive to write, never waiting more than 2 s (STORE_BUSY). One open journal per
 * process, never used across fork(): close before, or open after.
 *
 * Damage: LMDB has no checksums, so a damaged page can send it anywhere. Every stored record carries a
 * check of its own, and while a store call runs SIGSEGV, SIGBUS, SIGFPE and SIGABRT end the process with a
 * prepared STORE_CORRUPT reply (journal_set_crash_reply) instead of a core. Format: specs/journal.md.
 *
 * Names are those of sandboxes. A provider's own record (installs) has the name "@PROVIDER", which no
 * sandbox can have: same calls, another table, in no list. */
#ifndef STORE_JOURNAL_H
#define STORE_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "core/journal.h"
#include "core/root.h"

struct journal; /* opaque */

enum journal_mode { JOURNAL_READ, JOURNAL_WRITE };

/* Opens ROOT's journal. JOURNAL_READ of one that does not exist: 0 with *out NULL; JOURNAL_WRITE makes it.
 * 1 when open. One that is missing though ROOT has sandboxes is lost: STORE_CORRUPT, and nothing is made.
 * Fails with STORE_BUSY, STORE_CORRUPT, STORE_FULL, PERM_DENIED. */
int journal_open(const struct root *root, enum journal_mode mode, struct journal **out, struct error *e);
void journal_close(struct journal *j); /* NULL is fine */

/* The seam's two functions for the engine; self: struct journal *. A journal opened for reading refuses
 * commits (INTERNAL). find() on a NULL self finds nothing. */
extern const struct journal_ops journal_lmdb_ops;

typedef int journal_record_fn(void *self, const struct journal_record *r, struct error *e);

/* Every sandbox's record, by name; a record that cannot be read is given as damaged. The transaction has
 * ended before FN is first called. FN's -1 ends the walk and is returned. NULL journal: nothing. */
int journal_each_record(struct journal *j, journal_record_fn *fn, void *self, struct error *e);

struct journal_filter {
    const char *name;   /* NULL: all */
    uint64_t after_seq; /* only entries behind this one */
    int64_t since_ms;   /* wall time; 0: all */
    uint64_t limit;     /* the newest so many of those; 0: all */
};

typedef int journal_entry_fn(void *self, const struct journal_entry *entry, struct error *e);

/* The entries that pass FILTER, oldest first, in batches with no transaction open while FN runs. An entry
 * that cannot be read ends the walk with STORE_CORRUPT naming its seq. */
int journal_each_entry(struct journal *j, const struct journal_filter *filter, journal_entry_fn *fn,
                       void *self, struct error *e);

struct journal_verdict {
    bool verified;
    uint64_t head_seq;
    char head_hash[65]; /* hex SHA-256 of the last entry's stored bytes */
    uint64_t broken_at; /* first seq whose chain, encoding or fold is wrong; 0 when none */
    char message[256];
};

/* Recomputes the chain, and folds all entries anew and compares with the stored records. Runs in a child
 * process with its own environment, so that a damaged file cannot take the caller down: J must be closed,
 * hence the root. */
int journal_verify(const struct root *root, struct journal_verdict *out, struct error *e);

/* What to write to stdout, and the exit status, when a damaged file makes LMDB crash: text is kept by
 * reference and must stay; NULL disarms. */
void journal_set_crash_reply(const char *text, int exit_status);

#endif

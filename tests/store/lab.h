/* tests/store/lab.h - what tests of the journal share: a state root in a scratch directory, and commands that
 * write what the engine would write. */
#ifndef TESTS_STORE_LAB_H
#define TESTS_STORE_LAB_H

#include <stdbool.h>
#include <stdint.h>

#include "core/journal.h"
#include "core/root.h"
#include "store/journal.h"
#include "tests/core/scratch.h"

/* The scratch directory as a state root. Closed with the scratch. */
void lab_root(const struct scratch *s, struct root *out);

/* Opens for writing; a failure ends the test (in a child, the process). */
struct journal *lab_open(const struct scratch *s);

/* One transaction without a guard: the result, with its error printed when it is -1. */
int lab_commit(struct journal *j, const char *name, const struct journal_entry *entries, size_t count);

/* The entries of a command, begun and ended, as "create", "start", "stop", "remove" write them: two
 * transactions, six entries. */
int lab_run(struct journal *j, const char *name, const char *command, const char *from, const char *working,
            const char *to);
int lab_create(struct journal *j, const char *name); /* to stopped */
int lab_start(struct journal *j, const char *name);  /* to running */
int lab_stop(struct journal *j, const char *name);
int lab_remove(struct journal *j, const char *name);
int lab_exec(struct journal *j, const char *name); /* one entry */

/* N entries of "exec" in transactions of 500. */
int lab_exec_many(struct journal *j, const char *name, uint64_t n);

/* The state, "missing", or "error CODE" when it cannot be found out. */
const char *lab_state(struct journal *j, const char *name);

/* A random command for one of NAMES ("a", "b", ...), in the right state or not; -1 when a commit failed. */
int lab_random_command(struct journal *j, unsigned *seed, int names);

/* Is the whole journal sound, by its own words? Prints why not. */
bool lab_verify(const struct scratch *s, struct journal_verdict *out);

/* The LMDB file, for those that damage it. */
#define LAB_DATA "journal/data.mdb"

#endif

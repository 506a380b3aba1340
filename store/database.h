/* store/database.h - an LMDB environment whose transactions end, whatever other processes do.
 *
 * Hides LMDB (no other file includes lmdb.h) and what it needs around it: our own bounded locks instead of
 * its mutex (MDB_NOLOCK), creation that is complete or absent, a map that grows, room kept on the disk, and
 * a new start after a failed commit. Files: data.mdb (LMDB's), lock and turn (ours; never deleted).
 *
 * Locks: a writer takes `turn`, then `lock` exclusively, and lets `turn` go; a reader takes `turn`, then
 * `lock` shared, and lets `turn` go. So neither starves: who waits for `lock` holds `turn`. Nobody waits
 * more than 2 s (STORE_BUSY). The kernel frees both when a process ends. `lock` also holds the number of
 * the last transaction that was acknowledged: a data.mdb that is older is not ours.
 *
 * One database per process and directory, never used across fork(2): a child of a writer does not even have
 * its memory (a sandbox's first process is such a child, and lives for days). */
#ifndef STORE_DATABASE_H
#define STORE_DATABASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum database_table {
    TABLE_EVENTS,
    TABLE_SANDBOXES,
    TABLE_PROVIDERS,
    TABLE_HISTORY,
    TABLE_META,
    TABLE_COUNT
};

struct bytes {
    const void *data;
    size_t size;
};

struct database;     /* opaque */
struct database_txn; /* opaque: one transaction, lent to a database_txn_fn */

/* The work of one transaction. It may run again from the start when the map had to grow, so it keeps no
 * state from a run before. */
typedef int database_txn_fn(void *self, struct database_txn *txn, struct error *e);

/* Makes the directory NAME below PARENT with all tables and what INIT puts there, durably and at once: a
 * temporary directory, renamed. 0 also when another process was faster. PARENT_PATH names PARENT. */
int database_create(int parent, const char *parent_path, const char *name, database_txn_fn *init, void *self,
                    struct error *e);

struct database_options {
    bool read_only;   /* works on a read-only file system, too */
    size_t map_bytes; /* size of the map at first; 0: the usual 4 GiB, or what RLIMIT_AS has room for */
};

/* Opens what database_create() made. 1; 0 with *out untouched when there is no directory of that name. */
int database_open(int parent, const char *parent_path, const char *name,
                  const struct database_options *options, struct database **out, struct error *e);
void database_close(struct database *db); /* NULL is fine */

/* Runs FN in a transaction and returns what it returned; -1 also when there was none. A writing one is
 * committed when FN returns 1, and durable then; otherwise it leaves no trace. */
int database_read(struct database *db, database_txn_fn *fn, void *self, struct error *e);
int database_write(struct database *db, database_txn_fn *fn, void *self, struct error *e);

/* Inside a transaction. Values are lent until the next change in it, or its end. */

/* STORE_FULL when the disk is full and all that is left of the room kept on it is the half that is for ending
 * things. To be asked before the first change. */
int database_check_room(struct database_txn *txn, struct error *e);
uint64_t database_txn_base(const struct database_txn *txn); /* number of the last commit it sees */
int database_get(struct database_txn *txn, enum database_table table, struct bytes key, struct bytes *value,
                 struct error *e); /* 1, 0 when absent, -1 */
int database_put(struct database_txn *txn, enum database_table table, struct bytes key, struct bytes value,
                 struct error *e);
/* Adds a row behind all others; STORE_CORRUPT when KEY is not the largest. */
int database_append(struct database_txn *txn, enum database_table table, struct bytes key, struct bytes value,
                    struct error *e);
int database_delete(struct database_txn *txn, enum database_table table, struct bytes key, struct error *e);

/* 1 to go on, 0 to stop, -1. */
typedef int database_row_fn(void *self, struct bytes key, struct bytes value, struct error *e);

/* The rows with keys >= FROM, rising (NULL data: all); stops when FN says so. 0 or -1. Keys that do not rise
 * are STORE_CORRUPT, so a walk ends even in a damaged tree. */
int database_walk(struct database_txn *txn, enum database_table table, struct bytes from, database_row_fn *fn,
                  void *self, struct error *e);

/* The same with keys < FROM (NULL data: all), falling. */
int database_walk_back(struct database_txn *txn, enum database_table table, struct bytes from,
                       database_row_fn *fn, void *self, struct error *e);

#endif

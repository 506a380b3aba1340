/* store/tables.h - what the journal's rows are, and what must agree between them.
 *
 *   events     seq, 8 bytes big-endian     the entry
 *   sandboxes  name                        the fold of that name's entries; no row when "missing"
 *   providers  '@' and the provider's name the same, for provider installs
 *   history    name, NUL, seq              the record's seq after that entry, 8 bytes; 0 when it was missing
 *   meta       "head"                      struct record_head
 *
 * LMDB notices no damage, so each answer is checked against a second row, in other pages: a record (and that
 * there is none) against the name's last row in history, the head against LMDB's own transaction number and
 * against the last entry's hash. One damaged page cannot make both agree on something untrue. */
#ifndef STORE_TABLES_H
#define STORE_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "core/journal.h"
#include "core/root.h"
#include "store/database.h"
#include "store/record.h"

#define TABLES_DIRECTORY        "journal" /* below the state root */
#define TABLES_SEQ_SIZE         RECORD_NUMBER_SIZE
#define TABLES_HISTORY_KEY_SIZE (JOURNAL_NAME_SIZE + TABLES_SEQ_SIZE)

/* Opens the database. 1; 0 with *out untouched when there is none, and no sandbox either; a state root that
 * has sandboxes and no journal is STORE_CORRUPT. */
int tables_open(const struct root *root, bool read_only, struct database **out, struct error *e);

/* OUT is the key of that entry in history; the first of the name when SEQ is 0. */
struct bytes tables_history_key(uint8_t out[TABLES_HISTORY_KEY_SIZE], const char *name, uint64_t seq);

/* The seq in a key of history if it is one of NAME's, else 0. */
uint64_t tables_history_seq(struct bytes key, const char *name);

enum database_table tables_of_name(const char *name); /* sandboxes or providers */

/* STORE_CORRUPT when the head is not the one of the transaction that LMDB says is the last. */
int tables_get_head(struct database_txn *txn, struct record_head *out, struct error *e);
int tables_put_head(struct database_txn *txn, struct record_head *head, struct error *e);

/* Does the head belong to the last entry? */
int tables_check_last(struct database_txn *txn, const struct record_head *head, struct error *e);

/* The stored bytes of entry SEQ; its absence is damage. */
int tables_get_stored(struct database_txn *txn, uint64_t seq, struct bytes *out, struct error *e);

/* Unpacks it, strictly, and compares the seq. */
int tables_unpack_entry(struct bytes stored, uint64_t seq, struct record_entry *out, struct error *e);

struct tables_found {
    struct journal_record record; /* what the entries say; init'ed when there is none */
    bool damaged;                 /* the stored record was not readable: RECORD is folded anew */
};

/* 1, 0 when there is none, -1: the rows do not agree. */
int tables_find(struct database_txn *txn, const struct record_head *head, const char *name,
                struct tables_found *out, struct error *e);

/* RECORD as others shall see one that is damaged: broken, whatever its entries say. */
void tables_show_damaged(struct journal_record *record);

/* Adds one entry: events and history. RECORD_SEQ as in the table above. */
int tables_append(struct database_txn *txn, const char *name, uint64_t seq, struct bytes stored,
                  uint64_t record_seq, struct error *e);

int tables_put_record(struct database_txn *txn, const struct journal_record *record, struct error *e);
int tables_delete_record(struct database_txn *txn, const char *name, struct error *e);

#endif

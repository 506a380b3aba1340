#include "store/tables.h"

#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "core/util.h"
#include "store/chain.h"
#include "store/projection.h"

static const struct bytes head_key = { "head", 4 };

/* --- opening ------------------------------------------------------------------------------------------- */

static int fail_lost(const struct root *root, struct error *e)
{
    error_set(e, ERROR_STORE_CORRUPT, 0,
              "the state root '%s' has sandboxes, but its " TABLES_DIRECTORY "/ is missing", root->path);
    e->suggestion = "Put " TABLES_DIRECTORY "/ back from a backup; or end the sandboxes' processes, move the "
                    "state root away and begin anew.";
    return -1;
}

int tables_open(const struct root *root, bool read_only, struct database **out, struct error *e)
{
    const struct database_options options = { .read_only = read_only };
    int found = database_open(root->dir, root->path, TABLES_DIRECTORY, &options, out, e);

    if (found != 0)
        return found;
    int orphans = projection_find_any(root, e);

    if (orphans <= 0)
        return orphans;
    /* Or a faster process has made both since: a sandbox is never made before the journal. */
    found = database_open(root->dir, root->path, TABLES_DIRECTORY, &options, out, e);
    return found == 0 ? fail_lost(root, e) : found;
}

/* --- keys ---------------------------------------------------------------------------------------------- */

struct bytes tables_history_key(uint8_t out[TABLES_HISTORY_KEY_SIZE], const char *name, uint64_t seq)
{
    size_t size = strnlen(name, JOURNAL_NAME_SIZE - 1) + 1; /* a longer one is nobody's: nothing is found */

    memcpy(out, name, size - 1);
    out[size - 1] = '\0';
    record_print_number(out + size, seq);
    return (struct bytes){ out, size + TABLES_SEQ_SIZE };
}

uint64_t tables_history_seq(struct bytes key, const char *name)
{
    size_t size = strlen(name) + 1;

    if (key.size != size + TABLES_SEQ_SIZE || memcmp(key.data, name, size) != 0)
        return 0;
    return record_parse_number((const char *)key.data + size);
}

enum database_table tables_of_name(const char *name)
{
    return name[0] == '@' ? TABLE_PROVIDERS : TABLE_SANDBOXES;
}

/* --- the head ------------------------------------------------------------------------------------------ */

int tables_get_head(struct database_txn *txn, struct record_head *out, struct error *e)
{
    struct bytes stored;
    int found = database_get(txn, TABLE_META, head_key, &stored, e);

    if (found < 0)
        return -1;
    if (found == 0 || !record_unpack_head(stored.data, stored.size, out))
        return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal is damaged: its head cannot be read");
    if (out->transaction == database_txn_base(txn)) /* a page of an older state has an older number */
        return 0;
    return error_set(e, ERROR_STORE_CORRUPT, 0,
                     "the journal is damaged: its head is of transaction %llu, not of %llu",
                     (unsigned long long)out->transaction, (unsigned long long)database_txn_base(txn));
}

int tables_put_head(struct database_txn *txn, struct record_head *head, struct error *e)
{
    struct text packed = { 0 };

    head->transaction = database_txn_base(txn) + 1;
    record_pack_head(head, &packed);
    int r = database_put(txn, TABLE_META, head_key, (struct bytes){ packed.bytes, packed.size }, e);

    text_done(&packed);
    return r;
}

/* --- entries ------------------------------------------------------------------------------------------- */

int tables_get_stored(struct database_txn *txn, uint64_t seq, struct bytes *out, struct error *e)
{
    uint8_t key[TABLES_SEQ_SIZE];

    record_print_number(key, seq);
    int found = database_get(txn, TABLE_EVENTS, (struct bytes){ key, sizeof(key) }, out, e);

    if (found == 0)
        return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal is damaged: entry %llu is missing",
                         (unsigned long long)seq);
    return found < 0 ? -1 : 0;
}

int tables_unpack_entry(struct bytes stored, uint64_t seq, struct record_entry *out, struct error *e)
{
    if (record_unpack_entry(stored.data, stored.size, out) && out->entry.seq == seq)
        return 0;
    return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal is damaged: entry %llu cannot be read",
                     (unsigned long long)seq);
}

int tables_check_last(struct database_txn *txn, const struct record_head *head, struct error *e)
{
    uint8_t hash[CHAIN_HASH_SIZE];
    struct bytes stored;

    if (head->seq == 0)
        return 0;
    if (tables_get_stored(txn, head->seq, &stored, e) < 0)
        return -1;
    chain_hash(hash, stored.data, stored.size);
    if (memcmp(hash, head->hash, sizeof(hash)) == 0)
        return 0;
    return error_set(e, ERROR_STORE_CORRUPT, 0,
                     "the journal is damaged: entry %llu is not the one that was stored",
                     (unsigned long long)head->seq);
}

int tables_append(struct database_txn *txn, const char *name, uint64_t seq, struct bytes stored,
                  uint64_t record_seq, struct error *e)
{
    uint8_t key[TABLES_SEQ_SIZE], value[TABLES_SEQ_SIZE], history[TABLES_HISTORY_KEY_SIZE];

    record_print_number(key, seq);
    record_print_number(value, record_seq);
    if (database_append(txn, TABLE_EVENTS, (struct bytes){ key, sizeof(key) }, stored, e) < 0)
        return -1;
    return database_put(txn, TABLE_HISTORY, tables_history_key(history, name, seq),
                        (struct bytes){ value, sizeof(value) }, e);
}

/* --- records ------------------------------------------------------------------------------------------- */

struct last {
    const char *name;
    uint64_t record_seq; /* 0: there shall be no record */
    uint64_t seq;
};

static int read_last(void *self, struct bytes key, struct bytes value, struct error *e)
{
    struct last *last = self;

    last->seq = tables_history_seq(key, last->name);
    if (last->seq == 0)
        return 0;
    if (value.size != TABLES_SEQ_SIZE)
        return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal is damaged: the history of '%s'",
                         last->name);
    last->record_seq = record_parse_number(value.data);
    return 0;
}

static int find_last(struct database_txn *txn, struct last *last, struct error *e)
{
    uint8_t from[TABLES_HISTORY_KEY_SIZE];

    return database_walk_back(txn, TABLE_HISTORY, tables_history_key(from, last->name, UINT64_MAX), read_last,
                              last, e);
}

struct folding {
    struct database_txn *txn;
    struct journal_record *record;
    struct record_entry entry;
};

static int fold_row(void *self, struct bytes key, struct bytes value, struct error *e)
{
    struct folding *f = self;
    uint64_t seq = tables_history_seq(key, f->record->name);
    struct error unreadable = { 0 };
    struct bytes stored;

    (void)value;
    if (seq == 0)
        return 0;
    if (tables_get_stored(f->txn, seq, &stored, &unreadable) == 0 &&
        tables_unpack_entry(stored, seq, &f->entry, &unreadable) == 0)
        journal_fold(f->record, &f->entry.entry);
    else if (unreadable.code != ERROR_STORE_CORRUPT) {
        *e = unreadable;
        return -1;
    }
    return 1;
}

/* Folds all entries of NAME that can be read, from the first. */
static int fold_all(struct database_txn *txn, const char *name, struct journal_record *out, struct error *e)
{
    uint8_t from[TABLES_HISTORY_KEY_SIZE];
    AUTO_FREE struct folding *f = mem_alloc(sizeof(*f));

    f->txn = txn;
    f->record = out;
    journal_record_init(out, name);
    return database_walk(txn, TABLE_HISTORY, tables_history_key(from, name, 0), fold_row, f, e);
}

static int disagree(const char *name, struct error *e)
{
    return error_set(e, ERROR_STORE_CORRUPT, 0,
                     "the journal is damaged: the record and the history of '%s' do not agree", name);
}

int tables_find(struct database_txn *txn, const struct record_head *head, const char *name,
                struct tables_found *out, struct error *e)
{
    struct last last = { .name = name };
    struct journal_record *r = &out->record;
    struct bytes stored;
    int found = database_get(txn, tables_of_name(name), (struct bytes){ name, strlen(name) }, &stored, e);

    if (found < 0 || find_last(txn, &last, e) < 0)
        return -1;
    journal_record_init(r, name);
    out->damaged = false;
    if ((found == 1) != (last.record_seq != 0) || last.seq > head->seq)
        return disagree(name, e);
    if (found == 0)
        return 0;
    if (record_unpack_fold(stored.data, stored.size, r) && strcmp(r->name, name) == 0)
        return r->seq == last.record_seq ? 1 : disagree(name, e);
    if (fold_all(txn, name, r, e) < 0)
        return -1;
    r->seq = last.record_seq;
    if (!journal_record_exists(r)) /* not even its creation can be read, but it is there */
        tables_show_damaged(r);
    out->damaged = true;
    return 1;
}

void tables_show_damaged(struct journal_record *record)
{
    record->damaged = true;
    record->activity[0] = '\0';
    snprintf(record->state, sizeof(record->state), "broken");
    snprintf(record->reason, sizeof(record->reason), "its stored record is damaged");
}

int tables_delete_record(struct database_txn *txn, const char *name, struct error *e)
{
    return database_delete(txn, tables_of_name(name), (struct bytes){ name, strlen(name) }, e);
}

int tables_put_record(struct database_txn *txn, const struct journal_record *record, struct error *e)
{
    struct text packed = { 0 };

    record_pack_fold(record, &packed);
    int r =
        database_put(txn, tables_of_name(record->name), (struct bytes){ record->name, strlen(record->name) },
                     (struct bytes){ packed.bytes, packed.size }, e);

    text_done(&packed);
    return r;
}

#include "store/journal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/util.h"
#include "store/chain.h"
#include "store/crash.h"
#include "store/database.h"
#include "store/entries.h"
#include "store/record.h"
#include "store/tables.h"

struct journal {
    struct database *db;
    enum journal_mode mode;
    struct process_id self; /* the actor of all that is written */
};

/* --- opening ------------------------------------------------------------------------------------------- */

static int put_first_head(void *self, struct database_txn *txn, struct error *e)
{
    struct record_head head = { .version = RECORD_VERSION, .created_ms = clock_wall_ms() };

    (void)self;
    return tables_put_head(txn, &head, e) < 0 ? -1 : 1;
}

static int open_database(const struct root *root, enum journal_mode mode, struct database **out,
                         struct error *e)
{
    bool read_only = mode == JOURNAL_READ;
    int found = tables_open(root, read_only, out, e);

    if (found != 0 || read_only)
        return found;
    if (database_create(root->dir, root->path, TABLES_DIRECTORY, put_first_head, NULL, e) < 0)
        return -1;
    found = tables_open(root, read_only, out, e);
    return found != 0 ? found : error_set(e, ERROR_INTERNAL, 0, "the journal vanished while it was opened");
}

int journal_open(const struct root *root, enum journal_mode mode, struct journal **out, struct error *e)
{
    struct database *db = NULL;

    *out = NULL;
    if (root->dir < 0) {
        assert(mode == JOURNAL_READ);
        return 0;
    }
    int found = open_database(root, mode, &db, e);

    if (found <= 0)
        return found;
    *out = mem_alloc(sizeof(**out));
    (*out)->db = db;
    (*out)->mode = mode;
    if (mode == JOURNAL_WRITE)
        process_read_self(&(*out)->self);
    return 1;
}

void journal_close(struct journal *j)
{
    if (j == NULL)
        return;
    database_close(j->db);
    free(j);
}

void journal_set_crash_reply(const char *text, int exit_status)
{
    crash_set_reply(text, exit_status);
}

/* --- finding ------------------------------------------------------------------------------------------- */

struct find {
    const char *name;
    struct tables_found found;
};

static int find_in(void *self, struct database_txn *txn, struct error *e)
{
    struct find *find = self;
    struct record_head head;

    if (tables_get_head(txn, &head, e) < 0)
        return -1;
    return tables_find(txn, &head, find->name, &find->found, e);
}

static int journal_find(void *self, const char *name, struct journal_record *out, struct error *e)
{
    struct journal *j = self;
    struct find find = { .name = name };

    if (j == NULL)
        return 0;
    int r = database_read(j->db, find_in, &find, e);

    if (r != 1)
        return r;
    if (find.found.damaged)
        tables_show_damaged(&find.found.record);
    *out = find.found.record;
    return 1;
}

/* --- committing ---------------------------------------------------------------------------------------- */

struct commit {
    const struct journal *journal;
    const char *name;
    const struct journal_guard *guard;
    const struct journal_entry *entries;
    size_t count;
    struct record_head head;      /* what the last run made of it */
    struct tables_found found;    /* the truth, before and then after */
    struct journal_record *after; /* what the caller sees of it; NULL */
    struct record_entry entry;
    struct text packed;
};

static bool is_same(const char *wanted, const char *found)
{
    return wanted == NULL || strcmp(wanted, found) == 0;
}

static bool guard_holds(const struct journal_guard *guard, bool found, const struct journal_record *r)
{
    if (guard->absent)
        return !found;
    return is_same(guard->id, r->id) && is_same(guard->state, r->state) &&
           is_same(guard->activity, r->activity) && is_same(guard->token, r->token) &&
           (guard->seq == 0 || guard->seq == r->seq);
}

/* What others see of RECORD. */
static void show(const struct tables_found *found, struct journal_record *out)
{
    if (out == NULL)
        return;
    *out = found->record;
    if (found->damaged)
        tables_show_damaged(out);
}

static void fill_entry(struct commit *c, const struct journal_entry *from)
{
    struct journal_entry *entry = &c->entry.entry;

    assert(strcmp(from->name, c->name) == 0);
    c->entry.version = RECORD_VERSION;
    memcpy(c->entry.prev, c->head.hash, CHAIN_HASH_SIZE);
    *entry = *from;
    entry->seq = c->head.seq + 1;
    entry->time_ms = clock_wall_ms();
    entry->boot = c->journal->self.boot;
    entry->mono_ms = clock_boot_ms();
    entry->actor_pid = c->journal->self.pid;
    entry->actor_uid = (int64_t)getuid();
    entry->actor_start = (int64_t)c->journal->self.start;
    entry->actor_version = AD_VERSION;
    if (entry->kind != JOURNAL_EXEC)
        entry->status = -1; /* the 0 of an entry that has none */
}

static int append_entry(struct commit *c, struct database_txn *txn, const struct journal_entry *from,
                        struct error *e)
{
    fill_entry(c, from);
    if (record_pack_entry(&c->entry, &c->packed, e) < 0)
        return -1;
    c->head.seq = c->entry.entry.seq;
    chain_hash(c->head.hash, c->packed.bytes, c->packed.size);
    journal_fold(&c->found.record, &c->entry.entry);
    return tables_append(txn, c->name, c->head.seq, (struct bytes){ c->packed.bytes, c->packed.size },
                         journal_record_exists(&c->found.record) ? c->found.record.seq : 0, e);
}

static bool has_move(const struct commit *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->entries[i].kind == JOURNAL_MOVE)
            return true;
    return false;
}

/* A damaged record stays as it is until a transition says anew what the state is: it must not mend itself by
 * a refusal. */
static int store_record(struct commit *c, struct database_txn *txn, bool existed, uint64_t seq_before,
                        struct error *e)
{
    const struct journal_record *r = &c->found.record;
    bool counts = tables_of_name(c->name) == TABLE_SANDBOXES;

    if (counts) {
        c->head.sandbox_count += (uint64_t)journal_record_exists(r) - (uint64_t)existed;
        c->head.sandbox_seqs += (journal_record_exists(r) ? r->seq : 0) - (existed ? seq_before : 0);
    }
    if (!journal_record_exists(r))
        return existed ? tables_delete_record(txn, c->name, e) : 0;
    if (c->found.damaged && !has_move(c))
        return 0;
    c->found.damaged = false;
    return existed && r->seq == seq_before ? 0 : tables_put_record(txn, r, e);
}

static int check_version(const struct record_head *head, struct error *e)
{
    if (head->version <= RECORD_VERSION)
        return 0;
    error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0,
              "the journal was written by a newer agent-desktop (format %llu, this one writes %d): it can be "
              "read, but not changed",
              (unsigned long long)head->version, RECORD_VERSION);
    e->suggestion = "Use the newer agent-desktop, or another AGENT_DESKTOP_HOME.";
    return -1;
}

static int commit_in(void *self, struct database_txn *txn, struct error *e)
{
    struct commit *c = self;

    if (tables_get_head(txn, &c->head, e) < 0 || check_version(&c->head, e) < 0 ||
        tables_check_last(txn, &c->head, e) < 0)
        return -1;
    int existed = tables_find(txn, &c->head, c->name, &c->found, e);

    if (existed < 0)
        return -1;
    struct journal_record seen;

    show(&c->found, &seen);
    if (!guard_holds(c->guard, existed == 1, &seen)) {
        show(&c->found, c->after);
        return 0;
    }
    if (!c->guard->ends && database_check_room(txn, e) < 0)
        return -1;
    uint64_t seq_before = c->found.record.seq;

    for (size_t i = 0; i < c->count; i++)
        if (append_entry(c, txn, &c->entries[i], e) < 0)
            return -1;
    if (store_record(c, txn, existed == 1, seq_before, e) < 0 || tables_put_head(txn, &c->head, e) < 0)
        return -1;
    return 1;
}

/* Is the last entry of the commit C there? By its hash: another process may have used its number since. */
static int find_stored(void *self, struct database_txn *txn, struct error *e)
{
    const struct commit *c = self;
    struct record_head head;
    uint8_t hash[CHAIN_HASH_SIZE];
    struct bytes stored;

    if (tables_get_head(txn, &head, e) < 0)
        return -1;
    if (head.seq < c->head.seq)
        return 0;
    if (tables_get_stored(txn, c->head.seq, &stored, e) < 0)
        return -1;
    chain_hash(hash, stored.data, stored.size);
    return memcmp(hash, c->head.hash, sizeof(hash)) == 0;
}

/* After a commit that failed: is it there all the same? Whoever asks next sees the same. */
static void look_what_is_there(struct commit *c, struct error *e)
{
    struct error ignored = { 0 };

    if (e->delivery != DELIVERY_UNKNOWN)
        return;
    int stored = database_read(c->journal->db, find_stored, c, &ignored);

    if (stored < 0)
        return;
    e->delivery = stored ? DELIVERY_DELIVERED_UNVERIFIED : DELIVERY_NOT_DELIVERED;
    e->retry = stored ? RETRY_UNSAFE : RETRY_SAFE;
}

static int journal_commit(void *self, const char *name, const struct journal_guard *guard,
                          const struct journal_entry *entries, size_t count, struct journal_record *after,
                          struct error *e)
{
    struct journal *j = self;

    assert(count > 0);
    if (j->mode != JOURNAL_WRITE)
        return error_set(e, ERROR_INTERNAL, 0, "the journal is open for reading only");
    AUTO_FREE struct commit *c = mem_alloc(sizeof(*c));

    c->journal = j;
    c->name = name;
    c->guard = guard;
    c->entries = entries;
    c->count = count;
    c->after = after;
    int r = database_write(j->db, commit_in, c, e);

    if (r == 1)
        show(&c->found, after);
    if (r < 0)
        look_what_is_there(c, e);
    text_done(&c->packed);
    return r;
}

const struct journal_ops journal_lmdb_ops = { .find = journal_find, .commit = journal_commit };

/* --- all records --------------------------------------------------------------------------------------- */

struct row { /* where its value stands in the copies */
    size_t at;
    size_t size;
    struct journal_record *damaged; /* or what is shown instead */
};

struct records {
    struct database_txn *txn;
    struct record_head head;
    struct text copies;
    struct row *rows;
    size_t count, room;
    uint64_t seqs;
    struct journal_record scratch;
};

static struct row *add_row(struct records *records)
{
    if (records->count == records->room) {
        records->room = records->room == 0 ? 64 : records->room * 2;
        records->rows = mem_grow(records->rows, records->room, sizeof(*records->rows));
    }
    struct row *row = &records->rows[records->count++];

    *row = (struct row){ .at = records->copies.size };
    return row;
}

static int add_damaged(struct records *records, const struct journal_record *record)
{
    struct row *row = add_row(records);

    row->damaged = mem_alloc(sizeof(*row->damaged));
    *row->damaged = *record;
    tables_show_damaged(row->damaged);
    records->seqs += record->seq;
    return 1;
}

/* It is shown as what its entries say. */
static int add_unreadable(struct records *records, const char *name, struct error *e)
{
    struct tables_found found;

    if (tables_find(records->txn, &records->head, name, &found, e) < 0)
        return -1;
    return add_damaged(records, &found.record);
}

static int add_record(void *self, struct bytes key, struct bytes value, struct error *e)
{
    struct records *records = self;
    struct journal_record *r = &records->scratch;
    char name[JOURNAL_NAME_SIZE] = "";

    if (key.size < sizeof(name))
        memcpy(name, key.data, key.size);
    if (!record_unpack_fold(value.data, value.size, r))
        return add_unreadable(records, name, e);
    if (strcmp(r->name, name) != 0) /* the key is damaged: nothing will find it */
        return add_damaged(records, r);
    struct row *row = add_row(records);

    row->size = value.size;
    text_add(&records->copies, value.data, value.size);
    records->seqs += r->seq;
    return 1;
}

static int copy_records(void *self, struct database_txn *txn, struct error *e)
{
    struct records *records = self;

    records->txn = txn;
    if (tables_get_head(txn, &records->head, e) < 0 ||
        database_walk(txn, TABLE_SANDBOXES, (struct bytes){ NULL, 0 }, add_record, records, e) < 0)
        return -1;
    if (records->count == records->head.sandbox_count && records->seqs == records->head.sandbox_seqs)
        return 0;
    return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal is damaged: records are missing or out of date");
}

static int give_records(struct records *records, journal_record_fn *fn, void *self, struct error *e)
{
    for (size_t i = 0; i < records->count; i++) {
        struct row *row = &records->rows[i];
        struct journal_record *r = row->damaged != NULL ? row->damaged : &records->scratch;

        if (row->damaged == NULL)
            (void)record_unpack_fold(records->copies.bytes + row->at, row->size, r); /* it was readable */
        if (fn(self, r, e) < 0)
            return -1;
    }
    return 0;
}

int journal_each_record(struct journal *j, journal_record_fn *fn, void *self, struct error *e)
{
    struct records records = { .txn = NULL };

    if (j == NULL)
        return 0;
    int r = database_read(j->db, copy_records, &records, e);

    if (r == 0)
        r = give_records(&records, fn, self, e);
    for (size_t i = 0; i < records.count; i++)
        free(records.rows[i].damaged);
    free(records.rows);
    text_done(&records.copies);
    return r;
}

int journal_each_entry(struct journal *j, const struct journal_filter *filter, journal_entry_fn *fn,
                       void *self, struct error *e)
{
    return j == NULL ? 0 : entries_each(j->db, filter, fn, self, e);
}

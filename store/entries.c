#include "store/entries.h"

#include <string.h>

#include "core/mem.h"
#include "core/text.h"
#include "core/util.h"
#include "store/record.h"
#include "store/tables.h"

/* A transaction holds the lock shared: a batch is some milliseconds at most. */
#define BATCH_ROWS  1024
#define BATCH_BYTES (256 * 1024)

struct copy { /* where the stored bytes of an entry stand in the copies */
    uint64_t seq;
    size_t at;
    size_t size;
};

struct walk {
    const struct journal_filter *filter;
    uint64_t after; /* what is at or before it was given, or is not wanted */
    uint64_t until; /* the head when the walk began */

    /* of the batch in work */
    struct database_txn *txn;
    bool ended; /* no row is left */
    size_t rows;
    size_t count;
    struct copy copies[BATCH_ROWS];
    struct text bytes;

    /* of the search for the first of the newest */
    uint64_t before; /* rows from here on are counted */
    uint64_t matched;
    struct record_entry entry;
};

/* --- rows, whichever table they come from -------------------------------------------------------------- */

static enum database_table table_of(const struct walk *w)
{
    return w->filter->name == NULL ? TABLE_EVENTS : TABLE_HISTORY;
}

static struct bytes key_of(const struct walk *w, uint8_t out[TABLES_HISTORY_KEY_SIZE], uint64_t seq)
{
    if (w->filter->name != NULL)
        return tables_history_key(out, w->filter->name, seq);
    record_print_number(out, seq);
    return (struct bytes){ out, TABLES_SEQ_SIZE };
}

/* 0: the row is not of this walk. */
static uint64_t seq_of(const struct walk *w, struct bytes key)
{
    if (w->filter->name != NULL)
        return tables_history_seq(key, w->filter->name);
    return key.size == TABLES_SEQ_SIZE ? record_parse_number(key.data) : 0;
}

/* VALUE is the row's: the entry itself in events, in history something else. */
static int get_stored(const struct walk *w, uint64_t seq, struct bytes value, struct bytes *stored,
                      struct error *e)
{
    if (w->filter->name != NULL)
        return tables_get_stored(w->txn, seq, stored, e);
    *stored = value;
    return 0;
}

static int unpack(struct walk *w, uint64_t seq, struct bytes stored, struct error *e)
{
    const char *name = w->filter->name;

    if (tables_unpack_entry(stored, seq, &w->entry, e) < 0)
        return -1;
    if (name == NULL || strcmp(name, w->entry.entry.name) == 0)
        return 0;
    return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal is damaged: entry %llu is of '%s', not of '%s'",
                     (unsigned long long)seq, w->entry.entry.name, name);
}

static bool passes(const struct walk *w)
{
    return w->filter->since_ms == 0 || w->entry.entry.time_ms >= w->filter->since_ms;
}

/* --- where to begin ------------------------------------------------------------------------------------ */

static int count_row(void *self, struct bytes key, struct bytes value, struct error *e)
{
    struct walk *w = self;
    uint64_t seq = seq_of(w, key);
    struct bytes stored;

    w->ended = seq == 0 || seq <= w->after;
    if (w->ended)
        return 0;
    w->before = seq;
    if (w->filter->since_ms != 0 &&
        (get_stored(w, seq, value, &stored, e) < 0 || unpack(w, seq, stored, e) < 0))
        return -1;
    if (w->filter->since_ms == 0 || passes(w))
        w->matched++;
    return w->matched < w->filter->limit && ++w->rows < BATCH_ROWS;
}

static int count_batch(void *self, struct database_txn *txn, struct error *e)
{
    struct walk *w = self;
    uint8_t from[TABLES_HISTORY_KEY_SIZE];

    w->txn = txn;
    w->rows = 0;
    w->ended = true;
    return database_walk_back(txn, table_of(w), key_of(w, from, w->before), count_row, w, e);
}

/* Goes back over the newest rows until LIMIT of them pass: the walk begins there. */
static int find_start(struct walk *w, struct database *db, struct error *e)
{
    if (w->filter->limit == 0)
        return 0;
    w->before = w->until + 1;
    do
        if (database_read(db, count_batch, w, e) < 0)
            return -1;
    while (!w->ended && w->matched < w->filter->limit);
    if (w->before > w->after)
        w->after = w->before - 1;
    return 0;
}

/* --- giving -------------------------------------------------------------------------------------------- */

static int missing(uint64_t seq, struct error *e)
{
    return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal is damaged: entry %llu is missing",
                     (unsigned long long)seq);
}

static int copy_row(void *self, struct bytes key, struct bytes value, struct error *e)
{
    struct walk *w = self;
    uint64_t seq = seq_of(w, key);
    struct bytes stored;

    if (seq == 0 || seq > w->until)
        return 0;
    w->ended = false;
    if (w->filter->name == NULL && seq != w->after + 1)
        return missing(w->after + 1, e);
    if (get_stored(w, seq, value, &stored, e) < 0)
        return -1;
    w->copies[w->count++] = (struct copy){ seq, w->bytes.size, stored.size };
    text_add(&w->bytes, stored.data, stored.size);
    w->after = seq;
    return w->count < BATCH_ROWS && w->bytes.size < BATCH_BYTES;
}

static int copy_batch(void *self, struct database_txn *txn, struct error *e)
{
    struct walk *w = self;
    uint8_t from[TABLES_HISTORY_KEY_SIZE];

    w->txn = txn;
    w->count = 0;
    w->bytes.size = 0;
    w->ended = true;
    return database_walk(txn, table_of(w), key_of(w, from, w->after + 1), copy_row, w, e);
}

static int give_batch(struct walk *w, journal_entry_fn *fn, void *self, struct error *e)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct copy *c = &w->copies[i];

        if (unpack(w, c->seq, (struct bytes){ w->bytes.bytes + c->at, c->size }, e) < 0)
            return -1;
        if (passes(w) && fn(self, &w->entry.entry, e) < 0)
            return -1;
    }
    return 0;
}

static int give_all(struct walk *w, struct database *db, journal_entry_fn *fn, void *self, struct error *e)
{
    while (w->after < w->until) {
        if (database_read(db, copy_batch, w, e) < 0 || give_batch(w, fn, self, e) < 0)
            return -1;
        if (w->ended) /* all entries are there, if not of this name */
            return w->filter->name != NULL ? 0 : missing(w->after + 1, e);
    }
    return 0;
}

static int begin(void *self, struct database_txn *txn, struct error *e)
{
    struct walk *w = self;
    struct record_head head;

    if (tables_get_head(txn, &head, e) < 0 || tables_check_last(txn, &head, e) < 0)
        return -1;
    w->until = head.seq;
    return 0;
}

int entries_each(struct database *db, const struct journal_filter *filter, journal_entry_fn *fn, void *self,
                 struct error *e)
{
    AUTO_FREE struct walk *w = mem_alloc(sizeof(*w));

    w->filter = filter;
    w->after = filter->after_seq;
    int r = database_read(db, begin, w, e);

    if (r == 0)
        r = find_start(w, db, e);
    if (r == 0)
        r = give_all(w, db, fn, self, e);
    text_done(&w->bytes);
    return r;
}

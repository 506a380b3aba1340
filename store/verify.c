/* The whole journal, looked at twice: along the chain (every entry is the one that the next one and the head
 * speak of), and along the names (every record is the fold of its entries). In batches, so that nobody waits
 * long for the lock; entries that are added meanwhile are looked at as well, or not. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"
#include "core/util.h"
#include "store/chain.h"
#include "store/crash.h"
#include "store/database.h"
#include "store/journal.h"
#include "store/record.h"
#include "store/tables.h"

#define BATCH_ROWS 4096

/* How the child ends when reading crashes; any other end but success is not about the journal. */
#define CRASH_STATUS 3

struct verify {
    struct journal_verdict *out;
    struct database_txn *txn; /* of the batch in work */
    struct record_head head;  /* as this batch sees it */
    int rows;                 /* of this batch */
    bool ended;               /* nothing is left of this pass */
    uint64_t at;              /* the entry in work */
    struct record_entry entry;

    uint64_t seq; /* chain: the last entry that is right, and its hash */
    uint8_t hash[CHAIN_HASH_SIZE];

    uint64_t chain_seq;           /* names: how many rows of history there must be */
    uint64_t row_count;           /* ... and there were, up to that seq */
    struct journal_record record; /* fold so far of the name in work; its name is "" before the first */
    uint64_t row_seq;             /* the last row of it */
    struct journal_record scratch;
};

/* --- verdicts ------------------------------------------------------------------------------------------ */

PRINTF_LIKE(3, 4) static int break_at(struct verify *v, uint64_t seq, const char *format, ...)
{
    va_list args;

    v->out->verified = false;
    v->out->broken_at = seq > 0 ? seq : 1;
    va_start(args, format);
    vsnprintf(v->out->message, sizeof(v->out->message), format, args);
    va_end(args);
    return 0;
}

/* Damage that a lower function found is a verdict; anything else is a failure. */
static int judge(struct verify *v, struct error *e)
{
    if (e->code != ERROR_STORE_CORRUPT)
        return -1;
    break_at(v, v->at, "%s", e->message);
    *e = (struct error){ 0 };
    return 0;
}

/* Runs a pass batch by batch until it has ended or something is broken. */
static int run_pass(struct verify *v, struct database *db, database_txn_fn *batch, struct error *e)
{
    v->ended = false;
    while (!v->ended && v->out->verified)
        if (database_read(db, batch, v, e) < 0 && judge(v, e) < 0)
            return -1;
    return 0;
}

static int begin_batch(struct verify *v, struct database_txn *txn, struct error *e)
{
    v->txn = txn;
    v->rows = 0;
    return tables_get_head(txn, &v->head, e);
}

/* --- along the chain ----------------------------------------------------------------------------------- */

static int check_link(void *self, struct bytes key, struct bytes value, struct error *e)
{
    struct verify *v = self;
    uint64_t wanted = v->seq + 1;

    v->at = wanted;
    if (key.size != TABLES_SEQ_SIZE || record_parse_number(key.data) != wanted)
        return break_at(v, wanted, "entry %" PRIu64 " is missing", wanted);
    if (tables_unpack_entry(value, wanted, &v->entry, e) < 0)
        return -1;
    if (memcmp(v->entry.prev, v->hash, CHAIN_HASH_SIZE) != 0)
        return break_at(v, wanted, "entry %" PRIu64 " does not follow the one before it", wanted);
    chain_hash(v->hash, value.data, value.size);
    v->seq = wanted;
    return ++v->rows < BATCH_ROWS;
}

static int check_chain(void *self, struct database_txn *txn, struct error *e)
{
    struct verify *v = self;
    uint8_t from[TABLES_SEQ_SIZE];

    record_print_number(from, v->seq + 1);
    if (begin_batch(v, txn, e) < 0 ||
        database_walk(txn, TABLE_EVENTS, (struct bytes){ from, sizeof(from) }, check_link, v, e) < 0)
        return -1;
    if (!v->out->verified || v->rows == BATCH_ROWS)
        return 0;
    v->ended = true;
    if (v->seq != v->head.seq)
        return break_at(v, v->seq + 1, "the head speaks of %" PRIu64 " entries, there are %" PRIu64,
                        v->head.seq, v->seq);
    if (memcmp(v->hash, v->head.hash, CHAIN_HASH_SIZE) != 0)
        return break_at(v, v->seq, "entry %" PRIu64 " is not the one that was stored", v->seq);
    v->chain_seq = v->seq;
    v->out->head_seq = v->seq;
    chain_print_hash(v->out->head_hash, v->hash);
    return 0;
}

/* --- along the names ----------------------------------------------------------------------------------- */

static bool is_equal(const struct journal_record *a, const struct journal_record *b)
{
    struct text packed_a = { 0 }, packed_b = { 0 };

    record_pack_fold(a, &packed_a);
    record_pack_fold(b, &packed_b);
    bool equal = packed_a.size == packed_b.size && memcmp(packed_a.bytes, packed_b.bytes, packed_a.size) == 0;

    text_done(&packed_a);
    text_done(&packed_b);
    return equal;
}

/* All entries of the name in work are folded: is that what is stored? */
static int check_record(struct verify *v, struct error *e)
{
    const char *name = v->record.name;
    struct bytes stored;

    if (name[0] == '\0')
        return 1;
    int found = database_get(v->txn, tables_of_name(name), (struct bytes){ name, strlen(name) }, &stored, e);

    if (found < 0)
        return -1;
    if ((found == 1) != journal_record_exists(&v->record))
        return break_at(v, v->row_seq, "the record of '%s' is %s", name,
                        found ? "there, but should be gone" : "missing");
    if (found == 0)
        return 1;
    if (!record_unpack_fold(stored.data, stored.size, &v->scratch))
        return break_at(v, v->row_seq, "the record of '%s' cannot be read", name);
    if (!is_equal(&v->scratch, &v->record))
        return break_at(v, v->row_seq, "the record of '%s' is not what its entries say", name);
    return 1;
}

static bool parse_name(struct bytes key, char out[JOURNAL_NAME_SIZE])
{
    size_t size = key.size < 1 + TABLES_SEQ_SIZE ? 0 : key.size - TABLES_SEQ_SIZE;

    if (size < 2 || size > JOURNAL_NAME_SIZE)
        return false;
    memcpy(out, key.data, size);
    return out[size - 1] == '\0' && strlen(out) == size - 1;
}

static int fold_next(struct verify *v, uint64_t seq, struct bytes value, struct error *e)
{
    struct bytes stored;

    v->at = seq;
    if (tables_get_stored(v->txn, seq, &stored, e) < 0 || tables_unpack_entry(stored, seq, &v->entry, e) < 0)
        return -1;
    if (strcmp(v->entry.entry.name, v->record.name) != 0)
        return break_at(v, seq, "entry %" PRIu64 " is not one of '%s'", seq, v->record.name);
    journal_fold(&v->record, &v->entry.entry);
    uint64_t record_seq = journal_record_exists(&v->record) ? v->record.seq : 0;

    if (value.size != TABLES_SEQ_SIZE || record_parse_number(value.data) != record_seq)
        return break_at(v, seq, "the history of '%s' is damaged", v->record.name);
    v->row_seq = seq;
    v->row_count += seq <= v->chain_seq;
    return ++v->rows < BATCH_ROWS;
}

static int check_history_row(void *self, struct bytes key, struct bytes value, struct error *e)
{
    struct verify *v = self;
    char name[JOURNAL_NAME_SIZE];

    if (!parse_name(key, name))
        return break_at(v, v->row_seq, "the history behind '%s' is damaged", v->record.name);
    if (strcmp(name, v->record.name) != 0) {
        int r = check_record(v, e);

        if (r <= 0)
            return r;
        journal_record_init(&v->record, name);
    }
    return fold_next(v, tables_history_seq(key, name), value, e);
}

static int check_names(void *self, struct database_txn *txn, struct error *e)
{
    struct verify *v = self;
    uint8_t room[TABLES_HISTORY_KEY_SIZE];
    struct bytes next = tables_history_key(room, v->record.name, v->row_seq + 1);
    struct bytes from = v->record.name[0] == '\0' ? (struct bytes){ NULL, 0 } : next;

    if (begin_batch(v, txn, e) < 0 || database_walk(txn, TABLE_HISTORY, from, check_history_row, v, e) < 0)
        return -1;
    if (!v->out->verified || v->rows == BATCH_ROWS)
        return 0;
    v->ended = true;
    if (check_record(v, e) < 0)
        return -1;
    if (v->out->verified && v->row_count != v->chain_seq)
        return break_at(v, v->chain_seq, "the history lists %" PRIu64 " of %" PRIu64 " entries", v->row_count,
                        v->chain_seq);
    return 0;
}

/* --- records without a history, and the sums in the head ----------------------------------------------- */

struct sums {
    struct verify *verify;
    struct tables_found found;
    uint64_t count, seqs;
};

static int check_row(void *self, struct bytes key, struct bytes value, struct error *e)
{
    struct sums *sums = self;
    struct verify *v = sums->verify;
    char name[JOURNAL_NAME_SIZE] = "";

    (void)value;
    if (key.size < sizeof(name))
        memcpy(name, key.data, key.size);
    int found = tables_find(v->txn, &v->head, name, &sums->found, e);

    if (found < 0)
        return -1;
    if (found == 0 || sums->found.damaged)
        return break_at(v, sums->found.record.seq, "the record of '%s' cannot be read", name);
    sums->count++;
    sums->seqs += sums->found.record.seq;
    return 1;
}

static int check_sums(void *self, struct database_txn *txn, struct error *e)
{
    struct verify *v = self;
    struct sums sums = { .verify = v };
    struct bytes all = { NULL, 0 };

    v->ended = true;
    if (begin_batch(v, txn, e) < 0 || database_walk(txn, TABLE_SANDBOXES, all, check_row, &sums, e) < 0)
        return -1;
    if (v->out->verified && (sums.count != v->head.sandbox_count || sums.seqs != v->head.sandbox_seqs))
        return break_at(v, v->chain_seq, "the head does not match the records");
    return v->out->verified ? database_walk(txn, TABLE_PROVIDERS, all, check_row, &sums, e) : 0;
}

/* --- in a child process -------------------------------------------------------------------------------- */

static int verify_all(struct database *db, struct verify *v, struct error *e)
{
    static database_txn_fn *const passes[] = { check_chain, check_names, check_sums };

    for (size_t i = 0; i < ARRAY_LEN(passes) && v->out->verified; i++)
        if (run_pass(v, db, passes[i], e) < 0)
            return -1;
    return 0;
}

struct shared { /* with the child */
    struct journal_verdict verdict;
    struct error error;
    int result;
    struct verify verify;
};

static int run_child(const struct root *root, struct shared *shared)
{
    struct verify *v = &shared->verify;
    struct error *e = &shared->error;
    struct database *db = NULL;

    memset(v->out->head_hash, '0', sizeof(v->out->head_hash) - 1);
    if (root->dir < 0)
        return 0;
    int found = tables_open(root, true, &db, e);

    if (found <= 0)
        return found < 0 ? judge(v, e) : 0;
    int r = verify_all(db, v, e);

    database_close(db);
    return r;
}

static int wait_for(pid_t child, int *status, struct error *e)
{
    if (RETRY_EINTR(waitpid(child, status, 0)) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot wait for the journal's verification");
    return 0;
}

static int verify_in_child(const struct root *root, struct shared *shared, struct error *e)
{
    pid_t child = fork();
    int status;

    if (child < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot start the journal's verification");
    if (child == 0) {
        crash_set_reply("", CRASH_STATUS); /* an end in silence: the parent has the word */
        shared->result = run_child(root, shared);
        _exit(EXIT_SUCCESS);
    }
    if (wait_for(child, &status, e) < 0)
        return -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == CRASH_STATUS)
        return break_at(&shared->verify, shared->verify.seq + 1,
                        "reading on behind entry %" PRIu64 " crashes", shared->verify.seq);
    if (status != EXIT_SUCCESS) /* killed, or out of memory: both say nothing */
        return error_set(e, ERROR_INTERNAL, 0, "the journal's verification was ended before it was done");
    if (shared->result < 0)
        *e = shared->error;
    return shared->result;
}

int journal_verify(const struct root *root, struct journal_verdict *out, struct error *e)
{
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot start the journal's verification");
    shared->verify.out = &shared->verdict;
    shared->verdict.verified = true;
    int r = verify_in_child(root, shared, e);

    if (r == 0)
        *out = shared->verdict;
    munmap(shared, sizeof(*shared));
    return r;
}

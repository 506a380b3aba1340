/* The journal as its callers see it: guards, folds, walks, verification, versions. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/util.h"
#include "store/database.h"
#include "store/record.h"
#include "store/tables.h"
#include "tests/store/lab.h"

static struct journal *open_to_read(const struct scratch *s)
{
    struct journal *j = NULL;
    struct error e = { 0 };
    struct root root;

    lab_root(s, &root);
    if (journal_open(&root, JOURNAL_READ, &j, &e) < 0)
        fail_msg("%s", e.message);
    return j;
}

/* --- opening ------------------------------------------------------------------------------------------- */

static void test_journal__a_missing_one_reads_as_empty(void **state)
{
    struct scratch *s = *state;
    struct journal *j = open_to_read(s);
    struct journal_filter all = { .name = NULL };
    struct journal_verdict verdict;
    struct error e = { 0 };

    assert_null(j);
    assert_string_equal(lab_state(j, "demo"), "missing");
    assert_int_equal(journal_each_record(j, NULL, NULL, &e), 0);
    assert_int_equal(journal_each_entry(j, &all, NULL, NULL, &e), 0);
    assert_true(lab_verify(s, &verdict));
    assert_int_equal(verdict.head_seq, 0);
    assert_false(scratch_exists(s, "journal")); /* reading makes nothing */
}

static void test_journal__a_missing_root_reads_as_empty(void **state)
{
    struct root root = { .dir = -1, .sandboxes = -1, .locks = -1 };
    struct journal *j = NULL;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(journal_open(&root, JOURNAL_READ, &j, &e), 0);
    assert_null(j);
}

static void check_lost(const struct root *root, enum journal_mode mode)
{
    struct journal *j = NULL;
    struct error e = { 0 };

    assert_int_equal(journal_open(root, mode, &j, &e), -1);
    assert_null(j);
    assert_int_equal(e.code, ERROR_STORE_CORRUPT);
    assert_non_null(strstr(e.message, "journal/ is missing"));
    assert_non_null(strstr(error_suggestion(&e), "backup"));
    assert_int_equal(faccessat(root->dir, "journal", F_OK, 0), -1);
}

/* Somebody removed the journal and left the sandboxes: a new one would know nothing of what is running. */
static void test_journal__one_that_is_missing_beside_sandboxes_is_lost(void **state)
{
    struct scratch *s = *state;
    struct journal_verdict verdict;
    struct root root;

    assert_int_equal(mkdirat(s->dir, "sandboxes", 0700), 0);
    assert_int_equal(mkdirat(s->dir, "sandboxes/demo", 0700), 0);
    scratch_write(s, "sandboxes/demo/sandbox.json", "{}\n");
    lab_root(s, &root);
    root.sandboxes = openat(s->dir, "sandboxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check_lost(&root, JOURNAL_READ);
    check_lost(&root, JOURNAL_WRITE);
    assert_int_equal(journal_verify(&root, &verdict, &(struct error){ 0 }), 0);
    assert_false(verdict.verified);
    close(root.sandboxes);
}

static void test_journal__what_is_no_sandbox_does_not_miss_one(void **state)
{
    struct scratch *s = *state;
    struct journal *j = NULL;
    struct error e = { 0 };
    struct root root;

    assert_int_equal(mkdirat(s->dir, "sandboxes", 0700), 0);
    assert_int_equal(mkdirat(s->dir, "sandboxes/empty", 0700), 0);
    assert_int_equal(mkdirat(s->dir, "sandboxes/.gone-1", 0700), 0);
    scratch_write(s, "sandboxes/.gone-1/sandbox.json", "{}\n");
    scratch_write(s, "sandboxes/sandbox.json", "{}\n");
    assert_int_equal(symlinkat(".gone-1", s->dir, "sandboxes/link"), 0);
    lab_root(s, &root);
    root.sandboxes = openat(s->dir, "sandboxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(journal_open(&root, JOURNAL_READ, &j, &e), 0);
    assert_int_equal(journal_open(&root, JOURNAL_WRITE, &j, &e), 1);
    journal_close(j);
    close(root.sandboxes);
}

static int open_without_files(void *arg)
{
    for (unsigned more = 0; more < 4; more++) { /* the directory, two locks, data.mdb */
        struct journal *j;
        struct error e = { 0 };
        struct root root;

        lab_root(arg, &root);
        CHECK(scratch_limit_files(more));
        CHECK(journal_open(&root, JOURNAL_READ, &j, &e) == -1);
        CHECK(e.code == ERROR_LIMIT_REACHED);
    }
    return 0;
}

static void test_journal__without_a_free_descriptor_is_a_limit(void **state)
{
    journal_close(lab_open(*state));
    scratch_run_as_test(open_without_files, *state);
}

static void test_journal__a_reader_does_not_write(void **state)
{
    struct journal_entry entry = { .kind = JOURNAL_EXEC, .name = "demo" };
    struct journal_guard none = { .absent = false };
    struct error e = { 0 };

    journal_close(lab_open(*state));
    struct journal *j = open_to_read(*state);

    assert_int_equal(journal_lmdb_ops.commit(j, "demo", &none, &entry, 1, NULL, &e), -1);
    assert_int_equal(e.code, ERROR_INTERNAL);
    journal_close(j);
}

/* --- commits ------------------------------------------------------------------------------------------- */

static void test_journal__remembers_what_was_committed(void **state)
{
    struct journal_record r;
    struct error e = { 0 };
    struct journal *j = lab_open(*state);

    assert_int_equal(lab_create(j, "demo"), 1);
    journal_close(j);
    j = open_to_read(*state);
    assert_int_equal(journal_lmdb_ops.find(j, "demo", &r, &e), 1);
    assert_string_equal(r.state, "stopped");
    assert_string_equal(r.provider, "linux");
    assert_string_equal(r.token, "");
    assert_string_equal(facts_get(&r.facts, "address"), "10.0.0.7");
    assert_int_equal(r.seq, 6);
    assert_false(r.damaged);
    assert_true(r.created_ms > 0);
    journal_close(j);
}

/* the state it starts from is checked in the same transaction. */
static void test_journal__a_guard_that_does_not_hold_changes_nothing(void **state)
{
    static const struct {
        struct journal_guard guard;
        bool holds;
    } cases[] = {
        { { .absent = true }, false },
        { { .id = "2222222222222222" }, false },
        { { .id = "1111111111111111" }, true },
        { { .state = "running" }, false },
        { { .state = "working" }, true },
        { { .state = "working", .activity = "stopping" }, false },
        { { .state = "working", .activity = "starting" }, true },
        { { .token = "" }, false },
        { { .token = "t" }, true },
        { { .seq = 1 }, false },
    };
    struct journal_entry op = { .kind = JOURNAL_OP,
                                .name = "demo",
                                .id = "1111111111111111",
                                .command = "start",
                                .token = "t" },
                         move = { .kind = JOURNAL_MOVE,
                                  .name = "demo",
                                  .to = "working",
                                  .activity = "starting" },
                         exec = { .kind = JOURNAL_EXEC, .name = "demo" };
    const struct journal_entry begin[] = { op, move };
    struct journal_record after;
    struct error e = { 0 };
    struct journal *j = lab_open(*state);

    assert_int_equal(lab_commit(j, "demo", begin, 2), 1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int r = journal_lmdb_ops.commit(j, "demo", &cases[i].guard, &exec, 1, &after, &e);

        assert_int_equal(r, cases[i].holds);
        assert_string_equal(after.state, "working");
        assert_int_equal(after.seq, 2);
    }
    struct journal_guard absent = { .absent = true }, wants = { .state = "stopped" };

    exec.name = "other";
    assert_int_equal(journal_lmdb_ops.commit(j, "other", &wants, &exec, 1, &after, &e), 0);
    assert_string_equal(after.state, "missing");
    assert_int_equal(journal_lmdb_ops.commit(j, "other", &absent, &exec, 1, &after, &e), 1);
    assert_string_equal(after.state, "missing");
    journal_close(j);
    assert_true(lab_verify(*state, NULL));
}

static void test_journal__entries_too_long_are_refused_and_leave_no_trace(void **state)
{
    AUTO_FREE char *options = mem_alloc(JOURNAL_ENTRY_MAX + 1);
    struct journal_entry entries[] = { { .kind = JOURNAL_EXEC, .name = "demo" },
                                       { .kind = JOURNAL_OP, .name = "demo", .options = options } };
    struct journal_guard none = { .absent = false };
    struct error e = { 0 };
    struct journal_verdict verdict;
    struct journal *j = lab_open(*state);

    memset(options, 'x', JOURNAL_ENTRY_MAX);
    assert_int_equal(journal_lmdb_ops.commit(j, "demo", &none, entries, 2, NULL, &e), -1);
    assert_int_equal(e.code, ERROR_INVALID_ARGS);
    journal_close(j);
    assert_true(lab_verify(*state, &verdict));
    assert_int_equal(verdict.head_seq, 0);
}

static int note_actor(void *self, const struct journal_entry *entry, struct error *e)
{
    int64_t *pid = self;

    (void)e;
    *pid = entry->actor_pid;
    assert_string_equal(entry->boot, process_boot_id());
    assert_int_equal(entry->actor_uid, getuid());
    assert_non_null(entry->actor_version);
    assert_true(entry->time_ms > clock_wall_ms() - 60000);
    assert_int_equal(entry->status, -1); /* an op has none */
    return 0;
}

static void test_journal__says_who_wrote_and_when(void **state)
{
    struct journal_entry op = { .kind = JOURNAL_OP, .name = "demo", .command = "create" };
    struct journal_filter all = { .name = NULL };
    struct error e = { 0 };
    int64_t pid = 0;
    struct journal *j = lab_open(*state);

    assert_int_equal(lab_commit(j, "demo", &op, 1), 1);
    assert_int_equal(journal_each_entry(j, &all, note_actor, &pid, &e), 0);
    assert_int_equal(pid, getpid());
    journal_close(j);
}

/* A provider's own record: the name begins with '@', which no sandbox's does, and no list shows it. */
static int count_record(void *self, const struct journal_record *r, struct error *e)
{
    (void)r, (void)e;
    ++*(int *)self;
    return 0;
}

static void test_journal__keeps_providers_apart(void **state)
{
    struct journal_entry move = { .kind = JOURNAL_MOVE, .name = "@macos", .to = "working" };
    struct error e = { 0 };
    int count = 0;
    struct journal *j = lab_open(*state);

    assert_int_equal(lab_create(j, "macos"), 1);
    assert_int_equal(lab_commit(j, "@macos", &move, 1), 1);
    assert_string_equal(lab_state(j, "@macos"), "working");
    assert_string_equal(lab_state(j, "macos"), "stopped");
    assert_int_equal(journal_each_record(j, count_record, &count, &e), 0);
    assert_int_equal(count, 1);
    journal_close(j);
    assert_true(lab_verify(*state, NULL));
}

/* --- walks --------------------------------------------------------------------------------------------- */

struct seen {
    uint64_t first, last, count;
    const char *name;
    int64_t stop_at;
};

static int note_entry(void *self, const struct journal_entry *entry, struct error *e)
{
    struct seen *seen = self;

    if (seen->count == 0)
        seen->first = entry->seq;
    assert_true(entry->seq > seen->last || seen->count == 0);
    if (seen->name != NULL)
        assert_string_equal(entry->name, seen->name);
    seen->last = entry->seq;
    seen->count++;
    if (seen->stop_at == (int64_t)seen->count)
        return error_set(e, ERROR_TIMEOUT, 0, "enough");
    return 0;
}

static struct seen walk(struct journal *j, struct journal_filter filter)
{
    struct seen seen = { .name = filter.name };
    struct error e = { 0 };

    if (journal_each_entry(j, &filter, note_entry, &seen, &e) < 0)
        fail_msg("%s", e.message);
    return seen;
}

static void check_seen(struct seen seen, uint64_t count, uint64_t first, uint64_t last)
{
    assert_int_equal(seen.count, count);
    assert_int_equal(seen.first, first);
    assert_int_equal(seen.last, last);
}

/* a: 1-6 and 3013-3018; b: 7-12; exec of b: 13-3012. */
static void test_journal__walks_pass_what_the_filter_says(void **state)
{
    struct journal *j = lab_open(*state);

    assert_int_equal(lab_create(j, "a"), 1);
    assert_int_equal(lab_create(j, "b"), 1);
    assert_int_equal(lab_exec_many(j, "b", 3000), 1);
    int64_t before_last = clock_wall_ms() + 1;

    clock_sleep_ms(5);
    assert_int_equal(lab_start(j, "a"), 1);
    check_seen(walk(j, (struct journal_filter){ .name = NULL }), 3018, 1, 3018);
    check_seen(walk(j, (struct journal_filter){ .limit = 10 }), 10, 3009, 3018);
    check_seen(walk(j, (struct journal_filter){ .limit = 5000 }), 3018, 1, 3018);
    check_seen(walk(j, (struct journal_filter){ .after_seq = 3000 }), 18, 3001, 3018);
    check_seen(walk(j, (struct journal_filter){ .after_seq = 3000, .limit = 30 }), 18, 3001, 3018);
    check_seen(walk(j, (struct journal_filter){ .after_seq = 3018 }), 0, 0, 0);
    check_seen(walk(j, (struct journal_filter){ .name = "a" }), 12, 1, 3018);
    check_seen(walk(j, (struct journal_filter){ .name = "a", .limit = 7 }), 7, 6, 3018);
    check_seen(walk(j, (struct journal_filter){ .name = "a", .limit = 12 }), 12, 1, 3018);
    check_seen(walk(j, (struct journal_filter){ .name = "a", .after_seq = 6 }), 6, 3013, 3018);
    check_seen(walk(j, (struct journal_filter){ .name = "b", .limit = 2500 }), 2500, 513, 3012);
    check_seen(walk(j, (struct journal_filter){ .name = "c" }), 0, 0, 0);
    check_seen(walk(j, (struct journal_filter){ .name = "c", .limit = 3 }), 0, 0, 0);
    check_seen(walk(j, (struct journal_filter){ .since_ms = before_last }), 6, 3013, 3018);
    check_seen(walk(j, (struct journal_filter){ .since_ms = before_last, .limit = 2 }), 2, 3017, 3018);
    check_seen(walk(j, (struct journal_filter){ .name = "b", .since_ms = before_last, .limit = 2 }), 0, 0, 0);
    journal_close(j);
}

static void test_journal__a_walk_ends_when_it_is_told(void **state)
{
    struct journal_filter all = { .name = NULL };
    struct seen seen = { .stop_at = 3 };
    struct error e = { 0 };
    struct journal *j = lab_open(*state);

    assert_int_equal(lab_create(j, "a"), 1);
    assert_int_equal(journal_each_entry(j, &all, note_entry, &seen, &e), -1);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_int_equal(seen.count, 3);
    journal_close(j);
}

static int commit_inside(void *self, const struct journal_entry *entry, struct error *e)
{
    (void)entry, (void)e;
    return lab_exec(self, "b") == 1 ? 0 : -1;
}

static void test_journal__a_walk_holds_nobody_up_and_has_an_end(void **state)
{
    struct journal_filter all = { .name = NULL };
    struct error e = { 0 };
    struct journal *j = lab_open(*state);

    assert_int_equal(lab_create(j, "a"), 1);
    assert_int_equal(journal_each_entry(j, &all, commit_inside, j, &e), 0);
    check_seen(walk(j, all), 12, 1, 12);
    journal_close(j);
}

/* --- replay (T10) -------------------------------------------------------------------------------------- */

struct model {
    struct journal_record records[5];
};

static int fold_entry(void *self, const struct journal_entry *entry, struct error *e)
{
    struct model *m = self;

    (void)e;
    journal_fold(&m->records[entry->name[0] - 'a'], entry);
    return 0;
}

static int compare_record(void *self, const struct journal_record *r, struct error *e)
{
    struct model *m = self;
    struct journal_record *mine = &m->records[r->name[0] - 'a'];
    struct text a = { 0 }, b = { 0 };

    (void)e;
    record_pack_fold(mine, &a);
    record_pack_fold(r, &b);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.bytes, b.bytes, a.size);
    text_done(&a);
    text_done(&b);
    strcpy(mine->state, "missing"); /* seen */
    return 0;
}

static void check_replay(const struct scratch *s, unsigned seed)
{
    AUTO_FREE struct model *m = mem_alloc(sizeof(*m));
    struct journal_filter all = { .name = NULL };
    struct journal *j = lab_open(s);
    struct error e = { 0 };

    for (int i = 0; i < 60; i++)
        assert_int_not_equal(lab_random_command(j, &seed, 5), -1);
    for (int i = 0; i < 5; i++)
        journal_record_init(&m->records[i], (char[]){ (char)('a' + i), '\0' });
    assert_int_equal(journal_each_entry(j, &all, fold_entry, m, &e), 0);
    assert_int_equal(journal_each_record(j, compare_record, m, &e), 0);
    for (int i = 0; i < 5; i++)
        assert_string_equal(m->records[i].state, "missing"); /* and no other record is missing */
    journal_close(j);
    assert_true(lab_verify(s, NULL));
}

static void test_journal__records_are_the_fold_of_the_entries(void **state)
{
    for (unsigned seed = 1; seed <= 5; seed++)
        check_replay(*state, seed);
}

/* --- verification -------------------------------------------------------------------------------------- */

/* Changes one stored value behind the journal's back, with a right check. */
struct forgery {
    enum database_table table;
    struct bytes key;
    void (*change)(struct record_entry *entry, struct journal_record *record); /* NULL: the row is deleted */
    bool keep_head; /* as when a page of the head's table was lost */
};

static int forge_in(void *self, struct database_txn *txn, struct error *e)
{
    const struct forgery *f = self;
    AUTO_FREE struct record_entry *entry = mem_alloc(sizeof(*entry));
    struct journal_record record;
    struct record_head head;
    struct text packed = { 0 };
    struct bytes stored;

    if (database_get(txn, f->table, f->key, &stored, e) != 1)
        return error_set(e, ERROR_INTERNAL, 0, "no such row");
    if (f->change == NULL) {
        if (database_delete(txn, f->table, f->key, e) < 0)
            return -1;
    } else {
        if (f->table == TABLE_EVENTS) {
            record_unpack_entry(stored.data, stored.size, entry);
            f->change(entry, NULL);
            record_pack_entry(entry, &packed, e);
        } else {
            record_unpack_fold(stored.data, stored.size, &record);
            f->change(NULL, &record);
            record_pack_fold(&record, &packed);
        }
        if (database_put(txn, f->table, f->key, (struct bytes){ packed.bytes, packed.size }, e) < 0)
            return -1;
    }
    text_done(&packed);
    if (f->keep_head)
        return 1;
    return tables_get_head(txn, &head, e) < 0 || tables_put_head(txn, &head, e) < 0 ? -1 : 1;
}

static void forge(const struct scratch *s, struct forgery f)
{
    struct database_options options = { .read_only = false };
    struct database *db = NULL;
    struct error e = { 0 };

    assert_int_equal(database_open(s->dir, s->path, "journal", &options, &db, &e), 1);
    if (database_write(db, forge_in, &f, &e) != 1)
        fail_msg("%s", e.message);
    database_close(db);
}

static void change_message(struct record_entry *entry, struct journal_record *record)
{
    (void)record;
    entry->entry.message = "it was never so";
}

static void change_state(struct record_entry *entry, struct journal_record *record)
{
    (void)entry;
    strcpy(record->state, "stopped");
}

#define SEQ_KEY(n)                                                                                           \
    {                                                                                                        \
        (const uint8_t[8]){ 0, 0, 0, 0, 0, 0, 0, (n) }, 8                                                    \
    }

/* create and start of demo: 12 entries. */
static const struct {
    const char *what;
    struct forgery forgery;
    uint64_t broken_at;
} forgeries[] = {
    { "an entry in the middle", { TABLE_EVENTS, SEQ_KEY(5), change_message, false }, 6 },
    { "the first entry", { TABLE_EVENTS, SEQ_KEY(1), change_message, false }, 2 },
    { "the last entry", { TABLE_EVENTS, SEQ_KEY(12), change_message, false }, 12 },
    { "an entry that is gone", { TABLE_EVENTS, SEQ_KEY(4), NULL, false }, 4 },
    { "the last entry gone", { TABLE_EVENTS, SEQ_KEY(12), NULL, false }, 12 },
    { "a record", { TABLE_SANDBOXES, { "demo", 4 }, change_state, false }, 12 },
    { "a record that is gone", { TABLE_SANDBOXES, { "demo", 4 }, NULL, false }, 12 },
    { "a row of the history", { TABLE_HISTORY, { "demo\0\0\0\0\0\0\0\0\x07", 13 }, NULL, false }, 12 },
};

static void test_journal__verification_says_where_it_breaks(void **state)
{
    struct scratch *s = *state;
    struct journal *j = lab_open(s);
    struct journal_verdict verdict;
    char save[256], restore[256];

    assert_int_equal(lab_create(j, "demo"), 1);
    assert_int_equal(lab_start(j, "demo"), 1);
    journal_close(j);
    assert_true(lab_verify(s, &verdict));
    assert_int_equal(verdict.head_seq, 12);
    assert_int_equal(strlen(verdict.head_hash), 64);
    assert_int_equal(verdict.broken_at, 0);
    snprintf(save, sizeof(save), "cp -a %s/journal %s/saved", s->path, s->path);
    snprintf(restore, sizeof(restore), "rm -r %s/journal; cp -a %s/saved %s/journal", s->path, s->path,
             s->path);
    assert_int_equal(system(save), 0);
    for (size_t i = 0; i < ARRAY_LEN(forgeries); i++) {
        forge(s, forgeries[i].forgery);
        if (lab_verify(s, &verdict) || verdict.broken_at != forgeries[i].broken_at)
            fail_msg("%s: verified %d, broken at %llu: %s", forgeries[i].what, verdict.verified,
                     (unsigned long long)verdict.broken_at, verdict.message);
        assert_int_equal(system(restore), 0);
    }
    assert_true(lab_verify(s, NULL));
}

/* --- rows that do not agree (T12) ---------------------------------------------------------------------- */

static void change_seq(struct record_entry *entry, struct journal_record *record)
{
    (void)entry;
    record->seq = 6; /* of an older page */
}

static void change_nothing(struct record_entry *entry, struct journal_record *record)
{
    (void)entry, (void)record;
}

static const struct {
    const char *what;
    struct forgery forgery;
    bool find_sees, list_sees, log_sees, commit_sees;
} disagreements[] = {
    { "a record that is gone", { TABLE_SANDBOXES, { "demo", 4 }, NULL, false }, true, true, false, true },
    { "an older record", { TABLE_SANDBOXES, { "demo", 4 }, change_seq, false }, true, true, false, true },
    { "the last row of its history",
      { TABLE_HISTORY, { "demo\0\0\0\0\0\0\0\0\x0c", 13 }, NULL, false },
      true,
      false,
      false,
      true },
    { "another last entry", { TABLE_EVENTS, SEQ_KEY(12), change_message, false }, false, false, true, true },
    { "an older head", { TABLE_EVENTS, SEQ_KEY(3), change_nothing, true }, true, true, true, true },
};

static enum error_code try_find(struct journal *j)
{
    struct journal_record r;
    struct error e = { 0 };

    (void)journal_lmdb_ops.find(j, "demo", &r, &e);
    return e.code;
}

static enum error_code try_list(struct journal *j)
{
    struct error e = { 0 };
    int count = 0;

    (void)journal_each_record(j, count_record, &count, &e);
    return e.code;
}

static enum error_code try_log(struct journal *j)
{
    struct journal_filter filter = { .limit = 1 };
    struct seen seen = { .count = 0 };
    struct error e = { 0 };

    (void)journal_each_entry(j, &filter, note_entry, &seen, &e);
    return e.code;
}

static enum error_code try_commit(struct journal *j)
{
    struct journal_entry exec = { .kind = JOURNAL_EXEC, .name = "demo" };
    struct journal_guard none = { .absent = false };
    struct error e = { 0 };

    (void)journal_lmdb_ops.commit(j, "demo", &none, &exec, 1, NULL, &e);
    return e.code;
}

static void check_answer(const char *what, const char *who, enum error_code code, bool sees)
{
    if (code != (sees ? ERROR_STORE_CORRUPT : ERROR_NONE))
        fail_msg("%s: %s says %s", what, who, error_code_name(code));
}

static void test_journal__rows_that_do_not_agree_are_no_answer(void **state)
{
    struct scratch *s = *state;
    char clear[128];

    snprintf(clear, sizeof(clear), "rm -r %s/journal", s->path);
    for (size_t i = 0; i < ARRAY_LEN(disagreements); i++) {
        const char *what = disagreements[i].what;
        struct journal *j = lab_open(s);

        assert_int_equal(lab_create(j, "demo"), 1);
        assert_int_equal(lab_start(j, "demo"), 1);
        journal_close(j);
        forge(s, disagreements[i].forgery);
        j = lab_open(s);
        check_answer(what, "find", try_find(j), disagreements[i].find_sees);
        check_answer(what, "list", try_list(j), disagreements[i].list_sees);
        check_answer(what, "log", try_log(j), disagreements[i].log_sees);
        check_answer(what, "commit", try_commit(j), disagreements[i].commit_sees);
        journal_close(j);
        assert_int_equal(system(clear), 0);
    }
}

/* --- versions (T11) ------------------------------------------------------------------------------------ */

static int make_newer(void *self, struct database_txn *txn, struct error *e)
{
    struct record_head head;

    (void)self;
    if (tables_get_head(txn, &head, e) < 0)
        return -1;
    head.version = RECORD_VERSION + 1;
    return tables_put_head(txn, &head, e) < 0 ? -1 : 1;
}

static void test_journal__a_newer_format_is_read_and_not_written(void **state)
{
    struct scratch *s = *state;
    struct database_options options = { .read_only = false };
    struct journal_entry exec = { .kind = JOURNAL_EXEC, .name = "demo" };
    struct journal_guard none = { .absent = false };
    struct database *db = NULL;
    struct error e = { 0 };
    struct journal *j = lab_open(s);

    assert_int_equal(lab_create(j, "demo"), 1);
    journal_close(j);
    assert_int_equal(database_open(s->dir, s->path, "journal", &options, &db, &e), 1);
    assert_int_equal(database_write(db, make_newer, NULL, &e), 1);
    database_close(db);
    j = lab_open(s);
    assert_string_equal(lab_state(j, "demo"), "stopped");
    check_seen(walk(j, (struct journal_filter){ .name = "demo" }), 6, 1, 6);
    assert_int_equal(journal_lmdb_ops.commit(j, "demo", &none, &exec, 1, NULL, &e), -1);
    assert_int_equal(e.code, ERROR_PLATFORM_NOT_SUPPORTED);
    assert_non_null(strstr(e.message, "newer"));
    journal_close(j);
}

/* The journal that version 1 wrote: created and started "demo", created and removed "gone". */
static void test_journal__version_1_is_read_and_continued(void **state)
{
    struct scratch *s = *state;
    char command[1024];

    if (sysconf(_SC_PAGESIZE) != 4096)
        skip(); /* LMDB's pages are the system's: the file is of another kind of machine */
    if (getenv("AD_GOLDEN_WRITE") != NULL) { /* only for a version that was never released */
        struct journal *j = lab_open(s);

        assert_true(lab_create(j, "demo") == 1 && lab_start(j, "demo") == 1 && lab_create(j, "gone") == 1 &&
                    lab_remove(j, "gone") == 1);
        journal_close(j);
        snprintf(command, sizeof(command),
                 "gzip -9nc %s/" LAB_DATA " > %s/journal-v1.mdb.gz; rm -r %s/journal", s->path, AD_GOLDEN_DIR,
                 s->path);
        assert_int_equal(system(command), 0);
    }
    snprintf(command, sizeof(command), "mkdir -m 700 %s/journal && zcat %s/journal-v1.mdb.gz > %s/" LAB_DATA,
             s->path, AD_GOLDEN_DIR, s->path);
    assert_int_equal(system(command), 0);
    struct journal *j = lab_open(s);

    assert_string_equal(lab_state(j, "demo"), "running");
    assert_string_equal(lab_state(j, "gone"), "missing");
    check_seen(walk(j, (struct journal_filter){ .name = "gone" }), 12, 13, 24);
    assert_int_equal(lab_stop(j, "demo"), 1);
    assert_int_equal(lab_remove(j, "demo"), 1);
    assert_int_equal(lab_create(j, "demo"), 1);
    journal_close(j);
    assert_true(lab_verify(s, NULL));
}

/* --- a full disk --------------------------------------------------------------------------------------- */

#define FULL_SANDBOXES 20

static int commit_one(struct journal *j, const struct journal_entry *entry, bool ends)
{
    struct journal_guard guard = { .ends = ends };
    struct error e = { 0 };
    int r = journal_lmdb_ops.commit(j, entry->name, &guard, entry, 1, NULL, &e);

    return r < 0 ? -(int)e.code : r;
}

/* A run's two entries. 1, or the negative code of the first. */
static int exec_once(struct journal *j, const char *name)
{
    struct journal_entry entry = {
        .kind = JOURNAL_EXEC, .name = name, .phase = "begin", .word = "true", .argc = 1, .attempt = 1
    };
    int begun = commit_one(j, &entry, false);

    entry.phase = "done";
    return begun == 1 ? commit_one(j, &entry, true) : begun;
}

static void name_it(char name[16], int number)
{
    snprintf(name, 16, "s%d", number);
}

static int end_all_on_a_full_disk(void *arg)
{
    struct scratch *s = arg;
    char name[16];
    int r = 1;

    if (!scratch_mount_small(s, "size=4m"))
        return SCRATCH_SKIP;
    struct journal *j = lab_open(s);

    for (int i = 0; i < FULL_SANDBOXES; i++) {
        name_it(name, i);
        CHECK(lab_create(j, name) == 1 && lab_start(j, name) == 1);
    }
    scratch_fill(s);
    for (int i = 0; i < 5000 && r == 1; i++)
        r = exec_once(j, "s0");
    CHECK(r == -ERROR_STORE_FULL);
    struct journal_entry
        refused = { .kind = JOURNAL_REFUSED, .name = "s0", .event = "start", .state = "running" },
        created = { .kind = JOURNAL_OP, .name = "new", .id = "1", .command = "create", .token = "t" };

    CHECK(commit_one(j, &refused, false) == -ERROR_STORE_FULL);
    CHECK(commit_one(j, &created, false) == -ERROR_STORE_FULL);
    CHECK(strcmp(lab_state(j, "new"), "missing") == 0);
    for (int i = 0; i < FULL_SANDBOXES; i++) {
        name_it(name, i);
        CHECK(lab_stop(j, name) == 1);
        CHECK(lab_remove(j, name) == 1);
    }
    CHECK(unlinkat(s->dir, "filler", 0) == 0);
    CHECK(commit_one(j, &created, false) == 1); /* the room is kept anew */
    journal_close(j);
    CHECK(lab_verify(s, NULL));
    return 0;
}

/* The last half of what is kept on the disk is for what frees it: runs, refusals and creates cannot use it
 * up. */
static void test_journal__stop_and_remove_work_however_full_the_disk_is(void **state)
{
    scratch_run_as_test(end_all_on_a_full_disk, *state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(test_journal__a_missing_one_reads_as_empty),
        TEST(test_journal__a_missing_root_reads_as_empty),
        TEST(test_journal__one_that_is_missing_beside_sandboxes_is_lost),
        TEST(test_journal__what_is_no_sandbox_does_not_miss_one),
        TEST(test_journal__without_a_free_descriptor_is_a_limit),
        TEST(test_journal__a_reader_does_not_write),
        TEST(test_journal__remembers_what_was_committed),
        TEST(test_journal__a_guard_that_does_not_hold_changes_nothing),
        TEST(test_journal__entries_too_long_are_refused_and_leave_no_trace),
        TEST(test_journal__says_who_wrote_and_when),
        TEST(test_journal__keeps_providers_apart),
        TEST(test_journal__walks_pass_what_the_filter_says),
        TEST(test_journal__a_walk_ends_when_it_is_told),
        TEST(test_journal__a_walk_holds_nobody_up_and_has_an_end),
        TEST(test_journal__records_are_the_fold_of_the_entries),
        TEST(test_journal__verification_says_where_it_breaks),
        TEST(test_journal__rows_that_do_not_agree_are_no_answer),
        TEST(test_journal__a_newer_format_is_read_and_not_written),
        TEST(test_journal__version_1_is_read_and_continued),
        TEST(test_journal__stop_and_remove_work_however_full_the_disk_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

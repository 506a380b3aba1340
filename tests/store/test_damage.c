/* T12: whatever happens to data.mdb, no caller dies of a signal and nobody is told a wrong state. An answer
 * is right, or "damaged", or STORE_CORRUPT, or the prepared reply. */
#include <fcntl.h>
#include <signal.h>
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

#include "core/util.h"
#include "tests/store/lab.h"

#define REPLY        "{\"ok\":false,\"error\":{\"code\":\"STORE_CORRUPT\"}}\n"
#define REPLY_STATUS 7
#define PAGE         4096

/* The fixture: what is true, and data.mdb as it should be. */
static const struct {
    const char *name;
    const char *state;
} truths[] = {
    { "runs", "running" }, { "stopped", "stopped" }, { "gone", "missing" }, { "never", "missing" }
};

struct fixture {
    struct scratch *s;
    char *good; /* data.mdb */
    size_t size;
};

static void make_fixture(struct scratch *s, struct fixture *f)
{
    struct stat st;
    struct journal *j = lab_open(s);
    char name[JOURNAL_NAME_SIZE];

    for (int i = 0; i < 30; i++) { /* so that the tables have more than one page */
        snprintf(name, sizeof(name), "other-%d", i);
        assert_int_equal(lab_create(j, name), 1);
    }
    assert_int_equal(lab_create(j, "runs"), 1);
    assert_int_equal(lab_create(j, "stopped"), 1);
    assert_int_equal(lab_create(j, "gone"), 1);
    assert_int_equal(lab_remove(j, "gone"), 1);
    assert_int_equal(lab_start(j, "runs"), 1);
    assert_int_equal(lab_exec(j, "runs"), 1);
    journal_close(j);
    f->s = s;
    AUTO_CLOSE int fd = openat(s->dir, LAB_DATA, O_RDONLY);

    assert_int_equal(fstat(fd, &st), 0);
    f->size = (size_t)st.st_size;
    f->good = malloc(f->size);
    assert_int_equal(read(fd, f->good, f->size), f->size);
}

static void put_data(const struct fixture *f, const char *bytes, size_t size)
{
    AUTO_CLOSE int fd = openat(f->s->dir, LAB_DATA, O_WRONLY | O_TRUNC);

    if (write(fd, bytes, size) != (ssize_t)size)
        abort();
}

/* --- what a caller may see ----------------------------------------------------------------------------- */

static bool is_acceptable(const char *state, const char *truth)
{
    return strcmp(state, truth) == 0 || strcmp(state, "broken") == 0 ||
           strcmp(state, "error STORE_CORRUPT") == 0;
}

static const char *truth_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(truths); i++)
        if (strcmp(truths[i].name, name) == 0)
            return truths[i].state;
    return "stopped";
}

static int check_listed(void *self, const struct journal_record *r, struct error *e)
{
    int *listed = self;

    ++*listed;
    if (is_acceptable(r->state, truth_of(r->name)) && strcmp(truth_of(r->name), "missing") != 0)
        return 0;
    fprintf(stderr, "listed: %s is %s\n", r->name, r->state);
    return error_set(e, ERROR_INTERNAL, 0, "wrong");
}

static int ignore_entry(void *self, const struct journal_entry *entry, struct error *e)
{
    (void)self, (void)entry, (void)e;
    return 0;
}

/* 0, or 1 when something wrong was told. The prepared reply ends the process instead. */
static int look_at_all(void *arg)
{
    const struct fixture *f = arg;
    struct journal_filter one = { .name = "runs", .limit = 3 };
    struct journal *j = NULL;
    struct error e = { 0 };
    struct root root;
    int listed = 0;

    alarm(20); /* a damaged tree must not be walked for ever */
    journal_set_crash_reply("", REPLY_STATUS);
    lab_root(f->s, &root);
    if (journal_open(&root, JOURNAL_READ, &j, &e) != 1)
        return e.code == ERROR_STORE_CORRUPT ? 0 : 1;
    for (size_t i = 0; i < ARRAY_LEN(truths); i++)
        CHECK(is_acceptable(lab_state(j, truths[i].name), truths[i].state));
    if (journal_each_record(j, check_listed, &listed, &e) < 0)
        CHECK(e.code == ERROR_STORE_CORRUPT);
    else
        CHECK(listed == 32);
    e = (struct error){ 0 };
    if (journal_each_entry(j, &one, ignore_entry, NULL, &e) < 0)
        CHECK(e.code == ERROR_STORE_CORRUPT);
    journal_close(j);
    return 0;
}

/* The same for a command that writes: when it says yes, the new state is what is seen from then on. */
static int stop_one(void *arg)
{
    const struct fixture *f = arg;
    struct journal_guard running = { .state = "running" };
    struct journal_entry move = { .kind = JOURNAL_MOVE, .name = "runs", .to = "stopped" };
    struct journal *j = NULL;
    struct error e = { 0 };
    struct root root;

    alarm(20);
    journal_set_crash_reply("", REPLY_STATUS);
    lab_root(f->s, &root);
    if (journal_open(&root, JOURNAL_WRITE, &j, &e) != 1)
        return e.code == ERROR_STORE_CORRUPT ? 0 : 1;
    int r = journal_lmdb_ops.commit(j, "runs", &running, &move, 1, NULL, &e);
    const char *state = lab_state(j, "runs");

    CHECK(r >= 0 || e.code == ERROR_STORE_CORRUPT || e.code == ERROR_STORE_FULL);
    CHECK(is_acceptable(state, r == 1 ? "stopped" : "running"));
    journal_close(j);
    return 0;
}

struct call {
    scratch_child_fn *fn;
    struct fixture *f;
};

static int quietly(void *arg)
{
    const struct call *call = arg;
    int null = open("/dev/null", O_WRONLY);

    if (getenv("AD_LOUD") == NULL) /* LMDB's own last words */
        dup2(null, STDERR_FILENO);
    return call->fn(call->f);
}

static void check_case(struct fixture *f, const char *what, size_t at)
{
    struct call calls[] = { { look_at_all, f }, { stop_one, f } };

    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        int status = scratch_run(quietly, &calls[i]);

        if (status != 0 && status != REPLY_STATUS)
            fail_msg("%s at %zu, %s: %d", what, at, i == 0 ? "reading" : "writing", status);
    }
}

/* --- damage -------------------------------------------------------------------------------------------- */

/* AD_DAMAGE_STRIDE=1 tries every byte; by default every page is met in a hundred places or so. */
static size_t stride(void)
{
    const char *set = getenv("AD_DAMAGE_STRIDE");

    return set == NULL ? 397 : (size_t)atol(set);
}

static void test_damage__no_flipped_bit_tells_a_lie(void **state)
{
    struct fixture f;
    unsigned seed = 3;

    make_fixture(*state, &f);
    for (size_t at = 0; at < f.size; at += stride()) {
        char was = f.good[at];

        f.good[at] = (char)(was ^ 1 << rand_r(&seed) % 8);
        put_data(&f, f.good, f.size);
        check_case(&f, "flipped bit", at);
        f.good[at] = was;
    }
    free(f.good);
}

/* The places where one bit means most: both meta pages and the head of every page. */
static void test_damage__no_flipped_bit_in_a_header_tells_a_lie(void **state)
{
    struct fixture f;

    make_fixture(*state, &f);
    for (size_t page = 0; page < f.size / PAGE; page++)
        for (size_t byte = 0; byte < (page < 2 ? 152 : 20); byte += page < 2 ? 1 : 3) {
            size_t at = page * PAGE + byte;
            char was = f.good[at];

            f.good[at] = (char)(was ^ 1 << (page + byte) % 8);
            put_data(&f, f.good, f.size);
            check_case(&f, "flipped bit in a header", at);
            f.good[at] = was;
        }
    free(f.good);
}

static void test_damage__no_cut_tells_a_lie(void **state)
{
    struct fixture f;

    make_fixture(*state, &f);
    for (size_t size = 0; size < f.size; size += size < 4 * PAGE ? 1111 : 3 * PAGE + 1) {
        put_data(&f, f.good, size);
        check_case(&f, "cut", size);
    }
    free(f.good);
}

static void test_damage__no_lost_page_tells_a_lie(void **state)
{
    struct fixture f;

    make_fixture(*state, &f);
    for (size_t page = 0; page < f.size / PAGE; page++)
        for (int i = 0; i < 2; i++) {
            char was[PAGE], *there = f.good + page * PAGE;

            memcpy(was, there, PAGE);
            if (i == 0)
                memset(there, 0, PAGE);
            else /* a write that went to the wrong place */
                memmove(there, f.good + (page + 1) * PAGE % f.size, PAGE);
            put_data(&f, f.good, f.size);
            check_case(&f, i == 0 ? "zeroed page" : "page of another", page);
            memcpy(there, was, PAGE);
        }
    free(f.good);
}

static void swap_pages(char *a, char *b)
{
    char was[PAGE];

    memcpy(was, a, PAGE);
    memcpy(a, b, PAGE);
    memcpy(b, was, PAGE);
}

static void test_damage__no_meta_page_out_of_place_tells_a_lie(void **state)
{
    struct fixture f;

    make_fixture(*state, &f);
    swap_pages(f.good, f.good + PAGE);
    put_data(&f, f.good, f.size);
    check_case(&f, "swapped metas", 0);
    swap_pages(f.good, f.good + PAGE);
    for (int i = 0; i < 2; i++) { /* one of the two is the older */
        char was[PAGE];

        memcpy(was, f.good + i * PAGE, PAGE);
        memcpy(f.good + i * PAGE, f.good + !i * PAGE, PAGE);
        put_data(&f, f.good, f.size);
        check_case(&f, "meta over meta", (size_t)i);
        memcpy(f.good + i * PAGE, was, PAGE);
    }
    free(f.good);
}

/* The size of a page stands in the meta pages, and LMDB divides by it. */
#define META_PAGE_SIZE_AT 40

static void test_damage__a_page_size_of_nothing_is_survived(void **state)
{
    struct fixture f;

    make_fixture(*state, &f);
    memset(f.good + META_PAGE_SIZE_AT, 0, 4);
    memset(f.good + PAGE + META_PAGE_SIZE_AT, 0, 4);
    put_data(&f, f.good, f.size);
    check_case(&f, "page size", 0);
    free(f.good);
}

/* Without the lock file there is only data.mdb to go by. */
static void test_damage__without_the_lock_file_flips_tell_no_lie_either(void **state)
{
    struct fixture f;
    unsigned seed = 5;

    make_fixture(*state, &f);
    for (size_t at = 2 * PAGE; at < f.size; at += stride() * 5) {
        char was = f.good[at];

        f.good[at] = (char)(was ^ 1 << rand_r(&seed) % 8);
        unlinkat(f.s->dir, "journal/lock", 0);
        put_data(&f, f.good, f.size);
        check_case(&f, "flipped bit without lock", at);
        f.good[at] = was;
    }
    free(f.good);
}

/* --- case 7: one damaged value ------------------------------------------------------------------------- */

/* Flips a bit of the record in the file itself. It begins with its version and its name, an entry does not.
 */
static void spoil_value(struct fixture *f, const char *name)
{
    char needle[64];
    int n = snprintf(needle, sizeof(needle), "\xa1v\x01\xa4name%c%s", (char)(0xa0 + strlen(name)), name);

    for (char *at = f->good; (at = memmem(at, f->size - (size_t)(at - f->good), needle, (size_t)n)) != NULL;
         at++)
        at[n - 1] ^= 1; /* this version of the record, and older ones */
    put_data(f, f->good, f->size);
}

struct listing {
    int count, broken;
    struct journal_record damaged;
};

static int note_listed(void *self, const struct journal_record *r, struct error *e)
{
    struct listing *l = self;

    (void)e;
    l->count++;
    if (r->damaged) {
        l->broken++;
        l->damaged = *r;
    } else {
        assert_string_equal(r->state, truth_of(r->name));
    }
    return 0;
}

static void test_damage__one_damaged_record_leaves_the_others_alone(void **state)
{
    struct listing l = { .count = 0 };
    struct journal_record r;
    struct error e = { 0 };
    struct fixture f;

    make_fixture(*state, &f);
    spoil_value(&f, "runs");
    struct journal *j = lab_open(*state);

    assert_int_equal(journal_each_record(j, note_listed, &l, &e), 0);
    assert_int_equal(l.count, 32);
    assert_int_equal(l.broken, 1);
    assert_string_equal(l.damaged.name, "runs");
    assert_string_equal(l.damaged.state, "broken");
    assert_int_not_equal(l.damaged.reason[0], '\0');
    assert_int_equal(journal_lmdb_ops.find(j, "runs", &r, &e), 1);
    assert_true(r.damaged);
    assert_string_equal(r.state, "broken");
    assert_string_equal(r.provider, "linux"); /* as its entries say, so that it can be removed */
    assert_string_equal(facts_get(&r.facts, "address"), "10.0.0.7");
    assert_string_equal(lab_state(j, "stopped"), "stopped");

    assert_int_equal(lab_exec(j, "runs"), 1); /* does not mend it */
    assert_string_equal(lab_state(j, "runs"), "broken");
    journal_close(j);
    struct journal_verdict verdict;

    assert_false(lab_verify(*state, &verdict));
    assert_non_null(strstr(verdict.message, "runs"));
    j = lab_open(*state);
    assert_int_equal(lab_run(j, "runs", "remove", "broken", "removing", "missing"), 1);
    assert_string_equal(lab_state(j, "runs"), "missing");
    journal_close(j);
    assert_true(lab_verify(*state, NULL));
    free(f.good);
}

/* --- the reply ----------------------------------------------------------------------------------------- */

struct crash {
    struct fixture *f;
    int out;
};

static int crash_with_reply(void *arg)
{
    struct crash *c = arg;
    struct journal *j = NULL;
    struct error e = { 0 };
    struct root root;

    dup2(c->out, STDOUT_FILENO);
    journal_set_crash_reply(REPLY, REPLY_STATUS);
    lab_root(c->f->s, &root);
    if (journal_open(&root, JOURNAL_READ, &j, &e) != 1)
        return 1;
    lab_state(j, "runs");
    return 2;
}

/* Cut by fewer pages than LMDB may leave unwritten, the file is opened; a page behind its end is SIGBUS. */
static void test_damage__a_crash_becomes_the_prepared_reply(void **state)
{
    char text[sizeof(REPLY) + 10] = "";
    struct fixture f;
    int ends[2];

    make_fixture(*state, &f);
    assert_int_equal(pipe(ends), 0);
    struct crash c = { .f = &f, .out = ends[1] };
    int status = 0;

    for (size_t pages = f.size / PAGE - 1; status != REPLY_STATUS && pages > 2; pages--) {
        put_data(&f, f.good, pages * PAGE);
        status = scratch_run(crash_with_reply, &c);
    }
    assert_int_equal(status, REPLY_STATUS);
    assert_int_equal(read(ends[0], text, sizeof(text) - 1), sizeof(REPLY) - 1);
    assert_string_equal(text, REPLY);
    close(ends[0]);
    close(ends[1]);

    struct journal_verdict verdict; /* and verification, in its child, survives it */

    assert_false(lab_verify(*state, &verdict));
    assert_int_not_equal(verdict.broken_at, 0);
    free(f.good);
}

static int crash_outside(void *arg)
{
    struct fixture *f = arg;
    struct journal *j;

    journal_set_crash_reply(REPLY, REPLY_STATUS);
    j = lab_open(f->s);
    lab_state(j, "runs");
    signal(SIGSEGV, SIG_DFL); /* not a sanitizer's */
    raise(SIGSEGV);
    return 0;
}

static void test_damage__a_crash_elsewhere_stays_a_crash(void **state)
{
    struct fixture f;

    make_fixture(*state, &f);
    assert_int_equal(scratch_run(crash_outside, &f), 128 + SIGSEGV);
    free(f.good);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(test_damage__no_flipped_bit_tells_a_lie),
        TEST(test_damage__no_flipped_bit_in_a_header_tells_a_lie),
        TEST(test_damage__no_cut_tells_a_lie),
        TEST(test_damage__no_lost_page_tells_a_lie),
        TEST(test_damage__no_meta_page_out_of_place_tells_a_lie),
        TEST(test_damage__a_page_size_of_nothing_is_survived),
        TEST(test_damage__without_the_lock_file_flips_tell_no_lie_either),
        TEST(test_damage__one_damaged_record_leaves_the_others_alone),
        TEST(test_damage__a_crash_becomes_the_prepared_reply),
        TEST(test_damage__a_crash_elsewhere_stays_a_crash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

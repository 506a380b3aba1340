/* Every system call that makes a commit durable fails once, or from then on, before or after it has worked;
 * and the map cannot grow. Whatever the commit answers is true afterwards, and the journal goes on. */
#undef _FILE_OFFSET_BITS /* it makes pwrite another name of pwrite64: LMDB calls the one, we the other */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"
#include "store/database.h"
#include "tests/store/lab.h"

/* --- the calls, in front of the C library's ------------------------------------------------------------ */

static struct {
    int countdown; /* the call that fails first; 0: none */
    bool sticky;   /* and all after it */
    bool late;     /* having done its work */
    int error;
    int hits;
    bool no_map;                     /* files cannot be mapped */
    const struct scratch *meanwhile; /* another process commits as soon as the lock is free after the fault */
} plan;

static bool is_to_fail(void)
{
    if (plan.countdown == 0 || (--plan.countdown > 0))
        return false;
    plan.countdown = plan.sticky ? 1 : 0;
    plan.hits++;
    return true;
}

static long filter(long number, long a, long b, long c, long d)
{
    bool fails = is_to_fail();
    long r = fails && !plan.late ? 0 : syscall(number, a, b, c, d);

    if (!fails)
        return r;
    errno = plan.error;
    return -1;
}

int fdatasync(int fd)
{
    return (int)filter(SYS_fdatasync, fd, 0, 0, 0);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    return filter(SYS_pwrite64, fd, (long)bytes, (long)size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
    return filter(SYS_pwrite64, fd, (long)bytes, (long)size, at);
}

ssize_t pwritev(int fd, const struct iovec *v, int count, off_t at)
{
    bool fails = is_to_fail();
    ssize_t r = fails && !plan.late ? 0 : syscall(SYS_pwritev, fd, v, count, at, 0);

    if (!fails)
        return r;
    errno = plan.error;
    return -1;
}

ssize_t writev(int fd, const struct iovec *v, int count)
{
    return filter(SYS_writev, fd, (long)v, count, 0);
}

void *mmap(void *at, size_t size, int access, int flags, int fd, off_t from)
{
    if (plan.no_map && fd >= 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, size, access, flags, fd, from);
}

void *mmap64(void *at, size_t size, int access, int flags, int fd, off64_t from)
{
    return mmap(at, size, access, flags, fd, from);
}

static int commit_other(void *scratch)
{
    struct journal *j = lab_open(scratch);

    CHECK(lab_exec(j, "other") == 1);
    journal_close(j);
    return 0;
}

int flock(int fd, int operation)
{
    int r = (int)syscall(SYS_flock, fd, operation);
    struct scratch s;

    if (operation == LOCK_UN && plan.hits > 0 && plan.meanwhile != NULL) {
        s = *plan.meanwhile;
        plan.meanwhile = NULL;
        assert_int_equal(scratch_run(commit_other, &s), 0);
    }
    return r;
}

/* --- the tests ----------------------------------------------------------------------------------------- */

static int stop(struct journal *j, struct error *e)
{
    struct journal_guard guard = { .state = "running" };
    struct journal_entry move = { .kind = JOURNAL_MOVE, .name = "demo", .to = "stopped" };

    return journal_lmdb_ops.commit(j, "demo", &guard, &move, 1, NULL, e);
}

/* Returns whether the fault was met. */
static bool check_fault(struct journal *j, int call, bool sticky, bool late, int error)
{
    struct error e = { 0 };

    assert_int_equal(lab_run(j, "demo", "start", "stopped", "starting", "running"), 1);
    plan.countdown = call;
    plan.sticky = sticky;
    plan.late = late;
    plan.error = error;
    plan.hits = 0;
    int r = stop(j, &e);

    plan.countdown = 0;
    const char *state = lab_state(j, "demo");

    if (r == 1)
        assert_string_equal(state, "stopped");
    else if (e.delivery == DELIVERY_NOT_DELIVERED)
        assert_string_equal(state, "running");
    else if (e.delivery == DELIVERY_DELIVERED_UNVERIFIED)
        assert_string_equal(state, "stopped");
    if (r < 0)
        assert_int_equal(e.code, error == ENOSPC ? ERROR_STORE_FULL : ERROR_INTERNAL);
    if (strcmp(state, "running") == 0)
        assert_int_equal(stop(j, &(struct error){ 0 }), 1); /* the same journal goes on */
    assert_string_equal(lab_state(j, "demo"), "stopped");
    return plan.hits > 0;
}

static void test_faults__what_a_commit_answers_is_true(void **state)
{
    static const int errors[] = { EIO, ENOSPC };
    struct journal *j = lab_open(*state);
    int met = 0;

    assert_int_equal(lab_create(j, "demo"), 1);
    for (int kind = 0; kind < 8; kind++) {
        int call = 1;

        while (check_fault(j, call, kind & 1, kind >> 1 & 1, errors[kind >> 2]))
            call++;
        met += call - 1;
    }
    journal_close(j);
    assert_true(met >= 8 * 3); /* pages, their flush, the meta page */
    assert_true(lab_verify(*state, NULL));
}

/* The other one's entry has the number that ours would have had. */
static void test_faults__another_ones_commit_is_not_taken_for_ours(void **state)
{
    struct journal *j = lab_open(*state);
    struct error e = { 0 };

    assert_int_equal(lab_create(j, "demo"), 1);
    assert_int_equal(lab_start(j, "demo"), 1);
    plan.countdown = 1;
    plan.sticky = plan.late = false;
    plan.error = EIO;
    plan.hits = 0;
    plan.meanwhile = *state;
    assert_int_equal(stop(j, &e), -1);
    assert_null(plan.meanwhile); /* it did commit */
    assert_int_equal(e.delivery, DELIVERY_NOT_DELIVERED);
    assert_int_equal(e.retry, RETRY_SAFE);
    assert_string_equal(lab_state(j, "demo"), "running");
    journal_close(j);
    assert_true(lab_verify(*state, NULL));
}

/* --- growth -------------------------------------------------------------------------------------------- */

static int put_rows(void *self, struct database_txn *txn, struct error *e)
{
    static const char value[3000];

    for (uint8_t i = 0; i < *(uint8_t *)self; i++)
        if (database_put(txn, TABLE_EVENTS, (struct bytes){ &i, 1 }, (struct bytes){ value, sizeof(value) },
                         e) < 0)
            return -1;
    return 1;
}

static int count_row(void *self, struct bytes key, struct bytes value, struct error *e)
{
    (void)key, (void)value, (void)e;
    ++*(int *)self;
    return 1;
}

static int count_rows(void *self, struct database_txn *txn, struct error *e)
{
    *(int *)self = 0;
    return database_walk(txn, TABLE_EVENTS, (struct bytes){ NULL, 0 }, count_row, self, e);
}

static void test_faults__a_map_that_cannot_grow_costs_one_commit(void **state)
{
    const struct database_options small = { .map_bytes = 64 * 1024 };
    const struct scratch *s = *state;
    struct database *db = NULL;
    struct error e = { 0 }, full = { 0 };
    uint8_t few = 2, many = 200;
    int seen;

    assert_int_equal(database_create(s->dir, s->path, "journal", put_rows, &few, &e), 0);
    assert_int_equal(database_open(s->dir, s->path, "journal", &small, &db, &e), 1);
    plan.no_map = true;
    assert_int_equal(database_write(db, put_rows, &many, &full), -1);
    plan.no_map = false;
    assert_int_equal(full.code, ERROR_INTERNAL);
    assert_int_equal(database_read(db, count_rows, &seen, &e), 0);
    assert_int_equal(seen, few);
    assert_int_equal(database_write(db, put_rows, &many, &e), 1);
    assert_int_equal(database_read(db, count_rows, &seen, &e), 0);
    assert_int_equal(seen, many);
    database_close(db);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(test_faults__what_a_commit_answers_is_true),
        TEST(test_faults__another_ones_commit_is_not_taken_for_ours),
        TEST(test_faults__a_map_that_cannot_grow_costs_one_commit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Many processes on one journal: at once, stopped, and killed anywhere. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/lock.h"
#include "core/util.h"
#include "tests/store/lab.h"

/* --- at once ------------------------------------------------------------------------------------------- */

#define WRITERS 4
#define COMMITS 40

struct worker {
    struct scratch *s;
    char name[2];
    unsigned seed;
};

static int commit_often(void *arg)
{
    const struct worker *w = arg;
    struct journal *j = lab_open(w->s);

    for (int i = 0; i < COMMITS; i++)
        CHECK(lab_exec(j, w->name) == 1);
    journal_close(j);
    return 0;
}

static int count_entry(void *self, const struct journal_entry *entry, struct error *e)
{
    (void)entry, (void)e;
    ++*(int *)self;
    return 0;
}

static void test_processes__writers_at_once_lose_nothing(void **state)
{
    struct worker workers[WRITERS];
    pid_t pids[WRITERS];
    struct error e = { 0 };

    for (int i = 0; i < WRITERS; i++) { /* the first one makes the journal */
        workers[i] = (struct worker){ .s = *state, .name = { (char)('a' + i), '\0' } };
        pids[i] = scratch_start(commit_often, &workers[i]);
    }
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(scratch_wait(pids[i]), 0);
    struct journal *j = lab_open(*state);

    for (int i = 0; i < WRITERS; i++) {
        struct journal_filter filter = { .name = workers[i].name };
        int count = 0;

        assert_int_equal(journal_each_entry(j, &filter, count_entry, &count, &e), 0);
        assert_int_equal(count, COMMITS);
    }
    journal_close(j);
    assert_true(lab_verify(*state, NULL));
}

/* of those that race for one name, one wins. */
static int create_if_absent(void *arg)
{
    const struct worker *w = arg;
    struct journal_guard guard = { .absent = true };
    struct journal_entry move = { .kind = JOURNAL_MOVE, .name = "demo", .to = "stopped" };
    struct journal *j = lab_open(w->s);
    struct error e = { 0 };
    int r = journal_lmdb_ops.commit(j, "demo", &guard, &move, 1, NULL, &e);

    journal_close(j);
    return r;
}

static void test_processes__one_of_those_that_race_wins(void **state)
{
    struct worker worker = { .s = *state };
    pid_t pids[WRITERS];
    int winners = 0;

    for (int i = 0; i < WRITERS; i++)
        pids[i] = scratch_start(create_if_absent, &worker);
    for (int i = 0; i < WRITERS; i++)
        winners += scratch_wait(pids[i]);
    assert_int_equal(winners, 1);
    assert_true(lab_verify(*state, NULL));
}

/* --- stopped ------------------------------------------------------------------------------------------- */

static int write_forever(void *arg)
{
    const struct worker *w = arg;
    struct journal *j = lab_open(w->s);

    for (;;)
        if (lab_exec(j, w->name) != 1)
            return 1;
}

/* Stops the writer while it holds the lock. */
static void stop_inside(const struct scratch *s, pid_t pid)
{
    struct error e = { 0 };
    int status;

    for (int held = 0; held != 1;) {
        kill(pid, SIGSTOP);
        waitpid(pid, &status, WUNTRACED);
        held = lock_is_held(s->dir, "journal/lock", &e);
        if (held != 1)
            kill(pid, SIGCONT);
    }
}

static void test_processes__a_stopped_writer_makes_others_busy_not_stuck(void **state)
{
    struct worker worker = { .s = *state, .name = "a" };
    struct journal_entry exec = { .kind = JOURNAL_EXEC, .name = "b" };
    struct journal_guard none = { .absent = false };
    struct error e = { 0 };
    struct journal *j = lab_open(*state);
    pid_t pid = scratch_start(write_forever, &worker);

    while (strcmp(lab_state(j, "a"), "missing") != 0)
        ;
    stop_inside(*state, pid);
    int64_t begun = clock_mono_ms();

    assert_int_equal(journal_lmdb_ops.commit(j, "b", &none, &exec, 1, NULL, &e), -1);
    assert_int_equal(e.code, ERROR_STORE_BUSY);
    assert_in_range(clock_mono_ms() - begun, 1900, 3500);
    assert_string_equal(lab_state(j, "a"), "error STORE_BUSY");
    kill(pid, SIGKILL); /* its lock is freed, its transaction never was */
    scratch_wait(pid);
    assert_string_equal(lab_state(j, "a"), "missing");
    assert_int_equal(lab_exec(j, "b"), 1);
    journal_close(j);
    assert_true(lab_verify(*state, NULL));
}

/* --- killed -------------------------------------------------------------------------------------------- */

/* Says on a pipe what is acknowledged: the number of commands that have returned. */
struct speaker {
    struct scratch *s;
    int pipe;
    unsigned seed;
};

static int run_and_tell(void *arg)
{
    struct speaker *sp = arg;
    struct journal *j = lab_open(sp->s);

    for (;;) {
        if (lab_exec(j, "a") != 1)
            return 1;
        if (write(sp->pipe, "x", 1) != 1)
            return 2;
    }
}

static int count_told(int fd)
{
    char bytes[4096];
    int told = 0;

    for (ssize_t n; (n = read(fd, bytes, sizeof(bytes))) > 0;)
        told += (int)n;
    return told;
}

/* What was acknowledged is there; at most the one command in flight is there unacknowledged. */
static void test_processes__a_killed_writer_loses_nothing_acknowledged(void **state)
{
    struct journal_filter filter = { .name = "a" };
    struct error e = { 0 };
    unsigned seed = 7;
    int told = 0, before = 0;

    for (int round = 0; round < 25; round++) {
        int ends[2], count = 0;

        assert_int_equal(pipe(ends), 0);
        struct speaker sp = { .s = *state, .pipe = ends[1] };
        pid_t pid = scratch_start(run_and_tell, &sp);

        close(ends[1]);
        usleep((useconds_t)(rand_r(&seed) % 15000)); /* from before the journal is open */
        kill(pid, SIGKILL);
        scratch_wait(pid);
        told = count_told(ends[0]);
        close(ends[0]);
        struct journal *j = lab_open(*state);

        assert_int_equal(journal_each_entry(j, &filter, count_entry, &count, &e), 0);
        journal_close(j);
        assert_in_range(count, before + told, before + told + 1);
        before = count;
    }
    assert_true(before > 0);
    assert_true(lab_verify(*state, NULL));
}

static int run_random(void *arg)
{
    struct worker *w = arg;
    struct journal *j = lab_open(w->s);

    for (;;)
        if (lab_random_command(j, &w->seed, 4) < 0)
            return 1;
}

static void test_processes__kills_at_random_leave_a_sound_journal(void **state)
{
    unsigned seed = 11;

    for (unsigned round = 0; round < 10; round++) {
        struct worker workers[3];
        pid_t pids[ARRAY_LEN(workers)];

        for (unsigned i = 0; i < ARRAY_LEN(workers); i++) {
            workers[i] = (struct worker){ .s = *state, .seed = round * 10 + i };
            pids[i] = scratch_start(run_random, &workers[i]);
        }
        for (size_t i = 0; i < ARRAY_LEN(workers); i++) {
            usleep((useconds_t)(rand_r(&seed) % 15000));
            kill(pids[i], SIGKILL);
        }
        for (size_t i = 0; i < ARRAY_LEN(workers); i++)
            assert_int_equal(scratch_wait(pids[i]), 128 + SIGKILL);
        assert_true(lab_verify(*state, NULL));
    }
}

/* --- verification -------------------------------------------------------------------------------------- */

static int verify_and_be_told(void *arg)
{
    struct journal_verdict verdict;
    struct error e = { 0 };
    struct root root;

    lab_root(arg, &root);
    CHECK(journal_verify(&root, &verdict, &e) == -1);
    CHECK(e.code == ERROR_INTERNAL);
    return 0;
}

/* 0 while there is none. */
static pid_t find_child_of(pid_t pid)
{
    char path[64];
    int child = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *in = fopen(path, "r");

    if (in == NULL)
        return -1;
    if (fscanf(in, "%d", &child) != 1)
        child = 0;
    fclose(in);
    return child;
}

/* Whoever kills it (a person, the kernel short of memory) says nothing about the journal. */
static void test_processes__a_killed_verification_is_no_verdict(void **state)
{
    struct scratch *s = *state;
    struct journal *j = lab_open(s);
    struct error e = { 0 };
    pid_t child;
    int turn;

    if (find_child_of(getpid()) < 0) {
        journal_close(j);
        skip(); /* a kernel without CONFIG_PROC_CHILDREN */
    }
    assert_int_equal(lab_create(j, "demo"), 1);
    journal_close(j);
    assert_int_equal(lock_take(s->dir, "journal/turn", LOCK_EXCLUSIVE, 0, &turn, &e), 1); /* it has to wait */
    pid_t pid = scratch_start(verify_and_be_told, s);

    while ((child = find_child_of(pid)) == 0)
        clock_sleep_ms(1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(scratch_wait(pid), 0);
    close(turn);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(test_processes__writers_at_once_lose_nothing),
        TEST(test_processes__one_of_those_that_race_wins),
        TEST(test_processes__a_stopped_writer_makes_others_busy_not_stuck),
        TEST(test_processes__a_killed_writer_loses_nothing_acknowledged),
        TEST(test_processes__kills_at_random_leave_a_sound_journal),
        TEST(test_processes__a_killed_verification_is_no_verdict),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

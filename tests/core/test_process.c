#include "core/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/copy.h"
#include "core/process_kin.h"
#include "core/spawn.h"
#include "tests/core/scratch.h"

/* How a child behaves. It tells its pid on a pipe when it is ready, and whoever has a copy of that pipe's
 * other end is alive: its end of file proves that all of them are gone. */
struct behaviour {
    const char *name; /* for prctl(2) */
    bool own_session;
    bool ignores_term;
    bool has_child; /* one more process like it, in the same group */
    int ready[2];
    pid_t second; /* that one */
};

static int behave(void *arg)
{
    const struct behaviour *b = arg;
    pid_t self;

    if (b->own_session)
        setsid();
    if (b->ignores_term)
        signal(SIGTERM, SIG_IGN);
    if (b->name != NULL)
        prctl(PR_SET_NAME, b->name);
    if (b->has_child && fork() < 0)
        return 1;
    self = getpid();
    if (write(b->ready[1], &self, sizeof(self)) != (ssize_t)sizeof(self))
        return 1;
    for (;;)
        pause();
}

static pid_t start(struct behaviour *b)
{
    int others = b->has_child ? 2 : 1;
    pid_t pid, told;

    assert_int_equal(pipe(b->ready), 0);
    pid = scratch_start(behave, b);
    close(b->ready[1]);
    for (int i = 0; i < others; i++) {
        assert_int_equal(read(b->ready[0], &told, sizeof(told)), sizeof(told));
        if (told != pid)
            b->second = told;
    }
    return pid;
}

/* Have all that inherited the pipe gone within five seconds? */
static bool all_gone(const struct behaviour *b)
{
    struct pollfd end = { .fd = b->ready[0], .events = POLLIN };
    bool gone = poll(&end, 1, 5000) == 1 && (end.revents & POLLHUP) != 0;

    close(b->ready[0]);
    return gone;
}

static void finish(pid_t pid, const struct behaviour *b)
{
    kill(pid, SIGKILL);
    scratch_wait(pid);
    close(b->ready[0]);
}

static void test_process__knows_itself(void **state)
{
    struct process_id self, again;

    (void)state;
    process_read_self(&self);
    assert_int_equal(self.pid, getpid());
    assert_true(self.start > 0);
    assert_int_equal(strlen(self.boot), 36);
    assert_string_equal(self.boot, process_boot_id());
    assert_int_equal(process_read(getpid(), &again), 0);
    assert_memory_equal(&self, &again, sizeof(self));
}

static void test_process__reads_stat_behind_the_last_bracket_whatever_the_name(void **state)
{
    static const char *const names[] = { ") Z 1 1 1", "a b) R (", "))))", "(", "\n) 1" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct behaviour b = { .name = names[i] };
        struct process_id self, id;
        pid_t pid = start(&b);

        process_read_self(&self);
        assert_int_equal(process_read(pid, &id), 0);
        assert_int_equal(id.pid, pid);
        assert_true(id.start >= self.start && id.start < self.start + UINT64_C(360000));
        finish(pid, &b);
    }
}

static void test_process__opens_exactly_the_one_that_was_recorded(void **state)
{
    struct behaviour b = { 0 };
    pid_t pid;
    struct process_id id, other_start, other_boot;
    struct error e = { 0 };
    int pidfd = -7;

    (void)state;
    scratch_need_pidfd();
    pid = start(&b);
    assert_int_equal(process_read(pid, &id), 0);
    other_start = other_boot = id;
    other_start.start--; /* the number was somebody else's */
    other_boot.boot[0] = other_boot.boot[0] == 'a' ? 'b' : 'a';
    assert_int_equal(process_open(&other_start, &pidfd, &e), 0);
    assert_int_equal(process_open(&other_boot, &pidfd, &e), 0);
    assert_int_equal(process_open(&(struct process_id){ 0 }, &pidfd, &e), 0);
    assert_int_equal(pidfd, -7);
    assert_int_equal(process_open(&id, &pidfd, &e), 1);
    assert_int_equal(process_wait_gone(pidfd, 20), 0);
    close(pidfd);
    finish(pid, &b);
    assert_int_equal(process_open(&id, &pidfd, &e), 0);
    assert_int_equal(process_read(pid, &id), -1);
}

static void test_process__a_zombie_is_gone(void **state)
{
    struct behaviour b = { 0 };
    pid_t pid;
    struct process_id id, again;
    struct error e = { 0 };
    siginfo_t info;
    int pidfd = -7;

    (void)state;
    scratch_need_pidfd();
    pid = start(&b);
    assert_int_equal(process_read(pid, &id), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0); /* not reaped */
    assert_int_equal(kill(pid, 0), 0);
    assert_int_equal(process_open(&id, &pidfd, &e), 0);
    assert_int_equal(process_read(pid, &again), -1);
    assert_int_equal(process_end(&id, 1000, &e), 0);
    finish(pid, &b);
}

static void test_process__what_remains_of_one_can_be_waited_for(void **state)
{
    struct behaviour b = { 0 };
    struct process_id id;
    struct error e = { 0 };
    siginfo_t info;
    int pidfd = -1;
    pid_t pid;

    (void)state;
    scratch_need_pidfd();
    pid = start(&b);
    assert_int_equal(process_read(pid, &id), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(process_open_remains(&id, &pidfd, &e), 1);
    assert_int_equal(process_wait_gone(pidfd, 10000), 1);
    close(pidfd);
    finish(pid, &b);
    assert_int_equal(process_open_remains(&id, &pidfd, &e), 0);
}

static void test_process__waits_until_it_is_gone_and_no_longer(void **state)
{
    struct behaviour b = { 0 };
    pid_t pid;
    struct process_id id;
    struct error e = { 0 };
    int64_t begin;
    int pidfd = -1;

    (void)state;
    scratch_need_pidfd();
    pid = start(&b);
    assert_int_equal(process_read(pid, &id), 0);
    assert_int_equal(process_open(&id, &pidfd, &e), 1);
    begin = clock_mono_ms();
    assert_int_equal(process_wait_gone(pidfd, 30), 0);
    assert_true(clock_mono_ms() - begin >= 29);
    kill(pid, SIGKILL);
    assert_int_equal(process_wait_gone(pidfd, 10000), 1); /* not reaped either */
    assert_true(clock_mono_ms() - begin < 9000);
    close(pidfd);
    finish(pid, &b);
}

static void test_process__ends_with_sigterm_what_listens_to_it(void **state)
{
    struct behaviour b = { 0 };
    pid_t pid;
    struct process_id id;
    struct error e = { 0 };

    (void)state;
    scratch_need_pidfd();
    pid = start(&b);
    assert_int_equal(process_read(pid, &id), 0);
    assert_int_equal(process_end(&id, 20000, &e), 0);
    assert_int_equal(scratch_wait(pid), 128 + SIGTERM);
    assert_true(all_gone(&b));
    assert_int_equal(process_end(&id, 20000, &e), 0); /* gone already */
}

static void test_process__kills_what_does_not_listen_after_the_grace(void **state)
{
    struct behaviour b = { .ignores_term = true };
    struct process_id id;
    struct error e = { 0 };
    int64_t begin;
    pid_t pid;

    (void)state;
    scratch_need_pidfd();
    pid = start(&b);
    begin = clock_mono_ms();
    assert_int_equal(process_read(pid, &id), 0);
    assert_int_equal(process_end(&id, 60, &e), 0);
    assert_true(clock_mono_ms() - begin >= 59);
    assert_int_equal(scratch_wait(pid), 128 + SIGKILL);
    assert_true(all_gone(&b));
}

static void test_process__ends_the_children_of_a_session_leader_too(void **state)
{
    static const bool ignores[] = { false, true };

    (void)state;
    scratch_need_pidfd();
    for (size_t i = 0; i < ARRAY_LEN(ignores); i++) {
        struct behaviour b = { .own_session = true, .has_child = true, .ignores_term = ignores[i] };
        pid_t pid = start(&b);
        struct process_id id;
        struct error e = { 0 };

        assert_int_equal(process_read(pid, &id), 0);
        assert_int_equal(process_end(&id, 60, &e), 0);
        scratch_wait(pid);
        assert_true(all_gone(&b));
    }
}

/* Its group is the shell's job, or ours. */
static void test_process__ends_nobody_else_when_it_leads_no_session(void **state)
{
    struct behaviour b = { .has_child = true }; /* in the group of this test */
    pid_t pid;
    struct process_id id;
    struct error e = { 0 };

    (void)state;
    scratch_need_pidfd();
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what is left comes to us */
    pid = start(&b);
    assert_int_equal(process_read(pid, &id), 0);
    assert_int_equal(process_end(&id, 10000, &e), 0);
    assert_int_equal(scratch_wait(pid), 128 + SIGTERM);
    assert_int_equal(process_read(b.second, &id), 0); /* the child of it lives on, and so do we */
    finish(b.second, &b);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static int end_a_stranger(void *arg)
{
    const struct process_id *id = arg;
    struct error e = { 0 };

    if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
        return 1;
    return process_end(id, 100, &e) == -1 && e.code == ERROR_PERM_DENIED ? 0 : 1;
}

static void test_process__does_not_take_a_refusal_for_an_end(void **state)
{
    struct behaviour b = { 0 };
    struct process_id id;
    pid_t pid;

    (void)state;
    scratch_need_pidfd();
    if (geteuid() != 0)
        skip();
    pid = start(&b);
    assert_int_equal(process_read(pid, &id), 0);
    assert_int_equal(scratch_run(end_a_stranger, &id), 0);
    assert_int_equal(kill(pid, 0), 0);
    finish(pid, &b);
}

/* ---- all that came from it ---- */

#define MANY 300 /* more than one page of /proc/PID/task/TID/children holds, with numbers of many digits */

/* Each of the many holds ALIVE's writing end, and ends by itself with the test, which holds LIFELINE's. */
struct many {
    bool orphans; /* their parent ends */
    int alive[2], ready[2], lifeline[2];
};

static int hang_on(const struct many *m)
{
    struct pollfd test_ends = { .fd = m->lifeline[0] };

    setsid();
    CHECK(write(m->ready[1], "", 1) == 1);
    poll(&test_ends, 1, -1);
    return 0;
}

static int lead_many(const struct many *m)
{
    close(m->lifeline[1]);
    setsid();
    for (int i = 0; i < MANY; i++) {
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0)
            _exit(hang_on(m));
    }
    return m->orphans ? 0 : hang_on(m);
}

static int start_many(struct many *m, struct process_kin *k)
{
    char byte;

    CHECK(pipe(m->alive) == 0 && pipe(m->ready) == 0 && pipe(m->lifeline) == 0);
    process_adopt_orphans();
    k->leader = fork();
    CHECK(k->leader >= 0);
    if (k->leader == 0)
        _exit(lead_many(m));
    close(m->alive[1]);
    for (int i = 0; i < MANY; i++)
        CHECK(read(m->ready[0], &byte, 1) == 1);
    return 0;
}

static size_t count_children(pid_t pid)
{
    pid_t *children;
    size_t count = process_children(pid, &children);

    free(children);
    return count;
}

static int kill_many(void *arg)
{
    struct many *m = arg;
    struct process_kin k = { .adopts = true };
    struct pollfd end;
    siginfo_t info;

    CHECK(start_many(m, &k) == 0);
    if (m->orphans)
        CHECK(waitid(P_PID, (id_t)k.leader, &info, WEXITED | WNOWAIT) == 0);
    CHECK(count_children(m->orphans ? getpid() : k.leader) == MANY + (m->orphans ? 1 : 0));
    CHECK(process_kin_remember(&k));
    process_kin_kill(&k);
    end = (struct pollfd){ .fd = m->alive[0], .events = POLLIN };
    CHECK(poll(&end, 1, 20000) == 1 && (end.revents & POLLHUP) != 0);

    for (int64_t end_ms = clock_mono_ms() + 20000; count_children(getpid()) > 1;) {
        CHECK(clock_mono_ms() < end_ms);
        process_kin_reap(&k);
    }
    CHECK(waitpid(k.leader, NULL, 0) == k.leader); /* which is left to us */
    CHECK(!process_kin_remember(&k));
    process_kin_done(&k);
    return 0;
}

static void test_process__ends_all_kin_however_many_there_are(void **state)
{
    (void)state;
    for (int orphans = 0; orphans < 2; orphans++) {
        struct many m = { .orphans = orphans != 0 };

        scratch_run_as_test(kill_many, &m);
    }
}

/* ---- its file ---- */

static void test_process__finds_its_own_file(void **state)
{
    char path[4096], real[4096] = "", little[8];
    struct error e = { 0 };

    (void)state;
    assert_true(readlink("/proc/self/exe", real, sizeof(real) - 1) > 0);
    assert_int_equal(process_self_path(path, sizeof(path), &e), 0);
    assert_string_equal(path, real);
    assert_int_equal(process_self_path(little, sizeof(little), &e), -1);
}

/* main() of a copy of this program that was removed. */
static int look_for_removed_file(const char *path)
{
    char out[4096];
    struct error e = { 0 };

    CHECK(unlink(path) == 0);
    CHECK(process_self_path(out, sizeof(out), &e) == -1);
    CHECK(strstr(e.message, "removed") != NULL);
    return 0;
}

static void test_process__does_not_name_a_file_that_is_no_longer_its_own(void **state)
{
    const struct scratch *s = *state;
    char self[4096], copy[96], *argv[] = { copy, NULL };
    struct error e = { 0 };
    int status = -1;
    pid_t pid;

    snprintf(copy, sizeof(copy), "%s/removed", s->path);
    assert_int_equal(process_self_path(self, sizeof(self), &e), 0);
    assert_int_equal(copy_file(AT_FDCWD, self, s->dir, "removed", NULL, NULL, NULL, &e), 0);
    assert_int_equal(chmod(copy, 0700), 0);
    assert_int_equal(
        spawn_start(&(struct spawn){ .argv = argv, .directory = -1, .streams = { -1, 1, 2 } }, &pid, &e), 0);
    assert_int_equal(spawn_wait(pid, 20000, &status, &e), 1);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    if (argc > 0 && strstr(argv[0], "/removed") != NULL)
        return look_for_removed_file(argv[0]);

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_process__knows_itself),
        cmocka_unit_test(test_process__reads_stat_behind_the_last_bracket_whatever_the_name),
        cmocka_unit_test(test_process__opens_exactly_the_one_that_was_recorded),
        cmocka_unit_test(test_process__a_zombie_is_gone),
        cmocka_unit_test(test_process__what_remains_of_one_can_be_waited_for),
        cmocka_unit_test(test_process__waits_until_it_is_gone_and_no_longer),
        cmocka_unit_test(test_process__ends_with_sigterm_what_listens_to_it),
        cmocka_unit_test(test_process__kills_what_does_not_listen_after_the_grace),
        cmocka_unit_test(test_process__ends_the_children_of_a_session_leader_too),
        cmocka_unit_test(test_process__ends_nobody_else_when_it_leads_no_session),
        cmocka_unit_test(test_process__does_not_take_a_refusal_for_an_end),
        cmocka_unit_test(test_process__ends_all_kin_however_many_there_are),
        cmocka_unit_test(test_process__finds_its_own_file),
        cmocka_unit_test_setup_teardown(test_process__does_not_name_a_file_that_is_no_longer_its_own,
                                        scratch_setup, scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "core/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/file.h"
#include "core/mem.h"
#include "tests/core/scratch.h"

#define LONG_MS 20000 /* never reached where all is well */

/* posix_spawn(3) takes no const, and changes nothing. */
#define WORDS(...) ((char *const *)(uintptr_t)(const char *[]){ __VA_ARGS__, NULL })

/* With nothing but what a test adds. */
#define PROGRAM(...)                                                                                         \
    {                                                                                                        \
        .argv = WORDS(__VA_ARGS__), .directory = -1, .streams = { -1, -1, -1 }                               \
    }
#define SHELL(script) PROGRAM("sh", "-c", script)

static void assert_says(const struct spawn *s, const char *expected)
{
    struct text out = { 0 }, err = { 0 };
    struct error e = { 0 };
    int status = -1;

    assert_int_equal(spawn_capture(s, LONG_MS, 4096, &out, &err, &status, &e), 0);
    assert_string_equal(text_get(&err), "");
    assert_string_equal(text_get(&out), expected);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    text_done(&out);
    text_done(&err);
}

/* ---- what it inherits ---- */

static void test_spawn__passes_arguments_exactly(void **state)
{
    struct spawn s = PROGRAM("printf", "[%s]", "", "a b", "$HOME", "*", "\n", "\xff", "--", "-n");

    (void)state;
    assert_says(&s, "[][a b][$HOME][*][\n][\xff][--][-n]");
}

static void test_spawn__adds_to_the_environment_and_replaces_in_it(void **state)
{
    const char *more[] = { "AD_A=new", "AD_AB=3", "AD_NEW=x y", NULL };
    struct spawn s = SHELL("echo \"$AD_A,$AD_AB,$AD_NEW,$AD_KEPT\"; env | grep -c ^AD_A=");

    (void)state;
    setenv("AD_A", "old", 1);
    setenv("AD_KEPT", "kept", 1);
    s.environment = more;
    assert_says(&s, "new,3,x y,kept\n1\n");
    assert_string_equal(getenv("AD_A"), "old");
}

/* The shell looks by itself: dash opens nothing of its own for -c. */
static void test_spawn__leaves_nothing_open_that_is_not_named(void **state)
{
    static const char script[] = "for fd in 3 4 5 6 7 8 9; do"
                                 " if { true >&$fd; } 2>/dev/null; then echo $fd; fi; done";
    struct spawn s = SHELL(script);
    int keep[] = { 7, 5, -1 };

    (void)state;
    for (int fd = 3; fd < 10; fd++) { /* inherited by all programs, and 5 by none */
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        if (null != fd) {
            assert_int_equal(dup2(null, fd), fd);
            close(null);
        }
        assert_int_equal(fcntl(fd, F_SETFD, fd == 5 ? FD_CLOEXEC : 0), 0);
    }
    assert_says(&s, "");
    s.keep = keep;
    assert_says(&s, "5\n7\n");
    assert_true(fcntl(5, F_GETFD) & FD_CLOEXEC); /* ours stays as it was */
    for (int fd = 3; fd < 10; fd++)
        close(fd);
}

static void test_spawn__streams_may_be_each_other(void **state)
{
    struct spawn s = SHELL("cat; echo err >&2");
    int in[2], out[2];
    int saved[] = { dup(0), dup(1), dup(2) };
    struct error e = { 0 };
    char got[64] = "";
    pid_t pid = -1;
    int status = -1, started;

    (void)state;
    assert_int_equal(descriptor_pipe(in, false), 0);
    assert_int_equal(descriptor_pipe(out, false), 0);
    assert_int_equal(write(in[1], "from 2\n", 7), 7);
    close(in[1]);
    dup2(in[0], 2);  /* the stdin to be */
    dup2(out[1], 0); /* the stdout and stderr to be */
    s.streams[0] = 2;
    s.streams[1] = 0;
    s.streams[2] = 0;
    started = spawn_start(&s, &pid, &e);
    for (int i = 0; i < 3; i++) {
        dup2(saved[i], i);
        close(saved[i]);
    }
    close(in[0]);
    close(out[1]);
    assert_int_equal(started, 0);
    assert_int_equal(spawn_wait(pid, LONG_MS, &status, &e), 1);
    assert_int_equal(status, 0);
    assert_int_equal(read(out[0], got, sizeof(got) - 1), 11);
    assert_string_equal(got, "from 2\nerr\n");
    close(out[0]);
}

static int spawn_without_stdio(void *arg)
{
    struct spawn s = SHELL("cat; echo out; echo err >&2; exit 3");
    struct error e = { 0 };
    struct text out = { 0 }, err = { 0 };
    int status = -1;

    (void)arg;
    close(0);
    close(1);
    close(2);
    if (spawn_capture(&s, LONG_MS, 100, &out, &err, &status, &e) < 0)
        return 1;
    return strcmp(text_get(&out), "out\n") == 0 && strcmp(text_get(&err), "err\n") == 0 ? WEXITSTATUS(status)
                                                                                        : 2;
}

static void test_spawn__needs_no_streams_of_its_caller(void **state)
{
    (void)state;
    assert_int_equal(scratch_run(spawn_without_stdio, NULL), 3);
}

static void test_spawn__works_in_the_directory_of_a_descriptor(void **state)
{
    const struct scratch *s = *state;
    struct spawn in_it = SHELL("cat here");

    scratch_write(s, "here", "content");
    in_it.directory = s->dir;
    assert_says(&in_it, "content");
}

static int spawn_with_odd_signals(void *arg)
{
    const char *number = arg;
    char script[64];
    struct error e = { 0 };
    sigset_t all;
    int status = -1;

    snprintf(script, sizeof(script), "kill -%s $$; exit 7", number);
    struct spawn s = SHELL(script);

    signal(atoi(number), SIG_IGN);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (spawn_capture(&s, LONG_MS, 0, NULL, NULL, &status, &e) < 0)
        return 1;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 100;
}

static void test_spawn__gives_default_signals_and_an_empty_mask(void **state)
{
    static const struct {
        int number;
        const char *name;
    } cases[] = { { SIGHUP, "1" }, { SIGINT, "2" }, { SIGPIPE, "13" }, { SIGTERM, "15" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(scratch_run(spawn_with_odd_signals, (void *)(uintptr_t)cases[i].name),
                         cases[i].number);
}

/* ---- starting ---- */

static void test_spawn__says_what_cannot_be_started(void **state)
{
    const struct scratch *s = *state;
    char no_program[96];
    const char *words[] = { "/nowhere/at-all", "ad-no-such-program", no_program };

    snprintf(no_program, sizeof(no_program), "%s/text", s->path);
    scratch_write(s, "text", "#!/bin/sh\n"); /* not executable */
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        struct spawn program = PROGRAM(words[i]);
        struct error e = { 0 };
        pid_t pid = -7;

        assert_int_equal(spawn_start(&program, &pid, &e), -1);
        assert_non_null(strstr(e.message, words[i]));
        assert_int_equal(e.delivery, DELIVERY_NOT_DELIVERED);
        assert_string_equal(error_code_name(e.code), i == 2 ? "PERM_DENIED" : "ACTION_FAILED");
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child was left */
    }
}

static void test_spawn__detached_it_leads_a_session_and_attached_it_does_not(void **state)
{
    (void)state;
    for (int detach = 0; detach < 2; detach++) {
        struct spawn s = SHELL("kill -STOP $$");
        struct error e = { 0 };
        int status;
        pid_t pid;

        s.detach = detach != 0;
        assert_int_equal(spawn_start(&s, &pid, &e), 0);
        assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
        assert_int_equal(getsid(pid), detach ? pid : getsid(0));
        assert_int_equal(getpgid(pid), detach ? pid : getpgrp());
        spawn_kill(pid);
    }
}

/* ---- ending ---- */

/* They are more than one page of /proc/PID/task/TID/children holds, with numbers of many digits. */
static void test_spawn__ends_three_hundred_children_in_sessions_of_their_own(void **state)
{
    struct spawn s = SHELL("i=0; while [ $i -lt 300 ]; do"
                           " setsid sh -c 'echo; exec sleep 1000' & i=$((i+1)); done; wait");
    struct error e = { 0 };
    int out[2];
    char byte;
    pid_t pid;

    (void)state;
    assert_int_equal(descriptor_pipe(out, false), 0);
    s.streams[1] = out[1];
    assert_int_equal(spawn_start(&s, &pid, &e), 0);
    close(out[1]);
    for (int i = 0; i < 300; i++)
        assert_int_equal(read(out[0], &byte, 1), 1);
    spawn_kill(pid);

    struct pollfd gone = { .fd = out[0], .events = POLLIN };

    assert_int_equal(poll(&gone, 1, LONG_MS), 1);
    assert_int_equal(read(out[0], &byte, 1), 0);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1); /* was waited for */
    close(out[0]);
}

static void test_spawn__ends_nobody_who_is_no_child(void **state)
{
    struct spawn s = SHELL("sleep 1000 & echo $!"); /* which then is init's */
    struct text out = { 0 };
    struct error e = { 0 };
    int alive[2], keep[] = { -1, -1 }, status = -1;
    pid_t stranger;

    (void)state;
    assert_int_equal(descriptor_pipe(alive, false), 0);
    keep[0] = alive[1];
    s.keep = keep;
    assert_int_equal(spawn_capture(&s, LONG_MS, 100, &out, NULL, &status, &e), 0);
    close(alive[1]);
    stranger = (pid_t)strtol(text_get(&out), NULL, 10);
    assert_true(stranger > 1);
    spawn_kill(stranger);

    struct pollfd gone = { .fd = alive[0], .events = POLLIN };

    assert_int_equal(poll(&gone, 1, 200), 0);
    assert_int_equal(kill(stranger, SIGKILL), 0);
    assert_int_equal(poll(&gone, 1, LONG_MS), 1);
    close(alive[0]);
    text_done(&out);
}

/* ---- waiting ---- */

static void test_spawn__waits_as_long_as_it_is_told(void **state)
{
    struct spawn s = SHELL("kill -STOP $$; exit 9");
    struct error e = { 0 };
    int64_t begin;
    int status = -7;
    pid_t pid;

    (void)state;
    assert_int_equal(spawn_start(&s, &pid, &e), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    begin = clock_mono_ms();
    assert_int_equal(spawn_wait(pid, 30, &status, &e), 0);
    assert_true(clock_mono_ms() - begin >= 29);
    kill(pid, SIGCONT);
    assert_int_equal(spawn_wait(pid, -1, &status, &e), 1);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    assert_int_equal(spawn_wait(pid, 0, &status, &e), -1); /* nobody's any more */
}

/* ---- capturing ---- */

static void test_spawn__captures_both_streams_without_a_deadlock_and_drops_what_is_too_much(void **state)
{
    struct spawn s =
        SHELL("i=0; while [ $i -lt 3000 ]; do printf %0999d 1; printf %0999d 2 >&2; i=$((i+1)); done;"
              "kill -KILL $$");
    struct text out = { 0 }, err = { 0 };
    struct error e = { 0 };
    int status = -1;

    (void)state;
    assert_int_equal(spawn_capture(&s, LONG_MS, 1000000, &out, &err, &status, &e), 0);
    assert_int_equal(out.size, 1000000); /* of 2997000 */
    assert_int_equal(err.size, 1000000);
    assert_int_equal(out.bytes[998], '1');
    assert_int_equal(err.bytes[998], '2');
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    text_done(&out);
    text_done(&err);
}

static void test_spawn__has_all_that_was_written_before_the_end(void **state)
{
    struct spawn s = SHELL("head -c 60000 /dev/zero | tr '\\0' x; echo last");

    (void)state;
    for (int i = 0; i < 20; i++) {
        struct text out = { 0 };
        struct error e = { 0 };
        int status = -1;

        assert_int_equal(spawn_capture(&s, LONG_MS, 1 << 20, &out, NULL, &status, &e), 0);
        assert_int_equal(out.size, 60005);
        assert_string_equal(out.bytes + 60000, "last\n");
        text_done(&out);
    }
}

/* hdiutil, for one, leaves a helper behind that keeps what it was started with. */
static void test_spawn__does_not_wait_for_what_its_program_leaves_behind(void **state)
{
    struct spawn s = SHELL("echo begun; sleep 1000 & echo $!");
    struct text out = { 0 };
    struct error e = { 0 };
    int64_t begin = clock_mono_ms();
    int status = -1;

    (void)state;
    assert_int_equal(spawn_capture(&s, LONG_MS, 100, &out, NULL, &status, &e), 0);
    assert_true(clock_mono_ms() - begin < LONG_MS / 2);
    assert_memory_equal(text_get(&out), "begun\n", 6);
    kill((pid_t)strtol(out.bytes + 6, NULL, 10), SIGKILL);
    text_done(&out);
}

/* All that hold a copy of the pipe's other end are gone when it ends. */
static void test_spawn__ends_all_that_was_started_when_the_time_is_over(void **state)
{
    struct spawn s =
        SHELL("trap '' TERM HUP; sleep 1000 & sh -c 'sleep 1000 & sleep 1000; :' & echo begun; wait");
    struct text out = { 0 };
    struct error e = { 0 };
    int64_t begin = clock_mono_ms();
    int alive[2], keep[] = { -1, -1 }, status = -1;
    char byte;

    (void)state;
    assert_int_equal(descriptor_pipe(alive, false), 0);
    keep[0] = alive[1];
    s.keep = keep;
    assert_int_equal(spawn_capture(&s, 300, 100, &out, NULL, &status, &e), -1);
    close(alive[1]);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_non_null(strstr(e.message, "'sh'"));
    assert_true(clock_mono_ms() - begin >= 299);
    assert_string_equal(text_get(&out), "begun\n");

    struct pollfd gone = { .fd = alive[0], .events = POLLIN };

    assert_int_equal(poll(&gone, 1, LONG_MS), 1);
    assert_int_equal(read(alive[0], &byte, 1), 0);
    close(alive[0]);
    text_done(&out);
}

/* As a filter of system calls may have it: waitpid(3) is wait4(2). */
static bool forbid_waiting(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_wait4, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = ARRAY_LEN(code), .filter = code };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int capture_without_waiting(void *arg)
{
    struct spawn s = PROGRAM("sleep", "1000");
    struct error e = { 0 };
    int alive[2], keep[] = { -1, -1 }, status = -1;

    (void)arg;
    if (!forbid_waiting())
        return SCRATCH_SKIP;
    CHECK(descriptor_pipe(alive, false) == 0);
    keep[0] = alive[1];
    s.keep = keep;
    CHECK(spawn_capture(&s, LONG_MS, 100, NULL, NULL, &status, &e) == -1);
    CHECK(e.sys == EPERM);
    close(alive[1]);

    struct pollfd gone = { .fd = alive[0], .events = POLLIN };

    CHECK(poll(&gone, 1, LONG_MS) == 1 && (gone.revents & POLLHUP) != 0);
    return 0;
}

static void test_spawn__ends_what_it_cannot_wait_for(void **state)
{
    (void)state;
    scratch_run_as_test(capture_without_waiting, NULL);
}

/* It must not be kept busy for ever by one that writes and writes. */
static void test_spawn__ends_what_never_stops_writing(void **state)
{
    struct spawn s = PROGRAM("yes");
    struct text out = { 0 };
    struct error e = { 0 };
    int status = -1;

    (void)state;
    assert_int_equal(spawn_capture(&s, 100, 1000, &out, NULL, &status, &e), -1);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_int_equal(out.size, 1000);
    text_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spawn__passes_arguments_exactly),
        cmocka_unit_test(test_spawn__adds_to_the_environment_and_replaces_in_it),
        cmocka_unit_test(test_spawn__leaves_nothing_open_that_is_not_named),
        cmocka_unit_test(test_spawn__streams_may_be_each_other),
        cmocka_unit_test(test_spawn__needs_no_streams_of_its_caller),
        cmocka_unit_test_setup_teardown(test_spawn__works_in_the_directory_of_a_descriptor, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_spawn__gives_default_signals_and_an_empty_mask),
        cmocka_unit_test_setup_teardown(test_spawn__says_what_cannot_be_started, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_spawn__detached_it_leads_a_session_and_attached_it_does_not),
        cmocka_unit_test(test_spawn__ends_three_hundred_children_in_sessions_of_their_own),
        cmocka_unit_test(test_spawn__ends_nobody_who_is_no_child),
        cmocka_unit_test(test_spawn__waits_as_long_as_it_is_told),
        cmocka_unit_test(test_spawn__captures_both_streams_without_a_deadlock_and_drops_what_is_too_much),
        cmocka_unit_test(test_spawn__has_all_that_was_written_before_the_end),
        cmocka_unit_test(test_spawn__does_not_wait_for_what_its_program_leaves_behind),
        cmocka_unit_test(test_spawn__ends_all_that_was_started_when_the_time_is_over),
        cmocka_unit_test(test_spawn__ends_what_it_cannot_wait_for),
        cmocka_unit_test(test_spawn__ends_what_never_stops_writing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

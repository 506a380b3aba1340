/* The whole session with its real services: start, exec, observe, stop. Argument "ordinary": as the user
 * nobody, when called as root. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/lock.h"
#include "core/process.h"
#include "core/util.h"
#include "providers/linux/control.h"
#include "providers/linux/supervisor.h"
#include "tests/providers/linux/desk.h"

#define ORDINARY_ID 65534 /* nobody */
#define TIMEOUT_MS  20000

/* Modes of this program when it runs inside, by own_binary. */
#define MODE_SHOW    "--show-arguments"
#define MODE_CONNECT "--connect-abstract"
#define MODE_WRITE   "--write-own-file"

static struct desk desk; /* shared by the tests that leave it as they found it: running */

static int start_desk(void **state)
{
    (void)state;
    desk_open(&desk, "demo");
    desk_start(&desk);
    return 0;
}

static int close_desk(void **state)
{
    (void)state;
    desk_close(&desk);
    return 0;
}

static int observe(struct observation *out)
{
    struct error e = { 0 };
    int64_t started_ms = clock_mono_ms();
    int r = linux_observe(desk.s, &desk.facts, 1000, out, &e);

    assert_true(clock_mono_ms() - started_ms < 2000); /* R-205 */
    return r;
}

static void wait_gone(struct observation *out)
{
    int64_t end_ms = clock_mono_ms() + 2000;

    do
        assert_int_equal(observe(out), 0);
    while (out->event != EV_GUEST_GONE && clock_mono_ms() < end_ms);
    assert_int_equal(out->event, EV_GUEST_GONE);
    assert_false(out->alive);
}

static const volatile int no_signal;

static struct exec_request make_request(const char *const *argv, int in, int out, int err)
{
    return (struct exec_request){ .argv = (char *const *)(uintptr_t)argv,
                                  .streams = { in, out, err },
                                  .timeout_ms = TIMEOUT_MS,
                                  .signal = &no_signal,
                                  .signal_fd = -1 };
}

/* --- start -------------------------------------------------------------------------------------------- */

static void test_session__start_records_who_it_is_and_observe_agrees(void **state)
{
    struct observation seen;
    struct process_id id;

    (void)state;
    assert_int_equal(observe(&seen), 0);
    assert_int_equal(seen.event, EV_GUEST_READY);
    assert_true(seen.alive);
    assert_int_equal(process_read(desk_supervisor(&desk), &id), 0);
    assert_int_equal(id.start, facts_get_int(&desk.facts, "start", 0));
    assert_string_equal(id.boot, facts_get(&desk.facts, "boot"));
    assert_string_equal(facts_get(&desk.facts, "display"), facts_get(&seen.facts, "display"));
    assert_int_equal(facts_get_int(&seen.facts, "pid", 0), id.pid);
}

static void test_session__starting_a_running_one_adopts_it(void **state)
{
    pid_t before = desk_supervisor(&desk);

    (void)state;
    desk_start(&desk); /* as a worker that resumes the start of a dead one */
    assert_int_equal(desk_supervisor(&desk), before);
}

static void test_session__env_file_has_what_programs_get(void **state)
{
    struct error e = { 0 };
    AUTO_FREE char *text = NULL;
    size_t size;
    char display[32];

    (void)state;
    assert_int_equal(file_read(desk.s->dir, "env", 65536, &text, &size, &e), 1);
    snprintf(display, sizeof(display), "DISPLAY=%s", facts_get(&desk.facts, "display"));
    assert_non_null(memmem(text, size, display, strlen(display) + 1));
    assert_non_null(memmem(text, size, "AT_SPI_BUS_ADDRESS=unix:", 24));
    assert_null(memmem(text, size, "NO_AT_BRIDGE", 12));
    assert_int_equal(
        desk_shell(&desk, "test \"$DISPLAY\" && test \"$AT_SPI_BUS_ADDRESS\" && test \"$PWD\" = \"$HOME\""),
        0);
}

static void test_session__environment_of_the_host_stays_outside(void **state)
{
    (void)state;
    setenv("SECRET_TOKEN", "1", 1);
    setenv("TERM", "vt100-test", 1);
    assert_int_equal(desk_shell(&desk, "test -z \"$SECRET_TOKEN\" && test \"$TERM\" = vt100-test"), 0);
}

static void test_session__a_start_that_is_never_let_go_ends(void **state)
{
    struct desk other;
    struct error e = { 0 };
    char name[] = "other.run";
    int64_t end_ms = clock_mono_ms() + 5000;

    (void)state;
    desk_open_beside(&other, &desk, "other");
    assert_int_equal(desk_run(&other, OPERATION_START, 1, &e), 0);
    assert_int_equal(lock_is_held(desk.root.locks, name, &e), 1);
    session_start_free(other.s->starting);
    other.s->starting = NULL;
    while (lock_is_held(desk.root.locks, name, &e) == 1 && clock_mono_ms() < end_ms)
        clock_sleep_ms(2);
    assert_int_equal(lock_is_held(desk.root.locks, name, &e), 0);
    desk_start(&other); /* and does not disturb the next one */
    desk_close_beside(&other);
}

static void test_session__two_have_displays_of_their_own(void **state)
{
    struct desk other;

    (void)state;
    desk_open_beside(&other, &desk, "second");
    desk_start(&other);
    assert_string_not_equal(facts_get(&other.facts, "display"), facts_get(&desk.facts, "display"));
    desk_close_beside(&other);
}

static int wait_client(pid_t pid)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* In the sandbox's own layer of /usr; skips where that is a read-only bind. */
static void replace_x_server(struct desk *d, const char *script)
{
    int fd;

    if (facts_get(&desk.facts, "note") != NULL && strstr(facts_get(&desk.facts, "note"), "/usr") != NULL) {
        desk_close_beside(d);
        skip();
    }
    assert_true(mkdirat(d->s->dir, "upper/usr/bin", 0755) == 0 || errno == EEXIST);
    fd = openat(d->s->dir, "upper/usr/bin/Xvfb", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert_int_equal(file_write_all(fd, script, strlen(script)), 0);
    assert_int_equal(close(fd), 0);
}

/* A bus was started before the display was there; what it starts later must find it all the same. */
static void test_session__programs_that_a_bus_starts_get_the_display(void **state)
{
    (void)state;
    assert_int_equal(
        desk_shell(&desk, "tr '\\0' '\\n' < /proc/$(grep -l '^at-spi2-regi' /proc/[0-9]*/comm | cut -d/ -f3)"
                          "/environ | grep -q \"^DISPLAY=$DISPLAY$\""),
        0);
}

/* A worker that is killed at any moment of a start leaves a session that becomes ready by itself, or none. */
static void test_session__a_worker_killed_during_start_leaves_nothing_half_made(void **state)
{
    struct desk other;
    struct observation seen;
    struct error e = { 0 };

    (void)state;
    desk_open_beside(&other, &desk, "orphan");
    for (int delay_ms = 0; delay_ms <= 80; delay_ms += 10) {
        int64_t end_ms = clock_mono_ms() + LINUX_START_BOUND_MS;
        pid_t worker = fork();

        if (worker == 0)
            _exit(desk_run(&other, OPERATION_START, 0, &e) < 0);
        clock_sleep_ms(delay_ms); /* not a wait: the moment of the crash is what is tried */
        kill(worker, SIGKILL);
        waitpid(worker, NULL, 0);
        do
            assert_int_equal(linux_observe(other.s, &other.facts, 1000, &seen, &e), 0);
        while (seen.event == EV_NONE && clock_mono_ms() < end_ms);
        assert_true(seen.event == EV_GUEST_READY || seen.event == EV_GUEST_GONE);
        assert_true(facts_merge(&other.facts, &seen.facts));
        desk_start(&other);
        desk_stop(&other);
    }
    desk_close_beside(&other);
}

static void test_session__a_supervisor_killed_before_it_was_let_go_fails_the_start(void **state)
{
    struct desk other;
    struct facts outputs = { .count = 0 };
    struct step_context c = { .facts = &other.facts, .outputs = &outputs };
    struct error e = { 0 };

    (void)state;
    desk_open_beside(&other, &desk, "early");
    assert_int_equal(desk_run(&other, OPERATION_START, 1, &e), 0);
    kill(desk_supervisor(&other), SIGKILL);
    assert_int_equal(linux_start_steps[1].run(other.s, &c, &e), STEP_FAILED);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    desk_start(&other);
    desk_close_beside(&other);
}

/* An X server that never becomes ready: seen as starting, stopped at once, and the start says so. */
static void test_session__a_start_that_hangs_can_be_stopped(void **state)
{
    struct desk other;
    struct observation seen;
    struct error e = { 0 };
    int64_t started_ms;
    pid_t worker;

    (void)state;
    desk_open_beside(&other, &desk, "hanging");
    replace_x_server(&other, "#!/bin/sh\nexec sleep 1000\n");
    worker = fork();
    if (worker == 0)
        _exit(desk_run(&other, OPERATION_START, 0, &e) == 0           ? 0
              : strstr(e.message, "stopped while it started") != NULL ? 3
                                                                      : 4);
    do {
        assert_int_equal(linux_observe(other.s, &other.facts, 1000, &seen, &e), 0);
        assert_int_equal(waitpid(worker, NULL, WNOHANG), 0);
    } while (strcmp(seen.message, "its desktop is being started") != 0);
    assert_int_equal(seen.event, EV_NONE);
    assert_true(seen.alive);
    started_ms = clock_mono_ms();
    desk_stop(&other); /* whose facts do not know the supervisor: the socket does */
    assert_true(clock_mono_ms() - started_ms < 3000);
    assert_int_equal(wait_client(worker), 3);
    desk_close_beside(&other);
}

/* R-305's sibling for linux: what failed is named, with its log, and nothing stays behind. */
static void test_session__a_desktop_that_cannot_be_made_fails_the_start(void **state)
{
    struct desk other;
    struct error e = { 0 };

    (void)state;
    desk_open_beside(&other, &desk, "broken");
    replace_x_server(&other, "#!/bin/sh\necho broken; exit 3\n");
    assert_int_equal(desk_run(&other, OPERATION_START, 0, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_non_null(strstr(e.message, "the X server ended with status 3"));
    assert_non_null(strstr(e.message, "log/xvfb.log"));
    assert_int_equal(kill(desk_supervisor(&other), 0), -1); /* gone and reaped */
    assert_int_equal(lock_is_held(desk.root.locks, "broken.run", &e), 0);
    desk_close_beside(&other);
}

/* R-308: what can never be started is broken, and nothing that stands in its place is touched. */
static void test_session__a_start_without_its_directory_says_that_it_is_lost(void **state)
{
    static const char *const names[] = { "lost-to-nothing", "lost-to-a-file", "lost-to-a-link" };
    int sandboxes = desk.root.sandboxes;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct desk other;
        struct facts outputs = { .count = 0 };
        struct step_context c = { .facts = &other.facts, .outputs = &outputs };
        struct error e = { 0 };
        void *self = NULL;

        desk_open_beside(&other, &desk, names[i]);
        linux_ops.close(other.s); /* another command's handle does not have the directory open */
        assert_int_equal(renameat(sandboxes, names[i], sandboxes, "aside"), 0);
        if (i == 1)
            close(openat(sandboxes, names[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        if (i == 2)
            assert_int_equal(symlinkat("aside", sandboxes, names[i]), 0);
        assert_int_equal(linux_ops.open(&other.place, &self, &e), 0);
        other.s = self;
        assert_int_equal(linux_start_steps[0].run(other.s, &c, &e), STEP_FAILED);
        assert_int_equal(e.code, ERROR_ACTION_FAILED);
        assert_int_equal(c.outcome, EV_LOST);
        assert_true(unlinkat(sandboxes, names[i], 0) == 0 || errno == ENOENT);
        assert_int_equal(renameat(sandboxes, "aside", sandboxes, names[i]), 0);
        desk_close_beside(&other);
    }
}

/* Deleted with the whole state root, or alone: no command would find the session any more. */
static void test_session__one_whose_run_lock_is_deleted_ends(void **state)
{
    struct desk other;
    struct observation seen;
    struct error e = { 0 };
    int64_t end_ms;
    pid_t ended;

    (void)state;
    desk_open_beside(&other, &desk, "unlocked");
    desk_start(&other);
    assert_int_equal(unlinkat(desk.root.locks, "unlocked.run", 0), 0);
    end_ms = clock_mono_ms() + 5000;
    while ((ended = waitpid(desk_supervisor(&other), NULL, WNOHANG)) == 0 && clock_mono_ms() < end_ms)
        clock_sleep_ms(2);
    assert_int_equal(ended, desk_supervisor(&other));
    assert_int_equal(linux_observe(other.s, &other.facts, 1000, &seen, &e), 0);
    assert_int_equal(seen.event, EV_GUEST_GONE);
    assert_string_equal(seen.message, "the session ended: its run lock was removed");
    desk_start(&other);
    desk_close_beside(&other);
}

static void test_session__a_start_whose_run_lock_is_deleted_fails(void **state)
{
    struct desk other;
    struct error e = { 0 };

    (void)state;
    desk_open_beside(&other, &desk, "unlocking");
    assert_int_equal(desk_run(&other, OPERATION_START, 1, &e), 0);
    assert_int_equal(unlinkat(desk.root.locks, "unlocking.run", 0), 0);
    struct facts outputs = { .count = 0 };
    struct step_context c = { .facts = &other.facts, .outputs = &outputs };

    assert_int_equal(linux_start_steps[1].run(other.s, &c, &e), STEP_FAILED);
    assert_non_null(strstr(e.message, "its run lock was removed"));
    desk_close_beside(&other);
}

/* --- hosts that have less ---------------------------------------------------------------------------------
 */

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010u
#endif

/* From here on system call NUMBER fails with SYS if its second argument has all of BITS, here and in all
 * children. */
static bool forbid(unsigned number, unsigned bits, unsigned sys)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, bits, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | sys),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = ARRAY_LEN(code), .filter = code };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Starts OTHER in a child where CHANGE was made before, and runs CHECK there on what was started. Skips where
 * the change cannot be made. */
static void check_start_after(struct desk *other, bool (*change)(void), bool (*check)(struct desk *d))
{
    struct error e = { 0 };
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        if (!change())
            _exit(77);
        if (desk_run(other, OPERATION_START, 0, &e) < 0)
            print_message("%s\n", e.message);
        _exit(e.code == ERROR_NONE && check(other) ? 0 : 1);
    }
    status = wait_client(pid);
    desk_close_beside(other);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static bool forbid_landlock(void)
{
    return forbid(SYS_landlock_create_ruleset, 0, EOPNOTSUPP);
}

/* SECURITY.md: the message says it. In the reply of the start (the move's reason), and in later ones. */
static bool says_that_sockets_are_open(struct desk *d)
{
    struct observation seen;
    struct error e = { 0 };

    return strncmp(d->note, "abstract sockets of the host", 28) == 0 &&
           linux_observe(d->s, &d->facts, 1000, &seen, &e) == 0 && seen.event == EV_GUEST_READY &&
           strcmp(seen.message, d->note) == 0;
}

static bool says_nothing_of_sockets(struct desk *d)
{
    return strstr(d->note, "sockets") == NULL && desk_shell(d, "true") == 0;
}

static void test_session__a_host_without_landlock_is_told(void **state)
{
    struct desk other;

    (void)state;
    desk_open_beside(&other, &desk, "unscoped");
    check_start_after(&other, forbid_landlock, says_that_sockets_are_open);
    desk_open_beside(&other, &desk, "separate"); /* another network has other abstract sockets */
    assert_true(facts_set(&other.facts, "set.net", "none"));
    check_start_after(&other, forbid_landlock, says_nothing_of_sockets);
}

static bool forbid_executable_memory(void) /* as vm.memfd_noexec=2 */
{
    return forbid(SYS_memfd_create, MFD_EXEC, EACCES);
}

static bool runs_from_the_read_only_binary(struct desk *d)
{
    return desk_shell(d, "test $(readlink /proc/1/exe) = /run/agent-desktop/bin/agent-desktop && test ! -w "
                         "/proc/1/exe") == 0;
}

static void test_session__root_needs_no_executable_memory(void **state)
{
    struct desk other;

    (void)state;
    if (geteuid() != 0)
        skip(); /* an ordinary user's supervisor is not executed again */
    desk_open_beside(&other, &desk, "noexec");
    check_start_after(&other, forbid_executable_memory, runs_from_the_read_only_binary);
}

static bool ignore_children(void)
{
    return signal(SIGCHLD, SIG_IGN) != SIG_ERR;
}

static bool tells_exit_statuses(struct desk *d)
{
    return desk_shell(d, "exit 7") == 7;
}

static void test_session__whoever_starts_it_may_ignore_its_children(void **state)
{
    struct desk other;

    (void)state;
    desk_open_beside(&other, &desk, "ignored");
    check_start_after(&other, ignore_children, tells_exit_statuses);
}

/* --- exec --------------------------------------------------------------------------------------------- */

static void test_exec__passes_the_exit_status(void **state)
{
    (void)state;
    assert_int_equal(desk_shell(&desk, "true"), 0);
    assert_int_equal(desk_shell(&desk, "exit 1"), 1);
    assert_int_equal(desk_shell(&desk, "exit 127"), 127);
    assert_int_equal(desk_shell(&desk, "exit 255"), 255);
}

static void test_exec__passes_the_signal(void **state)
{
    (void)state;
    assert_int_equal(desk_shell(&desk, "kill -KILL $$"), 128 + SIGKILL);
    assert_int_equal(desk_shell(&desk, "kill -SEGV $$"), 128 + SIGSEGV);
}

/* R-207, case 8: printf shows each argument and a NUL byte. */
static void check_arguments(const char *const *arguments, size_t count)
{
    AUTO_FREE const char **argv = calloc(count + 3, sizeof(*argv));
    AUTO_FREE char *expected = malloc(4 << 20);
    AUTO_FREE char *out = malloc(4 << 20);
    struct exec_result result;
    struct error e = { 0 };
    size_t size = 0;

    argv[0] = "/usr/bin/printf";
    argv[1] = "%s\\0";
    for (size_t i = 0; i < count; i++) {
        argv[i + 2] = arguments[i];
        memcpy(expected + size, arguments[i], strlen(arguments[i]) + 1);
        size += strlen(arguments[i]) + 1;
    }
    if (desk_exec(&desk, argv, &result, out, 4 << 20, &e) < 0)
        fail_msg("%s", e.message);
    assert_int_equal(result.status, 0);
    assert_memory_equal(out, expected, size);
    assert_true(result.stdout_used);
}

static void test_exec__arguments_arrive_byte_for_byte(void **state)
{
    static const char *const odd[] = { "",         "a b",      "\"",   "'",     "\\", "$HOME", "`id`", ";",
                                       "&&",       "*",        "a\nb", "\t",    "--", "-n",    "A=b",  "%s",
                                       "\xff\xfe", "\xc3\xa9", "~",    "{a,b}", "#",  "!" };
    const char *many[1000];
    AUTO_FREE char *longest = malloc(100 * 1024 + 1);

    (void)state;
    check_arguments(odd, ARRAY_LEN(odd));
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = odd[i % ARRAY_LEN(odd)];
    check_arguments(many, ARRAY_LEN(many));
    memset(longest, 'x', 100 * 1024);
    longest[100 * 1024] = '\0';
    many[0] = longest;
    check_arguments(many, 2);
}

static void test_exec__too_many_bytes_are_refused_before_anything_runs(void **state)
{
    static char huge[3 << 20];  /* more than we send */
    static char big[200 << 10]; /* more than the kernel takes in one argument */
    const char *const sizes[] = { huge, big };

    (void)state;
    memset(huge, 'x', sizeof(huge) - 1);
    memset(big, 'x', sizeof(big) - 1);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const char *const argv[] = { "sh", "-c", "touch /tmp/ran", "sh", sizes[i], NULL };
        struct exec_result result;
        struct error e = { 0 };

        assert_int_equal(desk_exec(&desk, argv, &result, NULL, 0, &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_ARGS);
        assert_string_equal(error_delivery_name(&e), "not_delivered");
        assert_int_equal(result.delivery, EXEC_NOT_SENT);
        assert_false(result.stdout_used);
    }
    assert_int_equal(desk_shell(&desk, "test ! -e /tmp/ran"), 0);
}

/* Its ".." would be the host's: SECURITY.md. */
static void test_exec__a_directory_is_not_passed_on(void **state)
{
    static const char *const names[] = { "stdin", "stdout", "stderr" };
    static const char *const argv[] = { "touch", "/tmp/ran", NULL };
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)state;
    for (int i = 0; i < 6; i++) {
        AUTO_CLOSE int directory = open("/etc", (i < 3 ? O_RDONLY : O_PATH) | O_DIRECTORY | O_CLOEXEC);
        struct exec_request request = make_request(argv, null, null, null);
        struct exec_result result;
        struct error e = { 0 };

        request.streams[i % 3] = directory;
        assert_int_equal(linux_exec(desk.s, &desk.facts, &request, &result, &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_ARGS);
        assert_memory_equal(e.message, names[i % 3], strlen(names[i % 3]));
        assert_string_equal(error_delivery_name(&e), "not_delivered");
        assert_int_equal(result.delivery, EXEC_NOT_SENT);
    }
    assert_int_equal(desk_shell(&desk, "test ! -e /tmp/ran"), 0);
}

static void test_exec__a_program_that_cannot_be_run_is_an_error_that_names_it(void **state)
{
    static const struct {
        const char *program;
        int sys;
    } cases[] = {
        { "no-such-program", ENOENT }, { "/no/such/path", ENOENT }, { "/etc/passwd", EACCES }, { "", ENOENT }
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const argv[] = { cases[i].program, NULL };
        struct exec_result result;
        struct error e = { 0 };

        assert_int_equal(desk_exec(&desk, argv, &result, NULL, 0, &e), -1);
        assert_int_equal(e.code, ERROR_ACTION_FAILED);
        assert_int_equal(e.sys, cases[i].sys);
        assert_non_null(strstr(e.message, cases[i].program));
        assert_string_equal(error_delivery_name(&e), "not_delivered");
        assert_false(result.stdout_used || result.status_known);
    }
}

/* Case 9. */
static void test_exec__bytes_pass_both_ways_unchanged(void **state)
{
    enum { SIZE = 5 << 20 };
    static char sent[SIZE], got[SIZE + 1];
    const char *const argv[] = { "cat", NULL };
    AUTO_CLOSE int in = memfd_create("in", MFD_CLOEXEC);
    AUTO_CLOSE int out = memfd_create("out", MFD_CLOEXEC);
    struct exec_request request = make_request(argv, in, out, 2);
    struct exec_result result;
    struct error e = { 0 };

    (void)state;
    for (size_t at = 0; at < SIZE;)
        at += (size_t)getrandom(sent + at, SIZE - at, 0);
    assert_int_equal(file_write_all(in, sent, SIZE), 0);
    lseek(in, 0, SEEK_SET);
    assert_int_equal(linux_exec(desk.s, &desk.facts, &request, &result, &e), 0);
    assert_int_equal(result.status, 0);
    assert_int_equal(pread(out, got, SIZE + 1, 0), SIZE);
    assert_memory_equal(sent, got, SIZE);
}

static void test_exec__tells_whether_stdout_was_used(void **state)
{
    static const struct {
        const char *script;
        bool used;
    } cases[] = { { "true", false }, { "echo x", true }, { "echo x >&2", false }, { "exit 3", false } };
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const argv[] = { "sh", "-c", cases[i].script, NULL };
        struct exec_result result;
        struct error e = { 0 };
        int ends[2];

        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        struct exec_request request = make_request(argv, null, ends[1], null);
        assert_int_equal(linux_exec(desk.s, &desk.facts, &request, &result, &e), 0);
        assert_int_equal(result.stdout_used, cases[i].used);
        close(ends[0]);
        close(ends[1]);
    }
}

static void test_exec__runs_this_very_binary(void **state)
{
    const char *const argv[] = { "whatever", MODE_SHOW, "a b", NULL };
    AUTO_CLOSE int out = memfd_create("out", MFD_CLOEXEC);
    struct exec_request request = make_request(argv, 0, out, 2);
    struct exec_result result;
    struct error e = { 0 };
    char got[256] = "";

    (void)state;
    request.own_binary = true;
    if (linux_exec(desk.s, &desk.facts, &request, &result, &e) < 0)
        fail_msg("%s", e.message);
    assert_int_equal(result.status, 0);
    assert_true(pread(out, got, sizeof(got) - 1, 0) > 0);
    assert_string_equal(got, "agent-desktop|" MODE_SHOW "|a b|");
}

/* What a forked client does with the shared desk: exit status of the command, 128+N, 99 for an error. */
static int client(const char *const *argv, int timeout_ms, const int streams[3])
{
    struct exec_request request = make_request(argv, streams[0], streams[1], streams[2]);
    struct exec_result result;
    struct error e = { 0 };

    request.timeout_ms = timeout_ms;
    if (linux_exec(desk.s, &desk.facts, &request, &result, &e) < 0)
        return e.code == ERROR_TIMEOUT ? 98 : 99;
    return result.signal > 0 ? 128 + result.signal : result.status;
}

static pid_t start_client(const char *script)
{
    const char *const argv[] = { "sh", "-c", script, NULL };
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(client(argv, 20000, (int[3]){ open("/dev/null", O_RDWR), 1, 2 }));
    }
    return pid;
}

static void test_exec__two_hundred_at_once(void **state)
{
    pid_t pids[200];
    char script[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pids); i++) {
        snprintf(script, sizeof(script), "read x < /proc/self/stat; exit %zu", i);
        pids[i] = start_client(script);
    }
    for (size_t i = 0; i < ARRAY_LEN(pids); i++)
        assert_int_equal(wait_client(pids[i]), (int)i);
}

static void test_exec__three_hundred_run_side_by_side(void **state)
{
    pid_t pids[300];

    (void)state;
    assert_int_equal(desk_shell(&desk, "mkfifo /tmp/gate"), 0);
    for (size_t i = 0; i < ARRAY_LEN(pids); i++)
        pids[i] = start_client("exec cat /tmp/gate");
    assert_true(desk_wait_count(&desk, "/tmp/gate", (int)ARRAY_LEN(pids)));
    assert_int_equal(desk_shell(&desk, ": > /tmp/gate; rm /tmp/gate"), 0);
    for (size_t i = 0; i < ARRAY_LEN(pids); i++)
        assert_int_equal(wait_client(pids[i]), 0);
}

/* Case 10: the reader goes away. */
static void test_exec__a_reader_that_leaves_ends_the_command(void **state)
{
    static const char *const argv[] = { "yes", NULL };
    int ends[2], status;
    int64_t started_ms = clock_mono_ms();
    char bytes[10];
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        _exit(client(argv, 20000, (int[3]){ 0, ends[1], 2 }));
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], bytes, sizeof(bytes)), (int)sizeof(bytes));
    close(ends[0]);
    status = wait_client(pid);
    assert_int_equal(status, 128 + SIGPIPE);
    assert_true(clock_mono_ms() - started_ms < 2000);
}

static void test_exec__closed_streams_are_dev_null(void **state)
{
    static const char *const argv[] = { "sh", "-c", "read x; echo x; echo x >&2; exit 5", NULL };
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        close(0);
        close(1);
        close(2);
        _exit(client(argv, 20000, (int[3]){ 0, 1, 2 }));
    }
    assert_int_equal(wait_client(pid), 5);
}

/* --- ends of commands (case 12) ------------------------------------------------------------------------- */

/* A leader, a child of its group, and a child in a session of its own. */
#define FAMILY(number) "setsid sleep " number " & sleep " number " & sleep " number "; :"

static void test_exec__a_killed_client_takes_all_of_its_command_with_it(void **state)
{
    pid_t pid = start_client(FAMILY("4711001"));

    (void)state;
    assert_true(desk_wait_count(&desk, "4711001", 4)); /* the shell's own line has the number too */
    kill(pid, SIGKILL);
    wait_client(pid);
    assert_true(desk_wait_count(&desk, "4711001", 0));
}

static void test_exec__a_daemon_outlives_its_command(void **state)
{
    (void)state;
    assert_int_equal(desk_shell(&desk, "setsid sleep 4711002 > /dev/null 2>&1 < /dev/null &"), 0);
    assert_int_equal(desk_count(&desk, "4711002"), 1);
    assert_int_equal(desk_shell(&desk, "kill $(grep -l '471100[2]' /proc/[0-9]*/cmdline | cut -d/ -f3)"), 0);
    assert_true(desk_wait_count(&desk, "4711002", 0));
}

static void test_exec__the_time_limit_ends_all_of_the_command(void **state)
{
    static const char *const argv[] = { "sh", "-c", "trap '' TERM; " FAMILY("4711003"), NULL };
    int64_t started_ms = clock_mono_ms();

    (void)state;
    assert_int_equal(client(argv, 300, (int[3]){ 0, 1, 2 }), 98);
    assert_true(clock_mono_ms() - started_ms < 300 + 2000 + 1000);
    assert_int_equal(desk_count(&desk, "4711003"), 0); /* at once: the reply waits for them */
}

/* The leader goes at SIGTERM, the child in a session of its own does not hear it. */
static void test_exec__the_time_limit_finds_children_whose_parent_went_first(void **state)
{
    static const char *const argv[] = { "sh", "-c", "setsid sh -c 'trap \"\" TERM; sleep 4711004; :' & wait",
                                        NULL };

    (void)state;
    assert_int_equal(client(argv, 300, (int[3]){ 0, 1, 2 }), 98);
    assert_int_equal(desk_count(&desk, "4711004"), 0);
}

static void test_exec__a_timeout_says_what_it_is(void **state)
{
    const char *const argv[] = { "sleep", "100", NULL };
    struct exec_request request = make_request(argv, 0, 1, 2);
    struct exec_result result;
    struct error e = { 0 };

    (void)state;
    request.timeout_ms = 100;
    assert_int_equal(linux_exec(desk.s, &desk.facts, &request, &result, &e), -1);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_string_equal(error_delivery_name(&e), "delivered_unverified");
    assert_string_equal(error_retry_name(&e), "unsafe");
    assert_false(result.status_known);
}

/* As the command's handler would: the flag first, then the pipe. */
static int interrupted(const char *script, int number, struct exec_result *result)
{
    const char *const argv[] = { "sh", "-c", script, NULL };
    volatile int signal = number;
    int ends[2], ready[2], r;
    struct error e = { 0 };
    char byte;
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) { /* the signal comes when the command says that it is there */
        _exit(read(ready[0], &byte, 1) == 1 && write(ends[1], "", 1) == 1 ? 0 : 1);
    }
    struct exec_request request = make_request(argv, 0, ready[1], 2);
    request.signal = &signal;
    request.signal_fd = ends[0];
    r = linux_exec(desk.s, &desk.facts, &request, result, &e);
    assert_int_equal(wait_client(pid), 0);
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(ready[i]);
    }
    return r;
}

static void test_exec__a_signal_reaches_the_command(void **state)
{
    struct exec_result result;

    (void)state;
    assert_int_equal(interrupted("echo; exec sleep 100", SIGINT, &result), 0);
    assert_int_equal(result.signal, SIGINT);
    assert_int_equal(interrupted("trap 'exit 9' TERM; echo; while :; do sleep 0.05; done", SIGTERM, &result),
                     0);
    assert_int_equal(result.status, 9);
    assert_int_equal(result.signal, 0);
}

static void test_exec__a_command_that_ignores_the_signal_is_killed(void **state)
{
    struct exec_result result;
    int64_t started_ms = clock_mono_ms();

    (void)state;
    assert_int_equal(interrupted("trap '' TERM; echo; sleep 4711005; :", SIGTERM, &result), 0);
    assert_int_equal(result.signal, SIGKILL);
    assert_in_range(clock_mono_ms() - started_ms, 1900, 4000);
    assert_int_equal(desk_count(&desk, "4711005"), 0);
}

/* A program may clean up after the signal although its parent is gone. */
static void test_exec__the_rest_of_a_command_has_time_after_a_signal(void **state)
{
    struct exec_result result;

    (void)state;
    assert_int_equal(interrupted("sh -c 'trap \"sleep 0.3; echo > /tmp/cleaned; exit\" TERM; echo; while :; "
                                 "do sleep 0.05; done' & wait",
                                 SIGTERM, &result),
                     0);
    assert_int_equal(result.signal, SIGTERM);
    assert_int_equal(desk_shell(&desk, "rm /tmp/cleaned"), 0);
}

static int suspensions;

/* As Ctrl-Z: in place of the caller, whose turn it is now, this test looks at the command. */
static void see_it_stopped(void)
{
    suspensions++;
    assert_int_equal(desk_shell(&desk, "timeout 5 sh -c 'until grep -q \"^State:.T\" /proc/$(cat "
                                       "/tmp/suspended)/status; do sleep 0.01; done'"),
                     0);
}

/* It ends with its own status, at once: that was no signal after which others of it are waited for. */
static void test_exec__a_suspended_command_stops_and_goes_on(void **state)
{
    static const char *const argv[] = {
        "sh", "-c", "sleep 4711011 >/dev/null & echo $$ >/tmp/suspended; echo; read x </tmp/gate; exit 7",
        NULL
    };
    struct exec_result result;
    struct error e = { 0 };
    int ready[2], ends[2];
    pid_t pid;
    char byte;

    (void)state;
    assert_int_equal(desk_shell(&desk, "mkfifo /tmp/gate"), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) /* opening the gate waits for the command to read there */
        _exit(read(ready[0], &byte, 1) == 1 && write(ends[1], "", 1) == 1 &&
                      desk_shell(&desk, "echo >/tmp/gate; rm /tmp/gate") == 0
                  ? 0
                  : 1);
    struct exec_request request = make_request(argv, 0, ready[1], 2);

    request.signal_fd = ends[0];
    request.suspend = see_it_stopped;
    suspensions = 0;
    if (linux_exec(desk.s, &desk.facts, &request, &result, &e) < 0)
        fail_msg("%s", e.message);
    assert_int_equal(suspensions, 1);
    assert_int_equal(result.status, 7);
    assert_int_equal(wait_client(pid), 0);
    assert_int_equal(desk_count(&desk, "4711011"), 1);
    assert_int_equal(desk_shell(&desk, "kill $(grep -l '471101[1]' /proc/[0-9]*/cmdline | cut -d/ -f3)"), 0);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(ends[i]);
    }
}

/* --- isolation ---------------------------------------------------------------------------------------- */

static void test_session__pid_1_shows_nothing_of_the_host(void **state)
{
    (void)state;
    assert_int_equal(desk_shell(&desk, "test -z \"$(tr -d '\\0' < /proc/1/environ)\""), 0);
    assert_int_not_equal(desk_shell(&desk, "ls /proc/1/fd/7/. /proc/1/fd/8/. 2>/dev/null"), 0);
    if (geteuid() == 0)
        assert_int_equal(desk_shell(&desk, "readlink /proc/1/exe | grep -q memfd"), 0);
    else
        assert_int_not_equal(desk_shell(&desk, "readlink /proc/1/exe"), 0);
}

/* Root inside is the owner of the host's files: what it runs must not be a way to them. A user's own build
 * can be written by that user, but not while it runs. */
static void test_exec__the_hosts_binary_cannot_be_written_from_inside(void **state)
{
    const char *const argv[] = { "x", MODE_WRITE, NULL };
    struct exec_request request = make_request(argv, 0, 1, 2);
    struct exec_result result;
    struct error e = { 0 };

    (void)state;
    request.own_binary = true;
    assert_int_equal(linux_exec(desk.s, &desk.facts, &request, &result, &e), 0);
    int own = access("/proc/self/exe", W_OK) == 0 ? ETXTBSY : EACCES;

    assert_int_equal(result.status, geteuid() == 0 ? EROFS : own);
}

static void test_session__programs_get_three_descriptors(void **state)
{
    static const char *const argv[] = { "ls", "/proc/self/fd", NULL };
    struct exec_result result;
    struct error e = { 0 };
    char out[64];

    (void)state;
    assert_int_equal(desk_exec(&desk, argv, &result, out, sizeof(out), &e), 0);
    assert_string_equal(out, "0\n1\n2\n3\n"); /* 3 is the directory it lists */
    /* Nor has the desktop what it could hand on: openbox starts programs. */
    assert_int_equal(
        desk_shell(&desk,
                   "ls -l /proc/$(grep -l '^openbox' /proc/[0-9]*/comm | cut -d/ -f3)/fd | grep -q 'pipe:'"),
        1);
}

static void test_session__abstract_sockets_of_the_host_are_out_of_reach(void **state)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char name[32];
    const char *const argv[] = { "x", MODE_CONNECT, name, NULL };
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct exec_request request = make_request(argv, 0, 1, 2);
    struct exec_result result;
    struct error e = { 0 };

    (void)state;
    if (strstr(facts_get(&desk.facts, "note") == NULL ? "" : facts_get(&desk.facts, "note"),
               "abstract sockets"))
        skip(); /* the kernel cannot, and the note says so */
    snprintf(name, sizeof(name), "ad-test-%d", (int)getpid());
    strcpy(address.sun_path + 1, name);
    assert_int_equal(bind(fd, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))),
                     0);
    assert_int_equal(listen(fd, 1), 0);
    request.own_binary = true;
    assert_int_equal(linux_exec(desk.s, &desk.facts, &request, &result, &e), 0);
    assert_int_equal(result.status, EPERM);
}

/* --- observing and stopping ------------------------------------------------------------------------------
 */

/* Stops it as Ctrl-Z would, and waits until that has taken effect: it is our child. */
static void hold_supervisor(void)
{
    int status = 0;

    kill(desk_supervisor(&desk), SIGSTOP);
    assert_int_equal(waitpid(desk_supervisor(&desk), &status, WUNTRACED), desk_supervisor(&desk));
    assert_true(WIFSTOPPED(status));
}

static void test_session__a_killed_supervisor_is_seen_at_once(void **state)
{
    struct observation seen;

    (void)state;
    kill(desk_supervisor(&desk), SIGKILL);
    wait_gone(&seen);
    assert_non_null(strstr(seen.message, "log/supervisor.log"));
    desk_start(&desk);
}

static void test_session__a_dead_x_server_ends_it_and_is_named(void **state)
{
    struct observation seen;

    (void)state;
    assert_int_equal(desk_shell(&desk, "kill -KILL $(grep -l '^Xvfb' /proc/[0-9]*/comm | cut -d/ -f3)"), 0);
    wait_gone(&seen);
    assert_non_null(strstr(seen.message, "the X server was ended by signal 9"));
    desk_start(&desk);
}

static void test_session__a_dead_window_manager_is_started_again(void **state)
{
    (void)state;
    assert_int_equal(desk_shell(&desk, "kill -KILL $(grep -l '^openbox' /proc/[0-9]*/comm | cut -d/ -f3)"),
                     0);
    assert_true(desk_wait_count(&desk, "openbox", 1));
}

/* Case 5: the recorded number belongs to somebody else by now. */
static void test_session__a_stranger_with_the_recorded_pid_is_left_alone(void **state)
{
    struct observation seen;
    struct facts before = desk.facts;
    pid_t stranger = fork();

    (void)state;
    if (stranger == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    kill(desk_supervisor(&desk), SIGKILL);
    wait_gone(&seen);
    waitpid(desk_supervisor(&desk), NULL, 0);
    facts_set_int(&desk.facts, "pid", stranger);
    assert_int_equal(observe(&seen), 0);
    assert_int_equal(seen.event, EV_GUEST_GONE);
    desk_stop(&desk);
    facts_set(&desk.facts, "boot", "00000000-0000-0000-0000-000000000000");
    assert_int_equal(observe(&seen), 0);
    assert_int_equal(seen.event, EV_GUEST_GONE);
    assert_non_null(strstr(seen.message, "restarted"));
    desk_stop(&desk);
    assert_int_equal(waitpid(stranger, NULL, WNOHANG), 0);
    desk.facts = before;
    facts_set_int(&desk.facts, "pid", stranger);
    desk_start(&desk);
    assert_int_equal(waitpid(stranger, NULL, WNOHANG), 0);
    kill(stranger, SIGKILL);
    wait_client(stranger);
}

static void test_session__a_start_waits_for_what_remains_of_a_killed_one(void **state)
{
    struct facts before = desk.facts;

    (void)state;
    kill(desk_supervisor(&desk), SIGKILL);
    desk_start(&desk); /* at once */
    assert_int_not_equal(desk_supervisor(&desk), facts_get_int(&before, "pid", 0));
}

static void test_session__stop_works_while_a_client_is_stopped(void **state)
{
    pid_t pid = start_client("echo > /tmp/there; exec sleep 4711006");
    int64_t started_ms;

    (void)state;
    assert_true(desk_wait_count(&desk, "4711006", 1));
    kill(pid, SIGSTOP);
    started_ms = clock_mono_ms();
    desk_stop(&desk);
    assert_true(clock_mono_ms() - started_ms < 2500);
    assert_string_equal(desk.note, "");
    kill(pid, SIGCONT);
    assert_int_equal(wait_client(pid), 128 + SIGTERM); /* a stop ends running commands, which say so */
    desk_start(&desk);
}

static void test_session__stop_of_a_stopped_one_does_nothing(void **state)
{
    struct observation seen;

    (void)state;
    desk_stop(&desk);
    desk_stop(&desk);
    wait_gone(&seen);
    assert_string_equal(seen.message, "the session ended: it was stopped");
    desk_start(&desk);
}

/* Somebody removed its files by hand: that ends no process. */
static void test_session__stop_ends_it_although_its_directory_is_gone(void **state)
{
    struct desk other;
    struct error e = { 0 };
    void *self = NULL;

    (void)state;
    desk_open_beside(&other, &desk, "vanished");
    desk_start(&other);
    linux_ops.close(other.s); /* another command's handle finds no directory */
    assert_int_equal(renameat(desk.root.sandboxes, "vanished", desk.root.sandboxes, "aside"), 0);
    assert_int_equal(linux_ops.open(&other.place, &self, &e), 0);
    other.s = self;
    desk_stop(&other);
    assert_int_equal(lock_is_held(desk.root.locks, "vanished.run", &e), 0);
    assert_int_equal(kill(desk_supervisor(&other), 0), -1);
    assert_int_equal(renameat(desk.root.sandboxes, "aside", desk.root.sandboxes, "vanished"), 0);
    desk_close_beside(&other);
}

/* A memfd as exec.c makes it. */
static int make_words(const char *words, size_t size)
{
    int fd = memfd_create("words", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_int_equal(file_write_all(fd, words, size), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    return fd;
}

/* Both requests are there when the supervisor wakes up: the command is ended like all others, not left to the
 * SIGKILL at the end of the grace. */
static void test_session__a_command_that_comes_with_the_stop_is_ended_at_once(void **state)
{
    static const char words[] = "sleep\0"
                                "100";
    const struct control_request ping = { .version = CONTROL_VERSION, .kind = CONTROL_PING };
    const struct control_request stop = { .version = CONTROL_VERSION, .kind = CONTROL_STOP };
    const struct control_request exec = { .version = CONTROL_VERSION, .kind = CONTROL_EXEC, .argc = 2 };
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    AUTO_CLOSE int memory = make_words(words, sizeof(words));
    AUTO_CLOSE int first = -1;
    AUTO_CLOSE int second = -1;
    struct control_reply reply = { 0 };
    struct error e = { 0 };
    int64_t started_ms;

    (void)state;
    assert_int_equal(control_connect(desk.s->dir, 1000, &first, &e), 1);
    assert_int_equal(control_send(first, &ping, NULL, 0, &e), 0);
    assert_int_equal(control_receive(first, 1000, &reply, &e), 1); /* accepted: served before the other one */
    hold_supervisor();
    assert_int_equal(control_send(first, &stop, NULL, 0, &e), 0);
    assert_int_equal(control_connect(desk.s->dir, 1000, &second, &e), 1);
    assert_int_equal(control_send(second, &exec, (int[]){ null, null, null, memory }, 4, &e), 0);
    started_ms = clock_mono_ms();
    kill(desk_supervisor(&desk), SIGCONT);
    assert_int_equal(control_receive(second, 5000, &reply, &e), 1);
    assert_int_equal(reply.answer, CONTROL_EXITED);
    assert_int_equal(reply.value, SIGTERM);
    assert_true(clock_mono_ms() - started_ms < 2000);
    desk_stop(&desk);
    desk_start(&desk);
}

static void test_session__stop_gives_programs_three_seconds(void **state)
{
    pid_t pid = start_client("trap '' TERM; : > /tmp/deaf; while :; do sleep 0.2; done");
    int64_t started_ms;

    (void)state;
    assert_int_equal(desk_shell(&desk, "until test -e /tmp/deaf; do sleep 0.01; done"), 0);
    started_ms = clock_mono_ms();
    desk_stop(&desk);
    assert_in_range(clock_mono_ms() - started_ms, 2500, 4500);
    assert_string_equal(desk.note, "");
    assert_int_equal(wait_client(pid), 128 + SIGKILL);
    desk_start(&desk);
}

/* Case 15. */
static void test_session__a_supervisor_that_hangs_is_alive_and_can_be_stopped(void **state)
{
    struct observation seen;
    int64_t started_ms;

    (void)state;
    hold_supervisor();
    assert_int_equal(observe(&seen), 0);
    assert_int_equal(seen.event, EV_NONE);
    assert_true(seen.alive);
    assert_non_null(strstr(seen.message, "does not answer"));
    started_ms = clock_mono_ms();
    desk_stop(&desk);
    assert_true(clock_mono_ms() - started_ms < 7000);
    assert_string_equal(desk.note, "its session did not end by itself within 5 s and was killed");
    wait_gone(&seen);
    desk_start(&desk);
}

static void test_exec__a_supervisor_that_hangs_never_runs_what_timed_out(void **state)
{
    const char *const argv[] = { "touch", "/tmp/late", NULL };
    struct exec_request request = make_request(argv, 0, 1, 2);
    struct exec_result result;
    struct error e = { 0 };
    int64_t started_ms = clock_mono_ms();

    (void)state;
    request.timeout_ms = 100;
    hold_supervisor();
    assert_int_equal(linux_exec(desk.s, &desk.facts, &request, &result, &e), -1);
    kill(desk_supervisor(&desk), SIGCONT);
    assert_true(clock_mono_ms() - started_ms < 2000);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_string_equal(error_delivery_name(&e), "not_delivered");
    assert_string_equal(error_retry_name(&e), "safe");
    assert_int_equal(result.delivery, EXEC_NOT_SENT);
    assert_false(result.stdout_used);
    assert_int_equal(desk_shell(&desk, "test ! -e /tmp/late"), 0);
}

/* Without --timeout, too. */
static void test_exec__a_supervisor_that_hangs_is_given_up_before_the_time_limit(void **state)
{
    static const char *const argv[] = { "true", NULL };
    struct exec_request request = make_request(argv, 0, 1, 2);
    struct exec_result result;
    struct error e = { 0 };
    int64_t started_ms = clock_mono_ms();

    (void)state;
    request.timeout_ms = 300000;
    hold_supervisor();
    assert_int_equal(linux_exec(desk.s, &desk.facts, &request, &result, &e), -1);
    kill(desk_supervisor(&desk), SIGCONT);
    assert_in_range(clock_mono_ms() - started_ms, 9000, 13000);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_string_equal(error_delivery_name(&e), "not_delivered");
    assert_int_equal(result.delivery, EXEC_NOT_SENT);
}

static void test_exec__a_supervisor_that_dies_leaves_the_outcome_unknown(void **state)
{
    const char *const argv[] = { "sleep", "4711008", NULL };
    struct exec_request request = make_request(argv, 0, 1, 2);
    struct exec_result result;
    struct error e = { 0 };
    pid_t killer = fork();

    (void)state;
    if (killer == 0) {
        bool there = desk_wait_count(&desk, "4711008", 1);

        kill(desk_supervisor(&desk), SIGKILL);
        _exit(there ? 0 : 1);
    }
    assert_int_equal(linux_exec(desk.s, &desk.facts, &request, &result, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_string_equal(error_delivery_name(&e), "unknown");
    assert_string_equal(error_retry_name(&e), "unsafe");
    assert_int_equal(result.delivery, EXEC_SENT);
    assert_false(result.status_known);
    assert_int_equal(wait_client(killer), 0);
    desk_start(&desk);
}

static void test_exec__into_a_stopped_sandbox_is_refused(void **state)
{
    static const char *const argv[] = { "true", NULL };
    struct exec_result result;
    struct error e = { 0 };

    (void)state;
    desk_stop(&desk);
    assert_int_equal(desk_exec(&desk, argv, &result, NULL, 0, &e), -1);
    assert_int_equal(e.code, ERROR_INVALID_STATE);
    assert_int_equal(result.delivery, EXEC_NOT_SENT);
    desk_start(&desk);
}

/* --- modes inside -----------------------------------------------------------------------------------------
 */

static int show_arguments(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        printf("%s|", argv[i]);
    return fflush(stdout) == 0 ? 0 : 1;
}

/* Exit status: errno of connect(2), 0 when it worked. */
static int connect_abstract(const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path + 1, name, strlen(name));
    return connect(fd, (struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) == 0
               ? 0
               : errno;
}

/* Exit status: why it cannot be written. While it runs that is ETXTBSY before all else, so root has to ask
 * for the mount it lies on. */
static int write_own_file(void)
{
    AUTO_CLOSE int fd = open("/proc/self/exe", (geteuid() == 0 ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
    struct statvfs st;

    if (fd < 0)
        return errno;
    return fstatvfs(fd, &st) == 0 && (st.f_flag & ST_RDONLY) != 0 ? EROFS : 0;
}

static int become_ordinary(void)
{
    if (setgroups(0, NULL) < 0 || setresgid(ORDINARY_ID, ORDINARY_ID, ORDINARY_ID) < 0 ||
        setresuid(ORDINARY_ID, ORDINARY_ID, ORDINARY_ID) < 0)
        return -1;
    return prctl(PR_SET_DUMPABLE, 1); /* else /proc/PID/uid_map of our children is root's */
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session__start_records_who_it_is_and_observe_agrees),
        cmocka_unit_test(test_session__starting_a_running_one_adopts_it),
        cmocka_unit_test(test_session__env_file_has_what_programs_get),
        cmocka_unit_test(test_session__environment_of_the_host_stays_outside),
        cmocka_unit_test(test_session__a_start_that_is_never_let_go_ends),
        cmocka_unit_test(test_session__two_have_displays_of_their_own),
        cmocka_unit_test(test_session__programs_that_a_bus_starts_get_the_display),
        cmocka_unit_test(test_session__a_worker_killed_during_start_leaves_nothing_half_made),
        cmocka_unit_test(test_session__a_supervisor_killed_before_it_was_let_go_fails_the_start),
        cmocka_unit_test(test_session__a_start_that_hangs_can_be_stopped),
        cmocka_unit_test(test_session__a_desktop_that_cannot_be_made_fails_the_start),
        cmocka_unit_test(test_session__a_start_without_its_directory_says_that_it_is_lost),
        cmocka_unit_test(test_session__one_whose_run_lock_is_deleted_ends),
        cmocka_unit_test(test_session__a_start_whose_run_lock_is_deleted_fails),
        cmocka_unit_test(test_session__a_host_without_landlock_is_told),
        cmocka_unit_test(test_session__root_needs_no_executable_memory),
        cmocka_unit_test(test_session__whoever_starts_it_may_ignore_its_children),
        cmocka_unit_test(test_exec__passes_the_exit_status),
        cmocka_unit_test(test_exec__passes_the_signal),
        cmocka_unit_test(test_exec__arguments_arrive_byte_for_byte),
        cmocka_unit_test(test_exec__too_many_bytes_are_refused_before_anything_runs),
        cmocka_unit_test(test_exec__a_directory_is_not_passed_on),
        cmocka_unit_test(test_exec__a_program_that_cannot_be_run_is_an_error_that_names_it),
        cmocka_unit_test(test_exec__bytes_pass_both_ways_unchanged),
        cmocka_unit_test(test_exec__tells_whether_stdout_was_used),
        cmocka_unit_test(test_exec__runs_this_very_binary),
        cmocka_unit_test(test_exec__two_hundred_at_once),
        cmocka_unit_test(test_exec__three_hundred_run_side_by_side),
        cmocka_unit_test(test_exec__a_reader_that_leaves_ends_the_command),
        cmocka_unit_test(test_exec__closed_streams_are_dev_null),
        cmocka_unit_test(test_exec__a_killed_client_takes_all_of_its_command_with_it),
        cmocka_unit_test(test_exec__a_daemon_outlives_its_command),
        cmocka_unit_test(test_exec__the_time_limit_ends_all_of_the_command),
        cmocka_unit_test(test_exec__the_time_limit_finds_children_whose_parent_went_first),
        cmocka_unit_test(test_exec__a_timeout_says_what_it_is),
        cmocka_unit_test(test_exec__a_signal_reaches_the_command),
        cmocka_unit_test(test_exec__a_command_that_ignores_the_signal_is_killed),
        cmocka_unit_test(test_exec__the_rest_of_a_command_has_time_after_a_signal),
        cmocka_unit_test(test_exec__a_suspended_command_stops_and_goes_on),
        cmocka_unit_test(test_session__pid_1_shows_nothing_of_the_host),
        cmocka_unit_test(test_exec__the_hosts_binary_cannot_be_written_from_inside),
        cmocka_unit_test(test_session__programs_get_three_descriptors),
        cmocka_unit_test(test_session__abstract_sockets_of_the_host_are_out_of_reach),
        cmocka_unit_test(test_session__a_killed_supervisor_is_seen_at_once),
        cmocka_unit_test(test_session__a_dead_x_server_ends_it_and_is_named),
        cmocka_unit_test(test_session__a_dead_window_manager_is_started_again),
        cmocka_unit_test(test_session__a_stranger_with_the_recorded_pid_is_left_alone),
        cmocka_unit_test(test_session__a_start_waits_for_what_remains_of_a_killed_one),
        cmocka_unit_test(test_session__stop_works_while_a_client_is_stopped),
        cmocka_unit_test(test_session__stop_of_a_stopped_one_does_nothing),
        cmocka_unit_test(test_session__stop_ends_it_although_its_directory_is_gone),
        cmocka_unit_test(test_session__a_command_that_comes_with_the_stop_is_ended_at_once),
        cmocka_unit_test(test_session__stop_gives_programs_three_seconds),
        cmocka_unit_test(test_session__a_supervisor_that_hangs_is_alive_and_can_be_stopped),
        cmocka_unit_test(test_exec__a_supervisor_that_hangs_never_runs_what_timed_out),
        cmocka_unit_test(test_exec__a_supervisor_that_hangs_is_given_up_before_the_time_limit),
        cmocka_unit_test(test_exec__a_supervisor_that_dies_leaves_the_outcome_unknown),
        cmocka_unit_test(test_exec__into_a_stopped_sandbox_is_refused),
    };
    const char *refusal;

    if (argc > 1 && strcmp(argv[1], SUPERVISOR_MODE) == 0)
        return supervisor_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], MODE_SHOW) == 0)
        return show_arguments(argc, argv);
    if (argc > 1 && strcmp(argv[1], MODE_WRITE) == 0)
        return write_own_file();
    if (argc > 2 && strcmp(argv[1], MODE_CONNECT) == 0)
        return connect_abstract(argv[2]);
    if (argc > 1 && strcmp(argv[1], "ordinary") == 0 && geteuid() == 0 && become_ordinary() < 0)
        return 1;
    refusal = desk_refusal();
    if (refusal != NULL) {
        print_message("skipped: %s\n", refusal);
        return 77;
    }
    return cmocka_run_group_tests(tests, start_desk, close_desk);
}

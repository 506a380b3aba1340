#include "core/host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/root.h"
#include "tests/core/scratch.h"

static void open_root(const struct scratch *s, enum root_mode mode, struct root *root)
{
    struct error e = { 0 };

    setenv("AGENT_DESKTOP_HOME", s->path, 1);
    assert_int_equal(root_open(mode, root, &e), 0);
}

static void test_host__locks_are_files_of_the_root(void **state)
{
    const struct scratch *s = *state;
    struct root root;
    struct error e = { 0 };
    int op = -1, run = -1, second = -7;

    open_root(s, ROOT_WRITE, &root);
    assert_int_equal(host_system.lock(&root, HOST_LOCK_OP, "demo", 0, &op, &e), 1);
    assert_int_equal(host_system.lock(&root, HOST_LOCK_RUN, "demo", 0, &run, &e), 1);
    assert_true(scratch_exists(s, "locks/demo.op"));
    assert_true(scratch_exists(s, "locks/demo.run"));
    assert_int_equal(host_system.lock(&root, HOST_LOCK_OP, "demo", 20, &second, &e), 0);
    assert_int_equal(second, -7);
    assert_int_equal(host_system.is_locked(&root, HOST_LOCK_OP, "demo", &e), 1);
    assert_int_equal(host_system.is_locked(&root, HOST_LOCK_RUN, "demo", &e), 1);
    assert_int_equal(host_system.is_locked(&root, HOST_LOCK_OP, "other", &e), 0);
    host_system.unlock(&root, op);
    assert_int_equal(host_system.is_locked(&root, HOST_LOCK_OP, "demo", &e), 0);
    assert_int_equal(host_system.is_locked(&root, HOST_LOCK_RUN, "demo", &e), 1);
    host_system.unlock(&root, run);
    assert_true(scratch_exists(s, "locks/demo.op")); /* never deleted */
    root_close(&root);
}

static void test_host__the_longest_names_have_locks(void **state)
{
    static const char name[] = "provider-abcdefghijklmnopqrstuvwxyz012345";
    struct root root;
    struct error e = { 0 };
    int fd = -1;

    open_root(*state, ROOT_WRITE, &root);
    assert_int_equal(host_system.lock(&root, HOST_LOCK_RUN, name, 0, &fd, &e), 1);
    host_system.unlock(&root, fd);
    root_close(&root);
}

static void test_host__nothing_is_locked_where_no_locks_are(void **state)
{
    const struct scratch *s = *state;
    struct root root;
    struct error e = { 0 };
    int fd = -1;

    open_root(s, ROOT_READ, &root);
    assert_int_equal(root.locks, -1);
    assert_int_equal(host_system.is_locked(&root, HOST_LOCK_OP, "demo", &e), 0);
    assert_false(scratch_exists(s, "locks"));
    assert_int_equal(host_system.lock(&root, HOST_LOCK_OP, "demo", 0, &fd, &e), 1); /* makes it */
    assert_int_equal(scratch_mode(s, "locks"), 0700);
    assert_int_equal(host_system.is_locked(&root, HOST_LOCK_OP, "demo", &e), 1);
    host_system.unlock(&root, fd);
    root_close(&root);
}

static void test_host__cannot_lock_without_a_root(void **state)
{
    struct root none = { .dir = -1, .sandboxes = -1, .locks = -1 };
    struct error e = { 0 };
    int fd = -7;

    (void)state;
    assert_int_equal(host_system.is_locked(&none, HOST_LOCK_OP, "demo", &e), 0);
    assert_int_equal(host_system.lock(&none, HOST_LOCK_OP, "demo", 0, &fd, &e), -1);
    assert_int_equal(e.code, ERROR_INTERNAL);
    assert_int_equal(fd, -7);
}

static void test_host__knows_times_and_chance(void **state)
{
    struct root none = { .dir = -1, .sandboxes = -1, .locks = -1 };
    char a[17], b[17];
    int64_t boot = host_system.boot_ms(&none);

    (void)state;
    host_system.sleep_ms(&none, 10);
    assert_true(host_system.boot_ms(&none) - boot >= 9);
    assert_true(host_system.wall_ms(&none) > INT64_C(1700000000000));
    assert_string_equal(host_system.boot_id(&none), process_boot_id());
    host_system.random_id(&none, a);
    host_system.random_id(&none, b);
    assert_string_not_equal(a, b);
}

static int wait_for_a_signal(void *arg)
{
    (void)arg;
    pause();
    return 0;
}

static void test_host__ends_processes(void **state)
{
    struct root none = { .dir = -1, .sandboxes = -1, .locks = -1 };
    struct process_id id;
    struct error e = { 0 };
    pid_t pid;

    (void)state;
    scratch_need_pidfd();
    pid = scratch_start(wait_for_a_signal, NULL);
    assert_int_equal(process_read(pid, &id), 0);
    assert_int_equal(host_system.end_process(&none, &id, 10000, &e), 0);
    assert_int_equal(scratch_wait(pid), 128 + SIGTERM);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_host__locks_are_files_of_the_root),
        WITH_SCRATCH(test_host__the_longest_names_have_locks),
        WITH_SCRATCH(test_host__nothing_is_locked_where_no_locks_are),
        cmocka_unit_test(test_host__cannot_lock_without_a_root),
        cmocka_unit_test(test_host__knows_times_and_chance),
        cmocka_unit_test(test_host__ends_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

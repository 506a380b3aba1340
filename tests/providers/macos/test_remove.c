#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/lock.h"
#include "core/mem.h"
#include "tests/providers/macos/fake_guest.h"
#include "tests/providers/macos/machine.h"

static int count_entries(const struct machine *m)
{
    return scripts_shell(m->scripts, "exit $(ls -A \"$ROOT/sandboxes\" | wc -l)");
}

/* */
static void test_remove__leaves_nothing_and_can_run_again(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");

    machine_must_run(&s, OPERATION_STOP);
    machine_must_run(&s, OPERATION_REMOVE);
    assert_int_equal(count_entries(m), 0);
    machine_close(&s);
    machine_must_run(&s, OPERATION_REMOVE);
}

static void test_remove__releases_a_disk_that_was_left_attached(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_create(*state, "base");

    machine_must_run(&s, OPERATION_REMOVE);
    assert_int_equal(fake_guest.releases, 1);
}

/* Whatever an interrupted create or clone has left, and whatever was made of it by hand. */
static void test_remove__takes_whatever_is_there(void **state)
{
    static const char *const makings[] = {
        "mkdir base",
        "mkdir -p base/vm/share",
        "mkdir -p base/vm/disk.img/x",
        "mkdir base; mkfifo base/vm",
        "mkdir -p base/vm; mkfifo base/vm/disk.img; chmod 000 base/vm base",
        "touch base",
    };
    const struct machine *m = *state;

    for (size_t i = 0; i < ARRAY_LEN(makings); i++) {
        AUTO_SANDBOX struct sandbox s = machine_open(m, "base", NULL);
        AUTO_FREE char *command = mem_print("cd \"$ROOT/sandboxes\" && { %s; }", makings[i]);

        assert_int_equal(scripts_shell(m->scripts, command), 0);
        machine_must_run(&s, OPERATION_REMOVE);
        assert_int_equal(count_entries(m), 0);
    }
}

/* Bug case 18 */
static void test_remove__never_follows_a_link_out(void **state)
{
    static const char *const makings[] = {
        "ln -s \"$MAC/victim\" base",
        "mkdir base && ln -s \"$MAC/victim\" base/vm",
        "mkdir -p base/vm && ln -s \"$MAC/victim/disk.img\" base/vm/disk.img",
        "mkdir -p base/vm && ln -s \"$MAC/victim\" base/vm/share",
    };
    const struct machine *m = *state;

    assert_int_equal(scripts_shell(m->scripts, "mkdir victim && echo precious >victim/disk.img"), 0);
    for (size_t i = 0; i < ARRAY_LEN(makings); i++) {
        AUTO_SANDBOX struct sandbox s = machine_open(m, "base", NULL);
        AUTO_FREE char *command = mem_print("cd \"$ROOT/sandboxes\" && { %s; }", makings[i]);

        assert_int_equal(scripts_shell(m->scripts, command), 0);
        machine_must_run(&s, OPERATION_REMOVE);
        assert_int_equal(count_entries(m), 0);
        assert_true(scripts_has(m->scripts, "victim/disk.img"));
        assert_int_equal(fake_guest.releases, 0); /* what a link leads to is no disk of ours */
    }
}

/* another token, and nothing known of the one before but its name. */
static void test_remove__finishes_an_interrupted_one(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");

    machine_close(&s);
    assert_int_equal(
        scripts_shell(m->scripts, "mv \"$ROOT/sandboxes/base\" \"$ROOT/sandboxes/.gone-fedcba9876543210\""),
        0);
    machine_must_run(&s, OPERATION_REMOVE);
    assert_int_equal(count_entries(m), 0);
}

static void test_remove__sweeps_only_what_nobody_works_on(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");
    struct error e = { 0 };

    assert_int_equal(scripts_shell(m->scripts,
                                   "cd \"$ROOT/sandboxes\" && mkdir .gone-a .gone-b && touch .gone-b/x && "
                                   "ln -s \"$MAC\" .gone-c"),
                     0);
    AUTO_CLOSE int owned = file_open_dir(m->root->sandboxes, ".gone-a");

    assert_int_equal(lock_take_fd(owned, LOCK_EXCLUSIVE, 0, &e), 1);
    machine_must_run(&s, OPERATION_REMOVE);
    assert_int_equal(count_entries(m), 1);
    assert_true(scripts_has(m->scripts, "Mac.ipsw"));
}

/* Recorded as broken, say of a damaged journal: nothing else would stop it. */
static void test_remove__ends_a_session_that_nobody_knows(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");
    AUTO_SANDBOX struct sandbox unknown = machine_open(m, "base", NULL);
    struct process_id id = machine_process(&s);

    machine_must_run(&unknown, OPERATION_REMOVE);
    assert_false(machine_is_alive(&id));
    assert_int_equal(count_entries(m), 0);
}

/* Whoever holds the lock may have its files open, and cannot be found. */
static void test_remove__waits_for_whoever_holds_the_lock(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");
    AUTO_CLOSE int lock = -1;
    struct error e = { 0 };

    assert_int_equal(lock_take(m->root->locks, "base.run", LOCK_EXCLUSIVE, 0, &lock, &e), 1);
    assert_int_equal(machine_run(&s, OPERATION_REMOVE, &e), -1);
    assert_non_null(strstr(e.message, "locks/base.run"));
    assert_true(machine_has(&s, "vm/disk.img"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_remove__leaves_nothing_and_can_run_again),
        TEST(test_remove__releases_a_disk_that_was_left_attached),
        TEST(test_remove__takes_whatever_is_there),
        TEST(test_remove__never_follows_a_link_out),
        TEST(test_remove__finishes_an_interrupted_one),
        TEST(test_remove__sweeps_only_what_nobody_works_on),
        TEST(test_remove__ends_a_session_that_nobody_knows),
        TEST(test_remove__waits_for_whoever_holds_the_lock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

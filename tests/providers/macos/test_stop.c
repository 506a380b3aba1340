#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/mem.h"
#include "tests/providers/macos/fake_guest.h"
#include "tests/providers/macos/machine.h"

static void test_stop__asks_the_guest_and_forgets_where_it_was(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    struct process_id id = machine_process(&s);
    AUTO_FREE char *log = NULL;

    machine_must_run(&s, OPERATION_STOP);
    log = machine_read(&s, "vm/vmhost.log");
    assert_int_equal(s.outcome, EV_NONE); /* done: stopped */
    assert_string_equal(s.note, "");
    assert_false(machine_is_alive(&id));
    assert_false(machine_runs(&s));
    assert_non_null(strstr(log, "\"how\": \"request\""));
    assert_false(macos_read_process(&s.facts, &id));
}

/* Stopped itself, it hears nothing: only the kernel can end it. */
static int stop_stuck(void *self)
{
    struct sandbox *s = self;
    struct error e = { 0 };

    CHECK(kill(machine_process(s).pid, SIGSTOP) == 0);
    CHECK(machine_run(s, OPERATION_STOP, &e) == 0);
    CHECK(strcmp(s->note, "its VM host did not end and was killed") == 0);
    return 0;
}

/* Bug case 15: without the guest, bounded, and it says that it was forced. Two at once, since each takes its
 * time. */
static void test_stop__of_a_deaf_guest_and_of_a_stuck_vm_host_is_forced(void **state)
{
    AUTO_SANDBOX struct sandbox deaf = machine_create(*state, "deaf");
    AUTO_SANDBOX struct sandbox stuck = machine_create(*state, "stuck");
    int64_t began_ms = clock_mono_ms();

    setenv("VMHOST", "run-deaf", 1);
    machine_must_run(&deaf, OPERATION_START);
    machine_must_run(&stuck, OPERATION_START);
    pid_t pid = scratch_start(stop_stuck, &stuck);

    machine_must_run(&deaf, OPERATION_STOP);
    assert_string_equal(deaf.note, "its guest did not shut down within 20 s and was switched off");
    assert_int_equal(scratch_wait(pid), 0);
    assert_false(machine_runs(&deaf) || machine_runs(&stuck));
    assert_in_range(clock_mono_ms() - began_ms, 20000, 40000);
}

static void test_stop__of_what_has_ended_by_itself_is_done(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    struct process_id id = machine_process(&s);

    kill(id.pid, SIGKILL);
    assert_int_equal(waitpid(id.pid, NULL, 0), id.pid);
    machine_must_run(&s, OPERATION_STOP);
    assert_string_equal(s.note, "");
    machine_must_run(&s, OPERATION_STOP); /* a step may run twice */
}

static void test_stop__works_without_the_sandboxs_directory(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");
    struct process_id id = machine_process(&s);

    machine_close(&s);
    assert_int_equal(scripts_shell(m->scripts, "rm -rf \"$ROOT/sandboxes/base\""), 0);
    machine_must_run(&s, OPERATION_STOP);
    assert_false(machine_is_alive(&id));
}

/* Bug case 5: the recorded number is a stranger's now, of the same boot or another. */
static void test_stop__never_signals_a_stranger(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    struct process_id vmhost = machine_process(&s), stranger;
    pid_t pid = fork();

    if (pid == 0)
        for (;;)
            pause();
    assert_int_equal(process_read(pid, &stranger), 0);
    kill(vmhost.pid, SIGKILL);
    assert_int_equal(waitpid(vmhost.pid, NULL, 0), vmhost.pid);
    for (int variant = 0; variant < 2; variant++) {
        struct process_id recorded = stranger;

        if (variant == 0)
            recorded.start++;
        else
            recorded.boot[0] = recorded.boot[0] == '0' ? '1' : '0';
        macos_write_process(&s.facts, &recorded);
        machine_must_run(&s, OPERATION_STOP);
        assert_true(machine_is_alive(&stranger));
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The log may be old: a pid in it counts only while somebody holds the lock since. */
static void test_stop__believes_no_log_of_a_session_that_is_over(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_create(*state, "base");
    struct process_id stranger;
    pid_t pid = fork();

    if (pid == 0)
        for (;;)
            pause();
    assert_int_equal(process_read(pid, &stranger), 0);
    AUTO_FREE char *log = mem_print("{\"event\":\"launch\"}\n{\"event\":\"started\",\"pid\":%d}\n", (int)pid);

    machine_write(&s, "vm/vmhost.log", log);
    machine_must_run(&s, OPERATION_STOP);
    assert_true(machine_is_alive(&stranger));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_stop__asks_the_guest_and_forgets_where_it_was),
        TEST(test_stop__of_a_deaf_guest_and_of_a_stuck_vm_host_is_forced),
        TEST(test_stop__of_what_has_ended_by_itself_is_done),
        TEST(test_stop__works_without_the_sandboxs_directory),
        TEST(test_stop__never_signals_a_stranger),
        TEST(test_stop__believes_no_log_of_a_session_that_is_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

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
#include "core/process.h"
#include "providers/macos/files.h"
#include "tests/providers/macos/fake_guest.h"
#include "tests/providers/macos/machine.h"

static int run_in(struct sandbox *s, int timeout_ms, struct exec_result *out, struct error *e)
{
    static char name[] = "true";
    char *argv[] = { name, NULL };
    const struct exec_request request = {
        .argv = argv, .streams = { -1, -1, -1 }, .timeout_ms = timeout_ms, .signal_fd = -1
    };

    *out = (struct exec_result){ .delivery = EXEC_SENT };
    return macos_exec(machine_vm(s), &s->facts, &request, out, e);
}

static void must_not_be_sent(const struct exec_result *result, const struct error *e)
{
    assert_int_equal(result->delivery, EXEC_NOT_SENT);
    assert_false(result->status_known);
    assert_int_equal(e->delivery, DELIVERY_NOT_DELIVERED);
    assert_int_equal(e->retry, RETRY_SAFE);
}

/* this very program and the helper that was built for it, the program first. */
static void test_exec__runs_in_the_pinned_guest_with_this_builds_files(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");
    char self[ROOT_PATH_MAX], helper[ROOT_PATH_MAX];
    struct exec_result result;
    struct error e = { 0 };

    assert_int_equal(run_in(&s, 5000, &result, &e), 0);
    assert_int_equal(result.status, 7);
    assert_true(fake_guest.pinned);
    assert_int_equal(process_self_path(self, sizeof(self), &e), 0);
    files_built_path(m->root, BUILT_HELPER, helper);
    AUTO_FREE char *first = mem_print("agent-desktop=%s", self);
    AUTO_FREE char *second = mem_print("agent-desktop-macos-helper=%s", helper);

    assert_string_equal(fake_guest.files[0], first);
    assert_string_equal(fake_guest.files[1], second);
}

/* the limit counts from the call. */
static void test_exec__connecting_is_part_of_the_time_limit(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    struct exec_result result;
    struct error e = { 0 };

    int64_t began_ms = clock_mono_ms();

    assert_int_equal(run_in(&s, 5000, &result, &e), 0);
    assert_int_equal(fake_guest.request.timeout_ms, 5000); /* as it is told to the caller */
    assert_in_range(fake_guest.began_ms, began_ms, clock_mono_ms());
    fake_guest.slow = true;
    assert_int_equal(run_in(&s, 200, &result, &e), -1);
    must_not_be_sent(&result, &e);
}

static void test_exec__in_a_guest_that_is_gone_is_an_invalid_state(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    struct process_id id = machine_process(&s);
    struct exec_result result;
    struct error e = { 0 };

    kill(id.pid, SIGKILL);
    assert_int_equal(waitpid(id.pid, NULL, 0), id.pid);
    fake_guest.connections = 0;
    assert_int_equal(run_in(&s, 5000, &result, &e), -1);
    assert_int_equal(e.code, ERROR_INVALID_STATE);
    assert_int_equal(fake_guest.connections, 0);
    must_not_be_sent(&result, &e);
}

/* */
static void test_exec__in_front_of_another_host_key_is_not_sent(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    struct exec_result result;
    struct error e = { 0 };

    fake_guest.blob = "AAAAsomebody";
    assert_int_equal(run_in(&s, 5000, &result, &e), -1);
    assert_int_equal(e.code, ERROR_HOST_KEY_CHANGED);
    must_not_be_sent(&result, &e);
}

/* without a compiler the guest keeps the helper that it has. */
static void test_exec__without_the_built_helper_brings_only_this_program(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");
    struct exec_result result;
    struct error e = { 0 };

    fake_guest.files[1][0] = '\0';
    assert_int_equal(scripts_shell(m->scripts, "rm -rf \"$ROOT\"/providers/macos/helper-*"), 0);
    assert_int_equal(run_in(&s, 5000, &result, &e), 0);
    assert_memory_equal(fake_guest.files[0], "agent-desktop=", strlen("agent-desktop="));
    assert_string_equal(fake_guest.files[1], "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_exec__runs_in_the_pinned_guest_with_this_builds_files),
        TEST(test_exec__connecting_is_part_of_the_time_limit),
        TEST(test_exec__in_a_guest_that_is_gone_is_an_invalid_state),
        TEST(test_exec__in_front_of_another_host_key_is_not_sent),
        TEST(test_exec__without_the_built_helper_brings_only_this_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

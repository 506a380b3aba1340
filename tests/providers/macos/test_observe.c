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
#include "core/lock.h"
#include "core/mem.h"
#include "tests/providers/macos/fake_guest.h"
#include "tests/providers/macos/machine.h"

static void must_contain(const char *text, const char *words)
{
    if (text == NULL || strstr(text, words) == NULL)
        fail_msg("'%s' is not in: %s", words, text == NULL ? "(nothing)" : text);
}

static const char *fact(const struct observation *seen, const char *key)
{
    const char *value = facts_get(&seen->facts, key);

    return value == NULL ? "" : value;
}

/* A started guest that was never set up: needs_setup is on record, and its address is known. */
static struct sandbox start_first(const struct machine *m)
{
    struct sandbox s = machine_create(m, "base");

    machine_must_run(&s, OPERATION_START);
    fake_guest.address = "192.168.64.7";
    machine_lease(m, &s, fake_guest.address, 3600);
    return s;
}

/* --- the setup ---------------------------------------------------------------------------------------- */

/* exactly the steps that are left to the person. */
static void test_observe__tells_the_steps_that_are_left(void **state)
{
    static const struct {
        const char *comment;
        enum ssh_obstacle obstacle;
        const char *output;
        int status;
        bool script, login, allow;
    } cases[] = {
        { "nothing is done", SSH_REFUSED, "", 0, true, true, true },
        { "it boots", SSH_SILENT, "", 0, true, true, true },
        { "Remote Login is on, the script was not run", SSH_LOGIN, "", 0, true, false, true },
        { "another script's key", SSH_NO_OBSTACLE, "", 127, true, false, true },
        { "only the grant is missing", SSH_NO_OBSTACLE, FAKE_MISSING, 0, false, false, true },
        { "nothing is to be found out", SSH_NO_OBSTACLE, "zsh: killed\n", 137, false, false, true },
    };
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = start_first(m);

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fake_guest.obstacle = cases[i].obstacle;
        fake_guest.output = cases[i].output;
        fake_guest.status = cases[i].status;
        struct observation seen = machine_observe(&s);

        if (seen.event != EV_SETUP_REQUIRED || !seen.alive ||
            (strstr(seen.message, "guest-setup.sh") != NULL) != cases[i].script ||
            (strstr(seen.message, "turn on Remote Login") != NULL) != cases[i].login ||
            (strstr(seen.message, "sshd-keygen-wrapper") != NULL) != cases[i].allow)
            fail_msg("%s: %s", cases[i].comment, seen.message);
        must_contain(seen.message, "in its window");
    }
}

static void test_observe__a_stale_grant_is_to_be_removed_and_added_again(void **state)
{
    AUTO_SANDBOX struct sandbox s = start_first(*state);

    fake_guest.output = "{\"trusted\":true,\"working\":false,\"state\":\"stale\"}\n";
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_SETUP_REQUIRED);
    must_contain(seen.message, "remove sshd-keygen-wrapper");
    must_contain(seen.message, "add it again");
}

/* once SSH answers and Accessibility is granted, with the key of this first use. */
static void test_observe__records_a_setup_that_is_done(void **state)
{
    AUTO_SANDBOX struct sandbox s = start_first(*state);

    fake_guest.output = FAKE_GRANTED;
    struct observation seen = machine_observe(&s);
    AUTO_FREE char *known = machine_read(&s, "known_hosts");

    assert_int_equal(seen.event, EV_SETUP_DONE);
    assert_string_equal(fact(&seen, "setup"), "done");
    assert_string_equal(fact(&seen, "hostkey"), "AAAAguest");
    assert_string_equal(fact(&seen, "address"), "192.168.64.7");
    assert_non_null(facts_get(&seen.facts, "asked")); /* removed when merged */
    assert_string_equal(fact(&seen, "asked"), "");
    assert_string_equal(known, "base ssh-ed25519 AAAAguest\n");
}

/* Whoever has no window must come to one first. */
static void test_observe__sends_a_headless_guest_to_its_window(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");

    fake_guest.output = FAKE_MISSING;
    struct observation lost = machine_observe(&s);

    assert_int_equal(lost.event, EV_SETUP_LOST);
    assert_true(facts_merge(&s.facts, &lost.facts));
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_SETUP_REQUIRED); /* what needs_setup has on record */
    must_contain(seen.message, "stop it and start it: its window opens then");
    fake_guest.output = FAKE_GRANTED; /* given back without a restart */
    assert_int_equal(machine_observe(&s).event, EV_SETUP_DONE);
}

/* A worker that was killed before it could record needs_setup: that comes first, whatever the guest says. */
static void test_observe__a_start_without_a_setup_leads_to_needs_setup_first(void **state)
{
    AUTO_SANDBOX struct sandbox s = start_first(*state);

    facts_set(&s.facts, "asked", "");
    struct facts without = { .count = 0 };

    for (size_t i = 0; i < s.facts.count; i++) /* as the fold removes it */
        if (s.facts.items[i].value[0] != '\0')
            facts_set(&without, s.facts.items[i].key, s.facts.items[i].value);
    s.facts = without;
    fake_guest.output = FAKE_GRANTED;
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_SETUP_REQUIRED);
    assert_true(facts_merge(&s.facts, &seen.facts));
    assert_int_equal(machine_observe(&s).event, EV_SETUP_DONE);
}

/* --- a guest that was set up -------------------------------------------------------------------------- */

/* only proof takes a setup away. */
static void test_observe__only_proof_loses_a_setup(void **state)
{
    static const struct {
        const char *comment;
        enum ssh_obstacle obstacle;
        const char *output;
        int status;
        enum fsm_event event;
        const char *words;
    } cases[] = {
        { "well", SSH_NO_OBSTACLE, FAKE_GRANTED, 0, EV_GUEST_READY, "" },
        { "Remote Login off", SSH_REFUSED, "", 0, EV_SETUP_LOST, "Remote Login is off" },
        { "key removed", SSH_LOGIN, "", 0, EV_SETUP_LOST, "as 'somebody'" },
        { "grant removed", SSH_NO_OBSTACLE, FAKE_MISSING, 0, EV_SETUP_LOST, "Accessibility" },
        { "silent", SSH_SILENT, "", 0, EV_NONE, "does not answer" },
        { "no route", SSH_NO_ROUTE, "", 0, EV_NONE, "Local Network" },
        { "not ssh", SSH_NOT_SSH, "", 0, EV_NONE, "does not answer" },
        { "another key", SSH_HOST_KEY, "", 0, EV_NONE, "not trusted" },
        { "our own fault", SSH_LOCAL, "", 0, EV_NONE, "obstacle" },
        { "helper missing", SSH_NO_OBSTACLE, "sh: no such file\n", 127, EV_GUEST_READY,
          "agent-desktop-macos-helper" },
        { "no answer of the helper", SSH_NO_OBSTACLE, "", -1, EV_GUEST_READY, "Accessibility" },
    };
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fake_guest.obstacle = cases[i].obstacle;
        fake_guest.output = cases[i].output;
        fake_guest.status = cases[i].status;
        struct observation seen = machine_observe(&s);

        if (seen.event != cases[i].event || strstr(seen.message, cases[i].words) == NULL || !seen.alive)
            fail_msg("%s: %s: %s", cases[i].comment, fsm_event_name(seen.event), seen.message);
        assert_string_equal(fact(&seen, "setup"), cases[i].event == EV_SETUP_LOST ? "lost" : "");
    }
}

/* Bug case 14: a port that refuses proves nothing about a guest that may be elsewhere. */
static void test_observe__a_closed_port_counts_only_at_an_address_that_is_surely_its(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");

    fake_guest.obstacle = SSH_REFUSED;
    machine_lease(m, &s, fake_guest.address, -60);
    assert_int_equal(machine_observe(&s).event, EV_NONE);
    machine_lease(m, &s, fake_guest.address, 3600);
    AUTO_FREE char *own = scripts_read(m->scripts, "leases");
    AUTO_FREE char *both = mem_print("%s{\n\tip_address=%s\n\thw_address=1,aa:bb:cc:dd:ee:ff\n"
                                     "\tlease=0x%llx\n}\n",
                                     own, fake_guest.address, (unsigned long long)clock_wall_ms());

    scripts_write(m->scripts, "leases", both);
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_NONE);
    must_contain(seen.message, "192.168.64.7 is leased to another guest too");
}

static void test_observe__without_any_lease_goes_where_it_was(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");

    scripts_write(m->scripts, "leases", "");
    assert_int_equal(machine_observe(&s).event, EV_GUEST_READY);
    assert_int_equal(unlinkat(m->scripts->scratch->dir, "mac/leases", 0), 0);
    assert_int_equal(machine_observe(&s).event, EV_GUEST_READY);
}

static void test_observe__follows_its_guest_to_another_address(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");

    fake_guest.address = "192.168.64.9";
    machine_lease(m, &s, fake_guest.address, 3600);
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_GUEST_READY);
    assert_string_equal(fact(&seen, "address"), "192.168.64.9");
}

/* R-205, bug case 15 */
static void test_observe__keeps_its_deadline(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    int64_t began_ms = clock_mono_ms();

    fake_guest.slow = true;
    struct observation seen = machine_observe(&s);

    assert_in_range(clock_mono_ms() - began_ms, 0, 2000);
    assert_int_equal(seen.event, EV_NONE);
    assert_true(seen.alive);
}

/* A set-up guest is never trusted anew, whatever became of the record of its key. */
static void test_observe__without_a_pin_trusts_nobody(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    struct facts without = { .count = 0 };

    for (size_t i = 0; i < s.facts.count; i++)
        if (strcmp(s.facts.items[i].key, "hostkey") != 0)
            facts_set(&without, s.facts.items[i].key, s.facts.items[i].value);
    s.facts = without;
    fake_guest.connections = 0;
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_NONE);
    assert_int_equal(fake_guest.connections, 0);
    must_contain(seen.message, "not trusted");
}

/* --- the end of a session ----------------------------------------------------------------------------- */

static void end_with_log(struct sandbox *s, const char *lines)
{
    struct process_id id = machine_process(s);
    AUTO_FREE char *log =
        mem_print("{\"event\":\"launch\"}\n{\"event\":\"started\",\"pid\":%d}\n%s", (int)id.pid, lines);

    kill(id.pid, SIGKILL);
    assert_int_equal(waitpid(id.pid, NULL, 0), id.pid);
    machine_write(s, "vm/vmhost.log", log);
}

/* */
static void test_observe__tells_why_a_session_has_ended(void **state)
{
    static const struct {
        const char *lines, *words;
    } cases[] = {
        { "", "killed or crashed; its log is sandboxes/base" },
        { "{\"event\":\"stopping\",\"how\":\"window\"}\n{\"event\":\"stopped\",\"how\":\"window\"}\n",
          "window was closed" },
        { "{\"event\":\"stopping\",\"how\":\"window\"}\n", "window was closed" },
        { "{\"event\":\"stopped\",\"how\":\"guest\"}\n", "shut down from inside" },
        { "{\"event\":\"error\",\"problem\":\"crash\",\"message\":\"the VM stopped by itself\"}\n",
          "stopped by itself" },
        { "{\"event\":\"error\",\"problem\":\"other\",\"message\":\"cannot "
          "ask\"}\n{\"event\":\"stopped\",\"how\":\"force\"}\n",
          "switched off" },
    };
    const struct machine *m = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *name = mem_print("base%zu", i);
        AUTO_SANDBOX struct sandbox s = machine_start(m, name);

        end_with_log(&s, cases[i].lines);
        struct observation seen = machine_observe(&s);

        assert_int_equal(seen.event, EV_GUEST_GONE);
        assert_false(seen.alive);
        must_contain(seen.message, cases[i].words);
    }
}

/* Bug case 5 */
static void test_observe__a_session_of_another_boot_is_gone(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    struct process_id id = machine_process(&s);

    end_with_log(&s, "");
    process_read_self(&id);
    id.boot[0] = id.boot[0] == '0' ? '1' : '0';
    macos_write_process(&s.facts, &id);
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_GUEST_GONE);
    assert_string_equal(seen.message, "the host was restarted");
}

/* Killed between taking the lock and the launch: what the log says is of a session before. */
static void test_observe__a_start_that_launched_nothing_has_no_reason_of_its_own(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_create(*state, "base");

    machine_write(&s, "vm/vmhost.log",
                  "{\"event\":\"launch\"}\n{\"event\":\"stopped\",\"how\":\"window\"}\n");
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_GUEST_GONE);
    assert_string_equal(seen.message, "");
}

static void test_observe__a_guest_that_is_shutting_down_is_stopping(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_create(*state, "base");

    setenv("VMHOST", "run-deaf", 1);
    machine_must_run(&s, OPERATION_START);
    struct process_id id = machine_process(&s);

    kill(id.pid, SIGTERM);
    for (int64_t end_ms = clock_mono_ms() + 5000;;) {
        AUTO_FREE char *log = machine_read(&s, "vm/vmhost.log");

        if (strstr(log, "stopping") != NULL)
            break;
        assert_true(clock_mono_ms() < end_ms);
        clock_sleep_ms(5);
    }
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_GUEST_STOPPING);
    assert_true(seen.alive);
}

/* A start whose worker is gone, and whose vmhost has not come that far. */
static void test_observe__a_vm_host_that_has_told_nothing_proves_nothing(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");
    AUTO_CLOSE int lock = -1;
    struct error e = { 0 };

    machine_write(&s, "vm/vmhost.log", "{\"event\":\"launch\"}\n");
    assert_int_equal(lock_take(m->root->locks, "base.run", LOCK_EXCLUSIVE, 0, &lock, &e), 1);
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_NONE);
    assert_true(seen.alive);
    must_contain(seen.message, "has not started the guest yet");
}

static void test_observe__records_a_session_that_nobody_has(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    struct process_id id = machine_process(&s), found;

    macos_forget_process(&s.facts);
    facts_set(&s.facts, "address", "192.168.64.7");
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_GUEST_READY);
    assert_true(macos_read_process(&seen.facts, &found));
    assert_int_equal(found.pid, id.pid);
}

static void test_observe__what_has_no_files_and_no_session_is_lost(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");
    AUTO_SANDBOX struct sandbox gone = machine_create(m, "gone");

    assert_int_equal(
        scripts_shell(m->scripts, "rm \"$ROOT/sandboxes/base/vm/disk.img\"; rm -r \"$ROOT/sandboxes/gone\""),
        0);
    machine_close(&gone);
    assert_int_equal(machine_observe(&s).event, EV_LOST);
    struct observation seen = machine_observe(&gone);

    assert_int_equal(seen.event, EV_LOST);
    must_contain(seen.message, "directory is gone");
}

static void test_observe__a_running_guest_without_its_directory_is_not_lost(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");

    assert_int_equal(scripts_shell(m->scripts, "mv \"$ROOT/sandboxes/base\" \"$MAC/away\""), 0);
    machine_close(&s);
    struct observation seen = machine_observe(&s);

    assert_int_equal(seen.event, EV_NONE);
    assert_true(seen.alive);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_observe__tells_the_steps_that_are_left),
        TEST(test_observe__a_stale_grant_is_to_be_removed_and_added_again),
        TEST(test_observe__records_a_setup_that_is_done),
        TEST(test_observe__sends_a_headless_guest_to_its_window),
        TEST(test_observe__a_start_without_a_setup_leads_to_needs_setup_first),
        TEST(test_observe__only_proof_loses_a_setup),
        TEST(test_observe__a_closed_port_counts_only_at_an_address_that_is_surely_its),
        TEST(test_observe__without_any_lease_goes_where_it_was),
        TEST(test_observe__follows_its_guest_to_another_address),
        TEST(test_observe__keeps_its_deadline),
        TEST(test_observe__without_a_pin_trusts_nobody),
        TEST(test_observe__tells_why_a_session_has_ended),
        TEST(test_observe__a_session_of_another_boot_is_gone),
        TEST(test_observe__a_start_that_launched_nothing_has_no_reason_of_its_own),
        TEST(test_observe__a_guest_that_is_shutting_down_is_stopping),
        TEST(test_observe__a_vm_host_that_has_told_nothing_proves_nothing),
        TEST(test_observe__records_a_session_that_nobody_has),
        TEST(test_observe__what_has_no_files_and_no_session_is_lost),
        TEST(test_observe__a_running_guest_without_its_directory_is_not_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

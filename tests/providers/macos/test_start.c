#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static char *read_argv(const struct machine *m, const char *name)
{
    AUTO_FREE char *file = mem_print("vmhost.%s.argv", name);

    return scripts_read(m->scripts, file);
}

static void must_fail(struct sandbox *s, struct error *e)
{
    assert_int_equal(machine_run(s, OPERATION_START, e), -1);
    assert_false(machine_runs(s));
}

/* --- before a setup is recorded ----------------------------------------------------------------------- */

/* */
static void test_start__of_a_guest_never_set_up_opens_a_window_and_asks_for_a_person(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");

    machine_must_run(&s, OPERATION_START);
    AUTO_FREE char *argv = read_argv(m, "base");

    assert_int_equal(s.outcome, EV_SETUP_REQUIRED);
    assert_true(machine_runs(&s));
    assert_string_equal(facts_get(&s.facts, "set.window"), "yes");
    must_contain(argv, "\"--window\", \"base\"");
    must_contain(s.note, "guest-setup.sh from '/Volumes/My Shared Files' in Terminal as 'somebody'");
    must_contain(s.note, "Remote Login (System Settings > General > Sharing)");
    must_contain(s.note, "sshd-keygen-wrapper (Privacy & Security > Accessibility)");
    assert_int_equal(fake_guest.connections, 0);   /* nobody can be there yet */
    assert_string_equal(fake_guest.disk_path, ""); /* trusted on first use: its disk is not touched */
    assert_null(facts_get(&s.facts, "hostkey"));
}

/* */
static void test_start__shares_what_the_guest_installs(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");
    static const struct {
        const char *name;
        mode_t mode;
    } files[] = { { "vm/share/guest-setup.sh", 0700 },
                  { "vm/share/agent-desktop", 0700 },
                  { "vm/share/agent-desktop-macos-helper", 0700 },
                  { "vm/share/authorized_key", 0600 } };

    machine_must_run(&s, OPERATION_START);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        assert_int_equal(machine_mode(&s, files[i].name), files[i].mode);
    assert_int_equal(machine_mode(&s, "vm/share"), 0700);
    AUTO_FREE char *key = machine_read(&s, "vm/share/authorized_key");
    AUTO_FREE char *public_half = machine_read(&s, "id_ed25519.pub");
    AUTO_FREE char *argv = read_argv(m, "base");
    AUTO_FREE char *same =
        mem_print("cmp \"$ROOT/sandboxes/base/vm/share/agent-desktop\" /proc/%d/exe", (int)getpid());

    assert_string_equal(key, public_half);
    assert_int_equal(scripts_shell(m->scripts, same),
                     0); /* this program, which is the sandbox's agent-desktop */
    assert_int_equal(scripts_shell(m->scripts, "sh -n \"$ROOT/sandboxes/base/vm/share/guest-setup.sh\""), 0);
    must_contain(argv, "/sandboxes/base/vm/share\"");
}

static void test_start__puts_the_shared_files_right(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");
    struct stat before, after;

    machine_must_run(&s, OPERATION_START);
    machine_must_run(&s, OPERATION_STOP);
    AUTO_FREE char *setup = machine_read(&s, "vm/share/guest-setup.sh");
    AUTO_FREE char *key = machine_read(&s, "vm/share/authorized_key");

    machine_write(&s, "vm/share/guest-setup.sh", "rm -rf ~");
    assert_int_equal(scripts_shell(m->scripts, "cd \"$ROOT/sandboxes/base/vm/share\" && rm authorized_key && "
                                               "ln -s /etc/passwd authorized_key && rm agent-desktop && "
                                               "mkdir agent-desktop && touch agent-desktop/x"),
                     0);
    assert_int_equal(fstatat(m->root->sandboxes, "base/vm/share/agent-desktop-macos-helper", &before, 0), 0);
    machine_must_run(&s, OPERATION_START);
    assert_int_equal(fstatat(m->root->sandboxes, "base/vm/share/agent-desktop-macos-helper", &after, 0), 0);
    AUTO_FREE char *setup_now = machine_read(&s, "vm/share/guest-setup.sh");
    AUTO_FREE char *key_now = machine_read(&s, "vm/share/authorized_key");

    assert_string_equal(setup_now, setup);
    assert_string_equal(key_now, key);
    assert_int_equal(machine_mode(&s, "vm/share/agent-desktop"), 0700);
    assert_int_equal(before.st_ino, after.st_ino); /* what is right is not written */
}

/* --- once it is --------------------------------------------------------------------------------------- */

/* */
static void test_start__of_a_set_up_guest_is_headless_and_waits_for_it(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");
    AUTO_FREE char *argv = read_argv(m, "base");
    AUTO_FREE char *known = machine_read(&s, "known_hosts");

    assert_int_equal(s.outcome, EV_GUEST_READY);
    assert_true(machine_runs(&s));
    assert_null(strstr(argv, "--window"));
    assert_null(facts_get(&s.facts, "set.window"));
    assert_string_equal(facts_get(&s.facts, "address"), "192.168.64.7");
    assert_string_equal(facts_get(&s.facts, "hostkey"), fake_guest.disk_key);
    assert_string_not_equal(facts_get(&s.facts, "hostkey"), "AAAAguest"); /* the one before */
    must_contain(known, fake_guest.disk_key);
    assert_true(fake_guest.pinned);
    assert_string_equal(fake_guest.user, "somebody");
}

static void test_start__pins_another_key_each_time(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    AUTO_FREE char *first = mem_copy_text(facts_get(&s.facts, "hostkey"));

    machine_must_run(&s, OPERATION_STOP);
    machine_must_run(&s, OPERATION_START);
    assert_string_not_equal(facts_get(&s.facts, "hostkey"), first);
}

/* */
static void test_start__fails_with_a_disk_that_cannot_be_opened(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_set_up(m, "base");
    struct error e = { 0 };

    fake_guest.disk_error = ERROR_ACTION_FAILED;
    must_fail(&s, &e);
    must_contain(e.message, "FileVault");
    AUTO_FREE char *argv = read_argv(m, "base");

    assert_null(strstr(argv, "\"run\"")); /* it was installed, and never run */
}

/* A setup needs the helper; another install would say ready, so a person is to act. */
static void test_start__without_the_helper_a_setup_needs_a_person(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");
    struct error e = { 0 };

    assert_int_equal(scripts_shell(m->scripts, "rm -rf \"$ROOT\"/providers/macos/helper-*"), 0);
    must_fail(&s, &e);
    assert_int_equal(e.code, ERROR_PLATFORM_NOT_SUPPORTED);
    must_contain(e.suggestion, "xcode-select --install");
}

/* */
static void test_start__shows_a_window_with_its_title_when_asked(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_set_up(m, "base");

    fake_guest.address = "192.168.64.7";
    fake_guest.output = FAKE_GRANTED;
    fake_guest.blob = fake_guest.disk_key;
    machine_lease(m, &s, fake_guest.address, 3600);
    facts_set(&s.facts, "set.window", "yes");
    facts_set(&s.facts, "set.title", "--vm \"Review\" $HOME");
    machine_must_run(&s, OPERATION_START);
    AUTO_FREE char *argv = read_argv(m, "base");

    must_contain(argv, "\"--window\", \"--vm \\\"Review\\\" $HOME\"]");
    assert_int_equal(s.outcome, EV_GUEST_READY);
}

/* the window opens again for the steps of the setup; the key is pinned all the same. */
static void test_start__after_a_lost_setup_opens_the_window_again(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_set_up(m, "base");

    facts_set(&s.facts, "setup", "lost");
    machine_must_run(&s, OPERATION_START);
    AUTO_FREE char *argv = read_argv(m, "base");

    assert_int_equal(s.outcome, EV_SETUP_REQUIRED);
    must_contain(argv, "--window");
    assert_string_equal(facts_get(&s.facts, "hostkey"), fake_guest.disk_key);
}

/* Nobody has seen the key that such a guest will make: as before its first setup. */
static void test_start__of_a_guest_that_lost_its_host_key_needs_a_person(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_set_up(*state, "base");

    fake_guest.disk_has_key = false;
    machine_must_run(&s, OPERATION_START);
    assert_int_equal(s.outcome, EV_SETUP_REQUIRED);
    assert_string_equal(facts_get(&s.facts, "setup"), "lost");
    assert_string_equal(facts_get(&s.facts, "hostkey") == NULL ? "" : facts_get(&s.facts, "hostkey"), "");
}

static void test_start__records_where_leases_are(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");

    assert_string_equal(facts_get(&s.facts, "leases"), getenv("AGENT_DESKTOP_DHCPD_LEASES"));
}

/* --- failures ----------------------------------------------------------------------------------------- */

/* R-415, bug case 2 */
static void test_start__at_apples_limit_names_who_runs(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox a = machine_start(m, "a");
    AUTO_SANDBOX struct sandbox b = machine_start(m, "b");
    AUTO_SANDBOX struct sandbox c = machine_set_up(m, "c");
    struct error e = { 0 };

    setenv("VMHOST", "run-limit", 1);
    must_fail(&c, &e);
    assert_int_equal(e.code, ERROR_LIMIT_REACHED);
    must_contain(e.message, "limit");
    assert_true(strstr(e.message, "a, b") != NULL || strstr(e.message, "b, a") != NULL);
    AUTO_FREE char *log = machine_read(&c, "vm/vmhost.log");

    must_contain(log, "Apple's limit");
    /* one goes: now there is room */
    machine_must_run(&a, OPERATION_STOP);
    unsetenv("VMHOST");
    machine_lease(m, &c, fake_guest.address, 3600);
    machine_must_run(&c, OPERATION_START);
    assert_true(machine_runs(&b));
}

/* A Mac can go on counting guests that are gone, and other applications have guests too. */
static void test_start__at_a_limit_that_nobody_here_reached_says_so(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_create(*state, "base");
    struct error e = { 0 };

    setenv("VMHOST", "run-limit", 1);
    must_fail(&s, &e);
    assert_int_equal(e.code, ERROR_LIMIT_REACHED);
    must_contain(e.message, "another application");
}

static void test_start__tells_of_a_vm_host_that_died(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_create(*state, "base");
    struct error e = { 0 };

    setenv("VMHOST", "run-dies", 1);
    must_fail(&s, &e);
    must_contain(e.message, "vm/vmhost.log");
}

static void test_start__tells_of_a_guest_that_ended_at_once(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_set_up(*state, "base");
    struct error e = { 0 };

    setenv("VMHOST", "run-ends", 1);
    must_fail(&s, &e);
    must_contain(e.message, "shut down from inside");
}

static void test_start__noise_in_the_log_changes_nothing(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_create(*state, "base");

    setenv("VMHOST", "run-noise", 1);
    machine_must_run(&s, OPERATION_START);
    assert_int_equal(s.outcome, EV_SETUP_REQUIRED);
    setenv("VMHOST", "run-noise run-limit", 1);
    machine_must_run(&s, OPERATION_STOP);
    struct error e = { 0 };

    must_fail(&s, &e);
    assert_int_equal(e.code, ERROR_LIMIT_REACHED); /* the last launch's, not the started of the one before */
}

/* What can never work is no reason to leave a guest running behind. */
static void test_start__of_a_guest_that_we_cannot_log_in_to_fails(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_set_up(m, "base");
    struct error e = { 0 };

    fake_guest.address = "192.168.64.7";
    fake_guest.obstacle = SSH_LOCAL; /* a key file of another mode, a missing library */
    machine_lease(m, &s, fake_guest.address, 3600);
    must_fail(&s, &e);
    must_contain(e.message, "obstacle");
}

static void test_start__without_a_disk_the_sandbox_is_lost(void **state)
{
    static const char *const files[] = { "vm/disk.img", "vm", "." };
    const struct machine *m = *state;

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        AUTO_FREE char *name = mem_print("base%zu", i);
        AUTO_SANDBOX struct sandbox s = machine_create(m, name);
        AUTO_FREE char *command = mem_print("rm -rf \"$ROOT/sandboxes/%s%s\"", name,
                                            i == 2   ? ""
                                            : i == 1 ? "/vm"
                                                     : "/vm/disk.img");
        struct error e = { 0 };

        machine_close(&s);
        assert_int_equal(scripts_shell(m->scripts, command), 0);
        must_fail(&s, &e);
        assert_int_equal(s.outcome, EV_LOST);
        must_contain(e.message, "gone");
    }
}

/* A link may lead to somebody's file: it is not followed, and not taken for a loss either. */
static void test_start__follows_no_link_out_of_the_sandbox(void **state)
{
    static const char *const files[] = { "vm", "vm/disk.img", "vm/vmhost.log", "vm/share" };
    const struct machine *m = *state;

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        AUTO_FREE char *name = mem_print("base%zu", i);
        AUTO_SANDBOX struct sandbox s = machine_create(m, name);
        AUTO_FREE char *command =
            mem_print("cd \"$ROOT/sandboxes/%s\" && mkdir -p \"$MAC/victim%zu\" && rm -rf kept && "
                      "if [ -e %s ]; then mv %s kept; fi; ln -s \"$MAC/victim%zu\" %s",
                      name, i, files[i], files[i], i, files[i]);
        AUTO_FREE char *empty = mem_print("[ -z \"$(ls -A victim%zu)\" ]", i);
        struct error e = { 0 };

        assert_int_equal(scripts_shell(m->scripts, command), 0);
        machine_close(&s);
        must_fail(&s, &e);
        assert_int_not_equal(s.outcome, EV_LOST);
        assert_int_equal(scripts_shell(m->scripts, empty), 0);
    }
}

/* --- a worker that is killed -------------------------------------------------------------------------- */

/* Between its launch and the record of it: what the next look, and the next stop, must do without. */
static void test_start__finds_a_session_that_nobody_recorded(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");

    machine_must_run(&s, OPERATION_START);
    struct process_id id = machine_process(&s);
    struct sandbox other = machine_open(m, "base", &s.facts);

    macos_forget_process(&other.facts);
    machine_must_run(&other, OPERATION_START); /* adopts it */
    struct process_id found = machine_process(&other);

    assert_int_equal(found.pid, id.pid);
    assert_int_equal(found.start, id.start);
    macos_forget_process(&other.facts);
    machine_must_run(&other, OPERATION_STOP);
    assert_false(machine_is_alive(&id));
    machine_close(&other);
}

/* The run lock of a start lives as long as the start, and vmhost's as long as vmhost; the programs that a
 * worker runs meanwhile never have it. */
static void test_start__leaves_the_run_lock_to_its_vm_host_alone(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_start(*state, "base");
    struct process_id id = machine_process(&s);

    assert_true(machine_runs(&s));
    kill(id.pid, SIGKILL);
    assert_int_equal(waitpid(id.pid, NULL, 0), id.pid); /* a child here, as in a worker */
    assert_false(machine_runs(&s));
}

/* A vmhost that holds the lock, but has told of nothing, is nobody's to be started over. */
static void test_start__waits_for_a_session_that_is_ending(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");
    AUTO_CLOSE int lock = -1;
    struct error e = { 0 };

    assert_int_equal(lock_take(m->root->locks, "base.run", LOCK_EXCLUSIVE, 0, &lock, &e), 1);
    assert_int_equal(machine_run(&s, OPERATION_START, &e), -1);
    assert_int_equal(e.code, ERROR_SANDBOX_BUSY);
}

static void test_start__releases_what_a_killed_command_left_attached(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_create(*state, "base");

    machine_must_run(&s, OPERATION_START);
    assert_int_equal(fake_guest.releases, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_start__of_a_guest_never_set_up_opens_a_window_and_asks_for_a_person),
        TEST(test_start__shares_what_the_guest_installs),
        TEST(test_start__puts_the_shared_files_right),
        TEST(test_start__of_a_set_up_guest_is_headless_and_waits_for_it),
        TEST(test_start__pins_another_key_each_time),
        TEST(test_start__fails_with_a_disk_that_cannot_be_opened),
        TEST(test_start__without_the_helper_a_setup_needs_a_person),
        TEST(test_start__shows_a_window_with_its_title_when_asked),
        TEST(test_start__after_a_lost_setup_opens_the_window_again),
        TEST(test_start__of_a_guest_that_lost_its_host_key_needs_a_person),
        TEST(test_start__records_where_leases_are),
        TEST(test_start__at_apples_limit_names_who_runs),
        TEST(test_start__at_a_limit_that_nobody_here_reached_says_so),
        TEST(test_start__tells_of_a_vm_host_that_died),
        TEST(test_start__tells_of_a_guest_that_ended_at_once),
        TEST(test_start__noise_in_the_log_changes_nothing),
        TEST(test_start__of_a_guest_that_we_cannot_log_in_to_fails),
        TEST(test_start__without_a_disk_the_sandbox_is_lost),
        TEST(test_start__follows_no_link_out_of_the_sandbox),
        TEST(test_start__finds_a_session_that_nobody_recorded),
        TEST(test_start__leaves_the_run_lock_to_its_vm_host_alone),
        TEST(test_start__waits_for_a_session_that_is_ending),
        TEST(test_start__releases_what_a_killed_command_left_attached),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

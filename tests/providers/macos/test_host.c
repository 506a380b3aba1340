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

#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "providers/macos/host.h"
#include "tests/providers/macos/scripts.h"

static struct host read_host(void)
{
    struct host h = { 0 };
    struct error e = { 0 };

    if (host_read(&h, &e) < 0)
        fail_msg("%s", e.message);
    return h;
}

static void test_host__says_what_this_mac_is(void **state)
{
    struct host h = read_host();

    (void)state;
    assert_string_equal(h.system, "Darwin");
    assert_true(h.apple_silicon);
    assert_false(h.virtual_machine);
    assert_string_equal(h.version, "15.6.1");
    assert_int_equal(h.tools, HOST_TOOLS_READY);
    assert_string_equal(h.leases, "/var/db/dhcpd_leases");
}

/* On Intel the kernel does not know the name at all, and sysctl fails. */
static void test_host__an_unknown_name_of_the_kernel_means_intel(void **state)
{
    scripts_set(*state, "sysctl", "echo \"sysctl: unknown oid '$2'\" >&2; exit 1");

    struct host h = read_host();

    assert_false(h.apple_silicon);
    assert_false(h.virtual_machine);
}

/* Of the real system under the test; no tool that only a Mac has is run there. */
static void test_host__another_system_is_only_named(void **state)
{
    scripts_set(*state, "uname", "echo Plan9");
    for (size_t i = 0; i < 3; i++)
        scripts_set(*state, (const char *const[]){ "sysctl", "sw_vers", "xcode-select" }[i],
                    "touch \"$MAC/asked\"");

    struct host h = read_host();

    assert_string_equal(h.system, "Plan9");
    assert_string_equal(h.version, "");
    assert_false(h.apple_silicon);
    assert_false(scripts_has(*state, "asked"));
}

static void test_host__takes_the_file_of_leases_from_the_environment(void **state)
{
    (void)state;
    setenv("AGENT_DESKTOP_DHCPD_LEASES", "/a path/with blanks", 1);

    struct host h = read_host();

    unsetenv("AGENT_DESKTOP_DHCPD_LEASES");
    assert_string_equal(h.leases, "/a path/with blanks");
}

/* ---- the developer tools ---- */

static const struct {
    const char *comment, *xcode_select, *xcrun;
    enum host_tools tools;
} tools_cases[] = {
    { "never installed",
      "echo 'xcode-select: error: unable to get active developer directory, use `xcode-select --switch'\"'\" "
      ">&2; exit 2",
      "touch \"$MAC/dialog\"; exit 1", HOST_TOOLS_ABSENT },
    { "emptied by an upgrade", "echo /Library/Developer/CommandLineTools",
      "echo 'xcrun: error: invalid active developer path (/Library/Developer/CommandLineTools), missing "
      "xcrun at: "
      "/Library/Developer/CommandLineTools/usr/bin/xcrun' >&2; exit 1",
      HOST_TOOLS_STALE },
    { "licence, by its status", "echo /Applications/Xcode.app/Contents/Developer", "exit 69",
      HOST_TOOLS_LICENCE },
    { "licence, by its words", "echo /Applications/Xcode.app/Contents/Developer",
      "echo 'You have not agreed to the Xcode license agreements.' >&2; exit 1", HOST_TOOLS_LICENCE },
};

/* Without tools a shim opens a dialog on the Mac's screen: it must not be run. */
static void test_host__tells_the_kinds_of_missing_tools_apart(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(tools_cases); i++) {
        scripts_set(*state, "xcode-select", tools_cases[i].xcode_select);
        scripts_set(*state, "xcrun", tools_cases[i].xcrun);
        scripts_set(*state, "swiftc", "touch \"$MAC/dialog\"");
        if (read_host().tools != tools_cases[i].tools || scripts_has(*state, "dialog"))
            fail_msg("%s: %d", tools_cases[i].comment, read_host().tools);
    }
}

static void test_host__building_without_tools_runs_no_shim(void **state)
{
    struct scripts *s = *state;

    for (size_t i = 0; i < ARRAY_LEN(tools_cases); i++) {
        struct error e = { 0 };

        scripts_set(s, "xcode-select", tools_cases[i].xcode_select);
        scripts_set(s, "xcrun", tools_cases[i].xcrun);
        scripts_set(s, "swiftc", "touch \"$MAC/dialog\"");
        assert_int_equal(host_run(&s->root, -1, 5000, NULL, &e, "build-helper", "/a.swift", "/out", NULL),
                         -1);
        assert_int_equal(e.code, ERROR_PROVIDER_UNAVAILABLE);
        if (strstr(e.message, "; run: ") == NULL || scripts_has(s, "dialog"))
            fail_msg("%s: %s", tools_cases[i].comment, e.message);
    }
}

/* ---- answers and failures ---- */

static void test_host__gives_an_answer_as_it_is(void **state)
{
    struct text answer = { 0 };
    struct error e = { 0 };

    scripts_set(*state, "arp", "printf '? (1.2.3.4) at 2:0 on en0\\n\\n  \\n'; echo noise >&2");
    assert_int_equal(host_run(NULL, -1, 5000, &answer, &e, "arp", NULL), 0);
    assert_string_equal(text_get(&answer), "? (1.2.3.4) at 2:0 on en0\n\n  \n");
    text_done(&answer);
}

static void test_host__a_failure_has_its_code_and_the_tools_own_words(void **state)
{
    static const struct {
        const char *hdiutil;
        enum error_code code;
        const char *message;
    } cases[] = {
        { "echo 'hdiutil: attach failed - Resource temporarily unavailable' >&2; exit 1", ERROR_SANDBOX_BUSY,
          "hdiutil cannot attach '/x y/disk.img': attach failed - Resource temporarily unavailable" },
        { "echo 'hdiutil: d\xc3\xa9j\xc3\xa0 pris' >&2; exit 35", ERROR_SANDBOX_BUSY,
          "hdiutil cannot attach '/x y/disk.img': d\xc3\xa9j\xc3\xa0 pris" },
        { "echo 'hdiutil: attach failed - Operation not permitted' >&2; exit 1", ERROR_PERM_DENIED,
          "hdiutil cannot attach '/x y/disk.img': attach failed - Operation not permitted" },
        { "echo one >&2; echo 'hdiutil: attach failed - no mountable file systems' >&2; exit 1",
          ERROR_ACTION_FAILED,
          "hdiutil cannot attach '/x y/disk.img': attach failed - no mountable file systems" },
        { "exit 3", ERROR_ACTION_FAILED,
          "hdiutil cannot attach '/x y/disk.img': it ended with status 3 and said nothing" },
    };
    struct scripts *s = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct text answer = { 0 };
        struct error e = { 0 };

        scripts_set(s, "hdiutil", cases[i].hdiutil);
        assert_int_equal(host_run(&s->root, -1, 5000, &answer, &e, "attach", "/x y/disk.img", NULL), -1);
        assert_string_equal(e.message, cases[i].message);
        assert_int_equal(e.code, cases[i].code);
        text_done(&answer);
    }
}

static void test_host__a_wrong_call_is_our_own_fault(void **state)
{
    static const char *const calls[][4] = {
        { "no-such-verb" }, { "attach" }, { "attach", "relative" }, { "unmount", "/a", "/b" }
    };
    struct scripts *s = *state;

    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        struct error e = { 0 };

        assert_int_equal(host_run_words(&s->root, -1, 5000, NULL, &e, calls[i]), -1);
        assert_int_equal(e.code, ERROR_INTERNAL);
    }
}

static void test_host__a_tool_that_hangs_is_ended(void **state)
{
    int64_t start = clock_mono_ms();
    struct error e = { 0 };

    scripts_set(*state, "hdiutil", "exec sleep 60");
    assert_int_equal(host_run(NULL, -1, 200, NULL, &e, "attached", NULL), -1);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_true(clock_mono_ms() - start < 10000);
}

static void test_host__arp_has_two_seconds(void **state)
{
    int64_t start = clock_mono_ms();
    struct error e = { 0 };

    scripts_set(*state, "arp", "exec sleep 60");
    assert_int_equal(host_run(NULL, -1, 20000, NULL, &e, "arp", NULL), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_true(clock_mono_ms() - start < 10000);
}

/* ---- what it leaves and inherits ---- */

static void test_host__questions_need_no_files_and_make_none(void **state)
{
    struct scripts *s = *state;
    int before = scripts_count_files(s);
    struct error e = { 0 };

    scripts_set(s, "hdiutil", "echo '<plist/>'");
    (void)read_host();
    assert_int_equal(host_run(NULL, -1, 5000, NULL, &e, "attached", NULL), 0);
    assert_int_equal(scripts_count_files(s), before);
}

/* Runs VERB with a lock; hdiutil leaves a child behind, which ends when something is written to $MAC/pipe.
 * *lock_fd is closed then, so that only the child can hold the lock. */
static int run_with_lock(struct scripts *s, const char *verb, const char *argument)
{
    struct host_call call = { .root = &s->root, .timeout_ms = 5000, .log = -1, .locks = { -1, -1, -1 } };
    struct error e = { 0 };
    int held;

    scripts_set(s, "hdiutil", "(exec >/dev/null 2>&1; exec head -n 1 \"$MAC/pipe\") & echo \'<plist/>\'");
    assert_int_equal(scripts_shell(s, "mkfifo pipe"), 0);
    assert_int_equal(lock_take(s->root.locks, "demo.op", LOCK_EXCLUSIVE, 0, &call.locks[0], &e), 1);
    if (host_call(&call, (const char *const[]){ verb, argument, NULL }, NULL, &e) < 0)
        fail_msg("%s", e.message);
    close(call.locks[0]);
    held = lock_is_held(s->root.locks, "demo.op", &e);
    assert_int_equal(scripts_shell(s, "echo >pipe"), 0);
    return held;
}

/* A tool that outlives a killed command holds the locks on: nobody else begins before it has ended. */
static void test_host__tools_inherit_the_locks(void **state)
{
    struct scripts *s = *state;
    struct error e = { 0 };
    int again = -1;

    assert_int_equal(run_with_lock(s, "detach", "/dev/disk4"), 1);
    assert_int_equal(lock_take(s->root.locks, "demo.op", LOCK_EXCLUSIVE, 5000, &again, &e), 1);
    close(again);
}

/* What serves an attached image lives on until it is detached. */
static void test_host__what_attach_leaves_running_holds_no_lock(void **state)
{
    assert_int_equal(run_with_lock(*state, "attach", "/disk.img"), 0);
}

static void test_host__a_log_gets_both_streams_and_its_end_is_the_reason(void **state)
{
    struct scripts *s = *state;
    AUTO_FREE char *path = mem_print("%s/log", s->scratch->path);
    AUTO_CLOSE int log = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const struct host_call call = { .root = &s->root, .timeout_ms = 5000, .log = log, .locks = { -1 } };
    struct error e = { 0 };

    scripts_set(s, "swiftc", "echo out; echo 'a.swift:1:1: error: nonsense' >&2; exit 1");
    assert_int_equal(
        host_call(&call, (const char *const[]){ "build-helper", "/a.swift", "/out", NULL }, NULL, &e), -1);
    assert_string_equal(e.message, "swiftc cannot compile '/a.swift'");
    assert_int_equal(scripts_shell(s, "printf 'out\\na.swift:1:1: error: nonsense\\nswiftc cannot compile "
                                      "'\\''/a.swift'\\''\\n' | cmp - ../log"),
                     0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, scripts_setup, scripts_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_host__says_what_this_mac_is),
        TEST(test_host__an_unknown_name_of_the_kernel_means_intel),
        TEST(test_host__another_system_is_only_named),
        TEST(test_host__takes_the_file_of_leases_from_the_environment),
        TEST(test_host__tells_the_kinds_of_missing_tools_apart),
        TEST(test_host__building_without_tools_runs_no_shim),
        TEST(test_host__gives_an_answer_as_it_is),
        TEST(test_host__a_failure_has_its_code_and_the_tools_own_words),
        TEST(test_host__a_wrong_call_is_our_own_fault),
        TEST(test_host__a_tool_that_hangs_is_ended),
        TEST(test_host__arp_has_two_seconds),
        TEST(test_host__questions_need_no_files_and_make_none),
        TEST(test_host__tools_inherit_the_locks),
        TEST(test_host__what_attach_leaves_running_holds_no_lock),
        TEST(test_host__a_log_gets_both_streams_and_its_end_is_the_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

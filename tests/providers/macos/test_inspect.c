#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/mem.h"
#include "providers/macos/files.h"
#include "providers/macos/inspect.h"
#include "tests/providers/macos/scripts.h"

static const char no_tools[] =
    "echo 'xcode-select: error: unable to get active developer directory' >&2; exit 2";
static const char stale[] = "echo 'xcrun: error: invalid active developer path' >&2; exit 1";

static struct provider_host_report inspect(const struct root *root)
{
    struct provider_host_report report = { 0 };
    struct error e = { 0 };

    assert_int_equal(macos_inspect_host(root, &report, &e), 0);
    assert_true(report.message[0] != '\0' && report.message[strlen(report.message) - 1] == '.');
    return report;
}

/* As an install leaves it: codesign of the scripts signs it. */
static void build(const struct scripts *s, enum macos_built which)
{
    char path[ROOT_PATH_MAX];

    files_built_path(&s->root, which, path);
    setenv("P", path, 1);
    assert_int_equal(
        scripts_shell(s, "mkdir -p \"$(dirname \"$P\")\" && echo '#!/bin/sh' >\"$P\" && chmod 700 \"$P\" && "
                         "codesign --force --sign - \"$P\""),
        0);
}

/* A row is what differs from a Mac that qualifies and on which nothing is built. */
static const struct {
    const char *comment;
    const char *tool[2], *body[2];
    enum fsm_provider_state state;
    const char *says[2]; /* parts of the message */
    const char *fix;
} hosts[] = {
    { .comment = "a Mac with its tools",
      .state = PROVIDER_MISSING,
      .says = { "The VM host is not built yet." },
      .fix = "" },
    { "an Intel Mac",
      { "sysctl" },
      { "echo \"sysctl: unknown oid '$2'\" >&2; exit 1" },
      PROVIDER_UNAVAILABLE,
      { "Intel" },
      "" },
    { "macOS 12",
      { "sw_vers" },
      { "echo 12.7.6" },
      PROVIDER_UNAVAILABLE,
      { "macOS 12.7.6", "13 or later" },
      "" },
    { "macOS 9, by number and not by text",
      { "sw_vers" },
      { "echo 9.2.2" },
      PROVIDER_UNAVAILABLE,
      { "macOS 9.2.2" },
      "" },
    { "macOS 13, the oldest", { "sw_vers" }, { "echo 13.0" }, PROVIDER_MISSING, { "not built" }, "" },
    { "macOS 26", { "sw_vers" }, { "echo 26.1" }, PROVIDER_MISSING, { "not built" }, "" },
    { "a version that nobody knows",
      { "sw_vers" },
      { "echo" },
      PROVIDER_UNAVAILABLE,
      { "unknown version" },
      "" },
    { "another system", { "uname" }, { "echo Linux" }, PROVIDER_UNAVAILABLE, { "this is Linux" }, "" },
    { "a Mac in a virtual machine",
      { "sysctl" },
      { "echo 1" },
      PROVIDER_UNAVAILABLE,
      { "virtual machine itself" },
      "" },
    { "no Command Line Tools",
      { "xcode-select" },
      { no_tools },
      PROVIDER_UNAVAILABLE,
      { "not built", "not installed" },
      "xcode-select --install" },
    { "a stale developer directory",
      { "xcrun" },
      { stale },
      PROVIDER_UNAVAILABLE,
      { "stale" },
      "xcode-select --install" },
    { "a licence that nobody has accepted",
      { "xcrun" },
      { "exit 69" },
      PROVIDER_UNAVAILABLE,
      { "licence" },
      "sudo xcodebuild -license accept" },
    { "all at once",
      { "sysctl", "sw_vers" },
      { "exit 1", "echo 11.0" },
      PROVIDER_UNAVAILABLE,
      { "Intel", "macOS 11.0" },
      "" },
    { "a host that cannot be asked", { "sw_vers" }, { "exit 1" }, PROVIDER_UNAVAILABLE, { "sw_vers" }, "" },
};

static void test_inspect__says_what_a_host_lacks(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        struct scripts *s;

        assert_int_equal(scripts_setup((void **)&s), 0);
        for (size_t t = 0; t < 2 && hosts[i].tool[t] != NULL; t++)
            scripts_set(s, hosts[i].tool[t], hosts[i].body[t]);

        struct provider_host_report report = inspect(&s->root);
        bool said = true;

        for (size_t n = 0; n < 2 && hosts[i].says[n] != NULL; n++)
            said = said && strstr(report.message, hosts[i].says[n]) != NULL;
        if (report.state != hosts[i].state || !said || strcmp(report.fix, hosts[i].fix) != 0)
            fail_msg("%s: state %d, '%s', fix '%s'", hosts[i].comment, (int)report.state, report.message,
                     report.fix);
        scripts_teardown((void **)&s);
    }
    (void)state;
}

/* */
static void test_inspect__what_is_built_and_signed_is_ready(void **state)
{
    struct scripts *s = *state;

    build(s, BUILT_VMHOST);
    build(s, BUILT_HELPER);

    struct provider_host_report report = inspect(&s->root);

    assert_int_equal(report.state, PROVIDER_READY);
    assert_string_equal(report.message, "This Mac (macOS 15.6.1) can run macOS guests.");
    assert_string_equal(report.fix, "");
}

/* and the tools are not even looked for. */
static void test_inspect__a_built_vm_host_needs_no_compiler(void **state)
{
    struct scripts *s = *state;

    build(s, BUILT_VMHOST);
    build(s, BUILT_HELPER);
    scripts_set(s, "xcode-select", "touch \"$MAC/asked\"; exit 2");
    assert_int_equal(inspect(&s->root).state, PROVIDER_READY);
    assert_false(scripts_has(s, "asked"));
}

/* With a compiler it would be built; without one guests can still be started and cloned. */
static void test_inspect__a_missing_helper_counts_where_it_can_be_built(void **state)
{
    struct scripts *s = *state;

    build(s, BUILT_VMHOST);

    struct provider_host_report report = inspect(&s->root);

    assert_int_equal(report.state, PROVIDER_MISSING);
    assert_non_null(strstr(report.message, "agent-desktop-macos-helper is not built"));
    scripts_set(s, "xcode-select", no_tools);
    report = inspect(&s->root);
    assert_int_equal(report.state, PROVIDER_READY);
    assert_non_null(strstr(report.message, "agent-desktop-macos-helper is not built"));
    assert_non_null(strstr(report.message, "not installed"));
}

static void test_inspect__a_broken_signature_is_missing(void **state)
{
    struct scripts *s = *state;

    build(s, BUILT_HELPER);
    build(s, BUILT_VMHOST);
    assert_int_equal(scripts_shell(s, "echo damage >>\"$P\""), 0);

    struct provider_host_report report = inspect(&s->root);

    assert_int_equal(report.state, PROVIDER_MISSING);
    assert_non_null(strstr(report.message, "signature of the VM host is broken"));
}

/* */
static void test_inspect__makes_nothing(void **state)
{
    struct scripts *s = *state;
    const struct root missing = { .path = "/nonexistent/root", .dir = -1, .sandboxes = -1, .locks = -1 };
    int before = scripts_count_files(s);

    assert_int_equal(inspect(&missing).state, PROVIDER_MISSING);
    assert_int_not_equal(access(missing.path, F_OK), 0);
    (void)inspect(&s->root);
    assert_int_equal(scripts_count_files(s), before);
}

static void assert_quick(const struct scripts *s, enum fsm_provider_state expected)
{
    int64_t start = clock_mono_ms();

    assert_int_equal(inspect(&s->root).state, expected);
    assert_true(clock_mono_ms() - start < 3500); /* the contract's 2 s, and the end of what is killed */
}

/* The first xcrun after an upgrade fills a cache for seconds: no proof that there are no tools. */
static void test_inspect__tools_that_are_slow_are_left_to_the_build(void **state)
{
    scripts_set(*state, "xcrun", "exec sleep 60");
    assert_quick(*state, PROVIDER_MISSING);
}

static void test_inspect__a_slow_codesign_proves_nothing(void **state)
{
    build(*state, BUILT_VMHOST);
    build(*state, BUILT_HELPER);
    scripts_set(*state, "codesign", "exec sleep 60");
    assert_quick(*state, PROVIDER_READY);
}

/* nothing is known, so nothing is said; the same command may be tried again. */
static void test_inspect__a_host_that_hangs_is_not_judged(void **state)
{
    const struct scripts *s = *state;
    struct provider_host_report report;
    struct error e = { 0 };
    int64_t start = clock_mono_ms();

    scripts_set(*state, "sw_vers", "exec sleep 60");
    assert_int_equal(macos_inspect_host(&s->root, &report, &e), -1);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_true(clock_mono_ms() - start < 3500);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, scripts_setup, scripts_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inspect__says_what_a_host_lacks),
        TEST(test_inspect__what_is_built_and_signed_is_ready),
        TEST(test_inspect__a_built_vm_host_needs_no_compiler),
        TEST(test_inspect__a_missing_helper_counts_where_it_can_be_built),
        TEST(test_inspect__a_broken_signature_is_missing),
        TEST(test_inspect__makes_nothing),
        TEST(test_inspect__tools_that_are_slow_are_left_to_the_build),
        TEST(test_inspect__a_slow_codesign_proves_nothing),
        TEST(test_inspect__a_host_that_hangs_is_not_judged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

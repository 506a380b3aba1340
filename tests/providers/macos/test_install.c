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
#include <unistd.h>

#include <cmocka.h>

#include "core/mem.h"
#include "providers/macos/files.h"
#include "providers/macos/inspect.h"
#include "tests/providers/macos/scripts.h"

/* All steps, as the engine runs them: until one fails. */
static bool install(const struct scripts *s, struct error *e)
{
    struct provider_place place = { .root = &s->root, .op_lock = -1 };
    struct facts facts = { 0 }, outputs = { 0 };

    for (const struct step *step = macos_install_steps; step->name != NULL; step++) {
        struct step_context c = {
            .facts = &facts, .outputs = &outputs, .token = "0123456789abcdef", .attempt = 1
        };

        if (step->run(&place, &c, e) != STEP_DONE)
            return false;
    }
    return true;
}

static void install_well(const struct scripts *s)
{
    struct error e = { 0 };

    if (!install(s, &e))
        fail_msg("%s", e.message);
}

static enum fsm_provider_state inspect(const struct scripts *s)
{
    struct provider_host_report report;
    struct error e = { 0 };

    assert_int_equal(macos_inspect_host(&s->root, &report, &e), 0);
    return report.state;
}

/* For shell: $V and $H are the two programs' directories. */
static void name_folders(const struct scripts *s)
{
    static const char *const variables[] = { [BUILT_VMHOST] = "V", [BUILT_HELPER] = "H" };

    for (enum macos_built i = 0; i < MACOS_BUILT_COUNT; i++) {
        char path[ROOT_PATH_MAX];

        files_built_path(&s->root, i, path);
        *strrchr(path, '/') = '\0';
        setenv(variables[i], path, 1);
    }
}

/* */
static void test_install__builds_and_signs_and_is_ready(void **state)
{
    struct scripts *s = *state;

    name_folders(s);
    install_well(s);
    assert_int_equal(inspect(s), PROVIDER_READY);
    assert_int_equal(scripts_shell(s, "[ \"$(ls -A \"$V\" | tr '\\n' ' ')\" = 'build.log vmhost ' ]"), 0);
    assert_int_equal(
        scripts_shell(s, "grep -q '^compiling ' \"$V/build.log\" && grep -q '\"check\"' \"$V/build.log\""),
        0);
    assert_int_equal(
        scripts_shell(s, "grep -q '^# entitlement com.apple.security.virtualization' \"$V/vmhost\""), 0);
    assert_int_equal(scripts_shell(s, "! grep -q '^# entitlement' \"$H/agent-desktop-macos-helper\""), 0);
    assert_int_equal(
        scripts_shell(
            s, "[ \"$(stat -c %a \"$V\" \"$V/vmhost\" \"$V/build.log\" | tr '\\n' ' ')\" = '700 700 600 ' ]"),
        0);
    /* nothing else: the files, and the two */
    assert_int_equal(scripts_shell(s, "[ $(ls -A \"$ROOT/providers/macos\" | wc -l) = 3 ]"), 0);
}

static void test_install__again_does_nothing(void **state)
{
    struct scripts *s = *state;

    name_folders(s);
    install_well(s);
    assert_int_equal(scripts_shell(s, "find \"$ROOT/providers\" -printf '%i %p\\n' | sort >before"), 0);
    scripts_set(s, "swiftc", "touch \"$MAC/compiled\"; exit 1");
    install_well(s);
    assert_false(scripts_has(s, "compiled"));
    assert_int_equal(scripts_shell(s, "find \"$ROOT/providers\" -printf '%i %p\\n' | sort | cmp - before"),
                     0);
}

static void test_install__only_what_is_missing_is_built(void **state)
{
    struct scripts *s = *state;

    name_folders(s);
    install_well(s);
    assert_int_equal(scripts_shell(s, "rm -r \"$H\" && stat -c %i \"$V/vmhost\" >before"), 0);
    install_well(s);
    assert_int_equal(
        scripts_shell(s,
                      "stat -c %i \"$V/vmhost\" | cmp - before && [ -x \"$H/agent-desktop-macos-helper\" ]"),
        0);
}

/* A new file in a new directory: macOS may kill a program whose signed file was overwritten. */
static void test_install__a_broken_signature_is_built_anew(void **state)
{
    struct scripts *s = *state;

    name_folders(s);
    install_well(s);
    assert_int_equal(scripts_shell(s, "echo damage >>\"$V/vmhost\" && ln \"$V/vmhost\" old"), 0);
    assert_int_equal(inspect(s), PROVIDER_MISSING);
    install_well(s);
    assert_int_equal(inspect(s), PROVIDER_READY);
    assert_int_equal(scripts_shell(s, "tail -n 1 old | grep -qx damage"), 0);
}

/* A codesign that cannot tell proves nothing: what is there may be good, and stays. */
static void test_install__what_nothing_tells_of_is_not_built_anew(void **state)
{
    static const char *const mute[] = { "kill -9 $$", "exit 127",
                                        "echo 'codesign: Operation not permitted' >&2; exit 1" };
    struct scripts *s = *state;

    name_folders(s);
    install_well(s);
    assert_int_equal(scripts_shell(s, "stat -c %i \"$V/vmhost\" \"$H\"/agent* >before"), 0);
    for (size_t i = 0; i < ARRAY_LEN(mute); i++) {
        scripts_set(s, "codesign", mute[i]);
        assert_int_equal(inspect(s), PROVIDER_READY);
        install_well(s);
    }
    assert_int_equal(scripts_shell(s, "stat -c %i \"$V/vmhost\" \"$H\"/agent* | cmp - before"), 0);
}

/* ---- failures ---- */

/* the error names the log, and that has the reason. A row breaks one tool. */
static const struct {
    const char *comment, *tool, *body;
    const char *says; /* the message */
    const char *log;  /* a line of the log */
    enum error_code code;
} failures[] = {
    { "the source does not compile", "swiftc", "echo 'vmhost.swift:3:1: error: nonsense' >&2; exit 1",
      "swiftc cannot compile", "vmhost.swift:3:1: error: nonsense", ERROR_ACTION_FAILED },
    { "the compiler dies", "swiftc", "kill -9 $$", "swiftc cannot compile", NULL, ERROR_ACTION_FAILED },
    { "the compiler leaves nothing", "swiftc", "exit 0", "left no file", NULL, ERROR_ACTION_FAILED },
    { "the licence, found by the compiler", "swiftc", "echo 'Agree to the license' >&2; exit 69",
      "licence of Xcode", "Agree to the license", ERROR_PROVIDER_UNAVAILABLE },
    { "codesign fails", "codesign", "echo 'codesign: no space' >&2; exit 1", "codesign cannot sign",
      "codesign: no space", ERROR_ACTION_FAILED },
    { "the signature is not there after all", "codesign",
      "case $1 in --verify) echo \"$2: not signed at all\" >&2; exit 1 ;; esac", "confirm the signature",
      NULL, ERROR_ACTION_FAILED },
    { "the entitlement is not there after all", "codesign", "exit 0",
      "without the entitlement com.apple.security.virtualization", NULL, ERROR_ACTION_FAILED },
    { "no tools", "xcode-select", "exit 2", "xcode-select --install", NULL, ERROR_PROVIDER_UNAVAILABLE },
    { "macOS kills the program", "swiftc",
      "while [ $# -gt 1 ]; do case $1 in -o) out=$2 ;; esac; shift; done; printf '#!/bin/sh\\nkill -9 $$\\n' "
      ">\"$out\"",
      "signal 9", NULL, ERROR_ACTION_FAILED },
    { "the program says that this Mac cannot", "swiftc",
      "while [ $# -gt 1 ]; do case $1 in -o) out=$2 ;; esac; shift; done\n"
      "printf '#!/bin/sh\\necho %s\\nexit 1\\n' "
      "\"'{\\\"time\\\":1,\\\"event\\\":\\\"error\\\",\\\"problem\\\":\\\"unsupported\\\","
      "\\\"message\\\":\\\"This Mac cannot run virtual machines.\\\"}'\" >\"$out\"",
      "This Mac cannot run virtual machines", "\"problem\":\"unsupported\"", ERROR_NONE },
};

static void test_install__a_failure_names_the_log(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(failures); i++) {
        struct error e = { 0 };
        struct scripts *s;

        assert_int_equal(scripts_setup((void **)&s), 0);
        name_folders(s);
        scripts_set(s, failures[i].tool, failures[i].body);
        assert_false(install(s, &e));

        AUTO_FREE char *named = mem_print("; the build log is %s/build.log: ", getenv("V"));

        if (strstr(e.message, failures[i].says) == NULL || strstr(e.message, named) == NULL ||
            (failures[i].code != ERROR_NONE && e.code != failures[i].code))
            fail_msg("%s: %d '%s'", failures[i].comment, (int)e.code, e.message);
        setenv("L", failures[i].log != NULL ? failures[i].log : "", 1);
        /* no program, and nothing half done beside it */
        if (scripts_shell(s, "[ -f \"$V/build.log\" ] && (cat \"$V/build.log\"; echo) | grep -qF -e \"$L\" "
                             "&& [ ! -e \"$V/vmhost\" ] && [ $(ls -A "
                             "\"$V/..\" | wc -l) = 2 ]") != 0)
            fail_msg("%s: the log", failures[i].comment);
        assert_int_not_equal(inspect(s), PROVIDER_READY);
        scripts_teardown((void **)&s);
    }
    (void)state;
}

/* Its log is put beside the program that could not be replaced. */
static void test_install__a_failure_takes_no_program_away(void **state)
{
    struct scripts *s = *state;
    struct error e = { 0 };

    name_folders(s);
    install_well(s);
    assert_int_equal(scripts_shell(s, "echo damage >>\"$V/vmhost\" && stat -c %i \"$V/vmhost\" >before"), 0);
    scripts_set(s, "swiftc", "echo nonsense >&2; exit 1");
    assert_false(install(s, &e));
    AUTO_FREE char *named = mem_print("; the build log is %s/build.log: ", getenv("V"));

    assert_non_null(strstr(e.message, named));
    assert_int_equal(scripts_shell(s,
                                   "grep -qx nonsense \"$V/build.log\" && stat -c %i \"$V/vmhost\" | cmp - "
                                   "before && [ $(ls -A \"$ROOT/providers/macos\" | wc -l) = 3 ]"),
                     0);
    assert_int_not_equal(inspect(s), PROVIDER_READY);
}

static void test_install__succeeds_once_the_reason_is_gone(void **state)
{
    struct scripts *s = *state;
    struct error e = { 0 };

    scripts_set(s, "xcode-select", "exit 2");
    assert_false(install(s, &e));
    scripts_set(s, "xcode-select", "echo /Library/Developer/CommandLineTools");
    install_well(s);
    assert_int_equal(inspect(s), PROVIDER_READY);
}

static int install_in_child(void *arg)
{
    struct error e = { 0 };

    return install(arg, &e) ? 0 : 1;
}

/* killed while the compiler runs; the next one starts over and leaves nothing of the first. */
static void test_install__what_a_killed_one_left_is_swept(void **state)
{
    struct scripts *s = *state;
    pid_t child;

    name_folders(s);
    /* tells that it runs, and waits for its end */
    assert_int_equal(scripts_shell(s, "mkfifo started"), 0);
    assert_int_equal(scripts_shell(s, "cp ../bin/swiftc ../bin/swiftc.good"), 0);
    scripts_set(s, "swiftc", "echo $PPID >\"$MAC/started\"; exec sleep 60");
    child = scratch_start(install_in_child, s);
    assert_int_equal(scripts_shell(s, "read -r pid <started && echo \"$pid\" >script.pid"), 0);
    kill(child, SIGKILL);
    assert_int_equal(scratch_wait(child), 128 + SIGKILL);
    assert_int_equal(
        scripts_shell(s, "pkill -KILL -P \"$(cat script.pid)\"; kill -KILL \"$(cat script.pid)\"; true"), 0);
    assert_int_equal(inspect(s), PROVIDER_MISSING);
    assert_int_equal(scripts_shell(s, "mv ../bin/swiftc.good ../bin/swiftc"), 0);
    install_well(s);
    assert_int_equal(inspect(s), PROVIDER_READY);
    assert_int_equal(scripts_shell(s, "[ $(ls -A \"$ROOT/providers/macos\" | wc -l) = 3 ]"), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, scripts_setup, scripts_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_install__builds_and_signs_and_is_ready),
        TEST(test_install__again_does_nothing),
        TEST(test_install__only_what_is_missing_is_built),
        TEST(test_install__a_broken_signature_is_built_anew),
        TEST(test_install__what_nothing_tells_of_is_not_built_anew),
        cmocka_unit_test(test_install__a_failure_names_the_log),
        TEST(test_install__a_failure_takes_no_program_away),
        TEST(test_install__succeeds_once_the_reason_is_gone),
        TEST(test_install__what_a_killed_one_left_is_swept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/mem.h"
#include "core/text.h"
#include "providers/macos/vmhost.h"
#include "tests/core/scratch.h"

static struct vmhost_event parse(const char *line)
{
    struct vmhost_event event;

    vmhost_parse_event(line, strlen(line), &event);
    return event;
}

/* --- lines -------------------------------------------------------------------------------------------- */

static void test_event__each_kind_is_known(void **state)
{
    static const struct {
        const char *line;
        enum vmhost_event_kind kind;
    } cases[] = {
        { "{\"event\":\"image\",\"version\":\"26.1\",\"build\":\"25B78\"}", VMHOST_IMAGE },
        { "{\"event\":\"progress\",\"fraction\":0.5}", VMHOST_PROGRESS },
        { "{\"event\":\"installed\"}", VMHOST_INSTALLED },
        { "{\"event\":\"started\",\"pid\":77}", VMHOST_STARTED },
        { "{\"event\":\"stopping\",\"how\":\"window\"}", VMHOST_STOPPING },
        { "{\"event\":\"stopped\",\"how\":\"guest\"}", VMHOST_STOPPED },
        { "{\"event\":\"error\",\"problem\":\"limit\"}", VMHOST_ERROR },
        { "{\"event\":\"launch\"}", VMHOST_LAUNCH },
        { "{\"event\":\"window\",\"title\":\"x\"}", VMHOST_OTHER },
        { "{\"event\":\"something-new\"}", VMHOST_OTHER },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (parse(cases[i].line).kind != cases[i].kind)
            fail_msg("%s", cases[i].line);
}

static void test_event__members_are_read(void **state)
{
    struct vmhost_event image = parse("{\"event\":\"image\",\"version\":\"26.1\",\"build\":\"25B78\"}");
    struct vmhost_event error =
        parse("{\"code\":10006,\"event\":\"error\",\"message\":\"too new\",\"problem\":\"host-too-old\"}");

    (void)state;
    assert_string_equal(image.version, "26.1");
    assert_string_equal(image.build, "25B78");
    assert_string_equal(error.problem, "host-too-old");
    assert_string_equal(error.message, "too new");
    assert_int_equal(error.code, 10006);
    assert_int_equal(parse("{\"event\":\"started\",\"pid\":77}").pid, 77);
    assert_string_equal(parse("{\"event\":\"stopped\",\"how\":\"force\"}").how, "force");
}

/* vmhost may crash in the middle of a line, and the frameworks print into the same file. */
static void test_event__anything_else_is_passed_over(void **state)
{
    static const char *const lines[] = {
        "",
        "{",
        "}",
        "null",
        "[]",
        "\"started\"",
        "{\"event\":\"started\"",
        "{\"event\":7}",
        "{\"event\":null}",
        "2026-11-29 vmhost[77:88] {\"event\":\"started\",\"pid\":1}",
        "{\"event\":\"started\"}{\"event\":\"stopped\"}",
        "{\"event\":\"error\",\"event\":\"started\"}",
        "\xff\xfe{\"event\":\"started\"}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (parse(lines[i]).kind != VMHOST_OTHER)
            fail_msg("%s", lines[i]);
    AUTO_FREE char *longest = mem_alloc(1 << 20);

    memset(longest, ' ', 1 << 20);
    memcpy(longest, "{\"event\":\"started\"}", 19);
    struct vmhost_event event;

    vmhost_parse_event(longest, 1 << 20, &event);
    assert_int_equal(event.kind, VMHOST_OTHER);
}

static void test_event__members_of_other_types_and_odd_values_do_no_harm(void **state)
{
    (void)state;
    assert_true(parse("{\"event\":\"progress\",\"fraction\":\"much\"}").fraction == 0);
    assert_true(parse("{\"event\":\"progress\",\"fraction\":-3}").fraction == 0);
    assert_true(parse("{\"event\":\"progress\",\"fraction\":1e300}").fraction == 1);
    assert_true(parse("{\"event\":\"progress\",\"fraction\":1}").fraction == 1);
    assert_int_equal(parse("{\"event\":\"started\",\"pid\":-1}").pid, 0); /* kill(-1) is everybody */
    assert_int_equal(parse("{\"event\":\"started\",\"pid\":1}").pid, 0);
    assert_int_equal(parse("{\"event\":\"started\",\"pid\":99999999999}").pid, 0);
    assert_string_equal(parse("{\"event\":\"error\",\"message\":[\"x\"]}").message, "");
    assert_string_equal(parse("{\"event\":\"error\",\"message\":\"a\\nb\"}").message, "a\xef\xbf\xbd"
                                                                                      "b");
}

/* --- failures ----------------------------------------------------------------------------------------- */

/* R-415, and what macos tools are known to fail with. */
static void test_failure__has_the_code_that_callers_branch_on(void **state)
{
    static const struct {
        const char *problem;
        enum error_code code;
        const char *suggestion; /* a word of it; NULL: the code's own */
    } cases[] = {
        { "limit", ERROR_LIMIT_REACHED, "Stop another macOS guest" },
        { "keychain", ERROR_ACTION_FAILED, "log in" },
        { "entitlement", ERROR_PROVIDER_UNAVAILABLE, "sandbox install macos" },
        { "host-too-old", ERROR_ACTION_FAILED, "Update this Mac" },
        { "no-space", ERROR_STORE_FULL, NULL },
        { "crash", ERROR_ACTION_FAILED, NULL },
        { "", ERROR_ACTION_FAILED, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct vmhost_event event = { .kind = VMHOST_ERROR, .message = "so it went" };
        struct error e = { 0 };

        snprintf(event.problem, sizeof(event.problem), "%s", cases[i].problem);
        assert_int_equal(vmhost_fail(&event, &e), -1);
        assert_int_equal(e.code, cases[i].code);
        assert_string_equal(e.message, "so it went");
        if (cases[i].suggestion != NULL)
            assert_non_null(strstr(e.suggestion, cases[i].suggestion));
    }
}

static void test_failure__without_words_still_has_a_message(void **state)
{
    struct vmhost_event event = { .kind = VMHOST_ERROR };
    struct error e = { 0 };

    (void)state;
    vmhost_fail(&event, &e);
    assert_non_null(strstr(e.message, "without a reason"));
}

/* --- the log ------------------------------------------------------------------------------------------ */

#define LAUNCH  "{\"time\":1,\"event\":\"launch\"}\n"
#define STARTED "{\"event\":\"started\",\"pid\":77}\n"

static struct vmhost_story read_story(const struct scratch *s, const char *log)
{
    struct vmhost_story story;

    scratch_write(s, "vmhost.log", log);
    vmhost_read_story(s->dir, &story);
    return story;
}

static void test_story__is_that_of_the_latest_launch(void **state)
{
    struct vmhost_story story =
        read_story(*state, LAUNCH STARTED "{\"event\":\"stopped\",\"how\":\"window\"}\n" LAUNCH
                                          "{\"event\":\"started\",\"pid\":78}\n");

    assert_true(story.launched);
    assert_int_equal(story.started, 78);
    assert_string_equal(story.stopped, "");
    story = read_story(*state, LAUNCH STARTED LAUNCH);
    assert_true(story.launched);
    assert_int_equal(story.started, 0);
}

static void test_story__tells_how_it_ended(void **state)
{
    struct vmhost_story story =
        read_story(*state, LAUNCH STARTED "{\"event\":\"stopping\",\"how\":\"window\"}\n"
                                          "{\"event\":\"error\",\"problem\":\"crash\",\"message\":\"gone\"}");

    assert_string_equal(story.stopping, "window");
    assert_true(story.failed);
    assert_string_equal(story.failure.message, "gone");
}

static void test_story__noise_between_the_lines_is_passed_over(void **state)
{
    struct vmhost_story story =
        read_story(*state, "{\"event\":\"lau" LAUNCH "vmhost[1:2] warning\n\n\xff\xff\n" STARTED);

    assert_false(
        story.launched); /* its mark was swallowed by a torn line: vmhost_launch() begins a new one */
    assert_int_equal(story.started, 77);
}

static void test_story__of_a_long_log_is_its_end(void **state)
{
    struct text log = { 0 };

    for (int i = 0; i < 20000; i++)
        text_print(&log, "noise %d\n", i);
    text_add_string(&log, LAUNCH STARTED);
    struct vmhost_story story = read_story(*state, text_get(&log));

    assert_true(story.launched);
    assert_int_equal(story.started, 77);
    text_done(&log);
}

static void test_story__of_what_is_no_log_is_empty(void **state)
{
    const struct scratch *s = *state;
    struct vmhost_story story = { .launched = true };

    vmhost_read_story(s->dir, &story); /* missing */
    assert_false(story.launched);
    scratch_write(s, "elsewhere", LAUNCH STARTED);
    assert_int_equal(symlinkat("elsewhere", s->dir, "vmhost.log"), 0);
    vmhost_read_story(s->dir, &story);
    assert_int_equal(story.started, 0);
    assert_int_equal(unlinkat(s->dir, "vmhost.log", 0), 0);
    assert_int_equal(mkfifoat(s->dir, "vmhost.log", 0600), 0); /* must not wait for a writer */
    vmhost_read_story(s->dir, &story);
    assert_int_equal(story.started, 0);
    assert_int_equal(unlinkat(s->dir, "vmhost.log", 0), 0);
    assert_int_equal(mkdirat(s->dir, "vmhost.log", 0700), 0);
    vmhost_read_story(s->dir, &story);
    assert_int_equal(story.started, 0);
}

/* ---- a short verb ---- */

/* One event, then what is none, without a pause; ends when its stdin does. */
#define CHATTER                                                                                              \
    "echo '{\"event\":\"progress\",\"fraction\":0.5}'\n"                                                     \
    "while echo noise; do sleep 0.02; done &\n"                                                              \
    "read -r nothing; kill $!"

static int run_chatter(int quiet_ms, void (*on_event)(void *self, const struct vmhost_event *event),
                       struct error *e)
{
    const char *argv[] = { "/bin/sh", "-c", CHATTER, NULL };
    const struct vmhost_job job = { .argv = (char *const *)(uintptr_t)argv,
                                    .op_lock = -1,
                                    .log = -1,
                                    .quiet_ms = quiet_ms,
                                    .on_event = on_event };

    return vmhost_run(&job, NULL, e);
}

static void test_run__what_is_no_event_is_no_progress(void **state)
{
    struct error e = { 0 };

    (void)state;
    assert_int_equal(run_chatter(300, NULL, &e), -1);
    assert_int_equal(e.code, ERROR_TIMEOUT);
}

static void hear_term(int number)
{
    (void)number;
}

static void ask_to_end(void *self, const struct vmhost_event *event)
{
    (void)self;
    assert_int_equal(event->kind, VMHOST_PROGRESS);
    raise(SIGTERM);
}

static void test_run__is_cancelled_however_much_is_printed(void **state)
{
    const struct sigaction hear = { .sa_handler = hear_term };
    struct sigaction before;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(sigaction(SIGTERM, &hear, &before), 0);
    assert_int_equal(run_chatter(20000, ask_to_end, &e), -1);
    assert_int_equal(sigaction(SIGTERM, &before, NULL), 0);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_non_null(strstr(e.message, "was cancelled"));
}

int main(void)
{
#define ON_DISK(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event__each_kind_is_known),
        cmocka_unit_test(test_event__members_are_read),
        cmocka_unit_test(test_event__anything_else_is_passed_over),
        cmocka_unit_test(test_event__members_of_other_types_and_odd_values_do_no_harm),
        cmocka_unit_test(test_failure__has_the_code_that_callers_branch_on),
        cmocka_unit_test(test_failure__without_words_still_has_a_message),
        ON_DISK(test_story__is_that_of_the_latest_launch),
        ON_DISK(test_story__tells_how_it_ended),
        ON_DISK(test_story__noise_between_the_lines_is_passed_over),
        ON_DISK(test_story__of_a_long_log_is_its_end),
        ON_DISK(test_story__of_what_is_no_log_is_empty),
        cmocka_unit_test(test_run__what_is_no_event_is_no_progress),
        cmocka_unit_test(test_run__is_cancelled_however_much_is_printed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

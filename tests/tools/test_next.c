#include "tools/agent-desktop/next.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/text.h"
#include "core/util.h"

#define FIX_QUOTED "sudo sh -c 'echo 1 > /proc/sys/kernel/unprivileged_userns_clone'"

/* the command of each row of fsm/'s table, as a line and as words. */
static void test_next__writes_complete_command_lines(void **state)
{
    static const struct {
        enum fsm_next_command command;
        struct next_subject subject;
        const char *line; /* NULL: none can be written */
        size_t words;
    } cases[] = {
        { NEXT_NONE, { "demo", "linux", NULL }, NULL, 0 },
        { NEXT_INSTALL, { "demo", "linux", NULL }, "agent-desktop sandbox install linux", 4 },
        { NEXT_INSTALL, { "demo", "", NULL }, NULL, 0 },
        { NEXT_CREATE,
          { "desktop", "linux", NULL },
          "agent-desktop sandbox create desktop --provider linux",
          6 },
        { NEXT_CREATE,
          { "desktop", "macos", NULL }, /* to be run as it is */
          "agent-desktop sandbox create desktop --provider macos --set ipsw=latest",
          8 },
        { NEXT_CREATE, { "demo", "", NULL }, "agent-desktop sandbox create demo", 4 },
        { NEXT_CREATE, { "", "linux", NULL }, NULL, 0 },
        { NEXT_START, { "demo", "linux", NULL }, "agent-desktop sandbox start demo", 4 },
        { NEXT_STATUS, { "demo", NULL, NULL }, "agent-desktop sandbox status demo", 4 },
        { NEXT_STOP, { "demo", "linux", NULL }, "agent-desktop sandbox stop demo", 4 },
        { NEXT_STOP, { NULL, "linux", NULL }, NULL, 0 },
        { NEXT_REMOVE, { "demo", "linux", NULL }, "agent-desktop sandbox rm demo", 4 },
        { NEXT_HOST_FIX,
          { NULL, "linux", "sudo apt-get install  -y xvfb" },
          "sudo apt-get install -y xvfb",
          5 },
        { NEXT_HOST_FIX, { NULL, "linux", "" }, NULL, 0 },
        { NEXT_HOST_FIX, { NULL, "linux", NULL }, NULL, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct next_words w;

        next_find_words(cases[i].command, &cases[i].subject, &w);
        assert_int_equal(w.count, cases[i].words);
        if (cases[i].line != NULL) {
            AUTO_FREE char *line = next_line(&w);

            assert_string_equal(line, cases[i].line);
        }
    }
}

/* Text for a shell goes to a shell as it is. */
static void test_next__leaves_a_line_with_quotes_to_the_shell(void **state)
{
    struct next_subject subject = { .provider = "linux", .fix = FIX_QUOTED };
    AUTO_JSON struct json *object = json_new_object();
    AUTO_FREE char *printed = NULL;
    struct next_words w;

    (void)state;
    next_find_words(NEXT_HOST_FIX, &subject, &w);
    assert_int_equal(w.count, 3);
    assert_string_equal(w.words[0], "sh");
    assert_string_equal(w.words[1], "-c");
    assert_string_equal(w.words[2], FIX_QUOTED);
    next_put(object, (struct fsm_next){ NEXT_HOST_FIX, true }, &subject);
    printed = json_print(object);
    assert_string_equal(printed, "{\"next\":\"" FIX_QUOTED "\",\"next_argv\":[\"sh\",\"-c\",\"" FIX_QUOTED
                                 "\"],\"needs_person\":true}");
}

/* What only a shell makes sense of, though each character is a plain one. */
static void test_next__leaves_an_assignment_to_the_shell(void **state)
{
    struct next_subject subject = { .provider = "linux", .fix = "LC_ALL=C sudo sysctl -w kernel.x=1" };
    struct next_words w;

    (void)state;
    next_find_words(NEXT_HOST_FIX, &subject, &w);
    assert_int_equal(w.count, 3);
    assert_string_equal(w.words[2], subject.fix);
    subject.fix = "sudo sysctl -w kernel.x=1";
    next_find_words(NEXT_HOST_FIX, &subject, &w);
    assert_int_equal(w.count, 4);
    assert_string_equal(w.words[3], "kernel.x=1");
}

/* `next_argv` is the same as `next`, and not its beginning. */
static void test_next__loses_no_word_of_a_long_line(void **state)
{
    char fix[NEXT_LINE_MAX + 8] = "";
    struct next_subject subject = { .provider = "linux", .fix = fix };
    struct next_words w;

    (void)state;
    for (size_t i = 0; i + 2 < NEXT_LINE_MAX; i += 2)
        memcpy(fix + i, "a ", 3);
    next_find_words(NEXT_HOST_FIX, &subject, &w);
    assert_int_equal(w.count, strlen(fix) / 2);
    memset(fix, 'a', sizeof(fix) - 1);
    next_find_words(NEXT_HOST_FIX, &subject, &w);
    assert_int_equal(w.count, 3);
    assert_string_equal(w.words[2], fix);
}

/* A real shell reads the line back as the same words. */
static void test_next__is_safe_for_a_shell(void **state)
{
    static const char *const words[] = { "printf", "%s\\n", "a b", "it's", "$HOME", "`id`",
                                         "*",      "",      "-n",  ";",    "\"" };
    struct next_words w = { .count = ARRAY_LEN(words) };
    char expected[256] = "", got[256] = "";

    (void)state;
    memcpy(w.words, words, sizeof(words));
    for (size_t i = 2; i < ARRAY_LEN(words); i++)
        snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), "%s\n", words[i]);
    AUTO_FREE char *line = next_line(&w);
    FILE *shell =
        popen(line, "r"); /* NOLINT(cert-env33-c): what is tested here is what a shell makes of it */

    assert_non_null(shell);
    got[fread(got, 1, sizeof(got) - 1, shell)] = '\0';
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(got, expected);
}

static void test_next__says_nothing_where_there_is_nothing(void **state)
{
    struct next_subject subject = { .name = "demo", .provider = "linux" };
    AUTO_JSON struct json *object = json_new_object();
    AUTO_FREE char *printed = NULL;

    (void)state;
    next_put(object, (struct fsm_next){ NEXT_NONE, false }, &subject);
    printed = json_print(object);
    assert_string_equal(printed, "{}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next__writes_complete_command_lines),
        cmocka_unit_test(test_next__leaves_a_line_with_quotes_to_the_shell),
        cmocka_unit_test(test_next__leaves_an_assignment_to_the_shell),
        cmocka_unit_test(test_next__loses_no_word_of_a_long_line),
        cmocka_unit_test(test_next__is_safe_for_a_shell),
        cmocka_unit_test(test_next__says_nothing_where_there_is_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

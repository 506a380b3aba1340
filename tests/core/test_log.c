#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/core/scratch.h"

struct capture {
    int to;
    const char *wanted; /* AGENT_DESKTOP_DEBUG; NULL: not set */
    const char *said;
};

static int log_once(void *arg)
{
    const struct capture *c = arg;

    dup2(c->to, STDERR_FILENO);
    if (c->wanted != NULL)
        setenv("AGENT_DESKTOP_DEBUG", c->wanted, 1);
    else
        unsetenv("AGENT_DESKTOP_DEBUG");
    log_debug("%s", c->said);
    return 0;
}

static void capture(char out[4096], const char *wanted, const char *said)
{
    int ends[2];
    struct capture c = { .wanted = wanted, .said = said };
    ssize_t got;

    assert_int_equal(pipe(ends), 0);
    c.to = ends[1];
    assert_int_equal(scratch_run(log_once, &c), 0);
    close(ends[1]);
    got = read(ends[0], out, 4095);
    out[got > 0 ? got : 0] = '\0';
    close(ends[0]);
}

static void test_log__is_silent_unless_asked(void **state)
{
    char out[4096];

    (void)state;
    capture(out, NULL, "hidden");
    assert_string_equal(out, "");
}

static void test_log__writes_one_clean_line_to_stderr(void **state)
{
    char out[4096];

    (void)state;
    capture(out, "1", "two\nlines \xFF");
    assert_non_null(strstr(out, "] two\xEF\xBF\xBDlines \xEF\xBF\xBD\n"));
    assert_ptr_equal(strchr(out, '\n'), out + strlen(out) - 1);
}

static void test_log__cuts_what_is_too_long(void **state)
{
    char out[4096], said[3000];

    (void)state;
    memset(said, 's', sizeof(said) - 1);
    said[sizeof(said) - 1] = '\0';
    capture(out, "1", said);
    assert_in_range(strlen(out), 1000, 1100);
    assert_int_equal(out[strlen(out) - 1], '\n');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log__is_silent_unless_asked),
        cmocka_unit_test(test_log__writes_one_clean_line_to_stderr),
        cmocka_unit_test(test_log__cuts_what_is_too_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "core/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/mem.h"

#define FFFD "\xEF\xBF\xBD"

static void test_text__grows(void **state)
{
    struct text t = { 0 };

    (void)state;
    assert_string_equal(text_get(&t), "");
    for (int i = 0; i < 1000; i++)
        text_print(&t, "%d,", i % 10);
    text_add_string(&t, "end");
    text_add(&t, "\0x", 2);
    assert_int_equal(t.size, 2005);
    assert_memory_equal(text_get(&t) + 2000, "end\0x", 6);
    text_done(&t);
    assert_string_equal(text_get(&t), "");
}

static const struct {
    const char *bytes;
    bool valid;
    const char *clean;
    const char *why;
} utf8_cases[] = {
    { "plain", true, "plain", "ASCII" },
    { "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", true, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "2, 3, 4 bytes" },
    { "\xED\x9F\xBF\xEE\x80\x80", true, "\xED\x9F\xBF\xEE\x80\x80", "around the surrogates" },
    { "\xF4\x8F\xBF\xBF", true, "\xF4\x8F\xBF\xBF", "U+10FFFF, the last" },
    { "\xC0\xAF", false, FFFD FFFD, "overlong /" },
    { "\xE0\x9F\xBF", false, FFFD FFFD FFFD, "overlong, 3 bytes" },
    { "\xF0\x8F\xBF\xBF", false, FFFD FFFD FFFD FFFD, "overlong, 4 bytes" },
    { "\xED\xA0\x80", false, FFFD FFFD FFFD, "surrogate" },
    { "\xF4\x90\x80\x80", false, FFFD FFFD FFFD FFFD, "above U+10FFFF" },
    { "\xF5\x80\x80\x80", false, FFFD FFFD FFFD FFFD, "no such first byte" },
    { "\x80", false, FFFD, "tail without a head" },
    { "a\xE2\x82", false, "a" FFFD FFFD, "cut off" },
    { "\xE2\x82z", false, FFFD FFFD "z", "the next character is kept" },
    { "a\tb\nc\x7F", true, "a" FFFD "b" FFFD "c" FFFD, "control characters" },
    { "\xC2\x9B"
      "31m\xC2\xA0",
      true, FFFD "31m\xC2\xA0", "C1 control, no-break space" },
    { "", true, "", "nothing" },
};

static void test_text__knows_utf8_as_rfc_3629_has_it(void **state)
{
    char out[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(utf8_cases); i++) {
        const char *bytes = utf8_cases[i].bytes;
        AUTO_FREE char *exact = mem_alloc(strlen(bytes)); /* no NUL: reading past the end is seen */

        memcpy(exact, bytes, strlen(bytes)); /* NOLINT(bugprone-not-null-terminated-result): meant */
        print_message("%s\n", utf8_cases[i].why);
        assert_int_equal(text_is_utf8(exact, strlen(bytes)), utf8_cases[i].valid);
        assert_int_equal(text_clean(out, sizeof(out), exact, strlen(bytes)), strlen(utf8_cases[i].clean));
        assert_string_equal(out, utf8_cases[i].clean);
    }
}

static void test_text__cuts_at_a_character(void **state)
{
    char out[8];

    (void)state;
    for (size_t room = 1; room <= sizeof(out); room++) {
        size_t length = text_clean(out, room, "a\xE2\x82\xAC\xE2\x82\xAC", 7);

        assert_true(length < room);
        assert_int_equal(length, room == 1 ? 0 : room < 5 ? 1 : room < 8 ? 4 : 7);
        assert_true(text_is_utf8(out, length));
        assert_int_equal(strlen(out), length);
    }
}

static const char *const shell_words[] = {
    "plain",
    "a/b.c:d=e@f%g+h,i-j_k",
    "",
    "two words",
    "it's",
    "'",
    "''",
    "a'b'c",
    "$HOME",
    "`id`",
    "a;b",
    "*",
    "~",
    "new\nline",
    "back\\slash",
    "\"quoted\"",
    "!",
    "#c",
    "\xC3\xA9",
    "-n",
    "{a,b}",
    "a&b",
    "\t",
};

/* `next` can be run as it is. A real shell says what the words are. */
static void test_text__quotes_words_as_the_shell_reads_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shell_words); i++) {
        struct text command = { 0 };
        char got[64] = "";
        FILE *shell;

        text_add_string(&command, "printf '%s|' ");
        text_add_shell_word(&command, shell_words[i]);
        shell = popen(text_get(&command), "r"); /* NOLINT(cert-env33-c): a shell is the judge */
        assert_non_null(shell);
        got[fread(got, 1, sizeof(got) - 1, shell)] = '\0';
        pclose(shell);
        text_done(&command);
        assert_int_equal(strlen(got), strlen(shell_words[i]) + 1);
        assert_memory_equal(got, shell_words[i], strlen(shell_words[i]));
    }
}

static void test_text__leaves_plain_words_as_they_are(void **state)
{
    struct text t = { 0 };

    (void)state;
    text_add_shell_word(&t, "a/b.c:d=e@f%g+h,i-j_k");
    text_add_string(&t, " ");
    text_add_shell_word(&t, "it's");
    assert_string_equal(text_get(&t), "a/b.c:d=e@f%g+h,i-j_k 'it'\\''s'");
    text_done(&t);
}

static void test_text__formats_times(void **state)
{
    static const struct {
        int64_t ms;
        bool with_ms;
        const char *text;
    } cases[] = {
        { 0, false, "1970-01-01T00:00:00Z" },
        { INT64_C(1795970053007), true, "2026-11-29T16:34:13.007Z" },
        { INT64_C(1795970053999), false, "2026-11-29T16:34:13Z" },
        { -1, true, "1969-12-31T23:59:59.999Z" },
        { INT64_C(951782400000), false, "2000-02-29T00:00:00Z" },
        { INT64_MAX, true, "9999-12-31T23:59:59.999Z" },
        { INT64_MIN, false, "0000-01-01T00:00:00Z" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char out[32];

        text_format_time(out, cases[i].ms, cases[i].with_ms);
        assert_string_equal(out, cases[i].text);
    }
}

static void test_text__parses_times(void **state)
{
    static const int64_t now = INT64_C(1795970053007);
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        { "1970-01-01T00:00:00Z", 0 },
        { "2026-11-29T16:34:13.007Z", INT64_C(1795970053007) },
        { "2026-11-29t18:34:13.0079+02:00", INT64_C(1795970053007) },
        { "2026-11-29 11:04:13.007-05:30", INT64_C(1795970053007) },
        { "2000-02-29T00:00:00z", INT64_C(951782400000) },
        { "2016-12-31T23:59:60Z", INT64_C(1483228800000) },
        { "30s", INT64_C(1795970023007) },
        { "15m", INT64_C(1795969153007) },
        { "2h", INT64_C(1795962853007) },
        { "7d", INT64_C(1795365253007) },
        { "0s", INT64_C(1795970053007) },
    };
    static const char *const bad[] = {
        "",
        "now",
        "2026-11-29",
        "2026-11-29T16:34:13",
        "2026-11-29T16:34Z",
        "2026-02-30T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-11-29T24:00:00Z",
        "2026-11-29T16:60:00Z",
        "2026-11-29T16:34:13.Z",
        "2026-11-29T16:34:13Zx",
        "2026-11-29T16:34:13+2",
        "2026-11-29T16:34:13+24:00",
        "15",
        "m",
        "-5m",
        "1.5h",
        "5 m",
        "15mm",
        "99999999999d",
        " 15m",
        "15m ",
        "5w",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct error e = { 0 };
        int64_t ms = -7;

        print_message("%s\n", good[i].text);
        assert_int_equal(text_parse_time(good[i].text, now, &ms, &e), 0);
        assert_true(ms == good[i].ms);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct error e = { 0 };
        int64_t ms = -7;

        print_message("'%s'\n", bad[i]);
        assert_int_equal(text_parse_time(bad[i], now, &ms, &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_ARGS);
        assert_true(ms == -7);
    }
}

static void test_text__reads_back_the_times_it_formats(void **state)
{
    (void)state;
    for (int64_t ms = INT64_C(-62167219200000); ms < INT64_C(253402300799999); ms += INT64_C(77777777777)) {
        struct error e = { 0 };
        char out[32];
        int64_t again;

        text_format_time(out, ms, true);
        assert_int_equal(text_parse_time(out, 0, &again, &e), 0);
        assert_true(again == ms);
    }
}

static void test_text__parses_seconds(void **state)
{
    static const struct {
        const char *text;
        int ms; /* 0: refused */
    } cases[] = {
        { "2", 2000 },
        { "0.25", 250 },
        { "300", 300000 },
        { "300.0", 300000 },
        { "007", 7000 },
        { "0.0001", 1 },
        { "1.0009", 1001 },
        { "0", 0 },
        { "0.0", 0 },
        { "300.0001", 0 },
        { "301", 0 },
        { "-1", 0 },
        { "+1", 0 },
        { "", 0 },
        { ".5", 0 },
        { "5.", 0 },
        { "1e2", 0 },
        { "0x10", 0 },
        { "inf", 0 },
        { "nan", 0 },
        { " 1", 0 },
        { "1 ", 0 },
        { "1,5", 0 },
        { "1.2.3", 0 },
        { "99999999999999999999999999", 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = { 0 };
        int ms = 0;

        print_message("'%s'\n", cases[i].text);
        assert_int_equal(text_parse_seconds(cases[i].text, "--timeout", 300, &ms, &e),
                         cases[i].ms > 0 ? 0 : -1);
        assert_int_equal(ms, cases[i].ms);
        assert_int_equal(e.code, cases[i].ms > 0 ? ERROR_NONE : ERROR_INVALID_ARGS);
        assert_true(cases[i].ms > 0 || strstr(e.message, "--timeout") != NULL);
    }
}

static void test_text__parses_integers(void **state)
{
    static const struct {
        const char *text;
        int64_t min, max;
        bool good;
        int64_t value;
    } cases[] = {
        { "0", 0, 10, true, 0 },
        { "10", 0, 10, true, 10 },
        { "11", 0, 10, false, 0 },
        { "-3", -5, 5, true, -3 },
        { "-6", -5, 5, false, 0 },
        { "9223372036854775807", 0, INT64_MAX, true, INT64_MAX },
        { "-9223372036854775808", INT64_MIN, 0, true, INT64_MIN },
        { "9223372036854775808", 0, INT64_MAX, false, 0 },
        { "", 0, 10, false, 0 },
        { "-", -5, 5, false, 0 },
        { "--1", -5, 5, false, 0 },
        { "+1", 0, 10, false, 0 },
        { " 1", 0, 10, false, 0 },
        { "1 ", 0, 10, false, 0 },
        { "1.0", 0, 10, false, 0 },
        { "0x1", 0, 10, false, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = { 0 };
        int64_t value = 0;

        print_message("'%s'\n", cases[i].text);
        assert_int_equal(text_parse_int(cases[i].text, "--limit", cases[i].min, cases[i].max, &value, &e),
                         cases[i].good ? 0 : -1);
        assert_true(value == cases[i].value);
        assert_int_equal(e.code, cases[i].good ? ERROR_NONE : ERROR_INVALID_ARGS);
    }
}

/* */
static void test_text__finds_the_nearest_word(void **state)
{
    static const char *const words[] = {
        "create", "start", "status", "stop", "list", "rm", "exec", "recover"
    };
    static const struct {
        const char *word;
        const char *nearest;
    } cases[] = {
        { "start", "start" },   { "creat", "create" }, { "strat", "start" },    { "stpo", "stop" },
        { "sttaus", "status" }, { "lists", "list" },   { "recovr", "recover" }, { "delete", NULL },
        { "rn", NULL },         { "", NULL },          { "xyz", NULL },         { "stat", "start" },
    };
    char longest[200];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *nearest = text_find_nearest(cases[i].word, words, ARRAY_LEN(words));

        print_message("'%s'\n", cases[i].word);
        if (cases[i].nearest == NULL)
            assert_null(nearest);
        else
            assert_string_equal(nearest, cases[i].nearest);
    }
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_null(text_find_nearest(longest, words, ARRAY_LEN(words)));
    assert_null(text_find_nearest("x", words, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text__grows),
        cmocka_unit_test(test_text__knows_utf8_as_rfc_3629_has_it),
        cmocka_unit_test(test_text__cuts_at_a_character),
        cmocka_unit_test(test_text__quotes_words_as_the_shell_reads_them),
        cmocka_unit_test(test_text__leaves_plain_words_as_they_are),
        cmocka_unit_test(test_text__formats_times),
        cmocka_unit_test(test_text__parses_times),
        cmocka_unit_test(test_text__reads_back_the_times_it_formats),
        cmocka_unit_test(test_text__parses_seconds),
        cmocka_unit_test(test_text__parses_integers),
        cmocka_unit_test(test_text__finds_the_nearest_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/mem.h"
#include "core/text.h"
#include "providers/vercel/ndjson.h"

#define TOKEN "vcp_0123456789"
#define FIRST "{\"command\":{\"id\":\"cmd_1\",\"name\":\"sh\",\"args\":[],\"exitCode\":null,\"startedAt\":1}}"
#define LAST  "{\"command\":{\"id\":\"cmd_1\",\"name\":\"sh\",\"args\":[],\"exitCode\":3,\"durationMs\":9}}"

/* What the reader told, as text: "begin cmd_1; out 'hello\n'; end cmd_1 3; error code: message; ". A NUL is
 * written as %. */
static int note_event(void *self, const struct ndjson_event *event, struct error *e)
{
    struct text *seen = self;

    (void)e;
    switch (event->kind) {
    case NDJSON_COMMAND:
        text_print(seen, event->ended ? "end %s %d; " : "begin %s; ", event->id, event->status);
        break;
    case NDJSON_OUTPUT:
        text_print(seen, "%s '", event->stream == 1 ? "out" : "err");
        for (size_t i = 0; i < event->size; i++)
            text_add(seen, event->bytes[i] == '\0' ? "%" : &event->bytes[i], 1);
        text_add_string(seen, "'; ");
        break;
    case NDJSON_ERROR:
        text_print(seen, "error %s: %s; ", event->code, event->message);
        break;
    }
    return 0;
}

static const struct sample {
    const char *name;
    const char *lines;
    const char *events; /* what note_event() makes of it */
    bool fails;
} samples[] = {
    { "a whole command",
      FIRST
      "\n{\"stream\":\"stdout\",\"data\":\"hello\\n\"}\n{\"stream\":\"stderr\",\"data\":\"oops\\n\"}\n" LAST
      "\n",
      "begin cmd_1; out 'hello\n'; err 'oops\n'; end cmd_1 3; ", false },
    { "no last newline", FIRST "\n" LAST, "begin cmd_1; end cmd_1 3; ", false },
    { "CRLF, blank lines", "\r\n\n" FIRST "\r\n \t\r\n\n" LAST "\r\n\r\n", "begin cmd_1; end cmd_1 3; ",
      false },
    { "members in any order, and unknown ones",
      "{\"x\":{\"y\":[1]},\"data\":\"a\",\"stream\":\"stdout\",\"n\":null}\n", "out 'a'; ", false },
    { "unknown kinds of line",
      "{\"stream\":\"stdin\",\"data\":\"a\"}\n{}\n[]\n7\n\"x\"\nnull\n{\"stream\":7}\n{\"command\":7}\n" LAST
      "\n",
      "end cmd_1 3; ", false },
    { "NULs", "{\"stream\":\"stdout\",\"data\":\"\\u0000a\\u0000\"}\n", "out '%a%'; ", false },
    { "a surrogate pair", "{\"stream\":\"stdout\",\"data\":\"<\\ud83d\\ude00\\uD83D\\uDE00>\"}\n",
      "out '<\xF0\x9F\x98\x80\xF0\x9F\x98\x80>'; ", false },
    { "halves of surrogate pairs",
      "{\"stream\":\"stdout\",\"data\":\"\\ud83d|\\ude00\\ud83dx\\ud83d\\ud83d\\ude00\\u0000\"}\n",
      "out '\xEF\xBF\xBD|\xEF\xBF\xBD\xEF\xBF\xBDx\xEF\xBF\xBD\xF0\x9F\x98\x80%'; ", false },
    { "what only looks like a surrogate", "{\"stream\":\"stdout\",\"data\":\"\\\\ud83d \\ud83d\"}\n",
      "out '\\ud83d \xEF\xBF\xBD'; ", false },
    { "raw UTF-8", "{\"stream\":\"stderr\",\"data\":\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"}\n",
      "err '\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80'; ", false },
    { "bytes that are not UTF-8", "{\"stream\":\"stdout\",\"data\":\"a\xFF\xC3z\"}\n",
      "out 'a\xEF\xBF\xBD\xEF\xBF\xBDz'; ", false },
    { "all escapes", "{\"stream\":\"stdout\",\"data\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"}\n",
      "out '\"\\/\b\f\n\r\t\xC3\xA9'; ", false },
    { "an empty piece", "{\"stream\":\"stdout\",\"data\":\"\"}\n", "out ''; ", false },
    { "an error line",
      "{\"stream\":\"error\",\"data\":{\"code\":\"sandbox_stopped\",\"message\":\"it is\\nover\"}}\n",
      "error sandbox_stopped: it is\xEF\xBF\xBDover; ", false },
    { "an error line with text alone", "{\"stream\":\"error\",\"data\":\"it is over\"}\n",
      "error : it is over; ", false },
    { "an error line with the token in it",
      "{\"stream\":\"error\",\"data\":{\"code\":\"" TOKEN "\",\"message\":\"Bearer " TOKEN "\"}}\n",
      "error ...: Bearer ...; ", false },
    { "an error line of the token alone", "{\"stream\":\"error\",\"data\":\"" TOKEN "\"}\n", "error : ...; ",
      false },
    { "an error line that says nothing", "{\"stream\":\"error\"}\n", "error : ; ", false },
    { "exit statuses",
      "{\"command\":{\"id\":\"a\",\"exitCode\":0}}\n{\"command\":{\"id\":\"b\",\"exitCode\":255}}\n",
      "end a 0; end b 255; ", false },
    { "what is no exit status",
      "{\"command\":{\"id\":\"a\"}}\n{\"command\":{\"id\":\"a\",\"exitCode\":\"0\"}}\n"
      "{\"command\":{\"id\":\"a\",\"exitCode\":0.5}}\n{\"command\":{\"id\":\"a\",\"exitCode\":true}}\n"
      "{\"command\":{\"id\":\"a\",\"exitCode\":-1}}\n{\"command\":{\"id\":\"a\",\"exitCode\":256}}\n"
      "{\"command\":{\"id\":\"a\",\"exitCode\":4294967296}}\n",
      "begin a; begin a; begin a; begin a; begin a; begin a; begin a; ", false },
    { "an end without an id", "{\"command\":{\"exitCode\":7}}\n{\"command\":{\"id\":7,\"exitCode\":7}}\n",
      "end  7; end  7; ", false },
    { "the last of duplicate keys", "{\"stream\":\"stdout\",\"data\":\"a\",\"data\":\"b\"}\n", "out 'b'; ",
      false },
    { "nothing", "", "", false },
    { "a line cut short", FIRST "\n{\"stream\":\"stdout\",\"da", "begin cmd_1; ", true },
    { "no JSON", FIRST "\nBad Gateway\n" LAST "\n", "begin cmd_1; ", true },
    { "two values in a line", FIRST FIRST "\n", "", true },
    { "output without its text", "{\"stream\":\"stdout\",\"data\":{}}\n", "", true },
    { "a control character in a string", "{\"stream\":\"stdout\",\"data\":\"\x01\"}\n", "", true },
};

/* The pieces end at each multiple of STEP and, unless it is 0, at CUT. */
static void check_sample(const struct sample *s, size_t step, size_t cut)
{
    size_t size = strlen(s->lines), next;
    struct ndjson *n = ndjson_new(TOKEN);
    struct text seen = { 0 };
    struct error e = { 0 };
    int r = 0;

    for (size_t at = 0; r == 0 && at < size; at = next) {
        next = at - at % step + step;
        if (at < cut && next > cut)
            next = cut;
        next = next < size ? next : size;
        r = ndjson_feed(n, s->lines + at, next - at, note_event, &seen, &e);
    }
    if (r == 0)
        r = ndjson_end(n, note_event, &seen, &e);
    if (strcmp(text_get(&seen), s->events) != 0 || (r < 0) != s->fails)
        fail_msg("%s, cut at %zu and every %zu: %d (%s) %s", s->name, cut, step, r, e.message,
                 text_get(&seen));
    assert_int_equal(e.code, s->fails ? ERROR_ACTION_FAILED : ERROR_NONE);
    text_done(&seen);
    ndjson_free(n);
}

static void test_r504_ndjson__says_the_same_however_the_stream_is_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
        size_t size = strlen(samples[i].lines);

        check_sample(&samples[i], size + 1, 0);
        for (size_t step = 1; step <= 7; step++)
            check_sample(&samples[i], step, 0);
        for (size_t cut = 1; cut < size; cut++)
            check_sample(&samples[i], size + 1, cut);
    }
}

static int count_bytes(void *self, const struct ndjson_event *event, struct error *e)
{
    size_t *count = self;

    (void)e;
    for (size_t i = 0; i < event->size; i++)
        assert_int_equal(event->bytes[i], i % 26 + 'a');
    *count += event->size;
    return 0;
}

/* A line of SIZE bytes of output, in pieces as they come from a socket. */
static int feed_long_line(struct ndjson *n, size_t size, size_t *count, struct error *e)
{
    static const char head[] = "{\"stream\":\"stdout\",\"data\":\"", tail[] = "\"}\n";
    char piece[26 * 600];
    int r = ndjson_feed(n, head, sizeof(head) - 1, count_bytes, count, e);

    for (size_t i = 0; i < sizeof(piece); i++)
        piece[i] = (char)('a' + i % 26);
    for (size_t at = 0; r == 0 && at < size; at += sizeof(piece))
        r = ndjson_feed(n, piece, size - at < sizeof(piece) ? size - at : sizeof(piece), count_bytes, count,
                        e);
    return r < 0 ? r : ndjson_feed(n, tail, sizeof(tail) - 1, count_bytes, count, e);
}

static void test_r504_ndjson__takes_lines_of_many_megabytes(void **state)
{
    struct ndjson *n = ndjson_new(TOKEN);
    struct error e = { 0 };
    size_t count = 0, size = (size_t)20 << 20;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(feed_long_line(n, size, &count, &e), 0);
    assert_int_equal(count, 2 * size);
    assert_int_equal(ndjson_end(n, count_bytes, &count, &e), 0);
    ndjson_free(n);
}

static void test_r504_ndjson__refuses_a_line_longer_than_its_limit(void **state)
{
    struct ndjson *n = ndjson_new(TOKEN);
    struct error e = { 0 };
    size_t count = 0;

    (void)state;
    assert_int_equal(feed_long_line(n, NDJSON_LINE_MAX, &count, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_string_equal(e.message, "line 1 of the command's stream is longer than 64 MiB");
    assert_int_equal(count, 0);
    ndjson_free(n);
}

static int refuse_output(void *self, const struct ndjson_event *event, struct error *e)
{
    ++*(int *)self;
    return event->kind == NDJSON_OUTPUT ? error_set(e, ERROR_STORE_FULL, 0, "no room") : 0;
}

static void test_ndjson__ends_where_its_caller_cannot_go_on(void **state)
{
    static const char lines[] = FIRST "\n{\"stream\":\"stdout\",\"data\":\"a\"}\n" LAST "\n";
    struct ndjson *n = ndjson_new(TOKEN);
    struct error e = { 0 };
    int calls = 0;

    (void)state;
    assert_int_equal(ndjson_feed(n, lines, sizeof(lines) - 1, refuse_output, &calls, &e), -1);
    assert_int_equal(calls, 2);
    assert_int_equal(e.code, ERROR_STORE_FULL);
    ndjson_free(n);
    ndjson_free(NULL);
}

static void test_ndjson__its_messages_have_nothing_of_the_stream(void **state)
{
    static const char line[] = "{\"stream\":\"stdout\",\"data\":secret}\n";
    struct ndjson *n = ndjson_new(TOKEN);
    struct error e = { 0 };
    int calls = 0;

    (void)state;
    assert_int_equal(ndjson_feed(n, line, sizeof(line) - 1, refuse_output, &calls, &e), -1);
    assert_string_equal(e.message, "line 1 of the command's stream is not valid JSON");
    ndjson_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_r504_ndjson__says_the_same_however_the_stream_is_cut),
        cmocka_unit_test(test_r504_ndjson__takes_lines_of_many_megabytes),
        cmocka_unit_test(test_r504_ndjson__refuses_a_line_longer_than_its_limit),
        cmocka_unit_test(test_ndjson__ends_where_its_caller_cannot_go_on),
        cmocka_unit_test(test_ndjson__its_messages_have_nothing_of_the_stream),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

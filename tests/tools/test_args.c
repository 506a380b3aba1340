#include "tools/agent-desktop/args.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/util.h"
#include "tools/agent-desktop/command.h"

#define WORDS_MAX 12

static const struct arg_option options[] = {
    { .name = "set", .kind = ARG_VALUE, .many = true, .value = "KEY=VALUE" },
    { .name = "wait", .kind = ARG_OPTIONAL_VALUE, .value = "SECONDS" },
    { .name = "timeout", .kind = ARG_VALUE, .value = "SECONDS" },
    { .name = "interactive", .letter = 'i', .kind = ARG_FLAG },
    { 0 },
};

static const struct args_syntax plain = { "NAME", 1, 2, ARGS_NO_REST, "", options };
static const struct args_syntax rest = { "NAME", 1, 1, ARGS_REST, "-- ARGS...", options };
static const struct args_syntax rest_word = { "NAME", 1, 1, ARGS_REST_WORD, "-- PROGRAM", options };

static int parse(const struct args_syntax *syntax, const char *const words[WORDS_MAX], struct args *a,
                 struct error *e)
{
    static char *argv[WORDS_MAX + 1];

    memcpy(argv, words, WORDS_MAX * sizeof(*argv));
    *e = (struct error){ 0 };
    return args_parse("sandbox test", syntax, argv, a, e);
}

/* before or after NAME, both spellings, "--" ends options. */
static void test_args__reads_options_wherever_they_stand(void **state)
{
    static const struct {
        const char *words[WORDS_MAX];
        const char *timeout;
        bool wait;
        const char *wait_value;
        const char *second; /* positional */
    } cases[] = {
        { { "demo" }, NULL, false, NULL, NULL },
        { { "--timeout", "2", "demo" }, "2", false, NULL, NULL },
        { { "demo", "--timeout=2" }, "2", false, NULL, NULL },
        { { "demo", "--timeout=" }, "", false, NULL, NULL },
        { { "demo", "--timeout", "--wait" },
          "--wait",
          false,
          NULL,
          NULL }, /* a value may look like an option */
        { { "demo", "--timeout=a=b" }, "a=b", false, NULL, NULL },
        { { "--wait", "demo" }, NULL, true, NULL, NULL },
        { { "--wait=3", "demo" }, NULL, true, "3", NULL },
        { { "--wait", "demo", "3" }, NULL, true, NULL, "3" }, /* its value stands behind = only */
        { { "demo", "--", "--wait" }, NULL, false, NULL, "--wait" },
        { { "demo", "-" }, NULL, false, NULL, "-" },
    };
    struct error e;
    struct args a;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(parse(&plain, cases[i].words, &a, &e), 0);
        assert_string_equal(a.positional[0], "demo");
        assert_int_equal(a.count, cases[i].second == NULL ? 1 : 2);
        if (cases[i].second != NULL)
            assert_string_equal(a.positional[1], cases[i].second);
        assert_int_equal(args_has(&a, "timeout"), cases[i].timeout != NULL);
        if (cases[i].timeout != NULL)
            assert_string_equal(args_value(&a, "timeout"), cases[i].timeout);
        assert_int_equal(args_has(&a, "wait"), cases[i].wait);
        if (cases[i].wait_value == NULL)
            assert_null(args_value(&a, "wait"));
        else
            assert_string_equal(args_value(&a, "wait"), cases[i].wait_value);
        args_done(&a);
    }
}

static void test_args__keeps_every_repeated_option(void **state)
{
    const char *const words[WORDS_MAX] = { "--set", "a=1", "demo", "--set=b=2", "--set", "c" };
    const char *const values[] = { "a=1", "b=2", "c" };
    struct error e;
    struct args a;

    (void)state;
    assert_int_equal(parse(&plain, words, &a, &e), 0);
    assert_int_equal(a.given_count, ARRAY_LEN(values));
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        assert_string_equal(a.given[i].value, values[i]);
    args_done(&a);
}

/* the words behind "--" are the guest's, whatever they look like. */
static void test_args__leaves_the_rest_alone(void **state)
{
    const char *const words[WORDS_MAX] = { "demo", "--timeout", "1", "--", "-i", "--", "", "--help", "\xff" };
    struct error e;
    struct args a;

    (void)state;
    assert_int_equal(parse(&rest, words, &a, &e), 0);
    assert_false(a.help);
    assert_int_equal(a.count, 1);
    assert_int_equal(args_rest_count(&a), 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(a.rest[i], words[4 + i]);
    args_done(&a);
    assert_int_equal(parse(&rest, (const char *const[WORDS_MAX]){ "demo", "--" }, &a, &e), 0);
    assert_non_null(a.rest);
    assert_int_equal(args_rest_count(&a), 0);
    args_done(&a);
}

static void test_args__gives_every_value_of_a_repeated_option(void **state)
{
    struct args a;
    struct error e;
    const char **values = NULL;

    (void)state;
    assert_int_equal(
        parse(&plain, (const char *const[WORDS_MAX]){ "--set", "a", "demo", "--wait", "--set=--b" }, &a, &e),
        0);
    assert_int_equal(args_values(&a, "set", &values), 2);
    assert_string_equal(values[0], "a");
    assert_string_equal(values[1], "--b");
    free(values);
    assert_int_equal(args_values(&a, "timeout", &values), 0);
    free(values);
    args_done(&a);
}

static void test_args__refuses_what_it_does_not_understand(void **state)
{
    static const struct {
        const struct args_syntax *syntax;
        const char *words[WORDS_MAX];
        const char *says; /* somewhere in the message */
    } cases[] = {
        { &plain, { NULL }, "usage: agent-desktop sandbox test NAME [OPTIONS]" },
        { &plain, { "a", "b", "c" }, "surplus argument c" },
        { &plain, { "a", "--", "b", "c" }, "surplus argument c" },
        { &plain, { "a", "--wiat" }, "did you mean '--wait'?" },
        { &plain, { "a", "--wiat=2" }, "did you mean '--wait'?" },
        { &plain, { "a", "--zzzzzzzz" }, "--help" },
        { &plain, { "a", "-x" }, "'-x'" },
        { &plain, { "-a" }, "'-a'" },
        { &plain, { "a", "-ix" }, "'-ix'" },
        { &plain, { "a", "--interactive=yes" }, "takes no value" },
        { &plain, { "a", "--timeout" }, "--timeout=SECONDS" },
        { &plain, { "a", "--timeout=1", "--timeout", "2" }, "given twice" },
        { &plain, { "a", "-ii" }, "given twice" },
        { &plain, { "a", "--=" }, "no option" },
        { &rest, { "a" }, "\"--\" is missing" },
        { &rest, { "a", "b", "--", "c" }, "surplus argument b" },
        { &rest, { "--", "a" }, "missing" },
        { &rest_word, { "a", "--" }, "nothing stands behind" },
        { &plain, { "a", "--\xff\xfe" }, "no option" },
    };
    struct error e;
    struct args a;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(parse(cases[i].syntax, cases[i].words, &a, &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_ARGS);
        if (strstr(e.message, cases[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", e.message, cases[i].says);
        args_done(&a);
    }
}

static void test_args__help_needs_nothing_else(void **state)
{
    static const char *const lines[][WORDS_MAX] = {
        { "--help" }, { "-h" }, { "-ih" }, { "a", "b", "--help", "c" }
    };
    struct error e;
    struct args a;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        assert_int_equal(parse(&plain, lines[i], &a, &e), 0);
        assert_true(a.help);
        args_done(&a);
    }
}

/* What args.c asserts and command.h says of rows, for every row. */
static void test_command__rows_are_complete(void **state)
{
    (void)state;
    for (const struct command *c = command_table; c->path != NULL; c++) {
        assert_non_null(c->run);
        assert_non_null(c->help);
        assert_non_null(c->examples);
        assert_non_null(c->syntax.arguments);
        assert_non_null(c->syntax.behind);
        assert_true(c->syntax.min <= c->syntax.max && c->syntax.max <= ARGS_POSITIONAL_MAX);
        assert_int_equal(c->examples[strlen(c->examples) - 1], '\n');
        for (const struct arg_option *o = c->syntax.options; o != NULL && o->name != NULL; o++) {
            assert_non_null(o->help);
            assert_true((o->kind == ARG_FLAG) == (o->value == NULL));
            assert_true(o->letter == 0 || o->kind == ARG_FLAG);
        }
    }
}

static void test_command__is_found_as_far_as_it_is_understood(void **state)
{
    static const struct {
        const char *words[4];
        const char *understood;
        const char *path; /* NULL: none */
        const char *says; /* NULL: no error */
    } cases[] = {
        { { NULL }, "unknown", NULL, NULL },
        { { "--version" }, "unknown", NULL, NULL },
        { { "help" }, "unknown", NULL, NULL },
        { { "sandbox" }, "sandbox", NULL, NULL },
        { { "sandbox", "--help" }, "sandbox", NULL, NULL },
        { { "sandbox", "start", "demo" }, "sandbox start", "sandbox start", NULL },
        { { "launch", "app" }, "launch", "launch", NULL },
        { { "start" }, "unknown", NULL, "did you mean 'sandbox start'" }, /* not without its family */
        { { "sandbox", "launch" }, "sandbox", NULL, "did you mean 'launch'" },
        { { "sandbx" }, "unknown", NULL, "did you mean 'sandbox'?" },
        { { "sandbox", "stats" }, "sandbox", NULL, "did you mean 'sandbox status'?" },
        { { "sandbox", "" }, "sandbox", NULL, "no command" },
        { { "" }, "unknown", NULL, "no command" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *words[5] = { NULL };
        struct command_choice choice;
        struct error e = { 0 };

        memcpy(words, cases[i].words, sizeof(cases[i].words));
        assert_int_equal(command_find(words, &choice, &e), cases[i].says == NULL ? 0 : -1);
        assert_string_equal(choice.understood, cases[i].understood);
        assert_int_equal(choice.command != NULL, cases[i].path != NULL);
        if (cases[i].path != NULL)
            assert_string_equal(choice.command->path, cases[i].path);
        if (cases[i].says != NULL && strstr(e.message, cases[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", e.message, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_args__reads_options_wherever_they_stand),
        cmocka_unit_test(test_args__keeps_every_repeated_option),
        cmocka_unit_test(test_args__leaves_the_rest_alone),
        cmocka_unit_test(test_args__gives_every_value_of_a_repeated_option),
        cmocka_unit_test(test_args__refuses_what_it_does_not_understand),
        cmocka_unit_test(test_args__help_needs_nothing_else),
        cmocka_unit_test(test_command__rows_are_complete),
        cmocka_unit_test(test_command__is_found_as_far_as_it_is_understood),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

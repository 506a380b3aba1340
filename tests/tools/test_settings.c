#include "tools/agent-desktop/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/util.h"

#define SETTINGS_MAX 4

static int check_size(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (strcmp(value, "small") != 0 && strcmp(value, "large") != 0)
        return error_set(e, ERROR_INVALID_ARGS, 0, "size is small or large, not '%s'", value);
    snprintf(out, FACT_VALUE_SIZE, "%s", value);
    return 0;
}

static const struct provider_option create_options[] = {
    { "size", "small|large", "how much", check_size },
    { "env.", "TEXT", "a variable inside", NULL },
    { 0 },
};
static const struct provider_option start_options[] = {
    { "size", "small|large", "how much", check_size },
    { "title", "TEXT", "of the window", NULL },
    { 0 },
};
static const struct provider_ops ops = {
    .name = "scripted", .create_options = create_options, .start_options = start_options, .can_clone = true
};

static int read_settings(const char *const values[SETTINGS_MAX], bool with_from, struct settings *out,
                         struct error *e)
{
    static const struct arg_option set = { .name = "set", .kind = ARG_VALUE, .many = true };
    struct arg_given given[SETTINGS_MAX];
    struct args a = { .given = given };

    for (; a.given_count < SETTINGS_MAX && values[a.given_count] != NULL; a.given_count++)
        given[a.given_count] = (struct arg_given){ &set, values[a.given_count] };
    return settings_read(&ops, create_options, with_from, &a, out, e);
}

/* what is accepted is recorded as facts "set.KEY". */
static void test_settings__become_facts(void **state)
{
    const char *const values[SETTINGS_MAX] = { "size=small", "env.LANG=a=b c", "from=base" };
    AUTO_SETTINGS struct settings s = { 0 };
    struct error e = { 0 };

    (void)state;
    assert_int_equal(read_settings(values, true, &s, &e), 0);
    assert_string_equal(facts_get(&s.facts, "set.size"), "small");
    assert_string_equal(facts_get(&s.facts, "set.env.LANG"), "a=b c");
    assert_string_equal(s.source, "base");
    assert_string_equal(text_get(&s.recorded), "size=small env.LANG from=base");
}

static void test_settings__refuse_and_say_what_is_accepted(void **state)
{
    static const struct {
        const char *values[SETTINGS_MAX];
        bool with_from;
        const char *says;
    } cases[] = {
        { { "colour=red" }, true, "size=small|large, env.NAME=TEXT, from=SANDBOX" },
        { { "size" }, true, "KEY=VALUE" },
        { { "=small" }, true, "KEY=VALUE" },
        { { "" }, true, "KEY=VALUE" },
        { { "size=small", "size=large" }, true, "twice" },
        { { "size=small", "size=small" }, true, "twice" },
        { { "size=huge" }, true, "small or large" },
        { { "env.=x" }, true, "no such option" }, /* a prefix alone is no key */
        { { "env.A=" }, true, "empty" },
        { { "env.A=\xff" }, true, "UTF-8" },
        { { "from=base" }, false, "no such option" },
        { { "env.a-name-that-is-too-long=x" }, true, "no such option" },
        { { "env.a-name-too-long-x=x" }, true, "too long" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_SETTINGS struct settings s = { 0 };
        struct error e = { 0 };

        assert_int_equal(read_settings(cases[i].values, cases[i].with_from, &s, &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_ARGS);
        if (strstr(e.message, cases[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", e.message, cases[i].says);
    }
}

/* A clone is like its source, but for what is asked for here. */
static void test_settings__are_inherited_by_a_clone(void **state)
{
    struct facts given = { .count = 0 }, source = { .count = 0 }, out = { .count = 0 };

    (void)state;
    facts_set(&given, "set.size", "small");
    facts_set(&source, "set.size", "large");
    facts_set(&source, "set.net", "none");
    facts_set(&source, "set.from", "older");
    facts_set(&source, "pid", "17");
    facts_set(&out, "set.size", "small");
    facts_set(&out, "set.net", "host"); /* the provider's default */
    assert_true(settings_inherit(&given, &source, &out));
    assert_string_equal(facts_get(&out, "set.size"), "small");
    assert_string_equal(facts_get(&out, "set.net"), "none");
    assert_null(facts_get(&out, "set.from"));
    assert_null(facts_get(&out, "pid"));
}

static void test_settings__of_a_start_end_with_it(void **state)
{
    struct facts out = { .count = 0 }, recorded = { .count = 0 };

    (void)state;
    facts_set(&recorded, "set.size", "large");
    facts_set(&recorded, "set.title", "before");
    assert_true(settings_forget(&ops, &out));
    assert_true(facts_merge(&recorded, &out));
    assert_string_equal(facts_get(&recorded, "set.size"), "large"); /* of create: stays */
    assert_null(facts_get(&recorded, "set.title"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings__become_facts),
        cmocka_unit_test(test_settings__refuse_and_say_what_is_accepted),
        cmocka_unit_test(test_settings__are_inherited_by_a_clone),
        cmocka_unit_test(test_settings__of_a_start_end_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

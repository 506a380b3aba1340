#include "tools/agent-desktop/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/mem.h"
#include "core/util.h"

#define SETTINGS_MAX 5

static int check_size(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (strcmp(value, "small") != 0 && strcmp(value, "large") != 0)
        return error_set(e, ERROR_INVALID_ARGS, 0, "size is small or large, not '%s'", value);
    snprintf(out, FACT_VALUE_SIZE, "%s", value);
    return 0;
}

/* One that may hold a secret: no message repeats it. */
static int check_pass(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    snprintf(out, FACT_VALUE_SIZE, "%s", value);
    return strchr(value, ' ') == NULL ? 0 : error_set(e, ERROR_INVALID_ARGS, 0, "a pass has no blanks");
}

static const struct provider_option create_options[] = {
    { .key = "size", .value = "small|large", .help = "how much", .check = check_size },
    { .key = "env.", .value = "TEXT", .help = "a variable inside" },
    { .key = "secret.", .value = "TEXT", .help = "a variable that is not kept", .unrecorded = true },
    { .key = "pass", .value = "TEXT", .help = "to get in", .check = check_pass, .unrecorded = true },
    { 0 },
};
static const struct provider_option start_options[] = {
    { .key = "size", .value = "small|large", .help = "how much", .check = check_size },
    { .key = "title", .value = "TEXT", .help = "of the window" },
    { 0 },
};
static const struct provider_ops ops = {
    .name = "scripted", .create_options = create_options, .start_options = start_options, .can_clone = true
};

static const struct arg_option set_option = { .name = "set", .kind = ARG_VALUE, .many = true };

static int read_settings(const char *const values[SETTINGS_MAX], bool with_from, struct settings *out,
                         struct error *e)
{
    struct arg_given given[SETTINGS_MAX];
    struct args a = { .given = given };

    for (; a.given_count < SETTINGS_MAX && values[a.given_count] != NULL; a.given_count++)
        given[a.given_count] = (struct arg_given){ &set_option, mem_copy_text(values[a.given_count]) };
    int result = settings_read(&ops, create_options, with_from, &a, out, e);

    for (size_t i = 0; i < a.given_count; i++)
        free(given[i].value);
    return result;
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

/* What may be a secret is handed on as it is, and the journal gets its name alone. */
static void test_settings__that_may_be_secret_are_not_recorded(void **state)
{
    const char *const values[SETTINGS_MAX] = { "secret.A=x=1 \"", "size=small", "pass=hunter2",
                                               "secret.EMPTY=", "secret.A_=y" };
    AUTO_SETTINGS struct settings s = { 0 };
    struct error e = { 0 };

    (void)state;
    assert_int_equal(read_settings(values, true, &s, &e), 0);
    assert_int_equal(s.unrecorded_count, 4);
    assert_string_equal(s.unrecorded[0], "secret.A=x=1 \"");
    assert_string_equal(s.unrecorded[1], "pass=hunter2");
    assert_string_equal(s.unrecorded[2], "secret.EMPTY=");
    assert_string_equal(s.unrecorded[3], "secret.A_=y");
    assert_null(s.unrecorded[4]);
    assert_int_equal(s.facts.count, 1);
    assert_string_equal(text_get(&s.recorded), "secret.A size=small pass secret.EMPTY secret.A_");
}

static char *new_setting(const char *prefix, size_t key_size, size_t value_size)
{
    AUTO_FREE char *key = mem_alloc(key_size + 1);
    AUTO_FREE char *value = mem_alloc(value_size + 1);

    memset(key, 'K', key_size);
    memset(value, 'v', value_size);
    return mem_print("%s%s=%s", prefix, key, value);
}

static void test_settings__that_are_not_recorded_may_be_long(void **state)
{
    static const struct {
        size_t key, value;
        bool fits;
    } cases[] = {
        { SETTING_UNRECORDED_MAX - 7, SETTING_UNRECORDED_MAX, true }, /* "secret." belongs to the key */
        { SETTING_UNRECORDED_MAX - 6, 1, false },
        { 1, SETTING_UNRECORDED_MAX + 1, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *setting = new_setting("secret.", cases[i].key, cases[i].value);
        const char *const values[SETTINGS_MAX] = { "size=small", setting };
        AUTO_SETTINGS struct settings s = { 0 };
        struct error e = { 0 };

        assert_int_equal(read_settings(values, true, &s, &e), cases[i].fits ? 0 : -1);
        if (!cases[i].fits) {
            assert_int_equal(e.code, ERROR_INVALID_ARGS);
            assert_non_null(strstr(e.message, "64 KiB"));
            continue;
        }
        assert_string_equal(s.unrecorded[0], setting);
        assert_string_equal(text_get(&s.recorded),
                            "size=small and 1 more"); /* the journal's entries are bounded */
    }
}

/* R-203, and no message has the value. */
static void test_settings__that_may_be_secret_are_refused_without_being_told(void **state)
{
    static const struct {
        const char *values[SETTINGS_MAX];
        const char *says;
    } cases[] = {
        { { "secret.A=hunter2", "secret.A=hunter2" }, "--set secret.A: the option is given twice" },
        { { "secret.A=hunter2", "secret.A=" }, "--set secret.A: the option is given twice" },
        { { "pass=hunter2 x" }, "--set pass: a pass has no blanks" },
        { { "secret.A=hunter2\xff" }, "--set secret.A: the name or the value is longer than 64 KiB, or not" },
        { { "secret.\xff=hunter2" }, "or not valid UTF-8" },
        { { "secret.=hunter2" }, "no such option" },
        { { "secrets.A=hunter2" }, "no such option" },
        { { "=hunter2" }, "KEY=VALUE" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_SETTINGS struct settings s = { 0 };
        struct error e = { 0 };

        assert_int_equal(read_settings(cases[i].values, true, &s, &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_ARGS);
        if (strstr(e.message, cases[i].says) == NULL || strstr(e.message, "hunter2") != NULL)
            fail_msg("\"%s\" should say \"%s\" and no more", e.message, cases[i].says);
    }
}

/* What may be a secret is gone from argv, whatever is wrong with it or with what stands before it; all else
 * is there for ps. */
static void test_settings__that_may_be_secret_are_hidden_in_argv(void **state)
{
    static const struct {
        const char *before, *after;
        bool is_fine; /* all options up to it */
    } cases[] = {
        { "size=small", "size=small", true },
        { "secret.A=hunter2=x", "secret.A=", true },
        { "pass=hunter2", "pass=", true },
        { "env.LANG=C", "env.LANG=C", true },
        { "secret.A=hunter2", "secret.A=", false },     /* twice */
        { "secret.B=hunter2\xff", "secret.B=", false }, /* not UTF-8 */
        { "secrte.C=hunter2", "secrte.C=", false },     /* a slip */
        { "secret.D=hunter2", "secret.D=", false },     /* behind what is wrong */
        { "secret.E", "secret.E", false },
        { "size=huge", "size=huge", false },
    };

    (void)state;
    for (size_t count = 1; count <= ARRAY_LEN(cases); count++) {
        struct arg_given given[ARRAY_LEN(cases)];
        char words[ARRAY_LEN(cases)][32] = { "" };
        AUTO_SETTINGS struct settings s = { 0 };
        struct error e = { 0 };

        for (size_t i = 0; i < count; i++) {
            snprintf(words[i], sizeof(words[i]), "%s", cases[i].before);
            given[i] = (struct arg_given){ &set_option, words[i] };
        }
        struct args a = { .given = given, .given_count = count };

        assert_int_equal(settings_read(&ops, create_options, true, &a, &s, &e),
                         cases[count - 1].is_fine ? 0 : -1);
        for (size_t i = 0; i < count; i++) {
            size_t size = strlen(cases[i].after);

            assert_string_equal(words[i], cases[i].after);
            for (size_t k = size; k < sizeof(words[i]); k++) /* to the last byte */
                assert_int_equal(words[i][k], '\0');
        }
        if (count > 1)
            assert_string_equal(s.unrecorded[0], "secret.A=hunter2=x");
    }
}

static void test_settings__refuse_and_say_what_is_accepted(void **state)
{
    static const struct {
        const char *values[SETTINGS_MAX];
        bool with_from;
        const char *says;
    } cases[] = {
        { { "colour=red" },
          true,
          "size=small|large, env.NAME=TEXT, secret.NAME=TEXT, pass=TEXT, from=SANDBOX" },
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
        cmocka_unit_test(test_settings__that_may_be_secret_are_not_recorded),
        cmocka_unit_test(test_settings__that_are_not_recorded_may_be_long),
        cmocka_unit_test(test_settings__that_may_be_secret_are_refused_without_being_told),
        cmocka_unit_test(test_settings__that_may_be_secret_are_hidden_in_argv),
        cmocka_unit_test(test_settings__refuse_and_say_what_is_accepted),
        cmocka_unit_test(test_settings__are_inherited_by_a_clone),
        cmocka_unit_test(test_settings__of_a_start_end_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

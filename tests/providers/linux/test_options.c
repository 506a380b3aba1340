#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "providers/linux/linux.h"
#include "providers/linux/options.h"
#include "providers/provider.h"

static const struct provider_option *find_option(const char *key)
{
    const struct provider_option *o = linux_create_options;

    while (o->key != NULL && strcmp(o->key, key) != 0)
        o++;
    assert_non_null(o->key);
    return o;
}

static void test_options__accept_and_refuse_by_value(void **state)
{
    static const struct {
        const char *key, *value, *recorded; /* NULL: refused */
    } cases[] = {
        { "screen", "1280x800", "1280x800" },
        { "screen", "320x240", "320x240" },
        { "screen", "7680x4320", "7680x4320" },
        { "screen", "0001280x800", "1280x800" },
        { "screen", "319x240", NULL },
        { "screen", "7681x800", NULL },
        { "screen", "1280x4321", NULL },
        { "screen", "1280", NULL },
        { "screen", "1280x", NULL },
        { "screen", "x800", NULL },
        { "screen", "", NULL },
        { "screen", "1280x800x24", NULL },
        { "screen", "1280X800", NULL },
        { "screen", " 1280x800", NULL },
        { "screen", "-1280x800", NULL },
        { "screen", "1280x800;id", NULL },
        { "screen", "99999999999999999999x800", NULL },
        { "net", "host", "host" },
        { "net", "none", "none" },
        { "net", "None", NULL },
        { "net", "", NULL },
        { "net", "bridge", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char out[FACT_VALUE_SIZE] = "untouched";
        struct error e = { 0 };
        int result = find_option(cases[i].key)->check(cases[i].value, out, &e);

        if (cases[i].recorded != NULL) {
            assert_int_equal(result, 0);
            assert_string_equal(out, cases[i].recorded);
        } else {
            assert_int_equal(result, -1);
            assert_int_equal(e.code, ERROR_INVALID_ARGS);
            assert_non_null(strstr(e.message, cases[i].key)); /* names the key */
            assert_string_equal(out, "untouched");
        }
    }
}

static void test_options__record_defaults_of_what_is_not_set(void **state)
{
    struct facts facts = { 0 };
    struct error e = { 0 };

    (void)state;
    facts_set(&facts, "set.net", "none"); /* chosen, or a clone's inheritance */
    assert_int_equal(linux_check_create(NULL, &facts, &e), 0);
    assert_string_equal(facts_get(&facts, "set.net"), "none");
    assert_string_equal(facts_get(&facts, "set.screen"), "1280x800");
}

static void test_options__start_has_none(void **state)
{
    (void)state;
    assert_null(linux_start_options[0].key);
}

static void test_registry__knows_its_providers_by_name(void **state)
{
    (void)state;
    assert_ptr_equal(provider_find("linux"), &linux_ops);
    assert_null(provider_find("Linux"));
    assert_null(provider_find(""));
    assert_string_equal(provider_default_name(), "linux"); /* on Linux */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options__accept_and_refuse_by_value),
        cmocka_unit_test(test_options__record_defaults_of_what_is_not_set),
        cmocka_unit_test(test_options__start_has_none),
        cmocka_unit_test(test_registry__knows_its_providers_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

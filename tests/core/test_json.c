#include "core/json.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"

static void assert_printed(const struct json *j, const char *expected)
{
    AUTO_FREE char *line = json_print(j);

    assert_string_equal(line, expected);
}

static void test_json__prints_members_in_the_order_they_were_put(void **state)
{
    AUTO_JSON struct json *object = json_new_object();
    struct json *array = json_new_array();

    (void)state;
    json_put_string(object, "zeta", "1");
    json_put_int(object, "alpha", INT64_MIN);
    json_put_bool(object, "mid", true);
    json_add_string(array, "x");
    json_add(array, json_new_object());
    json_put(object, "list", array);
    assert_printed(object,
                   "{\"zeta\":\"1\",\"alpha\":-9223372036854775808,\"mid\":true,\"list\":[\"x\",{}]}");
    json_put_string(object, "zeta", "2"); /* the last one counts */
    assert_string_equal(json_get_string(object, "zeta"), "2");
}

/* optional members are left out, never null. */
static void test_json__leaves_out_what_is_null(void **state)
{
    AUTO_JSON struct json *object = json_new_object();
    AUTO_JSON struct json *array = json_new_array();

    (void)state;
    json_put_string(object, "a", NULL);
    json_put(object, "c", NULL);
    json_add_string(array, NULL);
    json_add(array, NULL);
    assert_printed(object, "{}");
    assert_printed(array, "[]");
}

/* output is valid UTF-8 whatever the input bytes were, and one line. */
static void test_json__escapes_control_characters_and_replaces_what_is_not_utf8(void **state)
{
    AUTO_JSON struct json *object = json_new_object();

    (void)state;
    json_put_string(object, "a", "tab\tline\nesc\x1B quote\" \xC3\xA9");
    json_put_string(object, "b", "\x01\xFFx");
    json_put_string(object, "c", "\b\f\r\\/\x7F");
    json_put_string(object, "k\xFE", "v\xED\xA0\x80");
    assert_printed(object, "{\"a\":\"tab\\tline\\nesc\\u001B quote\\\" \xC3\xA9\","
                           "\"b\":\"\\u0001\xEF\xBF\xBDx\","
                           "\"c\":\"\\b\\f\\r\\\\/\x7F\","
                           "\"k\xEF\xBF\xBD\":\"v\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"}");
}

static void test_json__prints_what_it_parsed(void **state)
{
    static const char text[] = "[{},[],{\"a\":{\"b\":[1,-2.5,true,false,null]}}]";
    AUTO_JSON struct json *j = NULL;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), "it", ERROR_INTERNAL, &j, &e), 0);
    assert_printed(j, text);
}

static void test_json__getters_tell_absence_and_other_types_apart_from_values(void **state)
{
    static const char text[] = "{\"s\":\"x\",\"i\":-5,\"b\":false,\"r\":1.5,\"n\":null,\"a\":[1,2]}";
    AUTO_JSON struct json *object = NULL;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), "it", ERROR_INTERNAL, &object, &e), 0);
    assert_string_equal(json_get_string(object, "s"), "x");
    assert_int_equal(json_get_int(object, "i", 9), -5);
    assert_false(json_get_bool(object, "b", true));
    assert_null(json_get_string(object, "i"));
    assert_int_equal(json_get_int(object, "r", 9), 9);
    assert_int_equal(json_get_int(object, "s", 9), 9);
    assert_true(json_get_bool(object, "n", true));
    assert_null(json_get(object, "none"));
    assert_int_equal(json_count(json_get(object, "a")), 2);
    assert_non_null(json_at(json_get(object, "a"), 1));
    assert_null(json_at(json_get(object, "a"), 2));
    assert_int_equal(json_count(object), 0);
    assert_int_equal(json_count_members(object), 6);
    assert_int_equal(json_count_members(json_get(object, "a")), 0);
    assert_int_equal(json_count(NULL), 0);
    assert_null(json_get(NULL, "x"));
    assert_null(json_get_string(json_get(object, "a"), "x"));
}

static void test_json__makes_arrays_of_strings(void **state)
{
    static const char *const words[] = { "agent-desktop", "sandbox", "status" };
    AUTO_JSON struct json *array = json_new_strings(words, ARRAY_LEN(words));

    (void)state;
    assert_printed(array, "[\"agent-desktop\",\"sandbox\",\"status\"]");
}

static void test_json__parses_strictly(void **state)
{
    static const char *const bad[] = {
        "",        "{",   "{}x",      "{} {}",         "{\"a\":1,\"a\":2}",    "[1,]",
        "{'a':1}", "nul", "\"\xFF\"", "[\"\\ud800\"]", "99999999999999999999",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct json *out = NULL;
        struct error e = { 0 };

        print_message("'%s'\n", bad[i]);
        assert_int_equal(json_parse(bad[i], strlen(bad[i]), "the reply", ERROR_STORE_CORRUPT, &out, &e), -1);
        assert_int_equal(e.code, ERROR_STORE_CORRUPT);
        assert_non_null(strstr(e.message, "the reply"));
        assert_null(out);
    }
}

static void test_json__tells_the_kind_of_a_member(void **state)
{
    static const char text[] = "{\"n\":null,\"b\":false,\"i\":1,\"r\":1.0,\"s\":\"\",\"a\":[],\"o\":{}}";
    static const struct {
        const char *key;
        enum json_kind kind;
    } members[] = {
        { "n", JSON_KIND_NULL },   { "b", JSON_KIND_BOOL },   { "i", JSON_KIND_INTEGER },
        { "r", JSON_KIND_REAL },   { "s", JSON_KIND_STRING }, { "a", JSON_KIND_ARRAY },
        { "o", JSON_KIND_OBJECT }, { "x", JSON_KIND_ABSENT },
    };
    AUTO_JSON struct json *object = NULL;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), "it", ERROR_INTERNAL, &object, &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        assert_int_equal(json_get_kind(object, members[i].key), members[i].kind);
    assert_int_equal(json_get_kind(NULL, "x"), JSON_KIND_ABSENT);
}

static void test_json__copies_all_the_way_down(void **state)
{
    static const char text[] = "{\"o\":{\"a\":[1,\"x\"]},\"n\":null}";
    AUTO_JSON struct json *object = NULL;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), "it", ERROR_INTERNAL, &object, &e), 0);
    AUTO_JSON struct json *copy = json_clone(object);

    json_put_int(json_get(object, "o"), "b", 2);
    assert_printed(copy, text);
    assert_null(json_clone(NULL));
}

static void test_json__takes_what_a_peer_may_send(void **state)
{
    static const char text[] = "{\"s\":\"a\\u0000b\",\"t\":1,\"t\":2}";
    AUTO_JSON struct json *object = NULL;
    struct error e = { 0 };
    size_t size;

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), "it", ERROR_INTERNAL, &object, &e), -1);
    e = (struct error){ 0 };
    assert_int_equal(json_parse_foreign(text, strlen(text), "it", ERROR_INTERNAL, &object, &e), 0);
    assert_memory_equal(json_get_bytes(object, "s", &size), "a\0b", 4);
    assert_int_equal(size, 3);
    assert_null(json_get_string(object, "s")); /* rather than a part of it */
    assert_null(json_get_bytes(object, "t", &size));
    assert_int_equal(size, 0);
    assert_int_equal(json_get_int(object, "t", 0), 2);
}

static void test_json__says_nothing_of_what_a_peer_has_sent(void **state)
{
    struct json *out = NULL;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(json_parse_foreign("{\"a\":secret}", 12, "the reply", ERROR_ACTION_FAILED, &out, &e),
                     -1);
    assert_string_equal(e.message, "the reply is not valid JSON");
}

static void test_json__refuses_nesting_that_would_end_the_stack(void **state)
{
    struct json *out = NULL;
    struct error e = { 0 };
    char *deep = malloc(1000000);

    (void)state;
    memset(deep, '[', 1000000);
    assert_int_equal(json_parse(deep, 1000000, "it", ERROR_INTERNAL, &out, &e), -1);
    free(deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json__prints_members_in_the_order_they_were_put),
        cmocka_unit_test(test_json__leaves_out_what_is_null),
        cmocka_unit_test(test_json__escapes_control_characters_and_replaces_what_is_not_utf8),
        cmocka_unit_test(test_json__prints_what_it_parsed),
        cmocka_unit_test(test_json__getters_tell_absence_and_other_types_apart_from_values),
        cmocka_unit_test(test_json__makes_arrays_of_strings),
        cmocka_unit_test(test_json__parses_strictly),
        cmocka_unit_test(test_json__tells_the_kind_of_a_member),
        cmocka_unit_test(test_json__copies_all_the_way_down),
        cmocka_unit_test(test_json__takes_what_a_peer_may_send),
        cmocka_unit_test(test_json__says_nothing_of_what_a_peer_has_sent),
        cmocka_unit_test(test_json__refuses_nesting_that_would_end_the_stack),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

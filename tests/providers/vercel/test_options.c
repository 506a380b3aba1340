#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/mem.h"
#include "providers/vercel/options.h"
#include "providers/vercel/vercel.h"

static const struct provider_option *find_row(const char *key)
{
    const struct provider_option *row = vercel_create_options;

    while (strcmp(row->key, key) != 0)
        row++;
    return row;
}

/* --- single ones ------------------------------------------------------------------------------------- */

struct row_case {
    const char *key, *value;
    const char *recorded; /* NULL: refused */
};

static void check_rows(const struct row_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char out[FACT_VALUE_SIZE] = "";
        struct error e = { 0 };
        int result = find_row(cases[i].key)->check(cases[i].value, out, &e);

        if (result == 0 && (cases[i].recorded == NULL || strcmp(out, cases[i].recorded) != 0))
            fail_msg("%s=%s: %s", cases[i].key, cases[i].value, out);
        if (result < 0 && (cases[i].recorded != NULL || e.code != ERROR_INVALID_ARGS))
            fail_msg("%s=%s: %s", cases[i].key, cases[i].value, e.message);
        if (result < 0 && strstr(e.message, cases[i].key) == NULL)
            fail_msg("%s is not named: %s", cases[i].key, e.message);
    }
}

static void test_r503_options__words_of_the_service(void **state)
{
    static const struct row_case cases[] = {
        { "image", "ad-desktop", "ad-desktop" },
        { "image", "ad-desktop:v1.2", "ad-desktop:v1.2" },
        { "image", "ad@sha256:0123abcd", "ad@sha256:0123abcd" },
        { "image", "team/project/repo:tag", "team/project/repo:tag" },
        { "image", "vcr.vercel.com/a/b/c", "vcr.vercel.com/a/b/c" },
        { "image", "", NULL },
        { "image", "-x", NULL },
        { "image", "/x", NULL },
        { "image", "a b", NULL },
        { "image", "a\nb", NULL },
        { "image", "\xc3\xa9", NULL },
        { "runtime", "node24", "node24" },
        { "runtime", "python3.13", "python3.13" },
        { "runtime", "node 24", NULL },
        { "runtime", "", NULL },
        { "region", "iad1", "iad1" },
        { "region", "iad1/..", NULL },
        { "region", "?", NULL },
        { "snapshot", "snap_Abc-1", "snap_Abc-1" },
        { "snapshot", "../x", NULL },
        { "team", "team_abc", "team_abc" },
        { "team", "team abc", NULL },
        { "project", "prj_abc", "prj_abc" },
        { "project", "prj&teamId=x", NULL },
        { "persistent", "true", "true" },
        { "persistent", "false", "false" },
        { "persistent", "yes", NULL },
        { "persistent", "", NULL },
        { "vcpus", "1", "1" },
        { "vcpus", "2", "2" },
        { "vcpus", "32", "32" },
        { "vcpus", "3", NULL },
        { "vcpus", "0", NULL },
        { "vcpus", "-2", NULL },
        { "vcpus", "2.0", NULL },
        { "vcpus", "4 ", NULL },
        { "vcpus", "99999999999999999999", NULL },
    };

    (void)state;
    check_rows(cases, ARRAY_LEN(cases));
}

static void test_r503_options__a_timeout_is_recorded_in_one_way(void **state)
{
    static const struct row_case cases[] = {
        { "timeout", "45m", "45m" },    { "timeout", "2h", "2h" },     { "timeout", "90s", "90s" },
        { "timeout", "60s", "1m" },     { "timeout", "3600s", "1h" },  { "timeout", "90m", "90m" },
        { "timeout", "120m", "2h" },    { "timeout", "1s", "1s" },     { "timeout", "24h", "24h" },
        { "timeout", "86400s", "24h" }, { "timeout", "0045m", "45m" }, { "timeout", "0s", NULL },
        { "timeout", "25h", NULL },     { "timeout", "86401s", NULL }, { "timeout", "1441m", NULL },
        { "timeout", "30", NULL },      { "timeout", "m", NULL },      { "timeout", "", NULL },
        { "timeout", "1h30m", NULL },   { "timeout", "1.5h", NULL },   { "timeout", "-1h", NULL },
        { "timeout", "1d", NULL },      { "timeout", "1H", NULL },     { "timeout", " 1h", NULL },
        { "timeout", "1h ", NULL },     { "timeout", "1ms", NULL },    { "timeout", "99999999999999h", NULL },
        { "timeout", "86400h", NULL },
    };

    (void)state;
    check_rows(cases, ARRAY_LEN(cases));
}

static void test_r503_options__network_is_a_word_or_hosts(void **state)
{
    static const struct row_case cases[] = {
        { "network", "all", "all" },
        { "network", "none", "none" },
        { "network", "example.com", "example.com" },
        { "network", "localhost", "localhost" },
        { "network", "*.example.com,x-y.z", "*.example.com,x-y.z" },
        { "network", "_dmarc.example.com", "_dmarc.example.com" },
        { "network", "", NULL },
        { "network", ",", NULL },
        { "network", "a,", NULL },
        { "network", "all,none", NULL },
        { "network", "example.com,none", NULL },
        { "network", ",a", NULL },
        { "network", "a, b", NULL },
        { "network", "*", NULL },
        { "network", "*.", NULL },
        { "network", "*example.com", NULL },
        { "network", "a.*.b", NULL },
        { "network", "a..b", NULL },
        { "network", ".a", NULL },
        { "network", "a.", NULL },
        { "network", "-a.b", NULL },
        { "network", "a-.b", NULL },
        { "network", "a-", NULL },
        { "network", "https://a.b", NULL },
        { "network", "a:443", NULL },
        { "network", "\xc3\xa9.example", NULL },
    };
    char longest[FACT_VALUE_SIZE + 1];
    struct error e = { 0 };
    char out[FACT_VALUE_SIZE];

    (void)state;
    check_rows(cases, ARRAY_LEN(cases));
    memset(longest, 'a', FACT_VALUE_SIZE);
    longest[FACT_VALUE_SIZE] = '\0';
    assert_int_equal(find_row("network")->check(longest, out, &e), -1);
    longest[FACT_VALUE_SIZE - 1] = '\0';
    assert_int_equal(find_row("network")->check(longest, out, &e), 0);
}

/* nothing of an env.* value is kept, and a refusal does not tell it. */
static void test_r501_options__values_of_env_and_tag_are_not_told(void **state)
{
    static const char *const keys[] = { "env.", "tag." };
    char out[FACT_VALUE_SIZE] = "";

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct provider_option *row = find_row(keys[i]);
        struct error e = { 0 };

        assert_true(row->unrecorded);
        assert_int_equal(row->check("gr\xc3\xbc\xc3\x9f\x65 \"'$HOME\n", out, &e), 0);
        assert_int_equal(row->check("secret\xff", out, &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_ARGS);
        assert_null(strstr(e.message, "secret"));
        assert_string_equal(out, "");
    }
}

static void test_options__a_tag_may_not_be_of_any_length(void **state)
{
    AUTO_FREE char *value = mem_alloc(258);
    char out[FACT_VALUE_SIZE];
    struct error e = { 0 };

    (void)state;
    memset(value, 'x', 257);
    assert_int_equal(find_row("env.")->check(value, out, &e), 0);
    assert_int_equal(find_row("tag.")->check(value, out, &e), -1);
    value[256] = '\0';
    e = (struct error){ 0 };
    assert_int_equal(find_row("tag.")->check(value, out, &e), 0);
}

/* --- as a whole -------------------------------------------------------------------------------------- */

static void read_facts(struct facts *facts, const char *const *settings)
{
    facts->count = 0;
    for (; *settings != NULL; settings += 2)
        assert_true(facts_set(facts, settings[0], settings[1]));
}

static int check(struct facts *facts, char *const *unrecorded, struct error *e)
{
    const struct provider_place place = { .name = "demo", .op_lock = -1, .unrecorded = unrecorded };
    struct vercel_box box = { .place = &place, .dir = -1 };

    return vercel_check_create(&box, facts, e);
}

static void test_r503_create__fills_what_is_not_given(void **state)
{
    static const struct {
        const char *given[5];
        const char *image, *timeout, *persistent;
    } cases[] = {
        { { NULL }, "ad-desktop", "30m", "true" },
        { { "set.image", "mine:2" }, "mine:2", "30m", "true" },
        { { "set.runtime", "node24" }, NULL, "30m", "true" },
        { { "set.snapshot", "snap_1" }, NULL, "30m", "true" },
        { { "set.timeout", "2h", "set.persistent", "false" }, "ad-desktop", "2h", "false" },
        { { "set.from", "base" }, NULL, NULL, NULL },
        { { "set.from", "base", "set.timeout", "2h" }, NULL, "2h", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const keys[] = { "set.image", "set.timeout", "set.persistent" };
        const char *const expected[] = { cases[i].image, cases[i].timeout, cases[i].persistent };
        struct facts facts;
        struct error e = { 0 };

        read_facts(&facts, cases[i].given);
        assert_int_equal(check(&facts, NULL, &e), 0);
        for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
            const char *value = facts_get(&facts, keys[k]);

            if (expected[k] == NULL)
                assert_null(value);
            else
                assert_string_equal(value, expected[k]);
        }
    }
}

static void test_r503_create__refuses_what_does_not_go_together(void **state)
{
    static const struct {
        const char *given[5];
        const char *says;
    } cases[] = {
        { { "set.image", "a", "set.runtime", "b" }, "--set image and --set runtime" },
        { { "set.image", "a", "set.snapshot", "b" }, "--set image and --set snapshot" },
        { { "set.runtime", "a", "set.snapshot", "b" }, "--set runtime and --set snapshot" },
        { { "set.team", "team_x" }, "--set project=ID" },
        { { "set.from", "base", "set.image", "a" }, "--set image" },
        { { "set.from", "base", "set.runtime", "a" }, "--set runtime" },
        { { "set.from", "base", "set.snapshot", "a" }, "--set snapshot" },
        { { "set.from", "base", "set.team", "a" }, "--set team" },
        { { "set.from", "base", "set.project", "a" }, "--set project" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts facts;
        struct error e = { 0 };

        read_facts(&facts, cases[i].given);
        assert_int_equal(check(&facts, NULL, &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_ARGS);
        if (strstr(e.message, cases[i].says) == NULL)
            fail_msg("%s", e.message);
    }
}

/* {"owner_id":"team_x","project_id":"prj_x"} */
#define OF_X "h.eyJvd25lcl9pZCI6InRlYW1feCIsInByb2plY3RfaWQiOiJwcmpfeCJ9.s"

static void test_r501_create__refuses_a_project_that_the_token_is_not_for(void **state)
{
    static const struct {
        const char *given[5];
        const char *says; /* NULL: it is taken */
    } cases[] = {
        { { NULL }, NULL },
        { { "set.project", "prj_x" }, NULL },
        { { "set.team", "team_x", "set.project", "prj_x" }, NULL },
        { { "set.project", "prj_y" }, "for the project 'prj_x', not for 'prj_y', which --set names" },
        { { "set.team", "team_y", "set.project", "prj_x" }, "for the team 'team_x', not for 'team_y'" },
    };
    const struct provider_place place = { .name = "demo", .op_lock = -1 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct vercel_box box = { .place = &place, .dir = -1, .credentials = { .source = "VERCEL_TOKEN" } };
        struct facts facts;
        struct error e = { 0 };

        box.credentials.token = mem_copy_text(OF_X);
        read_facts(&facts, cases[i].given);
        assert_int_equal(vercel_check_create(&box, &facts, &e), cases[i].says == NULL ? 0 : -1);
        assert_int_equal(e.code, cases[i].says == NULL ? ERROR_NONE : ERROR_AUTH_FAILED);
        if (cases[i].says != NULL && strstr(e.message, cases[i].says) == NULL)
            fail_msg("%s", e.message);
        credentials_done(&box.credentials);
    }
}

static void test_r503_create__looks_at_names_of_env_and_tag(void **state)
{
    static const struct {
        const char *unrecorded[6];
        const char *says; /* NULL: they are taken */
    } cases[] = {
        { { "env.PATH=/bin", "env._x9=a=b", "tag.team-1=x", "tag.a.b_c=", "tag.3=x" }, NULL },
        { { "env.a-b=secret" }, "env.a-b:" },
        { { "env.1a=secret" }, "does not begin with a digit" },
        { { "env.\xc3\xa9=secret" }, "letters, digits" },
        { { "tag.a:b=secret" }, "tag.a:b:" },
        { { "tag.agent-desktop=secret" }, "agent-desktop's own mark" },
        { { "tag.made-by=secret" }, "agent-desktop's own mark" },
        { { "tag.a=1", "tag.b=2", "tag.c=3" }, NULL },
        { { "tag.a=1", "tag.b=2", "tag.c=3", "tag.d=secret" }, "at most 3" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *unrecorded[ARRAY_LEN(cases[i].unrecorded) + 1] = { NULL };
        struct facts facts = { 0 };
        struct error e = { 0 };

        for (size_t k = 0; cases[i].unrecorded[k] != NULL; k++)
            unrecorded[k] = mem_copy_text(cases[i].unrecorded[k]);
        assert_int_equal(check(&facts, unrecorded, &e), cases[i].says == NULL ? 0 : -1);
        assert_int_equal(e.code, cases[i].says == NULL ? ERROR_NONE : ERROR_INVALID_ARGS);
        if (cases[i].says != NULL && strstr(e.message, cases[i].says) == NULL)
            fail_msg("%s", e.message);
        assert_null(strstr(e.message, "secret"));
        for (size_t k = 0; unrecorded[k] != NULL; k++)
            free(unrecorded[k]);
    }
}

static void test_r504_a_desktop_is_wanted_unless_a_runtime_is(void **state)
{
    struct facts facts;

    (void)state;
    read_facts(&facts, (const char *const[]){ "set.image", "x", NULL });
    assert_true(vercel_wants_desktop(&facts));
    read_facts(&facts, (const char *const[]){ "set.snapshot", "x", NULL });
    assert_true(vercel_wants_desktop(&facts));
    read_facts(&facts, (const char *const[]){ "set.runtime", "x", NULL });
    assert_false(vercel_wants_desktop(&facts));
}

/* --- the body ---------------------------------------------------------------------------------------- */

static void test_r503_body__has_what_is_asked_for_and_nothing_else(void **state)
{
#define OURS "\"agent-desktop\":\"0123456789abcdef\",\"made-by\":\"agent-desktop\""
    static const struct {
        const char *given[17];
        const char *unrecorded[5];
        bool clone;
        const char *source_tags;
        const char *body; /* after the name */
    } cases[] = {
        { { "set.image", "ad-desktop", "set.timeout", "30m", "set.persistent", "true" },
          { NULL },
          false,
          NULL,
          "\"image\":\"ad-desktop\",\"timeout\":1800000,\"persistent\":true,\"ports\":[],\"tags\":{" OURS
          "}" },
        { { "set.runtime", "node24", "set.timeout", "24h", "set.persistent", "false", "set.vcpus", "4",
            "set.region", "iad1", "set.network", "none" },
          { NULL },
          false,
          NULL,
          "\"runtime\":\"node24\",\"timeout\":86400000,\"persistent\":false,\"resources\":{\"vcpus\":4},"
          "\"region\":\"iad1\",\"networkPolicy\":{\"mode\":\"deny-all\"},\"ports\":[],\"tags\":{" OURS "}" },
        { { "set.snapshot", "snap_1", "set.network", "*.example.com,b.org" },
          { NULL },
          false,
          NULL,
          "\"source\":{\"type\":\"snapshot\",\"snapshotId\":\"snap_1\"},"
          "\"networkPolicy\":{\"allow\":[\"*.example.com\",\"b.org\"]},\"ports\":[],\"tags\":{" OURS "}" },
        { { "set.network", "all", "set.team", "team_x", "set.project", "prj_x" },
          { "env.A=1=2", "tag.t=x y", "env.EMPTY=", NULL },
          false,
          NULL,
          "\"networkPolicy\":{\"mode\":\"allow-all\"},\"ports\":[],\"env\":{\"A\":\"1=2\",\"EMPTY\":\"\"},"
          "\"tags\":{\"t\":\"x y\"," OURS "}" },
        { { NULL }, { NULL }, true, NULL, "\"tags\":{" OURS "}" },
        { { "set.from", "base", "set.image", "inherited", "set.runtime", "inherited", "set.snapshot",
            "inherited", "set.timeout", "90s" },
          { "env.A=b", "tag.mine=2", NULL },
          true,
          "{\"agent-desktop\":\"of the source\",\"theirs\":\"1\",\"mine\":\"1\",\"made-by\":\"x\"}",
          "\"timeout\":90000,\"env\":{\"A\":\"b\"},\"tags\":{\"agent-desktop\":\"0123456789abcdef\","
          "\"theirs\":\"1\","
          "\"mine\":\"2\",\"made-by\":\"agent-desktop\"}" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *expected = mem_print("{\"name\":\"demo-01234567\",%s}", cases[i].body);
        AUTO_FREE char *printed = NULL;
        AUTO_JSON struct json *tags = NULL, *body = NULL;
        struct facts facts;
        struct error e = { 0 };

        read_facts(&facts, cases[i].given);
        if (cases[i].source_tags != NULL)
            assert_int_equal(json_parse(cases[i].source_tags, strlen(cases[i].source_tags), "tags",
                                        ERROR_INTERNAL, &tags, &e),
                             0);
        body = vercel_print_body(&facts, (char *const *)(uintptr_t)cases[i].unrecorded, cases[i].clone,
                                 "demo-01234567", "0123456789abcdef", tags);
        printed = json_print(body);
        assert_string_equal(printed, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_r503_options__words_of_the_service),
        cmocka_unit_test(test_r503_options__a_timeout_is_recorded_in_one_way),
        cmocka_unit_test(test_r503_options__network_is_a_word_or_hosts),
        cmocka_unit_test(test_r501_options__values_of_env_and_tag_are_not_told),
        cmocka_unit_test(test_options__a_tag_may_not_be_of_any_length),
        cmocka_unit_test(test_r503_create__fills_what_is_not_given),
        cmocka_unit_test(test_r503_create__refuses_what_does_not_go_together),
        cmocka_unit_test(test_r501_create__refuses_a_project_that_the_token_is_not_for),
        cmocka_unit_test(test_r503_create__looks_at_names_of_env_and_tag),
        cmocka_unit_test(test_r504_a_desktop_is_wanted_unless_a_runtime_is),
        cmocka_unit_test(test_r503_body__has_what_is_asked_for_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

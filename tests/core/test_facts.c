#include "core/facts.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"

static void test_facts__gives_back_what_was_set(void **state)
{
    struct facts f = { 0 };

    (void)state;
    assert_true(facts_set(&f, "user", "ada"));
    assert_true(facts_set_int(&f, "port", INT64_MIN));
    assert_true(facts_set(&f, "user", "bob"));
    assert_int_equal(f.count, 2);
    assert_string_equal(facts_get(&f, "user"), "bob");
    assert_true(facts_get_int(&f, "port", 0) == INT64_MIN);
    assert_null(facts_get(&f, "none"));
    assert_int_equal(facts_get_int(&f, "none", 7), 7);
    assert_int_equal(facts_get_int(&f, "user", 7), 7); /* no number */
}

static void test_facts__refuses_what_it_could_not_give_back(void **state)
{
    struct facts f = { 0 };
    char key[FACT_KEY_SIZE + 1] = "", value[FACT_VALUE_SIZE + 1] = "";

    (void)state;
    memset(key, 'k', FACT_KEY_SIZE);
    memset(value, 'v', FACT_VALUE_SIZE);
    assert_false(facts_set(&f, key, "x"));
    assert_false(facts_set(&f, "k", value));
    assert_false(facts_set(&f, "", "x"));
    assert_int_equal(f.count, 0);
    key[FACT_KEY_SIZE - 1] = '\0';
    value[FACT_VALUE_SIZE - 1] = '\0';
    assert_true(facts_set(&f, key, value));
    assert_string_equal(facts_get(&f, key), value);
}

static void fill(struct facts *f)
{
    for (int i = 0; i < FACTS_MAX; i++) {
        char key[FACT_KEY_SIZE];

        snprintf(key, sizeof(key), "k%d", i);
        assert_true(facts_set(f, key, "v"));
    }
}

static void test_facts__is_full_after_so_many(void **state)
{
    struct facts f = { 0 };

    (void)state;
    fill(&f);
    assert_false(facts_set(&f, "one-more", "v"));
    assert_true(facts_set(&f, "k0", "changed"));
}

static void test_facts__merges_all_or_nothing(void **state)
{
    struct facts f = { 0 }, change = { 0 };

    (void)state;
    fill(&f);
    facts_set(&change, "k1", "changed");
    facts_set(&change, "new", "v");
    assert_false(facts_merge(&f, &change));
    assert_string_equal(facts_get(&f, "k1"), "v");
    facts_set(&change, "k5", ""); /* makes room, although it is named last */
    assert_true(facts_merge(&f, &change));
    assert_null(facts_get(&f, "k5"));
    assert_string_equal(facts_get(&f, "k1"), "changed");
    assert_string_equal(facts_get(&f, "new"), "v");
    assert_string_equal(f.items[5].key, "k6"); /* the order stays */
}

static void test_facts__leaves_no_bytes_of_an_older_value(void **state)
{
    struct facts f = { 0 };

    (void)state;
    facts_set(&f, "k", "longer than the next");
    facts_set(&f, "k", "s");
    for (size_t i = 1; i < FACT_VALUE_SIZE; i++)
        assert_int_equal(f.items[0].value[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts__gives_back_what_was_set),
        cmocka_unit_test(test_facts__refuses_what_it_could_not_give_back),
        cmocka_unit_test(test_facts__is_full_after_so_many),
        cmocka_unit_test(test_facts__merges_all_or_nothing),
        cmocka_unit_test(test_facts__leaves_no_bytes_of_an_older_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

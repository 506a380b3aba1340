#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"
#include "tools/desktop/ref.h"

static void test_ref__is_read_back_as_it_was_written(void **state)
{
    static const struct ref refs[] = { { "01234567", 1 }, { "89abcdef", 42 }, { "00000000", 999999 } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refs); i++) {
        struct error e = { 0 };
        char text[REF_SIZE];
        struct ref back;

        ref_format(&refs[i], text);
        assert_int_equal(ref_parse(text, &back, &e), 0);
        assert_string_equal(back.snapshot, refs[i].snapshot);
        assert_int_equal(back.number, refs[i].number);
    }
}

static void test_ref__of_another_form_is_invalid(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "", "empty" },
        { "@", "nothing behind the sign" },
        { "e5", "not qualified" },
        { "@e5", "not qualified" },
        { "01234567:e5", "no sign" },
        { "@0123456:e5", "a short id" },
        { "@012345678:e5", "a long id" },
        { "@0123456G:e5", "not a hex digit" },
        { "@0123456A:e5", "an upper case digit" },
        { "@../../..:e5", "a path" },
        { "@01234567e5", "no colon" },
        { "@01234567:5", "no letter" },
        { "@01234567:e", "no number" },
        { "@01234567:e0", "numbers are from 1" },
        { "@01234567:e05", "a leading zero would be a second name" },
        { "@01234567:e-1", "a sign" },
        { "@01234567:e5x", "something behind" },
        { "@01234567:e5 ", "a blank behind" },
        { "@01234567:e1000000", "more than any snapshot has" },
        { "@01234567:e99999999999999999999999999", "more than a number holds" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ref untouched = { "unchang", 7 };
        struct error e = { 0 };

        if (ref_parse(cases[i].text, &untouched, &e) == 0)
            fail_msg("'%s' was accepted: %s", cases[i].text, cases[i].why);
        assert_int_equal(e.code, ERROR_INVALID_ARGS);
        assert_string_equal(untouched.snapshot, "unchang");
        assert_int_equal(untouched.number, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref__is_read_back_as_it_was_written),
        cmocka_unit_test(test_ref__of_another_form_is_invalid),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

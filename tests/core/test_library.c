#include "core/library.h"

#include <math.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"

struct math {
    __typeof__(hypot) *hypot;
    __typeof__(fmod) *fmod;
};

static void test_library__fills_the_table(void **state)
{
    static const struct library_symbol symbols[] = { LIBRARY_SYMBOL(math, hypot),
                                                     LIBRARY_SYMBOL(math, fmod) };
    struct math m = { 0 };
    struct error e = { 0 };

    (void)state;
    assert_int_equal(library_open("libm.so.6", "libc6", symbols, ARRAY_LEN(symbols), &m, &e), 0);
    assert_true(m.hypot(3, 4) == 5);
    assert_true(m.fmod(7, 4) == 3);
}

static void test_library__names_the_package_of_what_is_missing(void **state)
{
    static const struct library_symbol wrong[] = { { "hypot", offsetof(struct math, hypot), NULL },
                                                   { "hypothesise", offsetof(struct math, fmod), NULL } };
    struct math m = { 0 };
    struct error e = { 0 };

    (void)state;
    assert_int_equal(library_open("libnowhere.so.7", "libnowhere7", wrong, 2, &m, &e), -1);
    assert_int_equal(e.code, ERROR_PLATFORM_NOT_SUPPORTED);
    assert_non_null(strstr(e.message, "libnowhere.so.7"));
    assert_non_null(strstr(e.message, "package libnowhere7"));
    e = (struct error){ 0 };
    assert_int_equal(library_open("libm.so.6", "libc6", wrong, 2, &m, &e), -1);
    assert_int_equal(e.code, ERROR_PLATFORM_NOT_SUPPORTED);
    assert_non_null(strstr(e.message, "hypothesise"));
    assert_non_null(strstr(e.message, "package libc6"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library__fills_the_table),
        cmocka_unit_test(test_library__names_the_package_of_what_is_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

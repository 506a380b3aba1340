#include "core/error.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/text.h"

static void test_error__every_code_has_a_name_a_meaning_and_a_disposition(void **state)
{
    (void)state;
    for (int code = 0; code < ERROR_CODE_COUNT; code++) {
        const struct error e = { .code = (enum error_code)code };

        assert_non_null(error_code_name(e.code));
        assert_non_null(error_code_meaning(e.code));
        assert_non_null(error_delivery_name(&e));
        assert_non_null(error_retry_name(&e));
        for (int other = 0; other < code; other++)
            assert_string_not_equal(error_code_name(e.code), error_code_name((enum error_code)other));
    }
}

/* retry safe only if repeating cannot do harm. By default that is so when nothing was done. */
static void test_error__only_what_was_not_delivered_is_safe_by_default(void **state)
{
    (void)state;
    for (int code = 1; code < ERROR_CODE_COUNT; code++) {
        const struct error e = { .code = (enum error_code)code };

        if (strcmp(error_retry_name(&e), "safe") == 0)
            assert_string_equal(error_delivery_name(&e), "not_delivered");
    }
}

static void test_error__the_first_cause_wins(void **state)
{
    struct error e = { 0 };

    (void)state;
    assert_int_equal(error_set(&e, ERROR_STORE_BUSY, 0, "first"), -1);
    assert_int_equal(error_set(&e, ERROR_INTERNAL, EIO, "second"), -1);
    assert_int_equal(e.code, ERROR_STORE_BUSY);
    assert_int_equal(e.sys, 0);
    assert_string_equal(e.message, "first");
}

static void test_error__says_why_the_system_refused(void **state)
{
    struct error e = { 0 }, foreign = { 0 };

    (void)state;
    error_set(&e, ERROR_INTERNAL, ENOENT, "cannot open '%s'", "x");
    assert_string_equal(e.message, "cannot open 'x': No such file or directory");
    assert_int_equal(e.sys, ENOENT);
    error_set(&foreign, ERROR_INTERNAL, -30798, "the store says no"); /* MDB_NOTFOUND */
    assert_string_equal(foreign.message, "the store says no");
    assert_int_equal(foreign.sys, -30798);
}

static void test_error__chooses_the_code_by_errno(void **state)
{
    static const struct {
        int sys;
        enum error_code code;
    } cases[] = {
        { ENOSPC, ERROR_STORE_FULL },    { EDQUOT, ERROR_STORE_FULL },    { EACCES, ERROR_PERM_DENIED },
        { EPERM, ERROR_PERM_DENIED },    { EROFS, ERROR_PERM_DENIED },    { EIO, ERROR_ACTION_FAILED },
        { ENOENT, ERROR_ACTION_FAILED }, { 0, ERROR_ACTION_FAILED },      { EFBIG, ERROR_STORE_FULL },
        { EMFILE, ERROR_LIMIT_REACHED }, { ENFILE, ERROR_LIMIT_REACHED },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = { 0 };

        assert_int_equal(error_set_errno(&e, ERROR_ACTION_FAILED, cases[i].sys, "x"), -1);
        assert_int_equal(e.code, cases[i].code);
    }
}

/* Of the process's own limits, which no freed space and no removed sandbox would help. */
static void test_error__a_limit_says_how_it_is_raised(void **state)
{
    static const struct {
        int sys;
        const char *word;
    } cases[] = {
        { EFBIG, "ulimit -f" }, { EMFILE, "ulimit -n" }, { ENFILE, "fs.file-max" }, { ENOSPC, "disk space" }
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = { 0 }, first = { 0 };

        error_set_errno(&e, ERROR_INTERNAL, cases[i].sys, "x");
        assert_non_null(strstr(error_suggestion(&e), cases[i].word));
        error_set(&first, ERROR_SANDBOX_EXISTS, 0, "x");
        error_set_errno(&first, ERROR_INTERNAL, cases[i].sys, "y");
        assert_null(first.suggestion); /* the first cause wins, whole */
    }
}

static void test_error__cuts_the_words_and_keeps_the_cause(void **state)
{
    struct error e = { 0 };
    char path[2000];

    (void)state;
    memset(path, 'p', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    error_set(&e, ERROR_STORE_FULL, ENOSPC, "cannot write '%s'", path);
    assert_int_equal(strlen(e.message), sizeof(e.message) - 1);
    assert_non_null(strstr(e.message, ": No space left on device"));
}

static void test_error__messages_are_one_line_of_utf8(void **state)
{
    struct error e = { 0 }, cut = { 0 };
    char wide[1200];

    (void)state;
    error_set(&e, ERROR_INVALID_ARGS, 0, "bad name '%s'", "a\xFF\n\x1B[31m");
    assert_string_equal(e.message, "bad name 'a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD[31m'");

    for (size_t i = 0; i + 2 < sizeof(wide); i += 2)
        memcpy(wide + i, "\xC3\xA9", 3); /* cut inside a character, both times */
    error_set(&cut, ERROR_INVALID_ARGS, 0, "x%s", wide);
    assert_true(text_is_utf8(cut.message, strlen(cut.message)));
    assert_null(strstr(cut.message, "\xEF\xBF\xBD"));
}

static void test_error__what_the_origin_knows_better_overrides_the_row(void **state)
{
    struct error e = { 0 };

    (void)state;
    error_set(&e, ERROR_TIMEOUT, 0, "x");
    assert_string_equal(error_delivery_name(&e), "delivered_unverified");
    assert_string_equal(error_retry_name(&e), "unsafe");
    assert_non_null(error_suggestion(&e));
    e.delivery = DELIVERY_NOT_DELIVERED;
    e.retry = RETRY_SAFE;
    e.suggestion = "wait";
    assert_string_equal(error_delivery_name(&e), "not_delivered");
    assert_string_equal(error_retry_name(&e), "safe");
    assert_string_equal(error_suggestion(&e), "wait");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error__every_code_has_a_name_a_meaning_and_a_disposition),
        cmocka_unit_test(test_error__only_what_was_not_delivered_is_safe_by_default),
        cmocka_unit_test(test_error__the_first_cause_wins),
        cmocka_unit_test(test_error__says_why_the_system_refused),
        cmocka_unit_test(test_error__chooses_the_code_by_errno),
        cmocka_unit_test(test_error__a_limit_says_how_it_is_raised),
        cmocka_unit_test(test_error__cuts_the_words_and_keeps_the_cause),
        cmocka_unit_test(test_error__messages_are_one_line_of_utf8),
        cmocka_unit_test(test_error__what_the_origin_knows_better_overrides_the_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

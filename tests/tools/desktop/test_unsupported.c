/* What the desktop commands answer on a system without a desktop of its own kind and without the helper: the
 * source files of such a build, compiled for this one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/util.h"
#include "tools/desktop/desktop.h"
#include "tools/desktop/helper.h"

static void check_refused(int result, const struct error *e, const char *word)
{
    assert_int_equal(result, -1);
    assert_int_equal(e->code, ERROR_PLATFORM_NOT_SUPPORTED);
    assert_string_equal(error_delivery_name(e), "not_delivered");
    assert_string_equal(error_retry_name(e), "safe");
    if (strstr(e->message, word) == NULL)
        fail_msg("'%s' does not name '%s'", e->message, word);
}

static void test_unsupported__launch_and_snapshot_name_the_missing_helper(void **state)
{
    struct json *data = NULL;
    struct error launch = { 0 }, snapshot = { 0 };

    (void)state;
    check_refused(desktop_launch(&(struct desktop_launch){ .app = "Finder" }, &data, &launch), &launch,
                  HELPER_NAME);
    check_refused(desktop_snapshot(&(struct desktop_snapshot){ .app = "Finder" }, &data, &snapshot),
                  &snapshot, HELPER_NAME);
    assert_non_null(strstr(error_suggestion(&launch), "guest-setup.sh"));
    assert_null(data);
}

static void test_unsupported__the_other_commands_name_the_system_they_need(void **state)
{
    struct json *data = NULL;
    struct error click = { 0 }, type = { 0 }, screenshot = { 0 };

    (void)state;
    check_refused(desktop_click(&(struct desktop_click){ "@01234567:e1" }, &data, &click), &click, "Linux");
    check_refused(desktop_type(&(struct desktop_type){ "@01234567:e1", "s3cret" }, &data, &type), &type,
                  "Linux");
    assert_null(strstr(type.message, "s3cret"));
    check_refused(desktop_screenshot(&(struct desktop_screenshot){ "x.png" }, &data, &screenshot),
                  &screenshot, "Linux");
    assert_null(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unsupported__launch_and_snapshot_name_the_missing_helper),
        cmocka_unit_test(test_unsupported__the_other_commands_name_the_system_they_need),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

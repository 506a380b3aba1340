/* The desktop commands where there is no desktop. */
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/json.h"
#include "core/util.h"
#include "tools/desktop/desktop.h"

static int leave_desktop(void **state)
{
    static const char *const variables[] = { "DISPLAY", "AT_SPI_BUS_ADDRESS", "DBUS_SESSION_BUS_ADDRESS",
                                             "XDG_RUNTIME_DIR" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        unsetenv(variables[i]);
    setenv("AGENT_DESKTOP_HOME", "/proc/none/root", 1);
    return 0;
}

static int find_desktop_library(struct dl_phdr_info *info, size_t size, void *self)
{
    static const char *const names[] = { "libatspi", "libdbus", "libglib", "libxcb", "libpng", "libcairo" };

    (void)size;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strstr(info->dlpi_name, names[i]) != NULL)
            *(const char **)self = names[i];
    return 0;
}

static void test_desktop__maps_no_library_before_it_is_used(void **state)
{
    const char *found = NULL;

    (void)state;
    dl_iterate_phdr(find_desktop_library, &found);
    assert_null(found);
}

static void check_refused(int result, const struct error *e, enum error_code code, const char *word)
{
    assert_int_equal(result, -1);
    assert_int_equal(e->code, code);
    assert_string_equal(error_delivery_name(e), "not_delivered");
    assert_string_equal(error_retry_name(e), "safe");
    if (strstr(e->message, word) == NULL)
        fail_msg("'%s' does not name '%s'", e->message, word);
}

static void test_desktop__names_the_missing_display(void **state)
{
    struct json *data = NULL;
    struct error launch = { 0 }, screenshot = { 0 };

    (void)state;
    check_refused(desktop_launch(&(struct desktop_launch){ .app = "true" }, &data, &launch), &launch,
                  ERROR_PLATFORM_NOT_SUPPORTED, "DISPLAY");
    check_refused(desktop_screenshot(&(struct desktop_screenshot){ "/tmp/x.png" }, &data, &screenshot),
                  &screenshot, ERROR_PLATFORM_NOT_SUPPORTED, "DISPLAY");
    assert_null(data);
}

static void test_desktop__names_the_display_that_does_not_answer(void **state)
{
    struct json *data = NULL;
    struct error e = { 0 };

    (void)state;
    setenv("DISPLAY", ":29999", 1);
    check_refused(desktop_launch(&(struct desktop_launch){ .app = "true" }, &data, &e), &e,
                  ERROR_PLATFORM_NOT_SUPPORTED, ":29999");
    unsetenv("DISPLAY");
}

static void test_desktop__names_the_missing_bus(void **state)
{
    struct json *data = NULL;
    struct error e = { 0 };

    (void)state;
    check_refused(desktop_snapshot(&(struct desktop_snapshot){ .app = "x" }, &data, &e), &e,
                  ERROR_PLATFORM_NOT_SUPPORTED, "AT_SPI_BUS_ADDRESS");
}

static void test_desktop__says_when_the_bus_does_not_answer(void **state)
{
    struct json *data = NULL;
    struct error e = { 0 };

    (void)state;
    setenv("AT_SPI_BUS_ADDRESS", "unix:path=/proc/none/bus", 1);
    check_refused(desktop_snapshot(&(struct desktop_snapshot){ .app = "x" }, &data, &e), &e,
                  ERROR_PLATFORM_NOT_SUPPORTED, "does not answer");
    unsetenv("AT_SPI_BUS_ADDRESS");
}

static void test_desktop__ref_of_no_snapshot_is_stale(void **state) /* */
{
    struct json *data = NULL;
    struct error click = { 0 }, type = { 0 };

    (void)state;
    check_refused(desktop_click(&(struct desktop_click){ "@01234567:e1" }, &data, &click), &click,
                  ERROR_STALE_REF, "@01234567:e1");
    check_refused(desktop_type(&(struct desktop_type){ "@01234567:e1", "s3cret" }, &data, &type), &type,
                  ERROR_STALE_REF, "@01234567:e1");
    assert_null(strstr(type.message, "s3cret"));
}

static void test_desktop__malformed_arguments_are_invalid(void **state)
{
    static const char *const files[] = { "", "/", "/tmp/", "/proc/none/a.png", "/dev/null" };
    struct json *data = NULL;
    struct error click = { 0 }, type = { 0 };

    (void)state;
    check_refused(desktop_click(&(struct desktop_click){ "e1" }, &data, &click), &click, ERROR_INVALID_ARGS,
                  "e1");
    check_refused(desktop_type(&(struct desktop_type){ "@01234567:e1", "s3cret\xff" }, &data, &type), &type,
                  ERROR_INVALID_ARGS, "UTF-8");
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct error e = { 0 };

        check_refused(desktop_screenshot(&(struct desktop_screenshot){ files[i] }, &data, &e), &e,
                      ERROR_INVALID_ARGS, files[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_desktop__maps_no_library_before_it_is_used),
        cmocka_unit_test(test_desktop__names_the_missing_display),
        cmocka_unit_test(test_desktop__names_the_display_that_does_not_answer),
        cmocka_unit_test(test_desktop__names_the_missing_bus),
        cmocka_unit_test(test_desktop__says_when_the_bus_does_not_answer),
        cmocka_unit_test(test_desktop__ref_of_no_snapshot_is_stale),
        cmocka_unit_test(test_desktop__malformed_arguments_are_invalid),
    };

    return cmocka_run_group_tests(tests, leave_desktop, NULL);
}

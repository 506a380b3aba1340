#include "core/util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/mem.h"

static void test_util__gives_a_pointer_away_once(void **state)
{
    char *text = mem_copy_text("x");
    char *kept = text;
    AUTO_FREE char *taken = steal(&text);

    (void)state;
    assert_null(text);
    assert_ptr_equal(taken, kept);
}

static int open_and_fail(int *seen)
{
    AUTO_CLOSE int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    *seen = fd;
    errno = EXDEV;
    return -1;
}

static void test_util__closes_at_the_end_of_the_scope_and_keeps_errno(void **state)
{
    int seen = -1;

    (void)state;
    assert_int_equal(open_and_fail(&seen), -1);
    assert_int_equal(errno, EXDEV);
    assert_true(seen >= 0);
    assert_int_equal(fcntl(seen, F_GETFD), -1);
}

static void test_util__gives_a_descriptor_away_once(void **state)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int kept = fd;
    AUTO_CLOSE int taken = steal_fd(&fd);

    (void)state;
    assert_int_equal(fd, -1);
    assert_int_equal(taken, kept);
}

static void test_util__wipes_so_many_bytes(void **state)
{
    char secret[] = "hunter2";

    (void)state;
    util_wipe(secret, 6);
    assert_memory_equal(secret,
                        "\0\0\0\0\0\0"
                        "2",
                        sizeof(secret));
    util_wipe(secret, 0);
    assert_int_equal(secret[6], '2');
}

static void test_util__wipes_a_text_and_leaves_nothing(void **state)
{
    AUTO_WIPE char *none = NULL;
    char *secret = mem_copy_text("hunter2");

    (void)state;
    util_wipe_text(&secret);
    assert_null(secret);
}

static void test_util__makes_ids_of_16_hex_digits_that_differ(void **state)
{
    char a[17], b[17];

    (void)state;
    util_random_id(a);
    util_random_id(b);
    assert_int_equal(strspn(a, "0123456789abcdef"), 16);
    assert_int_equal(strlen(a), 16);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_util__gives_a_pointer_away_once),
        cmocka_unit_test(test_util__closes_at_the_end_of_the_scope_and_keeps_errno),
        cmocka_unit_test(test_util__gives_a_descriptor_away_once),
        cmocka_unit_test(test_util__wipes_so_many_bytes),
        cmocka_unit_test(test_util__wipes_a_text_and_leaves_nothing),
        cmocka_unit_test(test_util__makes_ids_of_16_hex_digits_that_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

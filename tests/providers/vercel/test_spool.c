#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "providers/vercel/spool.h"
#include "tests/core/scratch.h"

static void test_spool__gives_back_what_was_added_in_order(void **state)
{
    struct spool *s = spool_open();
    char bytes[8] = "";

    (void)state;
    assert_non_null(s);
    assert_int_equal(spool_size(NULL), 0);
    assert_int_equal(spool_take(s, bytes, sizeof(bytes)), 0);
    for (int round = 0; round < 3; round++) { /* emptied, it begins anew */
        assert_int_equal(spool_add(s, "abc", 3), 3);
        assert_int_equal(spool_add(s, "de", 2), 2);
        assert_int_equal(spool_size(s), 5);
        assert_int_equal(spool_take(s, bytes, 4), 4);
        assert_memory_equal(bytes, "abcd", 4);
        assert_int_equal(spool_add(s, "f", 1), 1);
        assert_int_equal(spool_take(s, bytes, sizeof(bytes)), 2);
        assert_memory_equal(bytes, "ef", 2);
        assert_int_equal(spool_size(s), 0);
    }
    spool_close(s);
    spool_close(NULL);
}

static void test_spool__has_a_limit_and_room_again_when_it_is_emptied(void **state)
{
    enum { PART = 1 << 20 };
    static char part[PART];
    struct spool *s = spool_open();
    size_t all = 0, n;

    (void)state;
    assert_non_null(s);
    while ((n = spool_add(s, part, PART)) > 0)
        all += n;
    assert_int_equal(all, SPOOL_MAX);
    assert_false(spool_has_room(s));
    for (long taken = 1; taken > 0; all -= (size_t)taken)
        taken = spool_take(s, part, PART);
    assert_int_equal(all, 0);
    assert_true(spool_has_room(s));
    assert_int_equal(spool_add(s, part, PART), PART);
    spool_close(s);
}

/* In a child: a file may be no longer than three bytes. */
static int fill_small_disk(void *arg)
{
    const struct rlimit small = { 3, 3 };
    struct spool *s = spool_open();
    char bytes[8];

    (void)arg;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(s != NULL && setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK(spool_add(s, "abcdef", 6) == 3);
    CHECK(spool_add(s, "def", 3) == 0 && !spool_has_room(s));
    CHECK(spool_take(s, bytes, sizeof(bytes)) == 3 && memcmp(bytes, "abc", 3) == 0);
    spool_close(s);
    return 0;
}

static void test_spool__a_disk_that_is_full_takes_nothing_more(void **state)
{
    (void)state;
    assert_int_equal(scratch_run(fill_small_disk, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spool__gives_back_what_was_added_in_order),
        cmocka_unit_test(test_spool__has_a_limit_and_room_again_when_it_is_emptied),
        cmocka_unit_test(test_spool__a_disk_that_is_full_takes_nothing_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

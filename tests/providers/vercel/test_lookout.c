#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <unistd.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/util.h"
#include "providers/vercel/lookout.h"

#define LONG_MS 5000 /* only a test that has failed waits so long */

/* All news that comes until WANTED has come. */
static unsigned take_until(struct lookout *l, unsigned wanted)
{
    int64_t end_ms = clock_mono_ms() + LONG_MS;
    unsigned news = 0;

    while ((news & wanted) != wanted && clock_mono_ms() < end_ms) {
        lookout_wait(l, LONG_MS);
        news |= lookout_take(l);
    }
    return news;
}

static void test_r213_lookout__tells_of_signals_each_time(void **state)
{
    struct lookout *l = NULL;
    struct error e = { 0 };
    int ends[2];

    (void)state;
    assert_int_equal(descriptor_pipe(ends, true), 0);
    assert_int_equal(lookout_open(ends[0], -1, &l, &e), 0);
    assert_false(lookout_wait(l, 0));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write(ends[1], "x", 1), 1);
        assert_int_equal(take_until(l, LOOKOUT_SIGNAL), LOOKOUT_SIGNAL);
    }
    lookout_close(l);
    util_close_fd(&ends[0]);
    util_close_fd(&ends[1]);
}

static void test_r504_lookout__tells_of_input_once_and_leaves_it(void **state)
{
    struct lookout *l = NULL;
    struct error e = { 0 };
    char bytes[8];
    int ends[2];

    (void)state;
    assert_int_equal(descriptor_pipe(ends, false), 0);
    assert_int_equal(lookout_open(-1, ends[0], &l, &e), 0);
    assert_int_equal(write(ends[1], "abc", 3), 3);
    assert_int_equal(take_until(l, LOOKOUT_INPUT), LOOKOUT_INPUT);
    assert_int_equal(write(ends[1], "def", 3), 3);
    assert_false(lookout_wait(l, 20));
    lookout_close(l);
    assert_int_equal(read(ends[0], bytes, sizeof(bytes)), 6);
    util_close_fd(&ends[0]);
    util_close_fd(&ends[1]);
}

static void test_r504_lookout__an_input_that_ends_is_no_news(void **state)
{
    struct lookout *l = NULL;
    struct error e = { 0 };
    int ends[2];

    (void)state;
    assert_int_equal(descriptor_pipe(ends, false), 0);
    assert_int_equal(lookout_open(-1, ends[0], &l, &e), 0);
    util_close_fd(&ends[1]);
    assert_false(lookout_wait(l, 20));
    lookout_close(l);
    util_close_fd(&ends[0]);
}

static void test_r504_lookout__keeps_time(void **state)
{
    struct lookout *l = NULL;
    struct error e = { 0 };
    int64_t begun_ms;

    (void)state;
    assert_int_equal(lookout_open(-1, -1, &l, &e), 0);
    begun_ms = clock_mono_ms();
    lookout_set_alarm(l, begun_ms + LONG_MS);
    lookout_set_alarm(l, begun_ms + 30); /* instead */
    assert_true(lookout_wait(l, LONG_MS));
    assert_true(clock_mono_ms() >= begun_ms + 30);
    assert_int_equal(lookout_take(l), 0);
    assert_false(lookout_wait(l, 10)); /* once */
    lookout_set_alarm(l, begun_ms);
    assert_true(lookout_wait(l, LONG_MS));
    lookout_set_alarm(l, clock_mono_ms() + LONG_MS);
    lookout_set_alarm(l, 0);
    (void)lookout_take(l);
    assert_false(lookout_wait(l, 10));
    lookout_close(l);
    lookout_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_r213_lookout__tells_of_signals_each_time),
        cmocka_unit_test(test_r504_lookout__tells_of_input_once_and_leaves_it),
        cmocka_unit_test(test_r504_lookout__an_input_that_ends_is_no_news),
        cmocka_unit_test(test_r504_lookout__keeps_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

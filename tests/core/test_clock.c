#include "core/clock.h"

#include <signal.h>
#include <sys/time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static volatile sig_atomic_t ticks;

static void on_tick(int number)
{
    (void)number;
    ticks++;
}

static void test_clock__sleeps_the_whole_time_whatever_signals_arrive(void **state)
{
    struct sigaction action = { .sa_handler = on_tick }; /* without SA_RESTART */
    const struct itimerval every_5_ms = { { 0, 5000 }, { 0, 5000 } };
    const struct itimerval never = { 0 };
    int64_t begin;

    (void)state;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every_5_ms, NULL);
    begin = clock_mono_ms();
    clock_sleep_ms(80);
    assert_true(clock_mono_ms() - begin >= 79); /* two cut-off readings may hide one */
    setitimer(ITIMER_REAL, &never, NULL);
    assert_true(ticks > 0);
}

static void test_clock__does_not_sleep_for_nothing(void **state)
{
    (void)state;
    clock_sleep_ms(0);
    clock_sleep_ms(-5);
}

static void test_clock__counts_milliseconds(void **state)
{
    int64_t mono = clock_mono_ms(), boot = clock_boot_ms();

    (void)state;
    assert_true(clock_wall_ms() > INT64_C(1700000000000)); /* after 2023, before 2100 */
    assert_true(clock_wall_ms() < INT64_C(4102444800000));
    assert_true(boot > 0 && mono > 0);
    clock_sleep_ms(20);
    assert_in_range(clock_mono_ms() - mono, 19, 10000);
    assert_in_range(clock_boot_ms() - boot, 19, 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock__sleeps_the_whole_time_whatever_signals_arrive),
        cmocka_unit_test(test_clock__does_not_sleep_for_nothing),
        cmocka_unit_test(test_clock__counts_milliseconds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

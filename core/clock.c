#include "core/clock.h"

#include <errno.h>
#include <time.h>

#define MS_PER_S  1000
#define NS_PER_MS 1000000
#define NS_PER_S  1000000000

static int64_t read_ms(clockid_t clock)
{
    struct timespec now = { 0 };

    clock_gettime(clock, &now); /* fails only for a clock that the kernel does not have */
    return (int64_t)now.tv_sec * MS_PER_S + now.tv_nsec / NS_PER_MS;
}

int64_t clock_wall_ms(void)
{
    return read_ms(CLOCK_REALTIME);
}

int64_t clock_mono_ms(void)
{
    return read_ms(CLOCK_MONOTONIC);
}

int64_t clock_boot_ms(void)
{
    return read_ms(CLOCK_BOOTTIME);
}

void clock_sleep_ms(int ms)
{
    struct timespec end;
    int result;

    if (ms <= 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += ms / MS_PER_S;
    end.tv_nsec += (long)(ms % MS_PER_S) * NS_PER_MS;
    if (end.tv_nsec >= NS_PER_S) {
        end.tv_sec++;
        end.tv_nsec -= NS_PER_S;
    }
    /* An absolute end: signals, however many, do not add up to a longer sleep. */
    do
        result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
    while (result == EINTR);
}

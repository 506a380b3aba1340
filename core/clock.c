#include "core/clock.h"

#include <time.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S  INT64_C(1000000000)

#ifdef __APPLE__ /* clock_gettime(3): CLOCK_MONOTONIC goes on during sleep there, and is adjusted */
#define CLOCK_AWAKE      CLOCK_UPTIME_RAW
#define CLOCK_SINCE_BOOT CLOCK_MONOTONIC_RAW
#else
#define CLOCK_AWAKE      CLOCK_MONOTONIC
#define CLOCK_SINCE_BOOT CLOCK_BOOTTIME
#endif

static int64_t read_ns(clockid_t clock)
{
    struct timespec now = { 0 };

    clock_gettime(clock, &now); /* fails only for a clock that the kernel does not have */
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t clock_wall_ms(void)
{
    return read_ns(CLOCK_REALTIME) / NS_PER_MS;
}

int64_t clock_mono_ms(void)
{
    return read_ns(CLOCK_AWAKE) / NS_PER_MS;
}

int64_t clock_boot_ms(void)
{
    return read_ns(CLOCK_SINCE_BOOT) / NS_PER_MS;
}

void clock_sleep_ms(int ms)
{
    int64_t end = read_ns(CLOCK_AWAKE) + ms * NS_PER_MS;

    /* Until a point in time: signals, however many, do not add up to a longer sleep. */
    for (int64_t left = ms * NS_PER_MS; left > 0; left = end - read_ns(CLOCK_AWAKE))
        nanosleep(&(struct timespec){ .tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S }, NULL);
}

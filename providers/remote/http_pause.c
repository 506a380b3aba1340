#include "providers/remote/http_pause.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/text.h"
#include "core/util.h"
#include "providers/remote/http_exchange.h"

#define FIRST_MS   250
#define LONGEST_MS 8000
#define DAY_S      86400

bool http_pause_helps(int status)
{
    return status == 408 || status == 425 || status == 429 || status / 100 == 5;
}

static int64_t bound_s(int64_t s)
{
    if (s < 0)
        return 0;
    return s < DAY_S ? s : DAY_S;
}

static int64_t seconds_until(const struct http *h, const char *date)
{
    int64_t then = http_exchange_parse_date(h, date);
    const char *now_there = http_header(h, "Date");
    int64_t now = now_there == NULL ? -1 : http_exchange_parse_date(h, now_there);

    if (then < 0) /* no date: as if it were not there */
        return 0;
    return then - (now >= 0 ? now : clock_wall_ms() / 1000);
}

static int64_t retry_after_ms(const struct http *h)
{
    const char *value = http_header(h, "Retry-After");

    if (value == NULL)
        return 0;
    if (value[0] != '\0' && strspn(value, "0123456789") == strlen(value))
        return bound_s(strlen(value) < 6 ? strtol(value, NULL, 10) : DAY_S) * 1000;
    return bound_s(seconds_until(h, value)) * 1000;
}

/* In [ms, 2 ms). */
static int64_t scatter(int64_t ms)
{
    char id[17];

    util_random_id(id);
    id[4] = '\0';
    return ms + ms * strtol(id, NULL, 16) / 65536;
}

static int64_t back_off_ms(int tries)
{
    int64_t ms = FIRST_MS;

    for (int i = 1; i < tries && ms < LONGEST_MS; i++)
        ms *= 2;
    return scatter(ms);
}

int64_t http_pause_ms(const struct http *h, const struct http_answer *a, int tries)
{
    int64_t own = back_off_ms(tries);
    int64_t told = a->status != 0 ? retry_after_ms(h) : 0;

    return told > own ? told : own;
}

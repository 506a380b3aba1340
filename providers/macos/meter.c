#include "providers/macos/meter.h"

#include <stdio.h>

#include "core/clock.h"
#include "core/util.h"

#define PAUSE_MS 250

void meter_begin(struct meter *m, int sandbox_dir, const char *what)
{
    m->dir = sandbox_dir;
    m->shown = (struct progress){ .done_bytes = -1, .total_bytes = -1, .percent = -1 };
    m->next_ms = 0;
    snprintf(m->shown.what, sizeof(m->shown.what), "%s", what);
    progress_write(m->dir, &m->shown);
}

void meter_set_bytes(struct meter *m, int64_t done, int64_t total)
{
    m->shown.done_bytes = done;
    m->shown.total_bytes = total;
    if (done != total && clock_mono_ms() < m->next_ms)
        return;
    m->next_ms = clock_mono_ms() + PAUSE_MS;
    progress_write(m->dir, &m->shown);
}

void meter_set_percent(struct meter *m, int64_t percent)
{
    if (percent == m->shown.percent)
        return;
    m->shown.percent = percent;
    progress_write(m->dir, &m->shown);
}

void meter_print_size(char out[METER_SIZE], int64_t bytes)
{
    static const struct {
        double size;
        const char *name;
    } units[] = { { 1e9, "GB" }, { 1e6, "MB" }, { 1e3, "kB" } };

    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if ((double)bytes >= units[i].size) {
            snprintf(out, METER_SIZE, "%.1f %s", (double)bytes / units[i].size, units[i].name);
            return;
        }
    snprintf(out, METER_SIZE, "%lld bytes", (long long)bytes);
}

/* providers/macos/meter.h - progress.json (progress.h), written at most four times a second; and sizes in
 * words. */
#ifndef PROVIDERS_MACOS_METER_H
#define PROVIDERS_MACOS_METER_H

#include <stddef.h>
#include <stdint.h>

#include "providers/progress.h"

struct meter {
    int dir;         /* of the sandbox */
    int64_t next_ms; /* bytes: not before (mono) */
    struct progress shown;
};

#define METER_SIZE 24

/* What is being done from now on; shown at once, without numbers. */
void meter_begin(struct meter *m, int sandbox_dir, const char *what);
void meter_set_bytes(struct meter *m, int64_t done, int64_t total);
void meter_set_percent(struct meter *m, int64_t percent);

/* "18.3 GB", "40.0 MB", "512 bytes"; decimal units, as Apple's own. */
void meter_print_size(char out[METER_SIZE], int64_t bytes);

#endif

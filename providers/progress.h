/* providers/progress.h - how far a long operation is, in a small file that its worker replaces:
 * sandboxes/<name>/progress.json. Never the truth about a state; missing or damaged, it is not shown. */
#ifndef PROVIDERS_PROGRESS_H
#define PROVIDERS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/json.h"
#include "core/root.h"

struct progress {
    char what[128];     /* "Downloading macOS 26.1"; "" unknown */
    int64_t done_bytes; /* -1: unknown, as all the numbers */
    int64_t total_bytes;
    int64_t percent;
};

/* false when there is nothing to show. */
bool progress_read(const struct root *root, const char *name, struct progress *out);

/* Replaces the file in the sandbox's directory; not durable, and a failure is nobody's: it is only shown.
 * Callers write at most some times a second. */
void progress_write(int sandbox_dir, const struct progress *p);

void progress_remove(int sandbox_dir); /* the operation is over */

/* `done_bytes`, `total_bytes`, `percent`, `what`: what is known of them. */
struct json *progress_json(const struct progress *p);

#endif

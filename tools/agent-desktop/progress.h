/* tools/agent-desktop/progress.h - how far a long operation is, from the small file that its provider
 * replaces: sandboxes/<name>/progress.json. Never the truth about a state; missing or damaged, it is not
 * shown. */
#ifndef TOOLS_AGENT_DESKTOP_PROGRESS_H
#define TOOLS_AGENT_DESKTOP_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/json.h"
#include "core/root.h"
#include "core/text.h"

struct progress {
    char what[128];     /* "Downloading macOS 26.1"; "" unknown */
    int64_t done_bytes; /* -1: unknown, as all the numbers */
    int64_t total_bytes;
    int64_t percent;
};

/* false when there is nothing to show. */
bool progress_read(const struct root *root, const char *name, struct progress *out);

/* `done_bytes`, `total_bytes`, `percent`, `what`: what is known of them. */
struct json *progress_json(const struct progress *p);

/* Appends "Downloading macOS 26.1: 4.1 of 18.3 GB". */
void progress_print(const struct progress *p, struct text *out);

/* One line on a terminal (stderr) that is overwritten by the next one; on a dumb one and elsewhere nothing.
 */
void progress_show(const struct root *root, const char *name, const char *otherwise);
void progress_clear(void); /* the line, once there is nothing more to show */

#endif

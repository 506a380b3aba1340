/* tools/agent-desktop/progress.h - shows a person how far a long operation is. */
#ifndef TOOLS_AGENT_DESKTOP_PROGRESS_H
#define TOOLS_AGENT_DESKTOP_PROGRESS_H

#include "core/root.h"
#include "core/text.h"
#include "providers/progress.h"

/* Appends "Downloading macOS 26.1: 4.1 of 18.3 GB". */
void progress_print(const struct progress *p, struct text *out);

/* One line on a terminal (stderr) that is overwritten by the next one; on a dumb one and elsewhere nothing.
 */
void progress_show(const struct root *root, const char *name, const char *otherwise);
void progress_clear(void); /* the line, once there is nothing more to show */

#endif

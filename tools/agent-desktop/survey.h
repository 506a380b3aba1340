/* tools/agent-desktop/survey.h - many sandboxes looked at side by side, so that one that does not answer
 * costs its own time and not everybody's (design: "Looking"). */
#ifndef TOOLS_AGENT_DESKTOP_SURVEY_H
#define TOOLS_AGENT_DESKTOP_SURVEY_H

#include <stddef.h>

#include "tools/agent-desktop/context.h"
#include "tools/agent-desktop/sandbox.h"

/* Called for each, one at a time, with the sandbox as it was looked at. */
typedef void survey_fn(void *self, size_t index, const struct sandbox *s);

/* Looks at all NAMES within SURVEY_DEADLINE_MS. A sandbox that cannot be looked at is told as it is recorded,
 * with the reason as its message; one that is gone meanwhile is left out. C must be open for writing. */
#define SURVEY_DEADLINE_MS 2500
void survey(struct context *c, char *const *names, size_t count, survey_fn *fn, void *self);

#endif

/* tools/agent-desktop/survey.h - many sandboxes looked at side by side, so that one that does not answer
 * costs its own time and not everybody's (design: "Looking"). */
#ifndef TOOLS_AGENT_DESKTOP_SURVEY_H
#define TOOLS_AGENT_DESKTOP_SURVEY_H

#include <stddef.h>

#include "providers/provider.h"
#include "tools/agent-desktop/context.h"
#include "tools/agent-desktop/sandbox.h"

struct survey_subject {
    char *name;
    const struct provider_ops *ops;
};

/* Called for each, one at a time, with the sandbox as it was looked at. */
typedef void survey_fn(void *self, size_t index, const struct sandbox *s);

/* Looks at all SUBJECTS within SURVEY_DEADLINE_MS, at those of a provider that has views through one of them.
 * A sandbox that cannot be looked at is told as it is recorded, with the reason as its message; one that is
 * gone meanwhile is left out. C must be open for writing. */
#define SURVEY_DEADLINE_MS 2500
void survey(struct context *c, const struct survey_subject *subjects, size_t count, survey_fn *fn,
            void *self);

#endif

/* tools/agent-desktop/attempt.h - what exec and run share: one attempt to run a command inside (R-207,
 *
 *
 * No op lock: the first journal entry is written only if the sandbox still runs, and nothing is sent without
 * it; the second one says how it ended. */
#ifndef TOOLS_AGENT_DESKTOP_ATTEMPT_H
#define TOOLS_AGENT_DESKTOP_ATTEMPT_H

#include "tools/agent-desktop/args.h"
#include "tools/agent-desktop/reply.h"

/* ARGV: NULL-terminated. OWN_BINARY: it is the sandbox's agent-desktop that runs. */
int attempt_run(const struct args *args, bool own_binary, char *const *argv, struct reply *reply,
                struct error *e);

#endif

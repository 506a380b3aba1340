/* tools/agent-desktop/envelope.h - the one line of JSON that every command prints.
 * Described by specs/envelope.schema.json. */
#ifndef TOOLS_AGENT_DESKTOP_ENVELOPE_H
#define TOOLS_AGENT_DESKTOP_ENVELOPE_H

#include "core/error.h"
#include "tools/agent-desktop/reply.h"

#define ENVELOPE_VERSION "2.5"

/* The envelope of COMMAND ("sandbox start") with its newline; an error when E holds one. Takes the parts out
 * of REPLY. free() it. */
char *envelope_print(const char *command, struct reply *reply, const struct error *e);

/* 0; 2 for a command line that cannot be used as it is (INVALID_ARGS, whoever found out); 1 otherwise. */
int envelope_exit_status(const struct error *e);

#endif

/* tools/agent-desktop/recovery.h - the way out of an error about a sandbox, as far as its code tells it
 * . What else helps depends on the state: fsm/lifecycle.h. */
#ifndef TOOLS_AGENT_DESKTOP_RECOVERY_H
#define TOOLS_AGENT_DESKTOP_RECOVERY_H

#include <stdbool.h>

#include "core/error.h"
#include "fsm/lifecycle.h"

/* The command that helps, whatever the state is; NEXT_NONE. */
enum fsm_next_command recovery_find_command(enum error_code code);

/* Would the same command meet the same obstacle, until a person has taken it away? */
bool recovery_needs_person(enum error_code code);

/* A look failed, before anything was done: what is recorded says nothing about the way out. Where the trouble
 * may pass by itself it is another look. */
struct fsm_next recovery_after_look(enum error_code code);

/* Completes the error of such a look: nothing was done, and asking again harms nobody. */
void recovery_excuse_look(struct error *e);

#endif

/* tools/desktop/spawn.h - starts a program that outlives this process and everything that waits for it. */
#ifndef TOOLS_DESKTOP_SPAWN_H
#define TOOLS_DESKTOP_SPAWN_H

#include <sys/types.h>

#include "core/error.h"

/* In a session of its own, stdin from /dev/null, stdout and stderr to OUTPUT, nothing else inherited,
 * signals as at login. Its session id is *session: whoever it starts has it too. ACTION_FAILED, and
 * nothing runs, when the program cannot be executed. */
int spawn_detached(char *const argv[], int output, pid_t *pid, pid_t *session, struct error *e);

#endif

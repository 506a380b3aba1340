/* tools/agent-desktop/signals.h - SIGINT, SIGTERM and SIGHUP as something to wait for, for commands that have
 * to tell a guest, or to end cleanly. A SIGHUP that the caller ignores (nohup) stays ignored. And SIGTERM as
 * something to answer before dying of it. */
#ifndef TOOLS_AGENT_DESKTOP_SIGNALS_H
#define TOOLS_AGENT_DESKTOP_SIGNALS_H

#include "core/error.h"

/* From now on they do not end this process. *fd becomes readable with the first one; it stays open. */
int signals_watch(int *fd, struct error *e);

/* The first that came, 0 when none did. The address is constant. */
extern const volatile int *const signals_caught;

/* From now on SIGTERM ends this process with LINE on stdout and exit status STATUS: `sandbox stop` cancels so
 * what an in-process operation does, and its caller is told. LINE (lent) NULL: SIGTERM is ignored from now
 * on, for a reply is about to be printed. */
void signals_reply_to_term(const char *line, int status);

#endif

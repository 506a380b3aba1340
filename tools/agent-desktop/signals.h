/* tools/agent-desktop/signals.h - SIGINT, SIGTERM and SIGHUP as something to wait for, for commands that have
 * to tell a guest, or to end cleanly. A SIGHUP that the caller ignores (nohup) stays ignored. And SIGTERM as
 * something to answer before dying of it. */
#ifndef TOOLS_AGENT_DESKTOP_SIGNALS_H
#define TOOLS_AGENT_DESKTOP_SIGNALS_H

#include <stdbool.h>

#include "core/error.h"

/* From now on they do not end this process. *fd becomes readable with the first one; it stays open. */
int signals_watch(int *fd, struct error *e);

/* Behind signals_watch(): SIGTSTP (Ctrl-Z) makes *fd readable, too, and is not counted as caught. One that
 * the caller ignores stays ignored. */
void signals_watch_suspension(void);

/* Does what SIGTSTP would have done. Returns when this process was continued, and not before it is in the
 * foreground if stdin is its terminal: whoever reads there in its place has to wait, too. */
void signals_suspend(void);

/* Is stdin our terminal, with another process group (the shell's) in its foreground? */
bool signals_in_background(void);

/* The first that came, 0 when none did. The address is constant. */
extern const volatile int *const signals_caught;

/* From now on SIGTERM ends this process with LINE on stdout and exit status STATUS: `sandbox stop` cancels so
 * what an in-process operation does, and its caller is told. LINE (lent) NULL: SIGTERM is ignored from now
 * on, for a reply is about to be printed. */
void signals_reply_to_term(const char *line, int status);

#endif

/* tests/tools/desktop/session.h - a desktop for the tests: X server, session bus, accessibility bus, window
 * manager, each a child of this process, and the environment that leads to them. */
#ifndef TESTS_TOOLS_DESKTOP_SESSION_H
#define TESTS_TOOLS_DESKTOP_SESSION_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

#define SESSION_DAEMONS 4

struct session {
    char dir[64]; /* of everything it writes: home, state root, sockets */
    pid_t daemons[SESSION_DAEMONS];
    size_t count;
};

/* NULL, or why there can be none here. */
const char *session_start(struct session *s);

/* Ends what was started, and what the tests launched in it. */
void session_stop(struct session *s);

#endif

/* tools/agent-desktop/report.h - --report FILE: an envelope about one attempt to run something inside
 * (R-213).
 *
 * FILE is replaced twice: before anything is sent, by one that says that the outcome is unknown - which is
 * then the truth if this process is killed, and proves that it can be written -, and at the end. */
#ifndef TOOLS_AGENT_DESKTOP_REPORT_H
#define TOOLS_AGENT_DESKTOP_REPORT_H

#include "core/error.h"
#include "tools/agent-desktop/reply.h"

struct report { /* report_close() */
    int dir;    /* -1: none is wanted */
    const char *name;
};
#define REPORT_NONE                                                                                          \
    {                                                                                                        \
        .dir = -1                                                                                            \
    }

/* PATH NULL: no report. INVALID_ARGS when it cannot be one. */
int report_open(struct report *r, const char *path, const char *command, struct error *e);

/* The envelope of REPLY, or of OUTCOME when that is an error. Takes the parts out of REPLY. */
int report_write(const struct report *r, const char *command, struct reply *reply,
                 const struct error *outcome, struct error *e);

void report_close(struct report *r);
#define AUTO_REPORT __attribute__((cleanup(report_close)))

#endif

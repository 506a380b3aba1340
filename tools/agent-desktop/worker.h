/* tools/agent-desktop/worker.h - a detached process of this program, for what may outlive the command.
 *
 * It leads a session of its own (so a cancel ends its whole family), talks to logs/<name>.log, keeps no
 * descriptor that the command's caller passed in, and tells the command over a pipe how it went. Locks go
 * over by inheritance: there is no moment at which nobody holds them. */
#ifndef TOOLS_AGENT_DESKTOP_WORKER_H
#define TOOLS_AGENT_DESKTOP_WORKER_H

#include <stdint.h>

#include "core/error.h"
#include "core/root.h"
#include "fsm/engine.h"

struct worker_job {
    const struct root *root;
    const char *name;
    /* In the worker: the whole work. Calls worker_tell_begun() once the intent is recorded; LOOK is what is
     * recorded at the end, whether it went well or not. */
    int (*run)(void *self, int report_fd, struct error *e);
    const struct engine_look *look; /* where run() leaves the outcome */
    void *self;
};

struct worker { /* the command's end; close it with worker_leave() */
    int report_fd;
    bool begun;
};

/* Starts it. No journal may be open. The caller closes its copies of the locks afterwards. */
int worker_start(const struct worker_job *job, struct worker *out, struct error *e);

void worker_tell_begun(int report_fd);

enum worker_news { WORKER_GOES_ON, WORKER_ENDED };

/* Waits until the worker has ended, at most LIMIT_MS (-1: for ever); but until it has begun at least
 * WORKER_BEGIN_LIMIT_MS, so that the answer is what it does, and not that it may do it. ON_TICK (may be NULL)
 * is called every TICK_MS meanwhile. The result is what became of the waiting: *news; and, when it ended, the
 * work's own: 0 with *look, or -1 with *e. */
#define WORKER_BEGIN_LIMIT_MS 10000
#define WORKER_TICK_MS        250
int worker_await(struct worker *w, const char *name, int64_t limit_ms, void (*on_tick)(void *self),
                 void *self, enum worker_news *news, struct engine_look *look, struct error *e);

void worker_leave(struct worker *w); /* the worker goes on */

/* Removes what the last worker of NAME said. */
void worker_forget_log(const struct root *root, const char *name);

#endif

/* tools/agent-desktop/context.h - what a command works with: the state root, the journal, and the engine that
 * writes to it through the seams. The place where the store and the engine are joined. */
#ifndef TOOLS_AGENT_DESKTOP_CONTEXT_H
#define TOOLS_AGENT_DESKTOP_CONTEXT_H

#include "core/root.h"
#include "fsm/engine.h"
#include "store/journal.h"

enum context_mode {
    CONTEXT_READ,   /* changes nothing; what does not exist is empty */
    CONTEXT_WRITE,  /* may record; makes nothing where there is no state root yet */
    CONTEXT_CREATE, /* makes what is missing */
};

struct context { /* context_close() when open; not to be moved: handles point into it */
    enum context_mode mode;
    struct root root;
    struct journal *journal; /* NULL while there is none, or between the two of context_suspend/_resume */
    struct engine engine;
};

int context_open(struct context *c, enum context_mode mode, struct error *e);

/* The same context with more rights; nothing happens when it has them. */
int context_upgrade(struct context *c, enum context_mode mode, struct error *e);

/* A journal is not to be used by a process that forked from the one that opened it: closed before, opened
 * after. */
void context_suspend(struct context *c);
int context_resume(struct context *c, struct error *e);

void context_close(struct context *c);
#define AUTO_CONTEXT __attribute__((cleanup(context_close)))

/* A context that is not open. */
#define CONTEXT_CLOSED                                                                                       \
    {                                                                                                        \
        .root = {.dir = -1, .sandboxes = -1, .locks = -1 }                                                   \
    }

#endif

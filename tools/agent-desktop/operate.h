/* tools/agent-desktop/operate.h - what create, start, stop, rm and recover share: look, decide, lock, run
 * here or in a worker, wait, reply.
 *
 *   struct operate o = OPERATE_CLOSED;         operate_close() at any time
 *   operate_open()                             context, sandbox, a look
 *   o.event, o.operation, ... are filled       by the command, which may have looked at o.sandbox
 *   operate_run()                              fills the reply, also of a failure */
#ifndef TOOLS_AGENT_DESKTOP_OPERATE_H
#define TOOLS_AGENT_DESKTOP_OPERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/facts.h"
#include "tools/agent-desktop/args.h"
#include "tools/agent-desktop/context.h"
#include "tools/agent-desktop/reply.h"
#include "tools/agent-desktop/sandbox.h"

struct operate {
    struct context context;
    struct sandbox sandbox;

    const char *command; /* "sandbox rm": as the envelope names it */
    enum fsm_event event;
    enum fsm_operation operation;
    bool needs_host;           /* refuse unless the provider's host is fit: PROVIDER_UNAVAILABLE */
    const struct facts *facts; /* recorded with the move; NULL */
    const char *options;       /* for the journal; NULL */
    bool wait;                 /* */
    int64_t wait_ms;           /* -1: without limit */
    struct facts source_facts; /* clone: what is recorded of the source */
    int source_lock;           /* clone: held until the work is over; -1 */

    /* operate's own */
    bool host_checked;
    bool unseen;           /* it could not be looked at: only its record is known */
    bool begun;            /* the intent is recorded: a failure from here on is the work's */
    enum error_code cause; /* of such a failure; to who waits its error says ACTION_FAILED */
    int op_lock;
};
#define OPERATE_CLOSED                                                                                       \
    {                                                                                                        \
        .context = CONTEXT_CLOSED, .sandbox = SANDBOX_CLOSED, .op_lock = -1, .source_lock = -1               \
    }

/* Fails with INVALID_ARGS for a name that is none. PROVIDER: of the sandbox if it is missing; NULL. */
int operate_open(struct operate *o, const char *name, const char *provider, enum context_mode mode,
                 struct error *e);

/* --wait[=SECONDS] of ARGS. */
int operate_read_wait(struct operate *o, const struct args *args, struct error *e);

/* Checks the host (needs_host), once. */
int operate_check_host(struct operate *o, struct error *e);

/* Makes the context writable, for create also the state root, and looks anew. */
int operate_upgrade(struct operate *o, struct error *e);

/* A sandbox that nothing needs to be done to is a success that answers its state. */
int operate_run(struct operate *o, struct reply *reply, struct error *e);

/* Fills the reply's details and recovery for the error E about the sandbox that was opened. Returns -1. */
int operate_fail(const struct operate *o, struct reply *reply, const struct error *e);

void operate_close(struct operate *o);
#define AUTO_OPERATE __attribute__((cleanup(operate_close)))

#endif

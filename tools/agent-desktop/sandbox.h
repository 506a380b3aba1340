/* tools/agent-desktop/sandbox.h - one sandbox as a command sees it: its record, its provider, its handle. */
#ifndef TOOLS_AGENT_DESKTOP_SANDBOX_H
#define TOOLS_AGENT_DESKTOP_SANDBOX_H

#include "fsm/engine.h"
#include "providers/provider.h"
#include "tools/agent-desktop/context.h"
#include "tools/agent-desktop/reply.h"

#define LOOK_DEADLINE_MS 2000 /* all probes of one look */

struct sandbox { /* sandbox_close(); not to be moved: the handle points at place */
    char provider[JOURNAL_WORD_SIZE];
    const struct provider_ops *ops; /* NULL: this build has no such provider */
    struct provider_place place;
    void *handle;
    struct engine_subject subject;
    struct engine_look look;
};

/* Reads NAME's record and opens its provider's handle. PROVIDER: whose it would be if it is missing, or NULL.
 * Where it is missing look.found is false. */
int sandbox_open(struct sandbox *s, struct context *c, const char *name, const char *provider,
                 struct error *e);

/* The truth, and recorded as such: as engine_look(), but a state that cannot change by itself is taken as it
 * was read by sandbox_open(). C must be open for writing when sandbox_may_change(). */
int sandbox_look(struct sandbox *s, struct context *c, struct error *e);
bool sandbox_may_change(const struct sandbox *s);

/* Of a record alone; OPS NULL: this build lacks its provider. */
bool sandbox_record_may_change(const struct provider_ops *ops, const struct journal_record *r);
enum fsm_known sandbox_find_known(const struct provider_ops *ops, const struct journal_record *r);

/* The same after another process may have written: whatever the state was, its record is read again. */
int sandbox_look_anew(struct sandbox *s, struct context *c, struct error *e);

/* Opens and looks, with the rights that takes, and puts sandbox.json right. Fails with SANDBOX_NOT_FOUND. */
int sandbox_see(struct sandbox *s, struct context *c, const char *name, struct error *e);

/* What `status` answers: as sandbox_see(), with the reply's data, or the details of a failure. */
int sandbox_answer(struct sandbox *s, struct context *c, const char *name, struct reply *reply,
                   struct error *e);

/* Puts sandbox.json right. It is a projection: what it cannot be written for is no reason to fail. */
void sandbox_project(const struct sandbox *s, const struct context *c);

/* Reads the record again: 1 when it is the one that was looked at, 0 when another command changed it, -1. */
int sandbox_is_current(const struct sandbox *s, struct context *c, struct error *e);

/* PROVIDER_NOT_FOUND when S is there but its provider is not in this build. */
int sandbox_check_provider(const struct sandbox *s, struct error *e);

struct reply_view sandbox_view(const struct sandbox *s);

/* Fills details and recovery of R for an error about S. */
void sandbox_fail(const struct sandbox *s, struct reply *r, struct fsm_next next);

/* The same for sandbox_see() that failed with E, before anything was done; completes E. MISSING: what helps
 * where there is no such sandbox. */
void sandbox_fail_look(const struct sandbox *s, struct reply *r, enum fsm_next_command missing,
                       struct error *e);

void sandbox_close(struct sandbox *s);
#define AUTO_SANDBOX __attribute__((cleanup(sandbox_close)))

/* A sandbox that is not open: sandbox_close() may come at any time. */
#define SANDBOX_CLOSED                                                                                       \
    {                                                                                                        \
        .ops = NULL                                                                                          \
    }

#endif

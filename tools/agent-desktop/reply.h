/* tools/agent-desktop/reply.h - what a command answers, before it is an envelope.
 *
 * A command fills a reply and main() prints it: nothing else writes to stdout, but for the commands whose
 * own output is the answer (exec, run, log --follow). */
#ifndef TOOLS_AGENT_DESKTOP_REPLY_H
#define TOOLS_AGENT_DESKTOP_REPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "core/json.h"
#include "core/root.h"
#include "core/text.h"
#include "fsm/engine.h"
#include "fsm/lifecycle.h"
#include "providers/provider.h"

struct reply {            /* starts as { 0 }; reply_done() */
    struct json *data;    /* of a success; or ... */
    struct text printed;  /* ... the same as JSON text: long lists are printed item by item, as a tree of them
                             all costs twice the time and ten times the memory */
    struct json *details; /* of an error: about whom */
    struct json *recovery; /* of an error: the way out */
    bool streamed;         /* the answer is on stdout already, or there is none: no envelope */
    bool stdout_used;      /* by a guest: an envelope goes to stderr */
    int exit_status;       /* of a streamed one */
};

void reply_done(struct reply *r);

/* A list as the first member of the printed data: {"KEY":[ITEM,...]}. ITEM is JSON text. */
void reply_open_list(struct reply *r, const char *key);
void reply_add_item(struct reply *r, const char *item);

/* Ends the list; the members of the object MORE follow it. */
void reply_close_list(struct reply *r, const struct json *more);

/* One sandbox, as replies show it. Text is lent. */
struct reply_view {
    const char *name;
    const char *provider; /* "" when unknown */
    enum fsm_place place;
    enum fsm_known known;
    const char *message; /* what the look has to add; "" nothing */
    const char *reason;  /* of the last move; "" none */
    int64_t created_ms;  /* 0: unknown */
};

struct reply_view reply_view_of(const struct engine_look *look, const char *provider);

/* The data of one sandbox: name, provider, state, activity, message, progress, created, next,
 * next_argv, needs_person; what there is nothing to say about is left out. ROOT (may be NULL) is where
 * progress is looked for. */
struct json *reply_sandbox(const struct reply_view *v, const struct root *root);

/* The data of one provider. FREE_NAME: what a first sandbox could be called. */
struct json *reply_provider(const char *provider, const struct provider_host_report *report,
                            const char *free_name);

/* Fills details and recovery of an error about a sandbox. */
void reply_fail(struct reply *r, const struct reply_view *v, struct fsm_next next);

#endif

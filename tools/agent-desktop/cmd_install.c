#include <stdio.h>
#include <string.h>

#include "fsm/install.h"
#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/context.h"
#include "tools/agent-desktop/envelope.h"
#include "tools/agent-desktop/next.h"
#include "tools/agent-desktop/providers.h"
#include "tools/agent-desktop/recovery.h"
#include "tools/agent-desktop/signals.h"

#define FREE_NAME_TRIES 1000
#define LOCK_WAIT_MS    1000 /* as for the op lock of a sandbox */

struct install { /* of one provider; its handle is the place */
    struct context *context;
    const struct provider_ops *ops;
    char name[JOURNAL_NAME_SIZE]; /* "@macos" */
    struct provider_place place;
    struct engine_subject subject;
    struct provider_host_report report;
    struct install_look look;
    bool wants_record;
    bool is_unknown; /* the host, or the service, did not tell */
};

/* --- looking ------------------------------------------------------------------------------------------- */

static void init(struct install *i, struct context *c, const struct provider_ops *ops)
{
    *i = (struct install){ .context = c, .ops = ops, .place = { .root = &c->root, .op_lock = -1 } };
    snprintf(i->name, sizeof(i->name), "@%s", ops->name);
    i->subject = (struct engine_subject){
        .name = i->name, .provider = ops->name, .plans = ops->plan, .self = &i->place
    };
}

static enum fsm_provider_event seen(const struct install *i)
{
    static const enum fsm_provider_event events[FSM_PROVIDER_STATE_COUNT] = {
        [PROVIDER_UNAVAILABLE] = PROVIDER_EV_HOST_LACKS,
        [PROVIDER_MISSING] = PROVIDER_EV_NOT_BUILT,
        [PROVIDER_READY] = PROVIDER_EV_HOST_READY,
    };

    return events[i->report.state];
}

static int look(struct install *i, struct error *e)
{
    i->is_unknown = i->ops->inspect_host(&i->context->root, &i->report, e) < 0;
    if (i->is_unknown)
        return -1;
    return install_look(&i->context->engine, &i->subject, seen(i), i->context->mode != CONTEXT_READ, &i->look,
                        &i->wants_record, e);
}

/* The host's own words, or those of the install that is under way or failed. */
static void explain(struct install *i)
{
    struct provider_host_report *r = &i->report;

    if (i->look.state == PROVIDER_WORKING)
        snprintf(r->message, sizeof(r->message), "The %s provider is being installed.", i->ops->name);
    else if (i->look.state == PROVIDER_BROKEN)
        snprintf(r->message, sizeof(r->message), "The last installation of the %s provider failed: %s%s",
                 i->ops->name, i->look.record.reason, strchr(i->look.record.reason, '.') == NULL ? "." : "");
    r->state = i->look.state;
}

/* "desktop", or the first "desktop-N" that no sandbox has. */
static int find_free_name(struct context *c, char out[JOURNAL_NAME_SIZE], struct error *e)
{
    struct journal_record record;

    snprintf(out, JOURNAL_NAME_SIZE, "desktop");
    for (int n = 2; n < FREE_NAME_TRIES; n++) {
        int found = journal_lmdb_ops.find(c->journal, out, &record, e);

        if (found <= 0)
            return found;
        snprintf(out, JOURNAL_NAME_SIZE, "desktop-%d", n);
    }
    return 0;
}

static int reply_of(struct install *i, struct json **out, struct error *e)
{
    char name[JOURNAL_NAME_SIZE] = "";

    explain(i);
    if (i->report.state == PROVIDER_READY && find_free_name(i->context, name, e) < 0)
        return -1;
    *out = reply_provider(i->ops->name, &i->report, name);
    return 0;
}

/* Looks, and records what only a look can: that the owner of an install is gone. */
static int look_and_record(struct install *i, struct error *e)
{
    if (look(i, e) < 0)
        return -1;
    if (!i->wants_record)
        return 0;
    return context_upgrade(i->context, CONTEXT_WRITE, e) < 0 || look(i, e) < 0 ? -1 : 0;
}

/* What cannot be found out for one provider is as good as ever for the others. */
static int describe(struct context *c, const struct provider_ops *ops, struct json **out, struct error *e)
{
    struct provider_host_report unknown = { .state = PROVIDER_UNAVAILABLE };
    struct install i;

    init(&i, c, ops);
    if (look_and_record(&i, e) == 0)
        return reply_of(&i, out, e);
    if (!i.is_unknown)
        return -1;
    snprintf(unknown.message, sizeof(unknown.message), "It could not be found out: %s.", e->message);
    *e = (struct error){ 0 };
    *out = reply_provider(ops->name, &unknown, "");
    return 0;
}

static int describe_all(struct context *c, struct json **out, struct error *e)
{
    AUTO_JSON struct json *data = json_new_object();
    struct json *providers = json_new_array(), *one;

    json_put(data, "providers", providers);
    for (const struct provider_ops *const *p = provider_list(); *p != NULL; p++) {
        if (describe(c, *p, &one, e) < 0)
            return -1;
        json_add(providers, one);
    }
    *out = steal(&data);
    return 0;
}

/* --- installing ---------------------------------------------------------------------------------------- */

static bool is_wanted(const struct install *i)
{
    return i->ops->plan[OPERATION_INSTALL].steps != NULL &&
           fsm_find_provider_edge(i->look.state, PROVIDER_EV_INSTALL)->verdict == FSM_MOVE;
}

static int fail(const struct install *i, struct reply *reply)
{
    struct next_subject subject = { .provider = i->ops->name };

    reply->details = json_new_object();
    reply->recovery = json_new_object();
    json_put_string(reply->details, "provider", i->ops->name);
    json_put_string(reply->details, "state", fsm_provider_state_name(i->look.state));
    /* The same command would meet the same compiler: a person reads the log first. */
    next_put(reply->recovery, (struct fsm_next){ NEXT_INSTALL, true }, &subject);
    return -1;
}

/* What the host or the service did not tell is asked for by the same command. */
static int fail_look(const struct install *i, struct reply *reply, struct error *e)
{
    struct next_subject subject = { .provider = i->ops->name };
    struct fsm_next next = recovery_after_look(e->code);

    recovery_excuse_look(e);
    if (next.command == NEXT_NONE)
        return -1;
    next.command = NEXT_INSTALL;
    reply->recovery = json_new_object();
    next_put(reply->recovery, next, &subject);
    return -1;
}

/* In this process: the caller waits for the compiler. A SIGTERM gets its envelope all the same. */
static int run_steps(struct install *i, const char *command, struct error *e)
{
    struct engine_request request = { .operation = OPERATION_INSTALL };
    struct reply nothing = { 0 };
    struct error ended = { .delivery = DELIVERY_UNKNOWN };

    error_set(&ended, ERROR_ACTION_FAILED, 0, "the installation of %s was ended by SIGTERM", i->ops->name);
    AUTO_FREE char *last_words = envelope_print(command, &nothing, &ended);

    signals_reply_to_term(last_words, envelope_exit_status(&ended));
    int r = install_run(&i->context->engine, &i->subject, seen(i), &request, &i->look, e);

    signals_reply_to_term(NULL, 0);
    return r;
}

/* Holding the lock: what another install has done meanwhile is seen first. */
static int install_locked(struct install *i, const char *command, struct reply *reply, struct error *e)
{
    if (look(i, e) < 0)
        return -1;
    if (!is_wanted(i))
        return 0;
    if (run_steps(i, command, e) < 0)
        return fail(i, reply);
    return look(i, e);
}

/* Looks, and installs what that shows to be missing. */
static int look_and_install(struct install *i, const char *command, struct reply *reply, struct error *e)
{
    struct context *c = i->context;

    if (look_and_record(i, e) < 0)
        return -1;
    if (!is_wanted(i))
        return 0;
    if (context_upgrade(c, CONTEXT_CREATE, e) < 0)
        return -1;
    int taken =
        c->engine.host->lock(c->engine.host_self, HOST_LOCK_OP, i->name, LOCK_WAIT_MS, &i->place.op_lock, e);
    int r = taken == 1 ? install_locked(i, command, reply, e) : taken < 0 ? -1 : look(i, e);

    util_close_fd(&i->place.op_lock);
    return r;
}

static int install(struct context *c, const struct provider_ops *ops, const char *command,
                   struct reply *reply, struct error *e)
{
    struct install i;

    init(&i, c, ops);
    if (look_and_install(&i, command, reply, e) == 0)
        return reply_of(&i, &reply->data, e);
    return i.is_unknown ? fail_look(&i, reply, e) : -1;
}

int cmd_install(const struct args *args, struct reply *reply, struct error *e)
{
    const char *name = args->positional[0];
    const struct provider_ops *ops = name == NULL ? NULL : provider_choose(name, e);
    AUTO_CONTEXT struct context c = CONTEXT_CLOSED;

    if ((name != NULL && ops == NULL) || context_open(&c, CONTEXT_READ, e) < 0)
        return -1;
    return ops == NULL ? describe_all(&c, &reply->data, e) : install(&c, ops, args->command, reply, e);
}

#include "tools/agent-desktop/sandbox.h"

#include <stdio.h>

#include "core/log.h"
#include "store/projection.h"
#include "tools/agent-desktop/recovery.h"

static void describe_subject(struct sandbox *s)
{
    static const struct plan none[FSM_OPERATION_COUNT] = { { 0 } };

    s->subject = (struct engine_subject){ .name = s->place.name, .provider = s->provider, .plans = none };
    if (s->ops == NULL)
        return;
    s->subject.plans = s->ops->plan;
    s->subject.observe = s->ops->observe;
    s->subject.explain_interruption = s->ops->explain_interruption;
    s->subject.stopped_can_change = s->ops->stopped_can_change;
    s->subject.cannot_be_set_up = s->ops->cannot_be_set_up;
    s->subject.self = s->handle;
}

/* The fold alone. */
static int read_record(struct sandbox *s, const struct context *c, const char *name, struct error *e)
{
    struct engine_look *look = &s->look;
    int found = c->engine.journal->find(c->engine.journal_self, name, &look->record, e);

    if (found < 0)
        return -1;
    if (found == 0)
        journal_record_init(&look->record, name);
    look->found = found == 1;
    look->message[0] = '\0';
    look->place = fsm_parse_place(look->record.state, look->record.activity);
    if (look->place == FSM_NONE)
        return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal says '%s' is '%s', which is no state", name,
                         look->record.state);
    return 0;
}

int sandbox_open(struct sandbox *s, struct context *c, const char *name, const char *provider,
                 struct error *e)
{
    s->ops = NULL;
    s->handle = NULL;
    s->place = (struct provider_place){ .root = &c->root, .name = name, .op_lock = -1 };
    if (read_record(s, c, name, e) < 0)
        return -1;
    if (s->look.found)
        provider = s->look.record.provider;
    snprintf(s->provider, sizeof(s->provider), "%s", provider == NULL ? "" : provider);
    s->ops = provider_find(s->provider);
    s->look.known = sandbox_find_known(s->ops, &s->look.record);
    if (s->ops != NULL && s->ops->open(&s->place, &s->handle, e) < 0)
        return -1;
    describe_subject(s);
    return 0;
}

bool sandbox_record_may_change(const struct provider_ops *ops, const struct journal_record *r)
{
    enum fsm_place place = fsm_parse_place(r->state, r->activity);

    if (ops == NULL || r->damaged)
        return false;
    return fsm_is_volatile(place) || (place == FSM_STOPPED && ops->stopped_can_change);
}

bool sandbox_may_change(const struct sandbox *s)
{
    return sandbox_record_may_change(s->ops, &s->look.record);
}

enum fsm_known sandbox_find_known(const struct provider_ops *ops, const struct journal_record *r)
{
    return engine_find_known(r, ops == NULL ? NULL : ops->cannot_be_set_up);
}

int sandbox_look(struct sandbox *s, struct context *c, struct error *e)
{
    return sandbox_may_change(s) ? sandbox_look_anew(s, c, e) : 0;
}

int sandbox_look_anew(struct sandbox *s, struct context *c, struct error *e)
{
    return engine_look(&c->engine, &s->subject, LOOK_DEADLINE_MS, &s->look, e);
}

int sandbox_see(struct sandbox *s, struct context *c, const char *name, struct error *e)
{
    if (sandbox_open(s, c, name, NULL, e) < 0)
        return -1;
    if (sandbox_may_change(s)) {
        if (context_upgrade(c, CONTEXT_WRITE, e) < 0 || sandbox_look(s, c, e) < 0)
            return -1;
    }
    if (!s->look.found)
        return error_set(e, ERROR_SANDBOX_NOT_FOUND, 0, "no sandbox is named '%s'", name);
    sandbox_project(s, c);
    return 0;
}

int sandbox_answer(struct sandbox *s, struct context *c, const char *name, struct reply *reply,
                   struct error *e)
{
    if (sandbox_see(s, c, name, e) < 0) {
        sandbox_fail_look(s, reply, NEXT_CREATE, e);
        return -1;
    }
    struct reply_view view = sandbox_view(s);

    json_free(reply->data);
    reply->data = reply_sandbox(&view, &c->root);
    return 0;
}

void sandbox_project(const struct sandbox *s, const struct context *c)
{
    struct error ignored = { 0 };

    if (!s->look.found || s->look.record.damaged || c->root.sandboxes < 0)
        return;
    if (projection_restore(&c->root, &s->look.record, &ignored) < 0)
        log_debug("sandbox.json of %s: %s", s->look.record.name, ignored.message);
}

int sandbox_is_current(const struct sandbox *s, struct context *c, struct error *e)
{
    struct journal_record now;
    int found = c->engine.journal->find(c->engine.journal_self, s->place.name, &now, e);

    if (found < 0)
        return -1;
    return (found == 1) == s->look.found && (found == 0 || now.seq == s->look.record.seq);
}

int sandbox_check_provider(const struct sandbox *s, struct error *e)
{
    if (s->ops != NULL || !s->look.found)
        return 0;
    return error_set(e, ERROR_PROVIDER_NOT_FOUND, 0,
                     "'%s' belongs to the provider '%s', which this build lacks", s->place.name, s->provider);
}

struct reply_view sandbox_view(const struct sandbox *s)
{
    return reply_view_of(&s->look, s->provider);
}

void sandbox_fail(const struct sandbox *s, struct reply *r, struct fsm_next next)
{
    struct reply_view view = sandbox_view(s);

    reply_fail(r, &view, next);
}

void sandbox_fail_look(const struct sandbox *s, struct reply *r, enum fsm_next_command missing,
                       struct error *e)
{
    if (e->code == ERROR_SANDBOX_NOT_FOUND) {
        sandbox_fail(s, r, (struct fsm_next){ missing, false });
        return;
    }
    recovery_excuse_look(e);
    if (s->look.place != FSM_NONE) /* it was read */
        sandbox_fail(s, r, recovery_after_look(e->code));
}

void sandbox_close(struct sandbox *s)
{
    if (s->ops != NULL)
        s->ops->close(s->handle);
    s->handle = NULL;
    s->ops = NULL;
}

#include "fsm/install.h"

#include <string.h>

#include "fsm/operation.h"

static const char interrupted[] = "its installation was interrupted";

/* --- the table ----------------------------------------------------------------------------------------- */

static enum fsm_verdict find_edge(unsigned place, unsigned event, unsigned *to)
{
    const struct fsm_provider_edge *edge = fsm_find_provider_edge(place, event);

    *to = edge->to;
    return edge->verdict;
}

static const char *event_name(unsigned event)
{
    return fsm_provider_event_name(event);
}

static const char *state_name(unsigned place)
{
    return fsm_provider_state_name(place);
}

static const char *activity_name(unsigned place)
{
    return place == PROVIDER_WORKING ? "installing" : NULL;
}

static unsigned parse(const struct journal_record *r)
{
    for (unsigned state = PROVIDER_NONE + 1; state < FSM_PROVIDER_STATE_COUNT; state++)
        if (strcmp(fsm_provider_state_name(state), r->state) == 0)
            return state;
    return PROVIDER_NONE;
}

static int refuse(const struct journal_record *r, unsigned place, unsigned event, struct error *e)
{
    return error_set(e, fsm_find_provider_edge(place, event)->code, 0,
                     "cannot %s the %s provider while it is %s", fsm_provider_event_name(event), r->name + 1,
                     fsm_provider_state_name(place));
}

static unsigned find_failure(const struct operation *o, const struct step_context *c)
{
    (void)o, (void)c;
    return PROVIDER_EV_FAILED;
}

static const struct machine providers = { .find_edge = find_edge,
                                          .event_name = event_name,
                                          .state_name = state_name,
                                          .activity_name = activity_name,
                                          .parse = parse,
                                          .done = PROVIDER_EV_DONE,
                                          .failed = PROVIDER_EV_FAILED,
                                          .refuse = refuse,
                                          .find_failure = find_failure };

/* --- looking ------------------------------------------------------------------------------------------- */

static int read_record(const struct engine *engine, const struct engine_subject *subject,
                       struct install_look *out, struct error *e)
{
    int found = engine->journal->find(engine->journal_self, subject->name, &out->record, e);

    if (found < 0)
        return -1;
    if (found == 0)
        journal_record_init(&out->record, subject->name);
    out->recorded = (enum fsm_provider_state)parse(&out->record);
    if (out->recorded == PROVIDER_NONE)
        return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal says '%s' is '%s', which is no state",
                         out->record.name, out->record.state);
    return 0;
}

static int record_owner_lost(const struct engine *engine, const struct engine_subject *subject,
                             struct install_look *look, struct error *e)
{
    struct journal_record before = look->record;
    struct journal_guard guard = { .id = before.id, .seq = before.seq, .ends = true };
    struct batch b = { .count = 0 };
    int lock = -1;
    int taken = engine->host->lock(engine->host_self, HOST_LOCK_OP, subject->name, 0, &lock, e);

    if (taken <= 0)
        return taken;
    batch_add_move(&b, &providers, subject, before.id, before.op, look->recorded, PROVIDER_EV_OWNER_LOST)
        ->reason = interrupted;
    batch_add_end(&b, subject, before.id, before.op, "INTERRUPTED", interrupted);
    int r = batch_commit(&b, engine, subject->name, &guard, &look->record, e);

    engine->host->unlock(engine->host_self, lock);
    if (r >= 0)
        look->recorded = (enum fsm_provider_state)parse(&look->record);
    return r < 0 ? -1 : 0;
}

/* Where SEEN leads from what is recorded. */
static enum fsm_provider_state lead_on(enum fsm_provider_state recorded, enum fsm_provider_event seen)
{
    const struct fsm_provider_edge *edge = fsm_find_provider_edge(recorded, seen);

    return edge->verdict == FSM_REFUSE ? recorded : edge->to;
}

/* An install under way: is anybody at it? */
static int look_at_owner(const struct engine *engine, const struct engine_subject *subject, bool may_record,
                         struct install_look *look, bool *wants_record, struct error *e)
{
    int owned = engine->host->is_locked(engine->host_self, HOST_LOCK_OP, subject->name, e);

    if (owned != 0)
        return owned < 0 ? -1 : 0;
    if (may_record)
        return record_owner_lost(engine, subject, look, e);
    if (wants_record != NULL)
        *wants_record = true;
    return 0;
}

int install_look(const struct engine *engine, const struct engine_subject *subject,
                 enum fsm_provider_event seen, bool may_record, struct install_look *out, bool *wants_record,
                 struct error *e)
{
    if (wants_record != NULL)
        *wants_record = false;
    if (read_record(engine, subject, out, e) < 0)
        return -1;
    if (out->recorded == PROVIDER_WORKING &&
        look_at_owner(engine, subject, may_record, out, wants_record, e) < 0)
        return -1;
    out->state = lead_on(out->recorded, seen);
    return 0;
}

/* --- installing ---------------------------------------------------------------------------------------- */

int install_run(const struct engine *engine, const struct engine_subject *subject,
                enum fsm_provider_event seen, const struct engine_request *request, struct install_look *look,
                struct error *e)
{
    struct operation o = { .machine = &providers,
                           .engine = engine,
                           .subject = subject,
                           .request = request,
                           .event = PROVIDER_EV_INSTALL,
                           .seen = seen,
                           .record = &look->record,
                           .place = look->recorded };

    if (fsm_find_provider_edge(look->state, PROVIDER_EV_INSTALL)->verdict != FSM_MOVE)
        return refuse(&look->record, look->state, PROVIDER_EV_INSTALL, e);
    int r = operation_run(&o, e);

    look->recorded = (enum fsm_provider_state)o.place;
    look->state = look->recorded;
    return r;
}

#include "fsm/engine.h"

#include <stdio.h>
#include <string.h>

#include "fsm/operation.h"

#define LOOK_LOCK_WAIT_MS   20   /* long enough for another look to finish its one commit */
#define CANCEL_GRACE_MS     5000 /* SIGTERM to SIGKILL, design: "Cancel" */
#define CANCEL_LOCK_WAIT_MS 2000 /* the kernel frees the dead owner's lock */
#define OVERDUE_MARGIN_MS   2000 /* the owner enforces the bound itself: a look comes after it */
#define FAILURE_OBSERVE_MS  1000 /* how long a failed stop may look at what it left */

static const struct machine sandboxes; /* the table of fsm/lifecycle.h, at the end */

enum fsm_known engine_find_known(const struct journal_record *r, cannot_be_set_up_fn *cannot_be_set_up)
{
    return cannot_be_set_up != NULL && cannot_be_set_up(&r->facts) ? KNOWN_UNFIT : KNOWN_NOTHING;
}

/* What the record says; what was observed before it is of the past. A journal may be damaged, or written by a
 * newer agent-desktop with more states. */
static int set_place(const struct engine_subject *subject, struct engine_look *look, struct error *e)
{
    look->known = engine_find_known(&look->record, subject->cannot_be_set_up);
    look->message[0] = '\0';
    look->place = fsm_parse_place(look->record.state, look->record.activity);
    look->found = look->place != FSM_MISSING;
    if (look->place == FSM_NONE)
        return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal says '%s' is '%s', which is no state",
                         look->record.name, look->record.state);
    return 0;
}

/* 1 when recorded, 0 when the guard did not hold, -1; LOOK is updated to what stands unless it failed. */
static int commit(const struct engine *engine, const struct engine_subject *subject,
                  const struct journal_guard *guard, const struct batch *b, struct engine_look *look,
                  struct error *e)
{
    int done = batch_commit(b, engine, subject->name, guard, &look->record, e);

    return done < 0 || set_place(subject, look, e) < 0 ? -1 : done;
}

/* --- looking ------------------------------------------------------------------------------------------- */

static int read_fold(const struct engine *engine, const struct engine_subject *subject,
                     struct engine_look *out, struct error *e)
{
    int found = engine->journal->find(engine->journal_self, subject->name, &out->record, e);

    if (found < 0)
        return -1;
    if (found == 0)
        journal_record_init(&out->record, subject->name);
    return set_place(subject, out, e);
}

/* Has the activity outlived its plan's bound? Time since boot compares within one boot only; an activity of
 * an earlier boot has no owner any more. */
static bool is_overdue(const struct engine *engine, const struct plan *plan, const struct journal_record *r)
{
    if (plan->bound_ms == 0)
        return false;
    if (strcmp(r->moved_boot, engine->host->boot_id(engine->host_self)) != 0)
        return true;
    return engine->host->boot_ms(engine->host_self) - r->moved_boot_ms > plan->bound_ms + OVERDUE_MARGIN_MS;
}

static enum fsm_operation operation_of(enum fsm_place place)
{
    static const enum fsm_operation operations[FSM_PLACE_COUNT] = {
        [FSM_INSTALLING] = OPERATION_CREATE, [FSM_CLONING] = OPERATION_CLONE,
        [FSM_STARTING] = OPERATION_START,    [FSM_STOPPING] = OPERATION_STOP,
        [FSM_REMOVING] = OPERATION_REMOVE,
    };

    return operations[place];
}

/* Why a look moved the sandbox, where the observation has no words of its own. */
static const char *default_reason(enum fsm_place place, enum fsm_event event)
{
    static const char *const interrupted[FSM_PLACE_COUNT] = {
        [FSM_INSTALLING] = "its creation was interrupted",
        [FSM_CLONING] = "its cloning was interrupted",
        [FSM_STARTING] = "its start was interrupted",
        [FSM_STOPPING] = NULL, /* stopped is what was asked for */
        [FSM_REMOVING] = "its removal was interrupted",
    };

    if (event == EV_OWNER_LOST || (event == EV_GUEST_GONE && place == FSM_STARTING))
        return interrupted[place];
    if (event == EV_GUEST_GONE && place != FSM_STOPPING)
        return "its session ended without a stop";
    return NULL;
}

/* OUT holds the general words. */
static void explain_interruption(const struct engine_subject *subject, const struct facts *facts, char *out,
                                 size_t room)
{
    if (subject->explain_interruption != NULL && subject->self != NULL)
        subject->explain_interruption(subject->self, facts, out, room);
}

/* Fills what is proven about a sandbox in PLACE. An activity with a live owner proves nothing: the owner will
 * say. */
static int observe(const struct engine *engine, const struct engine_subject *subject, int deadline_ms,
                   struct engine_look *look, struct observation *seen, struct error *e)
{
    memset(seen, 0, offsetof(struct observation, facts));
    seen->facts.count = 0;
    if (fsm_is_working(look->place)) {
        int owned = engine->host->is_locked(engine->host_self, HOST_LOCK_OP, subject->name, e);
        const struct plan *plan = &subject->plans[operation_of(look->place)];

        if (owned < 0)
            return -1;
        if (is_overdue(engine, plan, &look->record))
            look->known = KNOWN_OVERDUE;
        if (owned)
            return 0;
        if (fsm_find_edge(look->place, EV_OWNER_LOST)->verdict == FSM_MOVE) {
            seen->event = EV_OWNER_LOST;
            snprintf(seen->message, sizeof(seen->message), "%s", default_reason(look->place, EV_OWNER_LOST));
            if (look->place != FSM_REMOVING)
                explain_interruption(subject, &look->record.facts, seen->message, sizeof(seen->message));
            return 0;
        }
    }
    if (subject->observe(subject->self, &look->record.facts, deadline_ms, seen, e) < 0)
        return -1;
    snprintf(look->message, sizeof(look->message), "%s", seen->message);
    return 0;
}

/* Records what was seen, by a holder of the op lock, if nothing happened since. The end entry takes the token
 * away from an owner that is slow but not dead. 1, 0 when something did happen, -1. */
static int record_observation(const struct engine *engine, const struct engine_subject *subject,
                              const struct observation *seen, struct engine_look *look, struct error *e)
{
    struct journal_record before = look->record;
    struct journal_guard guard = { .id = before.id, .seq = before.seq, .ends = true };
    struct batch b = { .count = 0 };
    const char *reason = seen->message[0] != '\0' ? seen->message : default_reason(look->place, seen->event);
    struct journal_entry *move =
        batch_add_move(&b, &sandboxes, subject, before.id, before.op, look->place, seen->event);

    move->reason = reason;
    move->facts = seen->facts.count > 0 ? &seen->facts : NULL;
    if (before.op[0] != '\0')
        batch_add_end(&b, subject, before.id, before.op, "INTERRUPTED", reason);
    return commit(engine, subject, &guard, &b, look, e);
}

/* Takes the op lock, reads again, and records what was seen of the record with this SEQ. As
 * record_observation(); 0 also when somebody works on it: what is recorded is the answer. */
static int record_if_unchanged(const struct engine *engine, const struct engine_subject *subject,
                               const struct observation *seen, uint64_t seq, struct engine_look *look,
                               struct error *e)
{
    int lock = -1;
    int taken =
        engine->host->lock(engine->host_self, HOST_LOCK_OP, subject->name, LOOK_LOCK_WAIT_MS, &lock, e);

    if (taken < 0)
        return -1;
    int r = read_fold(engine, subject, look, e);

    if (r == 0 && taken == 1 && look->found && look->record.seq == seq && !look->record.damaged)
        r = record_observation(engine, subject, seen, look, e);
    if (taken == 1)
        engine->host->unlock(engine->host_self, lock);
    return r;
}

int engine_look(const struct engine *engine, const struct engine_subject *subject, int deadline_ms,
                struct engine_look *out, struct error *e)
{
    struct observation seen;

    if (read_fold(engine, subject, out, e) < 0)
        return -1;
    if (subject->self == NULL || out->record.damaged)
        return 0;
    if (!fsm_is_volatile(out->place) && !(out->place == FSM_STOPPED && subject->stopped_can_change))
        return 0;
    if (observe(engine, subject, deadline_ms, out, &seen, e) < 0)
        return -1;
    if (seen.event == EV_NONE || fsm_find_edge(out->place, seen.event)->verdict != FSM_MOVE)
        return 0;
    return record_if_unchanged(engine, subject, &seen, out->record.seq, out, e) < 0 ? -1 : 0;
}

/* --- deciding ------------------------------------------------------------------------------------------ */

/* `stop` is `cancel` where there is something to cancel and nothing to stop. */
static enum fsm_event event_here(enum fsm_place place, enum fsm_event event)
{
    if (event == EV_STOP && fsm_find_edge(place, EV_STOP)->verdict == FSM_REFUSE &&
        fsm_find_edge(place, EV_CANCEL)->verdict == FSM_MOVE)
        return EV_CANCEL;
    return event;
}

static int refuse(const struct journal_record *r, unsigned place, unsigned event, struct error *e)
{
    const struct fsm_edge *edge = fsm_find_edge(place, event);

    if (edge->code == ERROR_SANDBOX_NOT_FOUND)
        return error_set(e, edge->code, 0, "no sandbox is named '%s'", r->name);
    if (edge->code == ERROR_SANDBOX_EXISTS)
        return error_set(e, edge->code, 0, "a sandbox named '%s' exists already; it is %s", r->name,
                         fsm_place_name(place));
    return error_set(e, edge->code, 0, "cannot %s '%s' while it is %s", fsm_event_name(event), r->name,
                     fsm_place_name(place));
}

/* A refusal is part of the history, but not worth failing for: its answer is right without it. */
static void record_refusal(const struct engine *engine, const struct engine_subject *subject,
                           const struct engine_look *look, enum fsm_event event)
{
    struct journal_guard guard = { .id = look->record.id, .seq = look->record.seq };
    struct engine_look after = *look;
    struct error ignored = { 0 };
    struct batch b = { .count = 0 };

    if (!look->found || look->record.damaged || strcmp(look->record.refused, fsm_event_name(event)) == 0)
        return;
    struct journal_entry *refused = batch_add(&b, JOURNAL_REFUSED, subject, look->record.id, "");
    refused->event = fsm_event_name(event);
    refused->state = fsm_state_name(look->place);
    (void)commit(engine, subject, &guard, &b, &after, &ignored);
}

/* Is the activity the one that EVENT asks for, but nobody works on it (any more)? */
static int is_abandoned(const struct engine *engine, const struct engine_subject *subject,
                        const struct engine_look *look, struct error *e)
{
    if (!fsm_is_working(look->place) || look->place == FSM_STARTING)
        return 0; /* a start is owned by the session that it began, until it is overdue: then it is stopped */
    if (look->known == KNOWN_OVERDUE)
        return 1;
    int owned = engine->host->is_locked(engine->host_self, HOST_LOCK_OP, subject->name, e);

    return owned < 0 ? -1 : !owned;
}

int engine_decide(const struct engine *engine, const struct engine_subject *subject,
                  const struct engine_look *look, enum fsm_event event, struct error *e)
{
    enum fsm_event here = event_here(look->place, event);

    switch (fsm_find_edge(look->place, here)->verdict) {
    case FSM_MOVE:
        return 1;
    case FSM_SAME:
        return is_abandoned(engine, subject, look, e);
    case FSM_REFUSE:
        break;
    }
    record_refusal(engine, subject, look, event);
    return refuse(&look->record, look->place, event, e);
}

/* --- running ------------------------------------------------------------------------------------------- */

/* What a failed step leads to. A stop that failed left the guest as it is observed to be; without proof the
 * state stands (EV_NONE) until a look has one. */
static unsigned find_failure(const struct operation *o, const struct step_context *context)
{
    struct observation seen = { .event = EV_NONE };
    struct error ignored = { 0 };

    if (context->outcome == EV_LOST)
        return EV_LOST;
    if (o->request->operation != OPERATION_STOP)
        return EV_FAILED;
    if (o->subject->observe(o->subject->self, &o->record->facts, FAILURE_OBSERVE_MS, &seen, &ignored) < 0)
        return EV_NONE;
    if (seen.event == EV_GUEST_GONE || seen.event == EV_SETUP_REQUIRED)
        return seen.event;
    return seen.alive ? EV_FAILED : EV_NONE;
}

static enum fsm_verdict find_edge(unsigned place, unsigned event, unsigned *to)
{
    const struct fsm_edge *edge = fsm_find_edge(place, event);

    *to = edge->to;
    return edge->verdict;
}

static const char *event_name(unsigned event)
{
    return fsm_event_name(event);
}

static const char *state_name(unsigned place)
{
    return fsm_state_name(place);
}

static const char *activity_name(unsigned place)
{
    return fsm_activity_name(place);
}

static unsigned parse(const struct journal_record *r)
{
    return fsm_parse_place(r->state, r->activity);
}

static const struct machine sandboxes = { .find_edge = find_edge,
                                          .event_name = event_name,
                                          .state_name = state_name,
                                          .activity_name = activity_name,
                                          .parse = parse,
                                          .done = EV_DONE,
                                          .failed = EV_FAILED,
                                          .refuse = refuse,
                                          .find_failure = find_failure };

int engine_run(const struct engine *engine, const struct engine_subject *subject,
               const struct engine_request *request, struct engine_look *look, struct error *e)
{
    struct operation o = { .machine = &sandboxes,
                           .engine = engine,
                           .subject = subject,
                           .request = request,
                           .event = request->event,
                           .record = &look->record,
                           .place = look->place };
    struct error unreadable = { 0 };

    if (fsm_find_edge(look->place, request->event)->verdict == FSM_REFUSE)
        return refuse(&look->record, o.place, request->event, e); /* it changed since the caller decided */
    int r = operation_run(&o, e);

    return set_place(subject, look, r < 0 ? &unreadable : e) < 0 ? -1 : r;
}

/* --- cancelling ---------------------------------------------------------------------------------------- */

static int changed_meanwhile(const struct engine_look *look, struct error *e)
{
    return error_set(e, ERROR_SANDBOX_BUSY, 0, "'%s' changed meanwhile: it is %s now", look->record.name,
                     fsm_place_name(look->place));
}

/* Takes the operation away from its owner: from now on each of its transactions fails. */
static int fence(const struct engine *engine, const struct engine_subject *subject, struct engine_look *look,
                 struct error *e)
{
    enum fsm_event event = event_here(look->place, EV_STOP);
    const struct fsm_edge *edge = fsm_find_edge(look->place, event);
    struct journal_record before = look->record;
    struct journal_guard guard = {
        .id = before.id, .state = before.state, .activity = before.activity, .ends = true
    };
    struct batch b = { .count = 0 };
    char op_id[JOURNAL_ID_SIZE], token[JOURNAL_ID_SIZE];
    char reason[sizeof(look->message)] = "cancelled by sandbox stop";

    if (event == EV_CANCEL) /* what was being made stays half made */
        explain_interruption(subject, &before.facts, reason, sizeof(reason));
    engine->host->random_id(engine->host_self, op_id);
    engine->host->random_id(engine->host_self, token);
    struct journal_entry *op = batch_add(&b, JOURNAL_OP, subject, before.id, op_id);

    op->command = fsm_operation_name(OPERATION_STOP);
    op->token = token;
    if (edge->verdict == FSM_MOVE)
        batch_add_move(&b, &sandboxes, subject, before.id, op_id, look->place, event)->reason = reason;
    if (!fsm_is_working(edge->to))
        batch_add_end(&b, subject, before.id, op_id, "OK", NULL);
    int done = commit(engine, subject, &guard, &b, look, e);

    if (done == 0)
        return changed_meanwhile(look, e);
    return done < 0 ? -1 : 0;
}

int engine_cancel(const struct engine *engine, const struct engine_subject *subject, struct engine_look *look,
                  int *lock_fd, struct error *e)
{
    struct process_id owner = look->record.owner;
    int lock = -1;

    if (fence(engine, subject, look, e) < 0)
        return -1;
    if (owner.pid > 0 && engine->host->end_process(engine->host_self, &owner, CANCEL_GRACE_MS, e) < 0)
        return -1;
    int taken =
        engine->host->lock(engine->host_self, HOST_LOCK_OP, subject->name, CANCEL_LOCK_WAIT_MS, &lock, e);

    if (taken < 0)
        return -1;
    if (taken == 0)
        return error_set(e, ERROR_SANDBOX_BUSY, 0,
                         "the cancelled command on '%s' has ended, but a child of it has not", subject->name);
    int r = read_fold(engine, subject, look, e); /* before the lock was ours, another look had it */

    if (r == 0 && fsm_is_working(look->place)) {
        *lock_fd = lock;
        return 1;
    }
    engine->host->unlock(engine->host_self, lock);
    if (r == 0 && fsm_find_edge(look->place, EV_STOP)->verdict == FSM_MOVE)
        return changed_meanwhile(look, e);
    return r;
}

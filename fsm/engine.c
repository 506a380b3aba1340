#include "fsm/engine.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Entries of one transaction: op, move, begin; or the done of every step that shared a begin, move, end. */
#define ENTRIES_MAX      16
#define SHARED_STEPS_MAX (ENTRIES_MAX - 2)

#define LOOK_LOCK_WAIT_MS   20   /* long enough for another look to finish its one commit */
#define CANCEL_GRACE_MS     5000 /* SIGTERM to SIGKILL, design: "Cancel" */
#define CANCEL_LOCK_WAIT_MS 2000 /* the kernel frees the dead owner's lock */
#define OVERDUE_MARGIN_MS   2000 /* the owner enforces the bound itself: a look comes after it */
#define FAILURE_OBSERVE_MS  1000 /* how long a failed stop may look at what it left */

struct batch { /* entries that become true together */
    struct journal_entry entries[ENTRIES_MAX];
    size_t count;
};

struct run { /* one operation on its way */
    const struct engine *engine;
    const struct engine_subject *subject;
    const struct engine_request *request;
    const struct plan *plan;
    struct engine_look *look;
    int64_t started_ms; /* boot time */
    char id[JOURNAL_ID_SIZE];
    char op[JOURNAL_ID_SIZE];
    char token[JOURNAL_ID_SIZE];
    bool resumed;
};

/* --- entries ------------------------------------------------------------------------------------------- */

static struct journal_entry *batch_add(struct batch *b, enum journal_kind kind,
                                       const struct engine_subject *subject, const char *id, const char *op)
{
    assert(b->count < ENTRIES_MAX);
    struct journal_entry *entry = &b->entries[b->count++];

    *entry = (struct journal_entry){ .kind = kind, .name = subject->name, .status = -1 };
    entry->id = id;
    entry->provider = subject->provider;
    entry->op = op[0] == '\0' ? NULL : op;
    return entry;
}

static struct journal_entry *batch_add_move(struct batch *b, const struct engine_subject *subject,
                                            const char *id, const char *op, enum fsm_place from,
                                            enum fsm_event event)
{
    const struct fsm_edge *edge = fsm_find_edge(from, event);
    struct journal_entry *move = batch_add(b, JOURNAL_MOVE, subject, id, op);

    assert(edge->verdict == FSM_MOVE);
    move->event = fsm_event_name(event);
    move->from = fsm_state_name(from);
    move->to = fsm_state_name(edge->to);
    move->activity = fsm_activity_name(edge->to);
    return move;
}

static void batch_add_end(struct batch *b, const struct engine_subject *subject, const char *id,
                          const char *op, const char *code, const char *message)
{
    struct journal_entry *end = batch_add(b, JOURNAL_END, subject, id, op);

    end->code = code;
    end->message = message;
}

/* What the record says; what was observed before it is of the past. A journal may be damaged, or written by a
 * newer agent-desktop with more states. */
static int set_place(struct engine_look *look, struct error *e)
{
    look->known = KNOWN_NOTHING;
    look->message[0] = '\0';
    look->place = fsm_parse_place(look->record.state, look->record.activity);
    look->found = look->place != FSM_MISSING;
    if (look->place == FSM_NONE)
        return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal says '%s' is '%s', which is no state",
                         look->record.name, look->record.state);
    return 0;
}

/* The fold drops facts that do not fit, so they are not written. */
static int check_facts(const struct batch *b, const struct journal_record *before, struct error *e)
{
    struct facts merged = before->facts;

    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].facts != NULL && !facts_merge(&merged, b->entries[i].facts))
            return error_set(e, ERROR_INTERNAL, 0, "'%s' would have more than %d facts", before->name,
                             FACTS_MAX);
    return 0;
}

/* 1 when recorded, 0 when the guard did not hold, -1; LOOK is updated to what stands unless it failed. */
static int commit(const struct engine *engine, const struct engine_subject *subject,
                  const struct journal_guard *guard, const struct batch *b, struct engine_look *look,
                  struct error *e)
{
    if (check_facts(b, &look->record, e) < 0)
        return -1;
    int done = engine->journal->commit(engine->journal_self, subject->name, guard, b->entries, b->count,
                                       &look->record, e);

    return done < 0 || set_place(look, e) < 0 ? -1 : done;
}

/* --- looking ------------------------------------------------------------------------------------------- */

static int read_fold(const struct engine *engine, const char *name, struct engine_look *out, struct error *e)
{
    int found = engine->journal->find(engine->journal_self, name, &out->record, e);

    if (found < 0)
        return -1;
    if (found == 0)
        journal_record_init(&out->record, name);
    return set_place(out, e);
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
        look->known = is_overdue(engine, plan, &look->record) ? KNOWN_OVERDUE : KNOWN_NOTHING;
        if (owned)
            return 0;
        if (fsm_find_edge(look->place, EV_OWNER_LOST)->verdict == FSM_MOVE) {
            seen->event = EV_OWNER_LOST;
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
    struct journal_entry *move = batch_add_move(&b, subject, before.id, before.op, look->place, seen->event);

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
    int r = read_fold(engine, subject->name, look, e);

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

    if (read_fold(engine, subject->name, out, e) < 0)
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

static int refuse(const struct engine_look *look, enum fsm_event event, struct error *e)
{
    const struct fsm_edge *edge = fsm_find_edge(look->place, event);
    const char *name = look->record.name;

    if (edge->code == ERROR_SANDBOX_NOT_FOUND)
        return error_set(e, edge->code, 0, "no sandbox is named '%s'", name);
    if (edge->code == ERROR_SANDBOX_EXISTS)
        return error_set(e, edge->code, 0, "a sandbox named '%s' exists already; it is %s", name,
                         fsm_place_name(look->place));
    return error_set(e, edge->code, 0, "cannot %s '%s' while it is %s", fsm_event_name(event), name,
                     fsm_place_name(look->place));
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
    return refuse(look, event, e);
}

/* --- running ------------------------------------------------------------------------------------------- */

/* What to say when the guard of the first transaction did not hold: another command was faster. */
static int lost_race(const struct run *run, struct error *e)
{
    const struct fsm_edge *edge = fsm_find_edge(run->look->place, run->request->event);

    if (edge->verdict == FSM_REFUSE)
        return refuse(run->look, run->request->event, e);
    return error_set(e, ERROR_SANDBOX_BUSY, 0, "another command was faster: '%s' is %s now",
                     run->look->record.name, fsm_place_name(run->look->place));
}

static void add_step(const struct run *run, struct batch *b, const char *step, const char *phase,
                     int64_t attempt)
{
    struct journal_entry *entry = batch_add(b, JOURNAL_STEP, run->subject, run->id, run->op);

    entry->step = step;
    entry->phase = phase;
    entry->attempt = attempt;
}

/* One transaction of an operation that has begun; it holds only while the token is ours. */
static int commit_fenced(const struct run *run, const struct batch *b, struct error *e)
{
    struct journal_guard guard = { .id = run->id, .token = run->token, .ends = true };
    int done = commit(run->engine, run->subject, &guard, b, run->look, e);

    if (done == 0)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the %s of '%s' was cancelled by another command",
                         fsm_operation_name(run->request->operation), run->subject->name);
    return done < 0 ? -1 : 0;
}

/* These free what a full disk lacks, so they must be able to begin on it. */
static bool is_ending(enum fsm_operation operation)
{
    return operation == OPERATION_STOP || operation == OPERATION_REMOVE;
}

/* Intent, before any effect: op, the move into the activity (unless it is there already), the first begin. */
static int begin(struct run *run, struct error *e)
{
    const struct engine_request *request = run->request;
    struct journal_record before = run->look->record;
    enum fsm_place from = run->look->place;
    struct journal_guard guard = { .absent = from == FSM_MISSING,
                                   .state = before.state,
                                   .ends = is_ending(request->operation) };
    struct batch b = { .count = 0 };

    if (fsm_find_edge(from, request->event)->verdict == FSM_REFUSE)
        return refuse(run->look, request->event, e); /* it changed since the caller decided */
    if (!guard.absent) {
        guard.activity = before.activity;
        guard.id = before.damaged ? NULL : before.id;
    }
    struct journal_entry *op = batch_add(&b, JOURNAL_OP, run->subject, run->id, run->op);

    op->command = fsm_operation_name(request->operation);
    op->options = request->options;
    op->token = run->token;
    if (fsm_find_edge(from, request->event)->verdict == FSM_MOVE) {
        struct journal_entry *move = batch_add_move(&b, run->subject, run->id, run->op, from, request->event);
        move->facts = request->facts;
    }
    add_step(run, &b, run->plan->steps[0].name, "begin", 1);
    int done = commit(run->engine, run->subject, &guard, &b, run->look, e);

    if (done == 0)
        return lost_race(run, e);
    return done < 0 ? -1 : 0;
}

/* Runs one step to its end; AGAIN is a wait of the engine's, within the plan's bound. */
static enum step_result run_step(struct run *run, const struct step *step, struct step_context *context,
                                 struct error *e)
{
    const struct host_ops *host = run->engine->host;
    void *self = run->engine->host_self;

    if (run->request->on_step != NULL)
        run->request->on_step(run->request->on_step_self, step->name);
    for (context->attempt = 1;; context->attempt++) {
        context->again_ms = 0;
        enum step_result result = step->run(run->subject->self, context, e);

        if (result != STEP_AGAIN)
            return result;
        if (run->plan->bound_ms > 0 && host->boot_ms(self) - run->started_ms > run->plan->bound_ms) {
            error_set(e, ERROR_TIMEOUT, 0, "%s of '%s' took longer than %d s", step->name, run->subject->name,
                      run->plan->bound_ms / 1000);
            return STEP_FAILED;
        }
        host->sleep_ms(self, context->again_ms);
    }
}

/* What a failed step leads to. A stop that failed left the guest as it is observed to be; without proof the
 * state stands (EV_NONE) until a look has one. */
static enum fsm_event failure_event(const struct run *run)
{
    struct observation seen = { .event = EV_NONE };
    struct error ignored = { 0 };

    if (run->request->operation != OPERATION_STOP)
        return EV_FAILED;
    if (run->subject->observe(run->subject->self, &run->look->record.facts, FAILURE_OBSERVE_MS, &seen,
                              &ignored) < 0)
        return EV_NONE;
    if (seen.event == EV_GUEST_GONE || seen.event == EV_SETUP_REQUIRED)
        return seen.event;
    return seen.alive ? EV_FAILED : EV_NONE;
}

static int fail(struct run *run, const struct step *step, const struct step_context *context, struct error *e)
{
    struct batch b = { .count = 0 };
    struct error ignored = { 0 };

    if (e->code == ERROR_NONE)
        error_set(e, ERROR_INTERNAL, 0, "step %s failed without a reason", step->name);
    add_step(run, &b, step->name, "failed", context->attempt);
    enum fsm_event event = context->outcome == EV_LOST ? EV_LOST : failure_event(run);

    if (event != EV_NONE)
        batch_add_move(&b, run->subject, run->id, run->op, run->look->place, event)->reason = e->message;
    batch_add_end(&b, run->subject, run->id, run->op, error_code_name(e->code), e->message);
    /* When even this cannot be written the step's error is still the one to tell: the next look finds the
     * operation without an owner. */
    (void)commit_fenced(run, &b, &ignored);
    return -1;
}

/* Steps FIRST to LAST have shared one begin: all are done now. With NEXT the following begins; without, the
 * operation is over. */
static int record_done(struct run *run, const struct step *first, const struct step *last,
                       const struct step_context *context, struct error *e)
{
    const struct step *next = last[1].name != NULL ? last + 1 : NULL;
    struct batch b = { .count = 0 };

    for (const struct step *step = first; step <= last; step++)
        add_step(run, &b, step->name, "done", step == last ? context->attempt : 1);
    b.entries[b.count - 1].facts = context->outputs->count > 0 ? context->outputs : NULL;
    if (next != NULL) {
        add_step(run, &b, next->name, "begin", 1);
        return commit_fenced(run, &b, e);
    }
    enum fsm_event outcome = context->outcome == EV_NONE ? EV_DONE : context->outcome;
    struct journal_entry *move =
        batch_add_move(&b, run->subject, run->id, run->op, run->look->place, outcome);

    move->reason = context->note;
    batch_add_end(&b, run->subject, run->id, run->op, "OK", NULL);
    return commit_fenced(run, &b, e);
}

static int run_steps(struct run *run, struct error *e)
{
    struct facts outputs = { .count = 0 };
    struct step_context context = { .outputs = &outputs, .token = run->token, .resumed = run->resumed };
    const struct step *first = run->plan->steps;

    for (const struct step *step = first; step->name != NULL; step++) {
        context.facts = &run->look->record.facts;
        if (run_step(run, step, &context, e) == STEP_FAILED)
            return fail(run, step, &context, e);
        if (step->inside && step[1].name != NULL && step[1].inside && step - first + 1 < SHARED_STEPS_MAX)
            continue;
        if (record_done(run, first, step, &context, e) < 0)
            return -1;
        first = step + 1;
        outputs.count = 0;
    }
    return 0;
}

int engine_run(const struct engine *engine, const struct engine_subject *subject,
               const struct engine_request *request, struct engine_look *look, struct error *e)
{
    struct run run = { .engine = engine,
                       .subject = subject,
                       .request = request,
                       .plan = &subject->plans[request->operation],
                       .look = look,
                       .started_ms = engine->host->boot_ms(engine->host_self),
                       .resumed = strcmp(look->record.command, fsm_operation_name(request->operation)) == 0 };

    if (run.plan->steps == NULL)
        return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0, "the %s provider cannot %s a sandbox",
                         subject->provider, fsm_operation_name(request->operation));
    engine->host->random_id(engine->host_self, run.op);
    engine->host->random_id(engine->host_self, run.token);
    if (look->found && !look->record.damaged)
        memcpy(run.id, look->record.id, sizeof(run.id));
    else
        engine->host->random_id(engine->host_self, run.id);
    if (begin(&run, e) < 0)
        return -1;
    return run_steps(&run, e);
}

/* --- cancelling ---------------------------------------------------------------------------------------- */

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

    engine->host->random_id(engine->host_self, op_id);
    engine->host->random_id(engine->host_self, token);
    struct journal_entry *op = batch_add(&b, JOURNAL_OP, subject, before.id, op_id);

    op->command = fsm_operation_name(OPERATION_STOP);
    op->token = token;
    if (edge->verdict == FSM_MOVE)
        batch_add_move(&b, subject, before.id, op_id, look->place, event)->reason =
            "cancelled by sandbox stop";
    if (!fsm_is_working(edge->to))
        batch_add_end(&b, subject, before.id, op_id, "OK", NULL);
    int done = commit(engine, subject, &guard, &b, look, e);

    if (done == 0)
        return error_set(e, ERROR_SANDBOX_BUSY, 0, "'%s' changed meanwhile: it is %s now", subject->name,
                         fsm_place_name(look->place));
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
    if (fsm_is_working(look->place)) {
        *lock_fd = lock;
        return 1;
    }
    engine->host->unlock(engine->host_self, lock);
    return 0;
}

#include "fsm/operation.h"

#include <assert.h>
#include <string.h>

#define SHARED_STEPS_MAX (BATCH_MAX - 2)

/* --- entries ------------------------------------------------------------------------------------------- */

struct journal_entry *batch_add(struct batch *b, enum journal_kind kind, const struct engine_subject *subject,
                                const char *id, const char *op)
{
    assert(b->count < BATCH_MAX);
    struct journal_entry *entry = &b->entries[b->count++];

    *entry = (struct journal_entry){ .kind = kind, .name = subject->name, .status = -1 };
    entry->id = id;
    entry->provider = subject->provider;
    entry->op = op[0] == '\0' ? NULL : op;
    return entry;
}

struct journal_entry *batch_add_move(struct batch *b, const struct machine *machine,
                                     const struct engine_subject *subject, const char *id, const char *op,
                                     unsigned from, unsigned event)
{
    struct journal_entry *move = batch_add(b, JOURNAL_MOVE, subject, id, op);
    unsigned to = 0;
    enum fsm_verdict verdict = machine->find_edge(from, event, &to);

    assert(verdict == FSM_MOVE);
    (void)verdict;
    move->event = machine->event_name(event);
    move->from = machine->state_name(from);
    move->to = machine->state_name(to);
    move->activity = machine->activity_name(to);
    return move;
}

void batch_add_end(struct batch *b, const struct engine_subject *subject, const char *id, const char *op,
                   const char *code, const char *message)
{
    struct journal_entry *end = batch_add(b, JOURNAL_END, subject, id, op);

    end->code = code;
    end->message = message;
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

int batch_commit(const struct batch *b, const struct engine *engine, const char *name,
                 const struct journal_guard *guard, struct journal_record *record, struct error *e)
{
    if (check_facts(b, record, e) < 0)
        return -1;
    return engine->journal->commit(engine->journal_self, name, guard, b->entries, b->count, record, e);
}

/* --- intent -------------------------------------------------------------------------------------------- */

static enum fsm_verdict find_verdict(const struct operation *o, unsigned place, unsigned event)
{
    unsigned to;

    return o->machine->find_edge(place, event, &to);
}

static int commit(struct operation *o, const struct batch *b, const struct journal_guard *guard,
                  struct error *e)
{
    int done = batch_commit(b, o->engine, o->subject->name, guard, o->record, e);

    if (done < 0)
        return -1;
    o->place = o->machine->parse(o->record);
    if (o->place == 0)
        return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal says '%s' is '%s', which is no state",
                         o->record->name, o->record->state);
    return done;
}

/* What to say when the guard of the first transaction did not hold: another command was faster. */
static int lost_race(const struct operation *o, struct error *e)
{
    const char *activity = o->machine->activity_name(o->place);

    if (find_verdict(o, o->place, o->event) == FSM_REFUSE)
        return o->machine->refuse(o->record, o->place, o->event, e);
    return error_set(e, ERROR_SANDBOX_BUSY, 0, "another command was faster: '%s' is %s now", o->record->name,
                     activity != NULL ? activity : o->machine->state_name(o->place));
}

static void add_step(const struct operation *o, struct batch *b, const char *step, const char *phase,
                     int64_t attempt)
{
    struct journal_entry *entry = batch_add(b, JOURNAL_STEP, o->subject, o->id, o->op);

    entry->step = step;
    entry->phase = phase;
    entry->attempt = attempt;
}

/* These free what a full disk lacks, so they must be able to begin on it. */
static bool is_ending(enum fsm_operation operation)
{
    return operation == OPERATION_STOP || operation == OPERATION_REMOVE;
}

/* What was seen before, where that moves; before the operation's own entries, because a move to "missing"
 * ends the record. Returns the place it leads to. */
static unsigned add_seen(const struct operation *o, struct batch *b)
{
    unsigned to = o->place;

    if (o->seen == 0 || o->machine->find_edge(o->place, o->seen, &to) != FSM_MOVE)
        return o->place;
    batch_add_move(b, o->machine, o->subject, o->id, "", o->place, o->seen);
    return to;
}

/* Intent, before any effect: op, the move into the activity (unless it is there already), the first begin. */
static int begin(struct operation *o, struct error *e)
{
    const struct engine_request *request = o->request;
    struct journal_record before = *o->record;
    struct journal_guard guard = { .absent = !journal_record_exists(&before),
                                   .state = before.state,
                                   .ends = is_ending(request->operation) };
    struct batch b = { .count = 0 };

    if (!guard.absent) {
        guard.activity = before.activity;
        guard.id = before.damaged ? NULL : before.id;
    }
    unsigned from = add_seen(o, &b);
    struct journal_entry *op = batch_add(&b, JOURNAL_OP, o->subject, o->id, o->op);

    op->command = fsm_operation_name(request->operation);
    op->options = request->options;
    op->token = o->token;
    if (find_verdict(o, from, o->event) == FSM_MOVE)
        batch_add_move(&b, o->machine, o->subject, o->id, o->op, from, o->event)->facts = request->facts;
    add_step(o, &b, o->plan->steps[0].name, "begin", 1);
    int done = commit(o, &b, &guard, e);

    if (done == 0)
        return lost_race(o, e);
    return done < 0 ? -1 : 0;
}

/* One transaction of an operation that has begun; it holds only while the token is ours. */
static int commit_fenced(struct operation *o, const struct batch *b, struct error *e)
{
    struct journal_guard guard = { .id = o->id, .token = o->token, .ends = true };
    int done = commit(o, b, &guard, e);

    if (done == 0)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the %s of '%s' was cancelled by another command",
                         fsm_operation_name(o->request->operation), o->subject->name);
    return done < 0 ? -1 : 0;
}

/* --- steps --------------------------------------------------------------------------------------------- */

/* Runs one step to its end; AGAIN is a wait of the engine's, within the plan's bound. */
static enum step_result run_step(struct operation *o, const struct step *step, struct step_context *context,
                                 struct error *e)
{
    const struct host_ops *host = o->engine->host;
    void *self = o->engine->host_self;

    if (o->request->on_step != NULL)
        o->request->on_step(o->request->on_step_self, step->name);
    for (context->attempt = 1;; context->attempt++) {
        context->again_ms = 0;
        enum step_result result = step->run(o->subject->self, context, e);

        if (result != STEP_AGAIN)
            return result;
        if (o->plan->bound_ms > 0 && host->boot_ms(self) - o->started_ms > o->plan->bound_ms) {
            error_set(e, ERROR_TIMEOUT, 0, "%s of '%s' took longer than %d s", step->name, o->subject->name,
                      o->plan->bound_ms / 1000);
            return STEP_FAILED;
        }
        host->sleep_ms(self, context->again_ms);
    }
}

static int fail(struct operation *o, const struct step *step, const struct step_context *context,
                struct error *e)
{
    struct batch b = { .count = 0 };
    struct error ignored = { 0 };

    if (e->code == ERROR_NONE)
        error_set(e, ERROR_INTERNAL, 0, "step %s failed without a reason", step->name);
    add_step(o, &b, step->name, "failed", context->attempt);
    unsigned event = o->machine->find_failure(o, context);

    if (event != 0)
        batch_add_move(&b, o->machine, o->subject, o->id, o->op, o->place, event)->reason = e->message;
    batch_add_end(&b, o->subject, o->id, o->op, error_code_name(e->code), e->message);
    /* When even this cannot be written the step's error is still the one to tell: the next look finds the
     * operation without an owner. */
    (void)commit_fenced(o, &b, &ignored);
    return -1;
}

/* Steps FIRST to LAST have shared one begin: all are done now. With NEXT the following begins; without, the
 * operation is over. */
static int record_done(struct operation *o, const struct step *first, const struct step *last,
                       const struct step_context *context, struct error *e)
{
    const struct step *next = last[1].name != NULL ? last + 1 : NULL;
    struct batch b = { .count = 0 };

    for (const struct step *step = first; step <= last; step++)
        add_step(o, &b, step->name, "done", step == last ? context->attempt : 1);
    b.entries[b.count - 1].facts = context->outputs->count > 0 ? context->outputs : NULL;
    if (next != NULL) {
        add_step(o, &b, next->name, "begin", 1);
        return commit_fenced(o, &b, e);
    }
    unsigned outcome = context->outcome == EV_NONE ? o->machine->done : context->outcome;

    batch_add_move(&b, o->machine, o->subject, o->id, o->op, o->place, outcome)->reason = context->note;
    batch_add_end(&b, o->subject, o->id, o->op, "OK", NULL);
    return commit_fenced(o, &b, e);
}

static int run_steps(struct operation *o, struct error *e)
{
    struct facts outputs = { .count = 0 };
    struct step_context context = { .outputs = &outputs, .token = o->token, .resumed = o->resumed };
    const struct step *first = o->plan->steps;

    for (const struct step *step = first; step->name != NULL; step++) {
        context.facts = &o->record->facts;
        if (run_step(o, step, &context, e) == STEP_FAILED)
            return fail(o, step, &context, e);
        if (step->inside && step[1].name != NULL && step[1].inside && step - first + 1 < SHARED_STEPS_MAX)
            continue;
        if (record_done(o, first, step, &context, e) < 0)
            return -1;
        first = step + 1;
        outputs.count = 0;
    }
    return 0;
}

int operation_run(struct operation *o, struct error *e)
{
    const struct engine *engine = o->engine;
    enum fsm_operation kind = o->request->operation;

    o->plan = &o->subject->plans[kind];
    o->started_ms = engine->host->boot_ms(engine->host_self);
    o->resumed = strcmp(o->record->command, fsm_operation_name(kind)) == 0;
    if (o->plan->steps == NULL)
        return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0, "the %s provider cannot %s a sandbox",
                         o->subject->provider, fsm_operation_name(kind));
    engine->host->random_id(engine->host_self, o->op);
    engine->host->random_id(engine->host_self, o->token);
    if (journal_record_exists(o->record) && !o->record->damaged)
        memcpy(o->id, o->record->id, sizeof(o->id));
    else
        engine->host->random_id(engine->host_self, o->id);
    if (begin(o, e) < 0)
        return -1;
    return run_steps(o, e);
}

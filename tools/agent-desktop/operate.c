#include "tools/agent-desktop/operate.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/lock.h"
#include "tools/agent-desktop/envelope.h"
#include "tools/agent-desktop/next.h"
#include "tools/agent-desktop/progress.h"
#include "tools/agent-desktop/recovery.h"
#include "tools/agent-desktop/signals.h"
#include "tools/agent-desktop/worker.h"

#define LOCK_WAIT_MS   1000 /* design: "Commands wait up to 1 s for the op lock" */
#define CLAIM_ATTEMPTS 3
#define WAIT_POLL_MS   250
#define WAIT_MAX_S     (7 * 24 * 3600)

/* Before anything was done. */
static int could_not_look(struct operate *o, struct error *e)
{
    o->unseen = true;
    recovery_excuse_look(e);
    return -1;
}

int operate_open(struct operate *o, const char *name, const char *provider, enum context_mode mode,
                 struct error *e)
{
    if (root_check_name(name, e) < 0 || context_open(&o->context, mode, e) < 0)
        return -1;
    if (sandbox_open(&o->sandbox, &o->context, name, provider, e) < 0)
        return -1;
    if (o->context.mode == CONTEXT_READ)
        return 0;
    return sandbox_look(&o->sandbox, &o->context, e) < 0 ? could_not_look(o, e) : 0;
}

int operate_read_wait(struct operate *o, const struct args *args, struct error *e)
{
    const char *seconds = args_value(args, "wait");
    int ms = -1;

    o->wait = args_has(args, "wait");
    if (seconds != NULL && text_parse_seconds(seconds, "--wait", WAIT_MAX_S, &ms, e) < 0)
        return -1;
    o->wait_ms = ms;
    return 0;
}

/* --- becoming the one who does it ---------------------------------------------------------------------- */

int operate_check_host(struct operate *o, struct error *e)
{
    struct provider_host_report report = { .state = PROVIDER_NONE };

    if (!o->needs_host || o->host_checked)
        return 0;
    if (o->sandbox.ops->inspect_host(&o->context.root, &report, e) < 0) {
        recovery_excuse_look(e);
        return -1;
    }
    o->host_checked = true;
    if (report.state == PROVIDER_READY)
        return 0;
    return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0, "the %s provider is %s: %s", o->sandbox.ops->name,
                     fsm_provider_state_name(report.state), report.message);
}

int operate_upgrade(struct operate *o, struct error *e)
{
    bool creates = o->event == EV_CREATE || o->event == EV_CLONE;
    struct provider_place place = o->sandbox.place;
    char provider[JOURNAL_WORD_SIZE];

    if (o->context.mode >= (creates ? CONTEXT_CREATE : CONTEXT_WRITE))
        return 0;
    memcpy(provider, o->sandbox.provider, sizeof(provider));
    sandbox_close(&o->sandbox);
    if (context_upgrade(&o->context, creates ? CONTEXT_CREATE : CONTEXT_WRITE, e) < 0 ||
        sandbox_open(&o->sandbox, &o->context, place.name, provider, e) < 0)
        return -1;
    o->sandbox.place.source = place.source;
    o->sandbox.place.source_facts = place.source_facts;
    o->sandbox.place.unrecorded = place.unrecorded;
    return sandbox_look(&o->sandbox, &o->context, e) < 0 ? could_not_look(o, e) : 0;
}

static void unlock(int *fd)
{
    util_close_fd(fd);
    *fd = -1;
}

/* A live process is at something that a stop ends instead of waiting for it. */
static bool may_cancel(const struct operate *o)
{
    enum fsm_place place = o->sandbox.look.place;

    return o->event == EV_STOP && (place == FSM_INSTALLING || place == FSM_CLONING || place == FSM_STARTING);
}

/* The op lock is somebody else's. 1 with the lock, 0 when nothing is left to do. */
static int take_over(struct operate *o, struct error *e)
{
    if (may_cancel(o))
        return engine_cancel(&o->context.engine, &o->sandbox.subject, &o->sandbox.look, &o->op_lock, e);
    return error_set(e, ERROR_SANDBOX_BUSY, 0, "another command is working on '%s'", o->sandbox.place.name);
}

/* Is what was decided still so, now that the lock is ours? An install or clone whose lock is free has lost
 * its owner since the look: that is for another look to record. */
static int still_holds(struct operate *o, struct error *e)
{
    if (o->event == EV_STOP && fsm_find_edge(o->sandbox.look.place, EV_STOP)->verdict == FSM_REFUSE)
        return 0;
    return sandbox_is_current(&o->sandbox, &o->context, e);
}

/* One attempt: 1 the operation is ours to do, 0 the state is the answer, -1; 2 the world has changed. */
static int try_claim(struct operate *o, struct error *e)
{
    struct context *c = &o->context;
    const struct host_ops *host = c->engine.host;
    int decided = engine_decide(&c->engine, &o->sandbox.subject, &o->sandbox.look, o->event, e);

    if (decided <= 0)
        return decided;
    if (operate_check_host(o, e) < 0 || operate_upgrade(o, e) < 0)
        return -1;
    int taken = host->lock(c->engine.host_self, HOST_LOCK_OP, o->sandbox.place.name,
                           may_cancel(o) ? 0 : LOCK_WAIT_MS, &o->op_lock, e);

    if (taken <= 0)
        return taken < 0 ? -1 : take_over(o, e);
    int holds = still_holds(o, e);

    if (holds != 0)
        return holds;
    unlock(&o->op_lock);
    return sandbox_look_anew(&o->sandbox, c, e) < 0 ? could_not_look(o, e) : 2;
}

static int claim(struct operate *o, struct error *e)
{
    for (int attempt = 0; attempt < CLAIM_ATTEMPTS; attempt++) {
        int r = try_claim(o, e);

        if (r != 2)
            return r;
    }
    return error_set(e, ERROR_SANDBOX_BUSY, 0, "other commands keep changing '%s'", o->sandbox.place.name);
}

/* --- doing it ------------------------------------------------------------------------------------------ */

struct work {
    struct operate *operate;
    int report_fd; /* -1 in the command itself */
};

static void tell_begun(void *self, const char *step)
{
    struct work *w = self;

    (void)step;
    if (!w->operate->begun && w->report_fd >= 0)
        worker_tell_begun(w->report_fd);
    w->operate->begun = true;
}

static int do_work(struct work *w, struct error *e)
{
    struct operate *o = w->operate;
    struct engine_request request = { .operation = o->operation,
                                      .event = o->event,
                                      .options = o->options,
                                      .facts = o->facts,
                                      .on_step = tell_begun,
                                      .on_step_self = w };

    o->sandbox.place.op_lock = o->op_lock;
    int r = engine_run(&o->context.engine, &o->sandbox.subject, &request, &o->sandbox.look, e);

    if (o->sandbox.look.found)
        sandbox_project(&o->sandbox, &o->context);
    else
        worker_forget_log(&o->context.root, o->sandbox.place.name);
    return r;
}

static int do_work_detached(void *self, int report_fd, struct error *e)
{
    struct work w = { .operate = self, .report_fd = report_fd };

    return context_resume(&w.operate->context, e) < 0 ? -1 : do_work(&w, e);
}

static void show_progress(void *self)
{
    const struct operate *o = self;

    progress_show(&o->context.root, o->sandbox.place.name, fsm_operation_name(o->operation));
}

static int out_of_patience(const struct operate *o, struct error *e)
{
    e->retry = RETRY_SAFE; /* the work goes on: the same command finds it under way */
    return error_set(e, ERROR_TIMEOUT, 0, "the %s of '%s' has not ended yet; the work goes on",
                     fsm_operation_name(o->operation), o->sandbox.place.name);
}

/* who waits has three answers to tell apart, and TIMEOUT is when the waiting ran out. The code's own
 * disposition may be that of a refusal: here something was done, and is recorded. */
static int work_failed(struct operate *o, struct error *e)
{
    if (!o->begun)
        return -1;
    o->cause = e->code;
    e->suggestion = error_suggestion(e);
    if (o->wait)
        e->code = ERROR_ACTION_FAILED;
    if (e->delivery == DELIVERY_DEFAULT)
        e->delivery = DELIVERY_DELIVERED_UNVERIFIED;
    return -1;
}

/* What the journal says now, after the worker was left alone or lost. */
static int look_again(struct operate *o, struct error *e)
{
    struct error cause = *e;
    struct error later = { 0 };

    if (context_resume(&o->context, &later) < 0 || sandbox_look_anew(&o->sandbox, &o->context, &later) < 0) {
        if (cause.code == ERROR_NONE)
            *e = later;
        return -1;
    }
    return cause.code == ERROR_NONE ? 0 : -1;
}

static int await_worker(struct operate *o, struct worker *w, int grace_ms, struct error *e)
{
    enum worker_news news;
    int64_t limit = o->wait ? o->wait_ms : grace_ms;
    int r = worker_await(w, o->sandbox.place.name, limit, o->wait ? show_progress : NULL, o, &news,
                         &o->sandbox.look, e);

    o->begun = w->begun;
    if (o->wait)
        progress_clear();
    if (news == WORKER_ENDED && r < 0)
        work_failed(o, e);
    if (news == WORKER_ENDED && r == 0)
        return 0;
    if (look_again(o, e) < 0)
        return -1;
    return o->wait ? out_of_patience(o, e) : 0;
}

static int do_work_in_worker(struct operate *o, int grace_ms, struct error *e)
{
    struct worker_job job = { .root = &o->context.root,
                              .name = o->sandbox.place.name,
                              .run = do_work_detached,
                              .look = &o->sandbox.look,
                              .self = o };
    struct worker w;

    context_suspend(&o->context);
    if (worker_start(&job, &w, e) < 0)
        return look_again(o, e);
    unlock(&o->op_lock); /* the worker has them: whoever gets them next knows that it is gone */
    unlock(&o->source_lock);
    int r = await_worker(o, &w, grace_ms, e);

    worker_leave(&w);
    return r;
}

/* In this process. A cancel is a SIGTERM (design: "Cancel"): the caller is to get an envelope all the same.
 */
static int do_work_here(struct operate *o, struct error *e)
{
    struct work here = { .operate = o, .report_fd = -1 };
    struct reply nothing = { 0 };
    struct error ended = { .delivery = DELIVERY_UNKNOWN };

    error_set(&ended, ERROR_ACTION_FAILED, 0,
              "the %s of '%s' was cancelled, or this command ended by SIGTERM",
              fsm_operation_name(o->operation), o->sandbox.place.name);
    AUTO_FREE char *last_words = envelope_print(o->command, &nothing, &ended);

    signals_reply_to_term(last_words, envelope_exit_status(&ended));
    int r = do_work(&here, e);

    signals_reply_to_term(NULL, 0);
    return r < 0 ? work_failed(o, e) : 0;
}

static int perform(struct operate *o, struct error *e)
{
    int grace_ms = o->sandbox.subject.plans[o->operation].grace_ms;

    return grace_ms < 0 ? do_work_here(o, e) : do_work_in_worker(o, grace_ms, e);
}

/* --- waiting for somebody else's work ------------------------------------------------------------------ */

/* Where a wait for this event ends well. */
static const bool goals[FSM_EVENT_COUNT][FSM_PLACE_COUNT] = {
    [EV_CREATE] = { [FSM_STOPPED] = true, [FSM_RUNNING] = true, [FSM_NEEDS_SETUP] = true },
    [EV_CLONE] = { [FSM_STOPPED] = true, [FSM_RUNNING] = true, [FSM_NEEDS_SETUP] = true },
    [EV_START] = { [FSM_RUNNING] = true, [FSM_NEEDS_SETUP] = true },
    [EV_STOP] = { [FSM_STOPPED] = true, [FSM_BROKEN] = true }, /* a cancelled install is broken */
    [EV_REMOVE] = { [FSM_MISSING] = true },
};

static int watch_others(struct operate *o, struct error *e)
{
    int64_t deadline = o->wait_ms < 0 ? INT64_MAX : clock_mono_ms() + o->wait_ms;

    while (fsm_is_working(o->sandbox.look.place)) {
        int64_t left = deadline - clock_mono_ms();

        if (left <= 0)
            return out_of_patience(o, e);
        show_progress(o);
        clock_sleep_ms(left < WAIT_POLL_MS ? (int)left : WAIT_POLL_MS);
        if (sandbox_look(&o->sandbox, &o->context, e) < 0)
            return -1;
    }
    return 0;
}

static int await_others(struct operate *o, struct error *e)
{
    int r = watch_others(o, e);

    progress_clear();
    if (r < 0 || goals[o->event][o->sandbox.look.place])
        return r;
    return error_set(e, ERROR_ACTION_FAILED, 0, "'%s' is %s now%s%s", o->sandbox.place.name,
                     fsm_place_name(o->sandbox.look.place),
                     o->sandbox.look.record.reason[0] == '\0' ? "" : ": ", o->sandbox.look.record.reason);
}

/* --- the whole ----------------------------------------------------------------------------------------- */

static int run(struct operate *o, struct error *e)
{
    if (o->event != EV_CREATE && sandbox_check_provider(&o->sandbox, e) < 0)
        return -1; /* a create is refused for what exists, whoever made it */
    int r = claim(o, e);

    if (r == 1)
        r = perform(o, e);
    if (r == 0 && o->wait && fsm_is_working(o->sandbox.look.place))
        r = await_others(o, e);
    return r;
}

/* What a create has left when it failed: whatever it failed for, the way on begins with its removal. */
static bool is_half_made(const struct operate *o)
{
    return o->begun && (o->event == EV_CREATE || o->event == EV_CLONE) && o->sandbox.look.place == FSM_BROKEN;
}

/* The way out of an error: the code's, or the refusal's, or the state's. */
static struct fsm_next find_recovery(const struct operate *o, const struct error *e)
{
    enum fsm_place place = o->sandbox.look.place;
    enum error_code code = o->cause != ERROR_NONE ? o->cause : e->code;

    if (o->unseen)
        return recovery_after_look(code);
    if (code == ERROR_INVALID_ARGS && !o->begun)
        return (struct fsm_next){ NEXT_NONE, false };
    if (recovery_find_command(code) != NEXT_NONE && !is_half_made(o))
        return (struct fsm_next){ recovery_find_command(code), false };
    if (o->event != EV_NONE && fsm_find_edge(place, o->event)->code == code)
        return fsm_find_next_after_refusal(place, o->sandbox.look.known, o->event);
    struct fsm_next next = fsm_find_next(place, o->sandbox.look.known);
    /* A start that has failed would fail again; a removal has room on a full disk. */
    bool fails_again = recovery_needs_person(code) || (o->begun && o->event == EV_START);
    bool can_go_on = code == ERROR_STORE_FULL && next.command == NEXT_REMOVE;

    next.needs_person = next.needs_person || (fails_again && !can_go_on);
    return next;
}

struct other { /* a sandbox of the same provider that takes what a start found no room for */
    const struct operate *operate;
    char name[JOURNAL_NAME_SIZE];
};

static int find_other(void *self, const struct journal_record *r, struct error *e)
{
    struct other *other = self;
    enum fsm_place place = fsm_parse_place(r->state, r->activity);

    (void)e;
    if (strcmp(r->provider, other->operate->sandbox.provider) != 0 ||
        strcmp(r->name, other->operate->sandbox.place.name) == 0 ||
        (place != FSM_RUNNING && place != FSM_NEEDS_SETUP && place != FSM_STARTING))
        return 0;
    snprintf(other->name, sizeof(other->name), "%s", r->name);
    return -1; /* enough */
}

/* A limit on what runs at once: the way out is to stop one of those that do. A person knows which. */
static void recover_from_limit(const struct operate *o, struct reply *reply)
{
    struct other other = { .operate = o };
    struct next_subject subject = { .name = other.name };
    struct error ignored = { 0 };

    (void)journal_each_record(o->context.journal, find_other, &other, &ignored);
    if (other.name[0] == '\0')
        return;
    json_free(reply->recovery);
    reply->recovery = json_new_object();
    next_put(reply->recovery, (struct fsm_next){ NEXT_STOP, true }, &subject);
}

int operate_fail(const struct operate *o, struct reply *reply, const struct error *e)
{
    enum error_code code = o->cause != ERROR_NONE ? o->cause : e->code;

    if (o->sandbox.look.place == FSM_NONE) /* it was not read */
        return -1;
    sandbox_fail(&o->sandbox, reply, find_recovery(o, e));
    if (code == ERROR_LIMIT_REACHED && o->event == EV_START && !o->unseen && o->sandbox.ops->limits_running)
        recover_from_limit(o, reply);
    return -1;
}

int operate_run(struct operate *o, struct reply *reply, struct error *e)
{
    if (run(o, e) < 0)
        return operate_fail(o, reply, e);
    struct reply_view view = sandbox_view(&o->sandbox);

    reply->data = reply_sandbox(&view, &o->context.root);
    return 0;
}

void operate_close(struct operate *o)
{
    unlock(&o->op_lock);
    unlock(&o->source_lock);
    sandbox_close(&o->sandbox);
    context_close(&o->context);
}

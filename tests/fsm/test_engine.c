/* The engine on doubles: a journal in memory, a clock turned by hand, a provider that follows a script. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/util.h"
#include "fsm/engine.h"
#include "tests/doubles/fake_host.h"
#include "tests/doubles/memory_journal.h"

/* --- the provider -------------------------------------------------------------------------------------- */

struct fake_guest { /* what the world is like */
    bool files;
    bool session;
    bool ready;
    bool unfit;          /* its desktop is not there, and nobody can install one */
    int again;           /* steps that ask to come back so many times first */
    const char *failing; /* the step that fails */
    bool lost;           /* and says that nothing is left */
    bool observe_fails;
    const char *says; /* the observation's words */
    const char *left; /* what an interrupted creation is said to have left */
    int more_facts;   /* outputs of the step "spawn", besides the pid */
    int step_runs;
};

static enum step_result finish(struct fake_guest *g, const char *step, struct step_context *c,
                               struct error *e)
{
    g->step_runs++;
    if (g->again > 0) {
        g->again--;
        c->again_ms = 100;
        return STEP_AGAIN;
    }
    if (g->failing != NULL && strcmp(g->failing, step) == 0) {
        error_set(e, ERROR_ACTION_FAILED, 0, "%s went wrong", step);
        c->outcome = g->lost ? EV_LOST : EV_NONE;
        return STEP_FAILED;
    }
    return STEP_DONE;
}

static enum step_result make_files(void *self, struct step_context *c, struct error *e)
{
    struct fake_guest *g = self;
    enum step_result r = finish(g, "files", c, e);

    g->files = g->files || r == STEP_DONE;
    return r;
}

static enum step_result spawn(void *self, struct step_context *c, struct error *e)
{
    struct fake_guest *g = self;
    enum step_result r = finish(g, "spawn", c, e);

    if (r == STEP_DONE) {
        g->session = true;
        facts_set(c->outputs, "pid", "77");
        for (int i = 0; i < g->more_facts; i++) {
            char key[FACT_KEY_SIZE];

            snprintf(key, sizeof(key), "%d-%d", g->step_runs, i);
            facts_set(c->outputs, key, "x");
        }
    }
    return r;
}

static enum step_result desktop(void *self, struct step_context *c, struct error *e)
{
    struct fake_guest *g = self;
    enum step_result r = finish(g, "desktop", c, e);

    g->ready = r == STEP_DONE && !g->unfit;
    g->session = g->session && r != STEP_FAILED;
    c->outcome = r == STEP_FAILED ? c->outcome : g->unfit ? EV_SETUP_REQUIRED : EV_GUEST_READY;
    if (g->unfit)
        facts_set(c->outputs, "desktop", "missing");
    c->note = "all is well";
    return r;
}

static enum step_result halt(void *self, struct step_context *c, struct error *e)
{
    struct fake_guest *g = self;
    enum step_result r = finish(g, "halt", c, e);

    if (r == STEP_DONE)
        g->session = g->ready = false;
    return r;
}

static enum step_result set_aside(void *self, struct step_context *c, struct error *e)
{
    return finish(self, "set-aside", c, e);
}

static enum step_result delete_files(void *self, struct step_context *c, struct error *e)
{
    struct fake_guest *g = self;
    enum step_result r = finish(g, "delete", c, e);

    g->files = g->files && r != STEP_DONE;
    return r;
}

static int fake_observe(void *self, const struct facts *facts, int deadline_ms, struct observation *out,
                        struct error *e)
{
    const struct fake_guest *g = self;

    (void)facts, (void)deadline_ms;
    if (g->observe_fails)
        return error_set(e, ERROR_INTERNAL, 0, "planned fault");
    snprintf(out->message, sizeof(out->message), "%s", g->says != NULL ? g->says : "");
    out->alive = g->session;
    out->event = !g->session ? EV_GUEST_GONE : g->ready ? EV_GUEST_READY : EV_NONE;
    return 0;
}

static bool cannot_be_set_up(const struct facts *facts)
{
    return facts_get(facts, "desktop") != NULL;
}

static void explain(void *self, const struct facts *facts, char *out, size_t room)
{
    const struct fake_guest *g = self;
    size_t said = strlen(out);

    (void)facts;
    if (g->left != NULL)
        snprintf(out + said, room - said, "%s", g->left);
}

static const struct step create_steps[] = { { "directories", make_files, true },
                                            { "files", make_files, true },
                                            { 0 } };
static const struct step start_steps[] = { { "spawn", spawn, false }, { "desktop", desktop, false }, { 0 } };
static const struct step stop_steps[] = { { "halt", halt, false }, { 0 } };
static const struct step remove_steps[] = { { "set-aside", set_aside, false },
                                            { "delete", delete_files, false },
                                            { 0 } };

static const struct plan plans[FSM_OPERATION_COUNT] = {
    [OPERATION_CREATE] = { create_steps, -1, 0 },
    [OPERATION_START] = { start_steps, 5000, 15000 },
    [OPERATION_STOP] = { stop_steps, 5000, 10000 },
    [OPERATION_REMOVE] = { remove_steps, -1, 0 },
};

/* --- a world, and commands on it ----------------------------------------------------------------------- */

struct world {
    struct memory_journal journal;
    struct fake_host host;
    struct fake_guest guest;
    struct engine engine;
    struct engine_subject subject;
};

static void world_init(struct world *w)
{
    memset(w, 0, sizeof(*w));
    w->journal.boot_id = "boot-1";
    w->journal.boot_ms = 1000;
    w->journal.fault = FAULT_BEFORE_COMMIT;
    w->journal.self = (struct process_id){ .pid = 4711, .start = 5 };
    w->host = (struct fake_host){ .journal = &w->journal, .now_ms = 1000 };
    w->engine = (struct engine){ &memory_journal_ops, &w->journal, &fake_host_ops, &w->host };
    w->subject = (struct engine_subject){
        .name = "demo", .provider = "fake", .plans = plans, .observe = fake_observe, .self = &w->guest
    };
    w->subject.explain_interruption = explain;
}

static enum fsm_place look(struct world *w, struct engine_look *out)
{
    struct error e = { 0 };

    assert_int_equal(engine_look(&w->engine, &w->subject, 1000, out, &e), 0);
    assert_int_equal(w->host.locks_out, 0);
    return out->place;
}

static const struct command {
    enum fsm_operation operation;
    enum fsm_event event;
} commands[] = { { OPERATION_CREATE, EV_CREATE },
                 { OPERATION_START, EV_START },
                 { OPERATION_STOP, EV_STOP },
                 { OPERATION_REMOVE, EV_REMOVE } };

enum { CREATE, START, STOP, REMOVE };

/* As a command does it: look, decide, run. 1 when it ran, 0 when there was nothing to do, -1. */
static int command(struct world *w, int which, struct engine_look *l, struct error *e)
{
    const struct engine_request request = { .operation = commands[which].operation,
                                            .event = commands[which].event };

    if (engine_look(&w->engine, &w->subject, 1000, l, e) < 0)
        return -1;
    int go = engine_decide(&w->engine, &w->subject, l, request.event, e);

    if (go <= 0)
        return go;
    return engine_run(&w->engine, &w->subject, &request, l, e) < 0 ? -1 : 1;
}

static enum fsm_place must(struct world *w, int which)
{
    struct engine_look l;
    struct error e = { 0 };

    if (command(w, which, &l, &e) < 0)
        fail_msg("%s", e.message);
    return l.place;
}

static bool has_entry(const struct world *w, const char *what)
{
    for (size_t i = 0; i < w->journal.entry_count; i++)
        if (strcmp(w->journal.entries[i].what, what) == 0)
            return true;
    return false;
}

/* --- tests --------------------------------------------------------------------------------------------- */

static void test_engine__a_life_takes_the_promised_commits(void **state)
{
    static const struct {
        int which;
        enum fsm_place place;
        int commits;
    } life[] = { { CREATE, FSM_STOPPED, 2 }, { START, FSM_RUNNING, 3 }, { STOP, FSM_STOPPED, 2 },
                 { START, FSM_RUNNING, 3 },  { STOP, FSM_STOPPED, 2 },  { REMOVE, FSM_MISSING, 3 } };
    struct world w;

    (void)state;
    world_init(&w);
    for (size_t i = 0; i < ARRAY_LEN(life); i++) {
        int before = w.journal.commits;

        assert_int_equal(must(&w, life[i].which), life[i].place);
        assert_int_equal(w.journal.commits - before, life[i].commits);
    }
    assert_false(w.guest.files);
    assert_true(has_entry(&w, "begin directories"));
    assert_false(has_entry(&w, "begin files")); /* shares the begin of the step before it */
    assert_true(has_entry(&w, "done files"));
}

/* More inside steps than one transaction has room for: they are recorded in several. */
static void test_engine__a_plan_may_have_any_number_of_steps(void **state)
{
    struct step many[60] = { { 0 } };
    struct plan long_plans[FSM_OPERATION_COUNT];
    struct world w;

    (void)state;
    for (size_t i = 0; i + 1 < ARRAY_LEN(many); i++)
        many[i] = (struct step){ "files", make_files, true };
    memcpy(long_plans, plans, sizeof(plans));
    long_plans[OPERATION_CREATE].steps = many;
    world_init(&w);
    w.subject.plans = long_plans;
    assert_int_equal(must(&w, CREATE), FSM_STOPPED);
    assert_int_equal(w.guest.step_runs, ARRAY_LEN(many) - 1);
    assert_true(w.journal.commits < 10);
}

static void test_engine__outputs_become_facts_with_the_done(void **state)
{
    struct world w;
    struct engine_look l;

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    must(&w, START);
    look(&w, &l);
    assert_string_equal(facts_get(&l.record.facts, "pid"), "77");
    assert_string_equal(l.record.reason, "all is well");
}

static void test_engine__same_answers_without_writing(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    must(&w, START);
    int commits = w.journal.commits;

    assert_int_equal(command(&w, START, &l, &e), 0);
    assert_int_equal(l.place, FSM_RUNNING);
    must(&w, STOP);
    assert_int_equal(command(&w, STOP, &l, &e), 0);
    assert_int_equal(w.journal.commits, commits + 2);
}

static void test_engine__a_refusal_is_recorded_once_and_changes_nothing(void **state)
{
    struct world w;
    struct engine_look l;

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    must(&w, START);
    int commits = w.journal.commits;

    for (int i = 0; i < 3; i++) {
        struct error e = { 0 };

        assert_int_equal(command(&w, REMOVE, &l, &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_STATE);
        assert_int_equal(l.place, FSM_RUNNING);
    }
    assert_int_equal(w.journal.commits, commits + 1);
    assert_true(has_entry(&w, "remove"));
}

static void test_engine__missing_and_existing_are_told_apart(void **state)
{
    struct world w;
    struct engine_look l;
    struct error missing = { 0 }, exists = { 0 };

    (void)state;
    world_init(&w);
    assert_int_equal(command(&w, START, &l, &missing), -1);
    assert_int_equal(missing.code, ERROR_SANDBOX_NOT_FOUND);
    assert_int_equal(w.journal.commits, 0);
    must(&w, CREATE);
    assert_int_equal(command(&w, CREATE, &l, &exists), -1);
    assert_int_equal(exists.code, ERROR_SANDBOX_EXISTS);
}

static void test_engine__a_failed_step_is_the_state_and_the_reason(void **state)
{
    static const struct {
        int before, which;
        const char *failing;
        bool stays_up;
        enum fsm_place place;
    } cases[] = {
        { -1, CREATE, "files", false, FSM_BROKEN },       { CREATE, START, "spawn", false, FSM_STOPPED },
        { CREATE, START, "desktop", false, FSM_STOPPED }, { START, STOP, "halt", true, FSM_RUNNING },
        { CREATE, REMOVE, "delete", false, FSM_BROKEN },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world w;
        struct engine_look l;
        struct error e = { 0 };

        world_init(&w);
        for (int c = CREATE; c <= cases[i].before; c++)
            must(&w, c);
        w.guest.failing = cases[i].failing;
        assert_int_equal(command(&w, cases[i].which, &l, &e), -1);
        assert_int_equal(e.code, ERROR_ACTION_FAILED);
        assert_int_equal(l.place, cases[i].place);
        assert_string_equal(l.record.reason, e.message);
        assert_string_equal(l.record.token, "");
        assert_int_equal(look(&w, &l), cases[i].place);
    }
}

/* stopped again, its next command would be the start that failed. */
static void test_engine__a_start_that_finds_nothing_is_broken(void **state)
{
    static const char *const failing[] = { "spawn", "desktop" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(failing); i++) {
        struct world w;
        struct engine_look l;
        struct error e = { 0 };

        world_init(&w);
        must(&w, CREATE);
        w.guest.failing = failing[i];
        w.guest.lost = true;
        assert_int_equal(command(&w, START, &l, &e), -1);
        assert_int_equal(e.code, ERROR_ACTION_FAILED);
        assert_int_equal(l.place, FSM_BROKEN);
        assert_string_equal(l.record.reason, e.message);
        assert_int_equal(look(&w, &l), FSM_BROKEN);
    }
}

static void test_engine__a_stop_that_failed_without_proof_stays_a_stop(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    must(&w, START);
    look(&w, &l);
    const struct engine_request request = { .operation = OPERATION_STOP, .event = EV_STOP };

    w.guest.failing = "halt";
    w.guest.observe_fails = true;
    assert_int_equal(engine_run(&w.engine, &w.subject, &request, &l, &e), -1);
    assert_int_equal(l.place, FSM_STOPPING);
    w.guest.observe_fails = false; /* now there is proof */
    assert_int_equal(look(&w, &l), FSM_RUNNING);
}

static void test_engine__a_stop_that_failed_on_a_dead_guest_is_stopped(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    must(&w, START);
    look(&w, &l);
    const struct engine_request request = { .operation = OPERATION_STOP, .event = EV_STOP };

    w.guest.session = w.guest.ready = false;
    w.guest.failing = "halt";
    assert_int_equal(engine_run(&w.engine, &w.subject, &request, &l, &e), -1);
    assert_int_equal(l.place, FSM_STOPPED);
}

/* whatever commit an operation dies at, the next look tells the truth, and the commands
 * that `next` names lead on. */
static void test_engine__every_commit_may_be_the_last(void **state)
{
    (void)state;
    for (int which = CREATE; which <= REMOVE; which++) {
        for (int fault = FAULT_BEFORE_COMMIT; fault <= FAULT_AFTER_COMMIT; fault++) {
            for (int n = 1, hit = 1; hit; n++) {
                struct world w;
                struct engine_look l;
                struct error e = { 0 };

                world_init(&w);
                for (int c = CREATE; c < which && c < REMOVE; c++)
                    must(&w, c);
                if (which == REMOVE)
                    must(&w, STOP);
                w.journal.fail_at = w.journal.calls + n;
                w.journal.fault = (enum memory_fault)fault;
                int r = command(&w, which, &l, &e);

                hit = w.journal.calls >= w.journal.fail_at;
                assert_true(hit || r == 1);
                assert_int_equal(r < 0, e.code != ERROR_NONE);
                w.journal.fail_at = 0;
                w.guest.session = w.guest.ready; /* one that was not let go ends with its starter */
                for (int turn = 0; turn < 6 && look(&w, &l) != FSM_MISSING; turn++) {
                    assert_false(fsm_is_working(l.place));
                    if (l.place == FSM_RUNNING)
                        assert_true(w.guest.ready);
                    must(&w, l.place == FSM_RUNNING ? STOP : REMOVE);
                }
                assert_int_equal(look(&w, &l), FSM_MISSING);
                assert_false(w.guest.session);
                assert_int_equal(must(&w, CREATE), FSM_STOPPED);
            }
        }
    }
}

static void test_engine__a_fenced_owner_writes_nothing_more(void **state)
{
    struct world w;
    struct engine_look l, other;
    struct error e = { 0 };
    const struct engine_request request = { .operation = OPERATION_START, .event = EV_START };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    look(&w, &l);
    w.journal.fail_at = w.journal.calls + 2; /* the owner "dies" after its first step ... */
    assert_int_equal(engine_run(&w.engine, &w.subject, &request, &l, &e), -1);
    w.journal.fail_at = 0;
    w.guest.session = false;
    assert_int_equal(look(&w, &other), FSM_STOPPED); /* ... is declared dead ... */
    struct journal_guard old_token = { .id = l.record.id, .token = l.record.token };
    struct journal_entry late = { .kind = JOURNAL_STEP, .name = "demo", .step = "spawn", .phase = "done" };

    /* ... and wakes up. */
    assert_int_equal(memory_journal_ops.commit(&w.journal, "demo", &old_token, &late, 1, NULL, &e), 0);
}

/* What the journal keeps room for: everything but to begin something new. */
static void test_engine__on_a_full_disk_whatever_is_there_can_be_ended(void **state)
{
    struct world w;
    struct engine_look l;
    struct error start = { 0 }, refused = { 0 }, create = { 0 };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    w.journal.full = true;
    assert_int_equal(command(&w, START, &l, &start), -1);
    assert_int_equal(start.code, ERROR_STORE_FULL);
    assert_int_equal(l.place, FSM_STOPPED);
    w.journal.full = false;
    must(&w, START);
    w.journal.full = true;
    assert_int_equal(command(&w, REMOVE, &l, &refused), -1); /* a refusal is right without its entry */
    assert_int_equal(refused.code, ERROR_INVALID_STATE);
    assert_int_equal(must(&w, STOP), FSM_STOPPED);
    assert_int_equal(must(&w, REMOVE), FSM_MISSING);
    assert_int_equal(command(&w, CREATE, &l, &create), -1);
    assert_int_equal(create.code, ERROR_STORE_FULL);
    assert_false(w.guest.files);
}

/* A start that had begun is failed, seen dead, and cancelled. */
static void test_engine__on_a_full_disk_what_happened_is_recorded(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };
    int lock = -1;

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    must(&w, START);
    w.journal.full = true;
    w.guest.session = false;
    assert_int_equal(look(&w, &l), FSM_STOPPED);
    w.journal.full = false;
    w.journal.fail_at = w.journal.calls + 2; /* the owner dies after the begin */
    assert_int_equal(command(&w, START, &l, &e), -1);
    w.journal.fail_at = 0;
    w.journal.full = true;
    w.host.op_held_by_other = true;
    assert_int_equal(look(&w, &l), FSM_STARTING);
    assert_int_equal(engine_cancel(&w.engine, &w.subject, &l, &lock, &(struct error){ 0 }), 1);
    assert_int_equal(l.place, FSM_STOPPING);
    w.host.locks_out = 0; /* ours */
    assert_int_equal(must(&w, STOP), FSM_STOPPED);
}

static void test_engine__again_waits_and_the_bound_ends_it(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    w.guest.again = 20;
    int64_t before = w.host.now_ms;

    assert_int_equal(must(&w, START), FSM_RUNNING);
    assert_true(w.host.now_ms - before >= 2000);
    must(&w, STOP);
    w.guest.again = 1000;
    assert_int_equal(command(&w, START, &l, &e), -1);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_int_equal(l.place, FSM_STOPPED);
}

static void test_engine__a_dead_guest_is_seen_by_the_next_look(void **state)
{
    struct world w;
    struct engine_look l;

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    must(&w, START);
    w.guest.session = w.guest.ready = false;
    assert_int_equal(look(&w, &l), FSM_STOPPED);
    assert_string_equal(l.record.reason, "its session ended without a stop");
}

/* What was seen and could not be recorded is not the answer: its words do not stand beside another state. */
static void test_engine__a_look_that_was_too_late_forgets_what_it_saw(void **state)
{
    static const struct journal_entry restarted = { .kind = JOURNAL_MOVE,
                                                    .name = "demo",
                                                    .event = "start",
                                                    .from = "stopped",
                                                    .to = "working",
                                                    .activity = "starting" };

    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        struct world w;
        struct engine_look l;
        struct error e = { 0 };

        world_init(&w);
        must(&w, CREATE);
        w.journal.fail_at = w.journal.calls + 2; /* the starter dies */
        command(&w, START, &l, &e);
        w.journal.fail_at = 0;
        w.guest.session = w.guest.ready = false;
        w.guest.says = "nobody is there";
        fake_host_ops.sleep_ms(&w.host, 18000); /* overdue */
        w.host.meanwhile = &restarted;
        w.host.lock_is_taken = busy;
        assert_int_equal(look(&w, &l), FSM_STARTING);
        assert_int_equal(l.known, KNOWN_NOTHING);
        assert_string_equal(l.message, "");
    }
}

/* The fold drops what does not fit; a fact that is told to be recorded and is not would be a sandbox lost. */
static void test_engine__facts_that_do_not_fit_are_an_error(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    w.guest.more_facts = FACTS_MAX - 1;
    assert_int_equal(must(&w, START), FSM_RUNNING); /* exactly as many as there may be */
    must(&w, STOP);
    assert_int_equal(command(&w, START, &l, &e), -1);
    assert_int_equal(e.code, ERROR_INTERNAL);
    assert_non_null(strstr(e.message, "facts"));
    w.guest.session = w.guest.ready = false;
    assert_int_equal(look(&w, &l), FSM_STOPPED);
    assert_int_equal(l.record.facts.count, FACTS_MAX);
}

/* A newer agent-desktop may know states that this one does not. */
static void test_engine__a_state_that_means_nothing_is_an_error(void **state)
{
    static const struct journal_entry hibernating = {
        .kind = JOURNAL_MOVE, .name = "demo", .event = "hibernate", .from = "stopped", .to = "hibernating"
    };
    const struct engine_request request = { .operation = OPERATION_START, .event = EV_START };
    static const struct journal_guard none;
    struct world w;
    struct engine_look l;
    struct error late = { 0 }, e = { 0 };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    look(&w, &l);
    assert_int_equal(memory_journal_ops.commit(&w.journal, "demo", &none, &hibernating, 1, NULL, &e), 1);
    assert_int_equal(engine_run(&w.engine, &w.subject, &request, &l, &late), -1);
    assert_int_equal(late.code, ERROR_STORE_CORRUPT);
    assert_int_equal(engine_look(&w.engine, &w.subject, 1000, &l, &e), -1);
    assert_int_equal(e.code, ERROR_STORE_CORRUPT);
}

static void test_engine__a_live_owner_is_believed(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };
    const struct engine_request request = { .operation = OPERATION_CREATE, .event = EV_CREATE };

    (void)state;
    world_init(&w);
    look(&w, &l);
    w.journal.fail_at = 2; /* it is still at its step */
    engine_run(&w.engine, &w.subject, &request, &l, &e);
    w.host.op_held_by_other = true;
    assert_int_equal(look(&w, &l), FSM_INSTALLING);
    w.host.op_held_by_other = false; /* killed: R-305 */
    assert_int_equal(look(&w, &l), FSM_BROKEN);
    assert_string_equal(l.record.reason, "its creation was interrupted");
}

static void test_engine__an_interrupted_creation_tells_what_it_left(void **state)
{
    struct engine_look l;
    struct error e = { 0 };
    struct world w;

    (void)state;
    world_init(&w);
    w.journal.fail_at = 2; /* the outcome is never recorded: as if its owner had died */
    w.guest.left = " after 4 of 18 GB";
    assert_int_equal(command(&w, CREATE, &l, &e), -1);
    assert_int_equal(look(&w, &l), FSM_BROKEN);
    assert_string_equal(l.record.reason, "its creation was interrupted after 4 of 18 GB");
}

/* stop cancels what another process is doing. */
static void test_engine__cancel_fences_and_ends_the_owner(void **state)
{
    static const struct {
        int which;
        enum fsm_place during, after;
        int work_left;
        const char *reason;
    } cases[] = {
        { CREATE, FSM_INSTALLING, FSM_BROKEN, 0, "cancelled by sandbox stop after 4 of 18 GB" },
        { START, FSM_STARTING, FSM_STOPPING, 1, "cancelled by sandbox stop" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world w;
        struct engine_look l;
        struct error interrupted = { 0 }, e = { 0 };
        const struct engine_request stop = { .operation = OPERATION_STOP, .event = EV_STOP };
        int lock = -1;

        world_init(&w);
        for (int c = CREATE; c < cases[i].which; c++)
            must(&w, c);
        w.journal.fail_at = w.journal.calls + 2;
        command(&w, cases[i].which, &l, &interrupted);
        w.journal.fail_at = 0;
        w.host.op_held_by_other = true;
        w.guest.left = " after 4 of 18 GB";
        assert_int_equal(look(&w, &l), cases[i].during);
        assert_int_equal(engine_decide(&w.engine, &w.subject, &l, EV_STOP, &e), 1);
        assert_int_equal(engine_cancel(&w.engine, &w.subject, &l, &lock, &e), cases[i].work_left);
        assert_string_equal(l.record.reason, cases[i].reason);
        assert_true(w.host.ended_owner);
        assert_int_equal(l.place, cases[i].after);
        if (cases[i].work_left) {
            assert_int_equal(engine_run(&w.engine, &w.subject, &stop, &l, &e), 0);
            assert_int_equal(l.place, FSM_STOPPED);
            fake_host_ops.unlock(&w.host, lock);
        }
        assert_int_equal(w.host.locks_out, 0);
        assert_false(w.guest.session);
    }
}

/* between the owner's end and the lock, another command saw what the cancel left, and recorded it. */
static void test_engine__a_cancel_finds_that_another_look_has_ended_it(void **state)
{
    static const struct {
        const char *to;
        enum error_code code;
    } cases[] = { { "stopped", ERROR_NONE }, { "running", ERROR_SANDBOX_BUSY } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct journal_entry seen = { .kind = JOURNAL_MOVE,
                                            .name = "demo",
                                            .from = "working",
                                            .to = cases[i].to,
                                            .event = "guest_gone",
                                            .status = -1 };
        struct world w;
        struct engine_look l;
        struct error e = { 0 };
        int lock = -1;

        world_init(&w);
        must(&w, CREATE);
        w.journal.fail_at = w.journal.calls + 2;
        command(&w, START, &l, &(struct error){ 0 });
        w.journal.fail_at = 0;
        w.host.op_held_by_other = true;
        assert_int_equal(look(&w, &l), FSM_STARTING);
        w.host.meanwhile = &seen;
        assert_int_equal(engine_cancel(&w.engine, &w.subject, &l, &lock, &e),
                         cases[i].code == ERROR_NONE ? 0 : -1);
        assert_int_equal(e.code, cases[i].code);
        assert_string_equal(l.record.state, cases[i].to);
        assert_int_equal(w.host.locks_out, 0);
    }
}

static void test_engine__an_overdue_start_is_known_as_such(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    w.journal.fail_at = w.journal.calls + 3; /* the starter dies after the session has begun */
    command(&w, START, &l, &e);
    w.journal.fail_at = 0;
    w.guest.ready = false; /* a session that lives and never answers */
    w.guest.session = true;
    assert_int_equal(look(&w, &l), FSM_STARTING);
    assert_int_equal(l.known, KNOWN_NOTHING);
    fake_host_ops.sleep_ms(&w.host, 18000);
    assert_int_equal(look(&w, &l), FSM_STARTING);
    assert_int_equal(l.known, KNOWN_OVERDUE);
    assert_int_equal(fsm_find_next(l.place, l.known).command, NEXT_STOP);
    assert_int_equal(must(&w, STOP), FSM_STOPPED);
}

/* recorded once, it holds for the rest of its life; only an activity that is overdue comes before it.
 */
static void test_engine__what_cannot_be_set_up_is_known_until_it_is_removed(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };

    (void)state;
    world_init(&w);
    w.subject.cannot_be_set_up = cannot_be_set_up;
    w.guest.unfit = true;
    must(&w, CREATE);
    assert_int_equal(look(&w, &l), FSM_STOPPED);
    assert_int_equal(l.known, KNOWN_NOTHING);
    assert_int_equal(command(&w, START, &l, &e), 1);
    assert_int_equal(l.place, FSM_NEEDS_SETUP);
    assert_int_equal(l.known, KNOWN_UNFIT); /* the answer of the start itself */
    assert_int_equal(look(&w, &l), FSM_NEEDS_SETUP);
    assert_int_equal(l.known, KNOWN_UNFIT);

    w.journal.fail_at = w.journal.calls + 2; /* the stopper dies */
    assert_int_equal(command(&w, STOP, &l, &e), -1);
    w.journal.fail_at = 0;
    w.guest.session = true;
    fake_host_ops.sleep_ms(&w.host, 18000);
    assert_int_equal(look(&w, &l), FSM_STOPPING);
    assert_int_equal(l.known, KNOWN_OVERDUE);

    e = (struct error){ 0 };
    assert_int_equal(command(&w, STOP, &l, &e), 1);
    assert_int_equal(l.place, FSM_STOPPED);
    assert_int_equal(l.known, KNOWN_UNFIT);
    assert_int_equal(fsm_find_next(l.place, l.known).command, NEXT_REMOVE);
    assert_int_equal(command(&w, REMOVE, &l, &e), 1);
    assert_int_equal(l.place, FSM_MISSING);
    assert_int_equal(l.known, KNOWN_NOTHING);
}

static void test_engine__an_abandoned_stop_is_resumed_by_stop(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    must(&w, START);
    w.guest.ready = false; /* alive, but it does not answer any more */
    w.journal.fail_at = w.journal.calls + 2;
    command(&w, STOP, &l, &e);
    w.journal.fail_at = 0;
    w.guest.session = true;
    assert_int_equal(look(&w, &l), FSM_STOPPING);
    assert_int_equal(must(&w, STOP), FSM_STOPPED);
    assert_false(w.guest.session);
}

static void test_engine__a_race_has_one_winner(void **state)
{
    struct world w;
    struct engine_look first, second;
    struct error e = { 0 };
    const struct engine_request create = { .operation = OPERATION_CREATE, .event = EV_CREATE };

    (void)state;
    world_init(&w);
    look(&w, &first);
    look(&w, &second); /* both saw "missing" */
    assert_int_equal(engine_run(&w.engine, &w.subject, &create, &first, &e), 0);
    int runs = w.guest.step_runs;

    assert_int_equal(engine_run(&w.engine, &w.subject, &create, &second, &e), -1);
    assert_int_equal(e.code, ERROR_SANDBOX_EXISTS);
    assert_int_equal(w.guest.step_runs, runs);
}

static void test_engine__running_asks_the_table_again(void **state)
{
    struct world w;
    struct engine_look l;
    struct error e = { 0 };
    const struct engine_request create = { .operation = OPERATION_CREATE, .event = EV_CREATE };

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    int commits = w.journal.commits;

    look(&w, &l); /* read again after the decision, while waiting for the lock */
    assert_int_equal(engine_run(&w.engine, &w.subject, &create, &l, &e), -1);
    assert_int_equal(e.code, ERROR_SANDBOX_EXISTS);
    assert_int_equal(w.journal.commits, commits);
}

static void test_engine__without_proof_the_old_state_stands(void **state)
{
    struct world w;
    struct engine_look l;

    (void)state;
    world_init(&w);
    must(&w, CREATE);
    must(&w, START);
    w.guest.ready = false;
    assert_int_equal(look(&w, &l), FSM_RUNNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine__a_life_takes_the_promised_commits),
        cmocka_unit_test(test_engine__a_plan_may_have_any_number_of_steps),
        cmocka_unit_test(test_engine__outputs_become_facts_with_the_done),
        cmocka_unit_test(test_engine__same_answers_without_writing),
        cmocka_unit_test(test_engine__a_refusal_is_recorded_once_and_changes_nothing),
        cmocka_unit_test(test_engine__missing_and_existing_are_told_apart),
        cmocka_unit_test(test_engine__a_failed_step_is_the_state_and_the_reason),
        cmocka_unit_test(test_engine__a_start_that_finds_nothing_is_broken),
        cmocka_unit_test(test_engine__a_stop_that_failed_without_proof_stays_a_stop),
        cmocka_unit_test(test_engine__a_stop_that_failed_on_a_dead_guest_is_stopped),
        cmocka_unit_test(test_engine__every_commit_may_be_the_last),
        cmocka_unit_test(test_engine__a_fenced_owner_writes_nothing_more),
        cmocka_unit_test(test_engine__on_a_full_disk_whatever_is_there_can_be_ended),
        cmocka_unit_test(test_engine__on_a_full_disk_what_happened_is_recorded),
        cmocka_unit_test(test_engine__again_waits_and_the_bound_ends_it),
        cmocka_unit_test(test_engine__a_dead_guest_is_seen_by_the_next_look),
        cmocka_unit_test(test_engine__a_look_that_was_too_late_forgets_what_it_saw),
        cmocka_unit_test(test_engine__facts_that_do_not_fit_are_an_error),
        cmocka_unit_test(test_engine__a_state_that_means_nothing_is_an_error),
        cmocka_unit_test(test_engine__a_live_owner_is_believed),
        cmocka_unit_test(test_engine__an_interrupted_creation_tells_what_it_left),
        cmocka_unit_test(test_engine__cancel_fences_and_ends_the_owner),
        cmocka_unit_test(test_engine__a_cancel_finds_that_another_look_has_ended_it),
        cmocka_unit_test(test_engine__an_overdue_start_is_known_as_such),
        cmocka_unit_test(test_engine__what_cannot_be_set_up_is_known_until_it_is_removed),
        cmocka_unit_test(test_engine__an_abandoned_stop_is_resumed_by_stop),
        cmocka_unit_test(test_engine__a_race_has_one_winner),
        cmocka_unit_test(test_engine__running_asks_the_table_again),
        cmocka_unit_test(test_engine__without_proof_the_old_state_stands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A hosted sandbox from its creation to its removal, with a service that answers as it is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/journal.h"
#include "core/mem.h"
#include "providers/vercel/vercel.h"
#include "tests/core/scratch.h"
#include "tests/providers/vercel/fake_service.h"

#define TOKEN  "0123456789abcdef"
#define HOSTED "demo-01234567"
#define STEPS  1000 /* more than any operation here comes back */

struct world {
    struct scratch *scratch;
    struct root root;
    struct provider_place place;
    struct vercel_box *box;
    struct facts facts;
    struct facts source; /* of a clone: its own */
    enum fsm_event outcome;
    int64_t waited_ms;
    char note[256];
};

static struct vercel_box *open_box(struct world *w)
{
    struct error e = { 0 };
    void *box = NULL;

    vercel_ops.close(w->box);
    assert_int_equal(vercel_ops.open(&w->place, &box, &e), 0);
    return w->box = box;
}

static int setup(void **state)
{
    struct world *w = mem_alloc(sizeof(*w));

    setenv("VERCEL_TOKEN", "secret", 1);
    setenv("VERCEL_TEAM_ID", "team_a", 1);
    setenv("VERCEL_PROJECT_ID", "prj_a", 1);
    unsetenv("VERCEL_OIDC_TOKEN");
    fake_reset();
    if (scratch_setup((void **)&w->scratch) != 0)
        return -1;
    AUTO_FREE char *path = mem_print("%s/root", w->scratch->path);
    struct error e = { 0 };

    setenv("AGENT_DESKTOP_HOME", path, 1);
    if (root_open(ROOT_WRITE, &w->root, &e) < 0)
        return -1;
    w->place = (struct provider_place){ .root = &w->root, .name = "demo", .op_lock = -1 };
    facts_set(&w->facts, "set.image", "ad-desktop");
    facts_set(&w->facts, "set.persistent", "true");
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    void *scratch = w->scratch;

    vercel_ops.close(w->box);
    root_close(&w->root);
    free(w);
    fake_reset();
    return scratch_teardown(&scratch);
}

/* As the engine does, without its waits. */
static int run(struct world *w, enum fsm_operation operation, struct error *e)
{
    struct facts outputs = { .count = 0 };
    struct step_context c = { .outputs = &outputs, .token = TOKEN };

    if (w->box == NULL)
        open_box(w);
    w->outcome = EV_NONE;
    w->waited_ms = 0;
    for (const struct step *step = vercel_ops.plan[operation].steps; step->name != NULL; step++) {
        enum step_result result = STEP_AGAIN;

        c.facts = &w->facts;
        for (c.attempt = 1; result == STEP_AGAIN; c.attempt++) {
            assert_true(c.attempt < STEPS);
            c.again_ms = 0;
            result = step->run(w->box, &c, e);
            w->waited_ms += result == STEP_AGAIN ? c.again_ms : 0;
        }
        w->outcome = c.outcome;
        snprintf(w->note, sizeof(w->note), "%s", c.note == NULL ? "" : c.note);
        if (result == STEP_FAILED)
            return -1;
        assert_true(facts_merge(&w->facts, &outputs));
        outputs.count = 0;
    }
    return 0;
}

static void must_run(struct world *w, enum fsm_operation operation)
{
    struct error e = { 0 };

    if (run(w, operation, &e) < 0)
        fail_msg("%s", e.message);
}

static void must_fail(struct world *w, enum fsm_operation operation, enum error_code code, const char *words)
{
    struct error e = { 0 };

    assert_int_equal(run(w, operation, &e), -1);
    assert_int_equal(e.code, code);
    if (strstr(e.message, words) == NULL)
        fail_msg("'%s' does not say '%s'", e.message, words);
}

static enum fsm_event observe(struct world *w, struct observation *out)
{
    struct error e = { 0 };

    assert_int_equal(vercel_observe(open_box(w), &w->facts, 2000, out, &e), 0);
    return out->event;
}

static struct hosted *be_created(struct world *w, enum hosted_status status)
{
    struct hosted *box = fake_add(HOSTED, TOKEN, status);

    facts_set(&w->facts, "hosted", HOSTED);
    facts_set(&w->facts, "id", TOKEN);
    facts_set(&w->facts, "team", "team_a");
    facts_set(&w->facts, "project", "prj_a");
    facts_set(&w->facts, "session", box->session);
    return box;
}

static void assert_fact(const struct world *w, const char *key, const char *value)
{
    assert_non_null(facts_get(&w->facts, key));
    assert_string_equal(facts_get(&w->facts, key), value);
}

/* --- create ------------------------------------------------------------------------------------------- */

static void test_r503_a_create_makes_one_that_runs(void **state)
{
    struct world *w = *state;

    must_run(w, OPERATION_CREATE);
    assert_int_equal(w->outcome, EV_GUEST_READY);
    assert_fact(w, "hosted", HOSTED);
    assert_fact(w, "id", TOKEN);
    assert_fact(w, "team", "team_a");
    assert_fact(w, "project", "prj_a");
    assert_fact(w, "session", fake_find(HOSTED)->session);
    assert_string_equal(fake_find(HOSTED)->tag, TOKEN);
    assert_int_equal(fake.makings, 1);
    assert_int_equal(fake.looks, 0);
    assert_int_equal(fake.runs, 1);
    assert_true(scratch_exists(w->scratch, "root/sandboxes/demo"));
    assert_null(strstr(fake.body, "secret"));
}

static void test_r505_what_may_be_left_is_known_before_the_first_request(void **state)
{
    struct world *w = *state;
    struct facts outputs = { .count = 0 };
    struct step_context c = { .facts = &w->facts, .outputs = &outputs, .token = TOKEN, .attempt = 1 };
    struct error e = { 0 };

    assert_int_equal(vercel_create_steps[0].run(open_box(w), &c, &e), STEP_DONE);
    assert_int_equal(fake.makings + fake.looks, 0);
    assert_string_equal(facts_get(&outputs, "hosted"), HOSTED);
    assert_string_equal(facts_get(&outputs, "id"), TOKEN);
}

static void test_r503_a_session_that_is_pending_is_waited_for(void **state)
{
    struct world *w = *state;

    fake.pending = 5;
    must_run(w, OPERATION_CREATE);
    assert_int_equal(w->outcome, EV_GUEST_READY);
    assert_int_equal(fake.looks, 5);
    assert_int_equal(w->waited_ms, 4 * VERCEL_POLL_MS);
}

static void test_r503_a_session_that_stays_pending_is_given_up(void **state)
{
    struct world *w = *state;
    struct facts outputs = { .count = 0 };
    struct step_context c = { .facts = &w->facts, .outputs = &outputs, .token = TOKEN, .attempt = 1 };
    struct error e = { 0 };

    be_created(w, HOSTED_PENDING);
    fake.pending = 10;
    assert_int_equal(vercel_step_await(open_box(w), &c, &e), STEP_AGAIN);
    w->box->boot.since_ms -= VERCEL_PENDING_MS;
    c.attempt = 2;
    clock_sleep_ms(1);
    assert_int_equal(vercel_step_await(w->box, &c, &e), STEP_FAILED);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_string_equal(e.message, "its session was still 'pending' on the service after 300 s");
}

static void test_r503_a_session_that_fails_is_no_loss_to_a_create(void **state)
{
    struct world *w = *state;

    fake.pending = 2;
    fake.fails_to_boot = true;
    must_fail(w, OPERATION_CREATE, ERROR_ACTION_FAILED,
              "failed on the service before it ran; the service holds '" HOSTED "', which rm removes");
    assert_int_equal(w->outcome, EV_NONE);
}

/* A look that is behind must not make of a machine that is billed a lost one. */
static void test_r503_a_session_that_is_not_seen_yet_is_looked_for_again(void **state)
{
    struct world *w = *state;

    fake.pending = 10;
    fake.unseen = 8; /* each time it is asked for twice */
    must_run(w, OPERATION_CREATE);
    assert_int_equal(w->outcome, EV_GUEST_READY);
    assert_int_equal(fake.looks, 10);
    assert_int_equal(w->waited_ms, 5 * VERCEL_POLL_MS);

    fake_reset();
    fake.pending = 100;
    fake.unseen = 10; /* 2 s later it is gone */
    w->facts.count = 2;
    must_fail(w, OPERATION_CREATE, ERROR_ACTION_FAILED, "deleted there");
    assert_int_equal(fake.looks, 10);
}

/* What is recorded as lost can only be removed, with its disk: so one word is not enough for it. */
static void test_r506_one_word_is_no_proof_that_it_is_gone(void **state)
{
    struct world *w = *state;
    struct observation seen;
    struct error e = { 0 };

    must_run(w, OPERATION_CREATE);
    fake.unseen = 1;
    assert_int_equal(vercel_observe(open_box(w), &w->facts, 2000, &seen, &e), 0);
    assert_int_equal(seen.event, EV_GUEST_READY);
    fake.unseen = 2;
    assert_int_equal(vercel_observe(open_box(w), &w->facts, 2000, &seen, &e), 0);
    assert_int_equal(seen.event, EV_LOST);
    fake.unseen = 2;
    fake.has_no_project = true;
    assert_int_equal(vercel_observe(open_box(w), &w->facts, 2000, &seen, &e), -1);
    assert_int_equal(e.code, ERROR_PROVIDER_UNAVAILABLE);
}

/* The journal keeps less of a reason than a service can say. */
static void test_r505_what_is_left_is_told_whole_behind_a_long_cause(void **state)
{
    static const char clause[] = "; the service may hold '" HOSTED "', which rm removes";
    struct world *w = *state;
    struct error e = { 0 };
    char said[401];

    memset(said, 'x', sizeof(said) - 1);
    said[sizeof(said) - 1] = '\0';
    fake.fates[0] = FATE_LOST_BEFORE;
    fake.fates[1] = FATE_REFUSED;
    fake.says = said;
    assert_int_equal(run(w, OPERATION_CREATE, &e), -1);
    assert_int_equal(strlen(e.message), JOURNAL_REASON_SIZE - 1);
    assert_string_equal(e.message + strlen(e.message) - strlen(clause), clause);
    assert_int_equal(e.delivery, DELIVERY_UNKNOWN);
}

/* Not of what was seen to be deleted there before it ran. */
static void test_r505_what_is_gone_is_not_said_to_be_left(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    fake.pending = 8;
    fake.vanishes = true;
    assert_int_equal(run(w, OPERATION_CREATE, &e), -1);
    assert_non_null(strstr(e.message, "deleted there"));
    assert_null(strstr(e.message, "which rm removes"));
}

static void test_r503_without_the_wrapper_it_needs_setup_that_nobody_can_give(void **state)
{
    struct world *w = *state;
    struct observation seen;

    fake.has_no_wrapper = true;
    must_run(w, OPERATION_CREATE);
    assert_int_equal(w->outcome, EV_SETUP_REQUIRED);
    assert_fact(w, "desktop", "missing");
    assert_non_null(strstr(w->note, "agent-desktop-run is not in the image 'ad-desktop'"));
    assert_true(vercel_ops.cannot_be_set_up(&w->facts));
    assert_int_equal(observe(w, &seen), EV_SETUP_REQUIRED);
    assert_non_null(strstr(seen.message, "stop it, remove it"));
}

static void test_r503_with_a_runtime_no_desktop_is_looked_for(void **state)
{
    struct world *w = *state;

    facts_set(&w->facts, "set.runtime", "node24");
    w->facts.items[0] = w->facts.items[2]; /* in place of the image */
    w->facts.count = 2;
    fake.has_no_wrapper = true;
    must_run(w, OPERATION_CREATE);
    assert_int_equal(w->outcome, EV_GUEST_READY);
    assert_int_equal(fake.runs, 0);
}

/* whatever becomes of the requests, there is one sandbox or none, and the answer says which. */
static void test_r505_a_lost_reply_makes_no_second_sandbox(void **state)
{
    static const struct {
        enum fake_fate fates[4];
        int makings;
        enum error_code code; /* ERROR_NONE: it runs in the end */
        size_t there;
        const char *words;
    } cases[] = {
        { { FATE_LOST_AFTER }, 1, ERROR_NONE, 1, "" },
        { { FATE_LOST_LATE }, 1, ERROR_NONE, 1, "" },
        { { FATE_LOST_BEFORE }, 2, ERROR_NONE, 1, "" },
        { { FATE_LOST_BEFORE, FATE_LOST_AFTER }, 2, ERROR_NONE, 1, "" },
        { { FATE_LOST_BEFORE, FATE_LOST_BEFORE, FATE_LOST_BEFORE },
          3,
          ERROR_ACTION_FAILED,
          0,
          "may hold '" HOSTED },
        { { FATE_REFUSED }, 1, ERROR_INVALID_ARGS, 0, "timeout must be at most" },
        { { FATE_LOST_BEFORE, FATE_REFUSED }, 2, ERROR_INVALID_ARGS, 0, "may hold '" HOSTED },
        { { FATE_NOT_SENT }, 1, ERROR_ACTION_FAILED, 0, "nobody answers" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world *w = *state;

        memcpy(fake.fates, cases[i].fates, sizeof(cases[i].fates));
        if (cases[i].code == ERROR_NONE)
            must_run(w, OPERATION_CREATE);
        else
            must_fail(w, OPERATION_CREATE, cases[i].code, cases[i].words);
        assert_int_equal(fake.makings, cases[i].makings);
        assert_int_equal(fake.count, cases[i].there);
        must_run(w, OPERATION_REMOVE);
        assert_int_equal(fake.count, 0);
        vercel_ops.close(w->box);
        w->box = NULL;
        w->facts.count = 2;
        fake_reset();
    }
}

static void test_r503_a_strangers_sandbox_is_left_alone(void **state)
{
    struct world *w = *state;
    struct observation seen;

    fake_add(HOSTED, "somebody's", HOSTED_RUNNING);
    must_fail(w, OPERATION_CREATE, ERROR_NAME_TAKEN, "not ours");
    assert_int_equal(fake.makings, 1);
    assert_int_equal(observe(w, &seen), EV_LOST);
    must_run(w, OPERATION_REMOVE);
    assert_non_null(strstr(w->note, "not ours"));
    assert_int_equal(fake.stops + fake.deletions + fake.resumes, 0);
    assert_int_equal(fake.count, 1);
}

static void test_r505_an_interruption_tells_what_may_be_left(void **state)
{
    struct world *w = *state;
    char words[256] = "its creation was interrupted";

    vercel_explain_interruption(NULL, &w->facts, words, sizeof(words));
    assert_string_equal(words, "its creation was interrupted");
    facts_set(&w->facts, "hosted", HOSTED);
    vercel_explain_interruption(NULL, &w->facts, words, sizeof(words));
    assert_string_equal(words,
                        "its creation was interrupted; the service may hold '" HOSTED "', which rm removes");
}

static void test_r504_a_probe_without_an_answer_is_repeated(void **state)
{
    struct world *w = *state;

    fake.probes_lost = 2;
    must_run(w, OPERATION_CREATE);
    assert_int_equal(w->outcome, EV_GUEST_READY);
    fake.probes_lost = 3;
    w->facts.count = 2;
    w->place.name = "other";
    open_box(w);
    must_fail(w, OPERATION_CREATE, ERROR_ACTION_FAILED, "reset; the service holds 'other-01234567'");
}

/* --- fork --------------------------------------------------------------------------------------------- */

static void be_fork(struct world *w)
{
    facts_set(&w->source, "hosted", "base-76543210");
    facts_set(&w->source, "id", "basebase");
    facts_set(&w->source, "team", "team_b");
    facts_set(&w->source, "project", "prj_b");
    w->place.source = "base";
    w->place.source_facts = &w->source;
}

static void test_r503_a_fork_is_made_where_its_source_is(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    be_fork(w);
    fake_add("base-76543210", "basebase", HOSTED_STOPPED);
    assert_int_equal(vercel_ops.check_clone(open_box(w), &e), 0);
    must_run(w, OPERATION_CLONE);
    assert_int_equal(w->outcome, EV_GUEST_READY);
    assert_string_equal(fake.source, "base-76543210");
    assert_fact(w, "team", "team_b");
    assert_fact(w, "project", "prj_b");
    assert_non_null(strstr(fake.body, "\"colour\":\"green\""));
    assert_string_equal(fake_find(HOSTED)->tag, TOKEN);
}

static void test_r503_a_source_without_a_disk_is_refused(void **state)
{
    static const struct {
        enum hosted_status status;
        bool persistent, has_snapshot, is_ours;
        enum error_code code;
        const char *words;
    } cases[] = {
        { HOSTED_RUNNING, true, true, true, ERROR_INVALID_STATE, "'running' on the service" },
        { HOSTED_STOPPED, false, false, true, ERROR_INVALID_ARGS, "persistent=false" }, /* for ever */
        { HOSTED_STOPPED, true, false, true, ERROR_INVALID_STATE, "start and stop it" },
        { HOSTED_STOPPED, true, true, false, ERROR_INVALID_STATE, "gone on the service" },
    };
    struct world *w = *state;

    be_fork(w);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = { 0 };

        fake_reset();
        struct hosted *base =
            fake_add("base-76543210", cases[i].is_ours ? "basebase" : "another", cases[i].status);

        base->persistent = cases[i].persistent;
        base->has_snapshot = cases[i].has_snapshot;
        assert_int_equal(vercel_ops.check_clone(open_box(w), &e), -1);
        assert_int_equal(e.code, cases[i].code);
        assert_non_null(strstr(e.message, cases[i].words));
        must_fail(w, OPERATION_CLONE, cases[i].code, cases[i].words);
        assert_int_equal(fake.makings + fake.resumes, 0);
        must_run(w, OPERATION_REMOVE);
        w->facts.count = 2;
    }
}

static void test_r505_a_fork_whose_reply_was_lost_is_adopted(void **state)
{
    struct world *w = *state;

    be_fork(w);
    fake_add("base-76543210", "basebase", HOSTED_STOPPED);
    fake.fates[0] = FATE_LOST_AFTER;
    must_run(w, OPERATION_CLONE);
    assert_int_equal(fake.makings, 1);
    assert_int_equal(fake.count, 2);
}

/* The look at the source tells nothing of the request that was sent before. */
static void test_r505_a_fork_that_was_lost_may_be_there_whatever_comes_after(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    be_fork(w);
    fake_add("base-76543210", "basebase", HOSTED_STOPPED);
    fake.fates[0] = FATE_LOST_BEFORE;
    fake.trouble = ERROR_AUTH_FAILED;
    fake.calm = 6; /* the source, and five looks for the fork */
    assert_int_equal(run(w, OPERATION_CLONE, &e), -1);
    assert_int_equal(fake.makings, 1);
    assert_int_equal(fake.looks, 7);
    assert_int_equal(e.code, ERROR_AUTH_FAILED);
    assert_int_equal(e.delivery, DELIVERY_UNKNOWN);
    assert_int_equal(e.retry, RETRY_UNSAFE);
    assert_non_null(strstr(e.message, "; the service may hold '" HOSTED "', which rm removes"));
}

/* Those of the source count, and the service would refuse them only when all is on record. */
static void test_r503_more_tags_than_there_can_be_are_refused_before_anything_is_recorded(void **state)
{
    static char another[] = "tag.another=1", same[] = "tag.colour=blue";
    static const struct {
        int tags; /* of the source, beside its colour */
        char *given[3];
        int result;
    } cases[] = {
        { 2, { another }, -1 },      { 2, { same }, 0 }, { 1, { another }, 0 },
        { 1, { another, same }, 0 }, { 2, { NULL }, 0 },
    };
    struct world *w = *state;

    be_fork(w);
    fake_add("base-76543210", "basebase", HOSTED_STOPPED);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = { 0 };

        fake.tags = cases[i].tags;
        w->place.unrecorded = cases[i].given;
        assert_int_equal(vercel_ops.check_clone(open_box(w), &e), cases[i].result);
        if (cases[i].result < 0) {
            assert_int_equal(e.code, ERROR_INVALID_ARGS);
            assert_string_equal(e.message,
                                "--set tag.NAME: with the tags of 'base', which a fork gets too, and "
                                "agent-desktop's own there would be 6; the service takes 5");
        }
    }
    assert_int_equal(fake.makings, 0);
}

/* --- start and stop ----------------------------------------------------------------------------------- */

static void test_r503_a_start_resumes_once_and_records_the_session(void **state)
{
    struct world *w = *state;
    const struct hosted *box = be_created(w, HOSTED_STOPPED);

    fake.pending = 3;
    must_run(w, OPERATION_START);
    assert_int_equal(w->outcome, EV_GUEST_READY);
    assert_int_equal(fake.resumes, 1);
    assert_fact(w, "session", "sbx_2");
    assert_string_equal(box->session, "sbx_2");
}

static void test_r503_a_start_waits_for_the_end_of_the_last_session(void **state)
{
    struct world *w = *state;

    be_created(w, HOSTED_SNAPSHOTTING);
    fake.ending = 4;
    must_run(w, OPERATION_START);
    assert_int_equal(fake.resumes, 1);
    assert_int_equal(w->waited_ms, 3 * VERCEL_POLL_MS);
}

static void test_r506_a_start_of_one_that_runs_already_resumes_nothing(void **state)
{
    struct world *w = *state;

    be_created(w, HOSTED_RUNNING);
    must_run(w, OPERATION_START);
    assert_int_equal(w->outcome, EV_GUEST_READY);
    assert_int_equal(fake.resumes, 0);
}

static void test_r503_a_start_of_what_is_gone_for_good_says_so(void **state)
{
    static const struct {
        enum hosted_status status;
        bool has_snapshot, snapshot_is_gone, is_ours;
        const char *words;
    } cases[] = {
        { HOSTED_FAILED, true, false, true, "failed" },
        { HOSTED_ABORTED, false, false, true, "aborted" },
        { HOSTED_STOPPED, true, true, true, "no snapshot of its disk any more" },
        { HOSTED_STOPPED, true, false, false, "not ours" },
    };
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fake_reset();
        struct hosted *box = be_created(w, cases[i].status);

        box->has_snapshot = cases[i].has_snapshot;
        fake.snapshot_is_gone = cases[i].snapshot_is_gone;
        if (!cases[i].is_ours)
            snprintf(box->tag, sizeof(box->tag), "another");
        open_box(w);
        must_fail(w, OPERATION_START, ERROR_ACTION_FAILED, cases[i].words);
        assert_int_equal(w->outcome, EV_LOST);
        assert_int_equal(fake.resumes, cases[i].snapshot_is_gone ? 1 : 0);
    }
    fake_reset();
    must_fail(w, OPERATION_START, ERROR_ACTION_FAILED, "deleted there");
    assert_int_equal(w->outcome, EV_LOST);
}

static void test_r503_a_stop_is_over_when_the_service_says_so(void **state)
{
    struct world *w = *state;

    be_created(w, HOSTED_RUNNING);
    fake.ending = 6;
    must_run(w, OPERATION_STOP);
    assert_int_equal(w->outcome, EV_NONE);
    assert_int_equal(fake.stops, 1);
    assert_int_equal(w->waited_ms, 5 * VERCEL_POLL_MS);
    must_run(w, OPERATION_STOP); /* again: nothing to do */
    assert_int_equal(fake.stops, 1);
}

/* nothing came back, or an error; only what was certainly not asked for has failed. */
static void test_r505_a_stop_whose_reply_was_lost_is_followed_to_its_end(void **state)
{
    static const struct {
        enum fake_fate fate;
        int64_t waited_ms; /* -1: it fails */
        int stops;
    } cases[] = {
        { FATE_LOST_AFTER, 5 * VERCEL_POLL_MS, 1 },
        { FATE_LOST_BEFORE, 24 * VERCEL_POLL_MS, 2 }, /* it has not heard, and is asked again */
        { FATE_NOT_SENT, -1, 1 },
    };
    struct world *w = *state;

    be_created(w, HOSTED_STOPPED);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = { 0 };

        fake_reset();
        fake_add(HOSTED, TOKEN, HOSTED_RUNNING);
        fake.ending = 6;
        fake.stop_fates[0] = cases[i].fate;
        assert_int_equal(run(w, OPERATION_STOP, &e), cases[i].waited_ms < 0 ? -1 : 0);
        assert_int_equal(fake.stops, cases[i].stops);
        if (cases[i].waited_ms >= 0)
            assert_int_equal(w->waited_ms, cases[i].waited_ms);
        else
            assert_int_equal(e.delivery, DELIVERY_NOT_DELIVERED);
    }
}

static void test_r503_a_session_that_is_pending_is_stopped_once_it_takes_that(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    be_created(w, HOSTED_PENDING);
    fake.pending = 3; /* it runs at the third look */
    fake.ending = 2;
    fake.stop_fates[0] = fake.stop_fates[1] = FATE_REFUSED;
    must_run(w, OPERATION_STOP);
    assert_int_equal(fake.stops, 3);
    assert_in_range(w->waited_ms, 2 * VERCEL_POLL_MS, 4 * VERCEL_POLL_MS);

    fake_reset();
    fake_add(HOSTED, TOKEN, HOSTED_RUNNING);
    fake.stop_fates[0] = FATE_REFUSED; /* of one that runs it is an answer */
    assert_int_equal(run(w, OPERATION_STOP, &e), -1);
    assert_string_equal(e.message, "not for now");
    assert_int_equal(e.delivery, DELIVERY_NOT_DELIVERED);
}

static void test_r503_a_stop_of_what_is_gone_ends_as_lost(void **state)
{
    struct world *w = *state;

    be_created(w, HOSTED_FAILED);
    must_run(w, OPERATION_STOP);
    assert_int_equal(w->outcome, EV_LOST);
    fake_reset();
    open_box(w);
    must_run(w, OPERATION_STOP);
    assert_int_equal(w->outcome, EV_LOST);
    assert_int_equal(fake.stops, 0);
}

/* --- rm ----------------------------------------------------------------------------------------------- */

static void test_r209_a_removal_deletes_what_is_stopped(void **state)
{
    struct world *w = *state;

    must_run(w, OPERATION_CREATE);
    must_run(w, OPERATION_STOP);
    must_run(w, OPERATION_REMOVE);
    assert_int_equal(fake.count, 0);
    assert_int_equal(w->waited_ms, 0);
    assert_false(scratch_exists(w->scratch, "root/sandboxes/demo"));
    must_run(w, OPERATION_REMOVE); /* again, after an interruption */
    assert_int_equal(fake.deletions, 1);
}

static void test_r209_a_removal_refuses_what_was_resumed_elsewhere(void **state)
{
    struct world *w = *state;
    struct observation seen;
    struct error e = { 0 };
    struct hosted *box = be_created(w, HOSTED_STOPPED);

    assert_int_equal(observe(w, &seen), EV_GUEST_GONE);
    box->status = HOSTED_RUNNING;
    assert_int_equal(run(w, OPERATION_REMOVE, &e), -1);
    assert_int_equal(e.code, ERROR_INVALID_STATE);
    assert_int_equal(fake.deletions + fake.stops, 0);
}

static void test_r209_what_is_broken_and_runs_is_stopped_first(void **state)
{
    struct world *w = *state;

    be_created(w, HOSTED_RUNNING);
    fake.ending = 3;
    must_run(w, OPERATION_REMOVE);
    assert_int_equal(fake.stops, 1);
    assert_int_equal(fake.deletions, 1);
    assert_int_equal(fake.count, 0);
}

/* It has been stopped by then, so not nothing was done. */
static void test_r209_a_removal_that_has_stopped_it_does_not_say_that_nothing_was_done(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    be_created(w, HOSTED_RUNNING);
    fake.delete_fate = FATE_NOT_SENT;
    assert_int_equal(run(w, OPERATION_REMOVE, &e), -1);
    assert_int_equal(fake.stops, 1);
    assert_int_equal(e.delivery, DELIVERY_DELIVERED_UNVERIFIED);

    fake_reset();
    fake.delete_fate = FATE_NOT_SENT;
    e = (struct error){ 0 };
    open_box(w);
    be_created(w, HOSTED_STOPPED); /* nothing was asked for */
    assert_int_equal(run(w, OPERATION_REMOVE, &e), -1);
    assert_int_equal(fake.stops, 0);
    assert_int_equal(e.delivery, DELIVERY_NOT_DELIVERED);
}

/* One that refuses has not heard it, for all that the removal waited. */
static void test_r209_a_removal_whose_stop_was_refused_has_done_nothing(void **state)
{
    struct world *w = *state;
    const struct step *step = &vercel_remove_steps[0];
    struct facts outputs = { .count = 0 };
    struct step_context c = { .facts = &w->facts, .outputs = &outputs, .attempt = 1 };
    struct error e = { 0 };

    be_created(w, HOSTED_RUNNING);
    fake.stop_fates[0] = FATE_REFUSED;
    fake.delete_fate = FATE_NOT_SENT;
    struct vercel_box *box = open_box(w);

    assert_int_equal(step->run(box, &c, &e), STEP_AGAIN);
    box->removal.asked_ms -= 60000; /* it does not end */
    c.attempt = 2;
    assert_int_equal(step->run(box, &c, &e), STEP_FAILED);
    assert_int_equal(fake.stops, 1);
    assert_int_equal(e.delivery, DELIVERY_NOT_DELIVERED);
}

/* It was stopped when its removal began, which was interrupted: nobody looks at it any more before it is
 * removed, so what is recorded must tell. */
static void test_r209_an_interrupted_removal_refuses_what_was_resumed_elsewhere(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    must_run(w, OPERATION_CREATE);
    must_run(w, OPERATION_STOP);
    struct hosted *box = fake_find(HOSTED);

    snprintf(box->session, sizeof(box->session), "sbx_other");
    box->status = HOSTED_RUNNING;
    fake.stops = 0;
    open_box(w);
    assert_int_equal(run(w, OPERATION_REMOVE, &e), -1);
    assert_int_equal(e.code, ERROR_INVALID_STATE);
    assert_non_null(strstr(e.message, "was resumed elsewhere"));
    assert_non_null(strstr(e.suggestion, "time limit"));
    assert_int_equal(fake.deletions + fake.stops, 0);
    box->status = HOSTED_STOPPED; /* by now */
    must_run(w, OPERATION_REMOVE);
    assert_int_equal(fake.count, 0);
}

/* its creation was interrupted, and the request is carried out after the removal began. */
static void test_r505_a_removal_waits_for_a_creation_that_is_under_way(void **state)
{
    struct world *w = *state;

    facts_set(&w->facts, "hosted", HOSTED);
    facts_set(&w->facts, "id", TOKEN);
    snprintf(fake.coming.name, sizeof(fake.coming.name), HOSTED);
    snprintf(fake.coming.tag, sizeof(fake.coming.tag), TOKEN);
    snprintf(fake.coming.session, sizeof(fake.coming.session), "sbx_1");
    fake.coming.status = HOSTED_RUNNING;
    fake.late = 2;
    must_run(w, OPERATION_REMOVE);
    assert_int_equal(fake.count, 0);
    assert_int_equal(fake.deletions, 1);
}

static void test_r209_a_removal_that_cannot_ask_keeps_the_record(void **state)
{
    struct world *w = *state;

    be_created(w, HOSTED_STOPPED);
    fake.trouble = ERROR_AUTH_FAILED;
    must_fail(w, OPERATION_REMOVE, ERROR_AUTH_FAILED, "does not want to");
    assert_int_equal(fake.count, 1);
}

/* --- observe ------------------------------------------------------------------------------------------ */

static void test_r506_each_status_is_seen_as_what_it_means(void **state)
{
    static const struct {
        enum hosted_status status;
        bool persistent, has_snapshot;
        enum fsm_event event;
        const char *words;
    } cases[] = {
        { HOSTED_RUNNING, true, false, EV_GUEST_READY, "until 2026-11-30T14:05:00Z, then it is stopped" },
        { HOSTED_STOPPING, true, false, EV_GUEST_STOPPING, "being stopped" },
        { HOSTED_SNAPSHOTTING, true, false, EV_GUEST_STOPPING, "snapshot" },
        { HOSTED_STOPPED, true, true, EV_GUEST_GONE, "" },
        { HOSTED_FAILED, true, true, EV_LOST, "failed" },
        { HOSTED_ABORTED, true, true, EV_GUEST_GONE, "aborted" },
        { HOSTED_ABORTED, true, false, EV_LOST, "no snapshot" },
        { HOSTED_ABORTED, false, false, EV_LOST, "no snapshot" },
        { HOSTED_PENDING, true, false, EV_NONE, "'pending'" },
        { HOSTED_OTHER, true, false, EV_NONE, "'hibernating'" },
    };
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct observation seen;

        fake_reset();
        struct hosted *box = be_created(w, cases[i].status);

        fake.pending = fake.ending = 2; /* it stays what it is for one look */
        box->persistent = cases[i].persistent;
        box->has_snapshot = cases[i].has_snapshot;
        box->expires_ms = 1796047500000;
        assert_int_equal(observe(w, &seen), cases[i].event);
        assert_int_equal(seen.alive, cases[i].status == HOSTED_RUNNING);
        if (strstr(seen.message, cases[i].words) == NULL ||
            (cases[i].words[0] == '\0') != (seen.message[0] == '\0'))
            fail_msg("'%s' does not say '%s'", seen.message, cases[i].words);
        assert_int_equal(fake.resumes, 0);
    }
}

static void test_r506_a_session_that_was_begun_elsewhere_is_recorded(void **state)
{
    struct world *w = *state;
    struct observation seen;
    struct hosted *box = be_created(w, HOSTED_RUNNING);

    assert_int_equal(observe(w, &seen), EV_GUEST_READY);
    assert_null(facts_get(&seen.facts, "session"));
    snprintf(box->session, sizeof(box->session), "sbx_other");
    assert_int_equal(observe(w, &seen), EV_GUEST_READY);
    assert_string_equal(facts_get(&seen.facts, "session"), "sbx_other");
}

static void test_r506_no_answer_is_no_state(void **state)
{
    struct world *w = *state;
    struct observation seen;
    struct error e = { 0 };

    be_created(w, HOSTED_RUNNING);
    fake.trouble = ERROR_LIMIT_REACHED;
    assert_int_equal(vercel_observe(open_box(w), &w->facts, 2000, &seen, &e), -1);
    assert_int_equal(e.code, ERROR_LIMIT_REACHED);
}

/* --- many --------------------------------------------------------------------------------------------- */

/* As they were recorded when they had just been created, or stopped. */
static void be_one_of_many(size_t number, struct facts *facts)
{
    AUTO_FREE char *name = mem_print("demo-%03zu", number);
    const struct hosted *box = fake_find(name);

    *facts = (struct facts){ .count = 0 };
    facts_set(facts, "team", "team_a");
    facts_set(facts, "project", "prj_a");
    facts_set(facts, "hosted", name);
    facts_set(facts, "id", name);
    facts_set(facts, "session", box == NULL ? "sbx_1000" : box->session);
    if (box != NULL && box->status == HOSTED_STOPPED)
        facts_set(facts, "ended", box->session);
}

static void open_view(struct world *w, size_t count)
{
    struct error e = { 0 };

    assert_int_equal(vercel_ops.view_open(&w->root, count, 2000, &w->place.view, &e), 0);
}

static void close_view(struct world *w)
{
    vercel_ops.view_close(w->place.view);
    w->place.view = NULL;
}

static void look_at_many(struct world *w, size_t count, int listings, int looks)
{
    struct observation seen;
    struct facts facts;
    struct error e = { 0 };

    open_view(w, count);
    for (size_t i = 0; i < count; i++) {
        be_one_of_many(i, &facts);
        assert_int_equal(vercel_observe(open_box(w), &facts, 2000, &seen, &e), 0);
        assert_int_equal(seen.event, i == 0 ? EV_LOST : i % 2 == 0 ? EV_GUEST_READY : EV_GUEST_GONE);
    }
    close_view(w);
    assert_int_equal(fake.listings, listings);
    assert_int_equal(fake.looks, looks);
}

/* The first is gone: only that is asked for by itself, twice. */
static void add_many(size_t count)
{
    for (size_t i = 1; i < count; i++) {
        AUTO_FREE char *name = mem_print("demo-%03zu", i);

        fake_add(name, name, i % 2 == 0 ? HOSTED_RUNNING : HOSTED_STOPPED);
    }
}

static void test_r503_a_hundred_are_listed_once(void **state)
{
    add_many(100);
    look_at_many(*state, 100, 2, 2);
}

/* From both ends: each goes on until it meets the other one. */
static void test_r503_a_listing_takes_each_page_once(void **state)
{
    add_many(100);
    fake.page = 5;
    look_at_many(*state, 100, 2, 2);
    assert_in_range(fake.pages, 20, 22);
}

static void test_r503_a_few_are_asked_for_by_themselves(void **state)
{
    add_many(5);
    look_at_many(*state, 5, 0, 6);
}

static void test_r503_what_the_listing_lacks_is_asked_for_before_it_counts_as_gone(void **state)
{
    add_many(40);
    fake.lists_untagged_only = true;
    look_at_many(*state, 40, 2, 41);
}

/* A listing's word is coarse: what it may stand for is asked for, so that list and status say the same. */
static void test_r506_what_the_listing_may_hide_is_asked_for(void **state)
{
    static const struct {
        enum hosted_status recorded, now;
        bool another; /* session than the recorded one */
        bool persistent, has_snapshot;
        enum fsm_event event;
        int looks;
    } cases[] = {
        { HOSTED_RUNNING, HOSTED_RUNNING, false, true, false, EV_GUEST_READY, 0 },
        { HOSTED_RUNNING, HOSTED_RUNNING, true, true, true, EV_GUEST_READY, 1 },
        { HOSTED_STOPPED, HOSTED_PENDING, true, true, true, EV_NONE, 1 }, /* resumed elsewhere */
        { HOSTED_RUNNING, HOSTED_PENDING, false, true, true, EV_NONE, 1 },
        { HOSTED_RUNNING, HOSTED_STOPPING, false, true, true, EV_GUEST_STOPPING, 1 },
        { HOSTED_RUNNING, HOSTED_SNAPSHOTTING, false, true, true, EV_GUEST_STOPPING, 1 },
        { HOSTED_RUNNING, HOSTED_STOPPED, false, true, true, EV_GUEST_GONE, 1 }, /* at its time limit */
        { HOSTED_STOPPED, HOSTED_STOPPED, false, true, true, EV_GUEST_GONE, 0 },
        { HOSTED_STOPPED, HOSTED_STOPPED, false, false, false, EV_GUEST_GONE, 0 },
        { HOSTED_STOPPED, HOSTED_STOPPED, true, true, true, EV_GUEST_GONE, 1 }, /* and stopped again */
        { HOSTED_STOPPED, HOSTED_FAILED, true, true, true, EV_LOST, 1 },
        { HOSTED_RUNNING, HOSTED_FAILED, false, true, true, EV_LOST, 1 }, /* with its last snapshot */
        { HOSTED_RUNNING, HOSTED_ABORTED, false, true, true, EV_GUEST_GONE, 1 },
        { HOSTED_STOPPED, HOSTED_ABORTED, false, true, true, EV_GUEST_GONE, 0 },
        { HOSTED_STOPPED, HOSTED_ABORTED, false, true, false, EV_LOST, 1 }, /* its snapshot has expired */
        { HOSTED_RUNNING, HOSTED_OTHER, false, true, true, EV_NONE, 1 },
    };
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts facts;
        struct observation seen;
        struct error e = { 0 };

        fake_reset();
        struct hosted *box = fake_add("demo-001", "demo-001", cases[i].recorded);

        be_one_of_many(1, &facts);
        if (cases[i].another)
            snprintf(box->session, sizeof(box->session), "sbx_other");
        box->status = cases[i].now;
        box->persistent = cases[i].persistent;
        box->has_snapshot = cases[i].has_snapshot;
        fake.pending = fake.ending = 2;
        open_view(w, 40);
        if (vercel_observe(open_box(w), &facts, 2000, &seen, &e) < 0)
            fail_msg("case %zu: %s", i, e.message);
        close_view(w);
        if (seen.event != cases[i].event || fake.looks != cases[i].looks)
            fail_msg("case %zu: %s after %d looks", i, fsm_event_name(seen.event), fake.looks);
    }
}

/* What has ended at its time limit is asked for once; then the listing is enough. */
static void test_r506_what_was_seen_to_have_ended_is_known_from_then_on(void **state)
{
    struct world *w = *state;
    struct observation seen;
    struct hosted *box = be_created(w, HOSTED_RUNNING);

    box->status = HOSTED_STOPPED;
    assert_int_equal(observe(w, &seen), EV_GUEST_GONE);
    assert_string_equal(facts_get(&seen.facts, "ended"), box->session);
    assert_true(facts_merge(&w->facts, &seen.facts));
    must_run(w, OPERATION_START);
    must_run(w, OPERATION_STOP);
    assert_string_equal(box->session, "sbx_2");
    assert_fact(w, "ended", "sbx_2");
}

/* The look at what the listing lacks has what the listing has left of the time. */
static void test_r503_a_look_after_a_listing_has_the_rest_of_the_time(void **state)
{
    struct world *w = *state;
    struct facts facts;
    struct observation seen;
    struct error e = { 0 };

    fake.list_ms = 300;
    be_one_of_many(0, &facts);
    open_view(w, 40);
    assert_int_equal(vercel_observe(open_box(w), &facts, 2000, &seen, &e), 0);
    assert_int_equal(seen.event, EV_LOST);
    assert_in_range(fake.deadline_ms, 1, 1700);
    close_view(w);
    open_view(w, 40);
    assert_int_equal(vercel_observe(open_box(w), &facts, 200, &seen, &e), 0);
    assert_int_equal(fake.deadline_ms, 0);
    close_view(w);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_r503_a_create_makes_one_that_runs),
        TEST(test_r505_what_may_be_left_is_known_before_the_first_request),
        TEST(test_r503_a_session_that_is_pending_is_waited_for),
        TEST(test_r503_a_session_that_stays_pending_is_given_up),
        TEST(test_r503_a_session_that_fails_is_no_loss_to_a_create),
        TEST(test_r503_a_session_that_is_not_seen_yet_is_looked_for_again),
        TEST(test_r505_what_is_left_is_told_whole_behind_a_long_cause),
        TEST(test_r505_what_is_gone_is_not_said_to_be_left),
        TEST(test_r503_without_the_wrapper_it_needs_setup_that_nobody_can_give),
        TEST(test_r503_with_a_runtime_no_desktop_is_looked_for),
        TEST(test_r505_a_lost_reply_makes_no_second_sandbox),
        TEST(test_r503_a_strangers_sandbox_is_left_alone),
        TEST(test_r505_an_interruption_tells_what_may_be_left),
        TEST(test_r504_a_probe_without_an_answer_is_repeated),
        TEST(test_r503_a_fork_is_made_where_its_source_is),
        TEST(test_r506_one_word_is_no_proof_that_it_is_gone),
        TEST(test_r503_a_source_without_a_disk_is_refused),
        TEST(test_r505_a_fork_whose_reply_was_lost_is_adopted),
        TEST(test_r505_a_fork_that_was_lost_may_be_there_whatever_comes_after),
        TEST(test_r503_more_tags_than_there_can_be_are_refused_before_anything_is_recorded),
        TEST(test_r503_a_start_resumes_once_and_records_the_session),
        TEST(test_r503_a_start_waits_for_the_end_of_the_last_session),
        TEST(test_r506_a_start_of_one_that_runs_already_resumes_nothing),
        TEST(test_r503_a_start_of_what_is_gone_for_good_says_so),
        TEST(test_r503_a_stop_is_over_when_the_service_says_so),
        TEST(test_r505_a_stop_whose_reply_was_lost_is_followed_to_its_end),
        TEST(test_r503_a_session_that_is_pending_is_stopped_once_it_takes_that),
        TEST(test_r503_a_stop_of_what_is_gone_ends_as_lost),
        TEST(test_r209_a_removal_deletes_what_is_stopped),
        TEST(test_r209_a_removal_refuses_what_was_resumed_elsewhere),
        TEST(test_r209_what_is_broken_and_runs_is_stopped_first),
        TEST(test_r209_a_removal_that_has_stopped_it_does_not_say_that_nothing_was_done),
        TEST(test_r209_a_removal_whose_stop_was_refused_has_done_nothing),
        TEST(test_r209_an_interrupted_removal_refuses_what_was_resumed_elsewhere),
        TEST(test_r505_a_removal_waits_for_a_creation_that_is_under_way),
        TEST(test_r209_a_removal_that_cannot_ask_keeps_the_record),
        TEST(test_r506_each_status_is_seen_as_what_it_means),
        TEST(test_r506_a_session_that_was_begun_elsewhere_is_recorded),
        TEST(test_r506_no_answer_is_no_state),
        TEST(test_r503_a_hundred_are_listed_once),
        TEST(test_r503_a_listing_takes_each_page_once),
        TEST(test_r503_a_few_are_asked_for_by_themselves),
        TEST(test_r503_what_the_listing_lacks_is_asked_for_before_it_counts_as_gone),
        TEST(test_r506_what_the_listing_may_hide_is_asked_for),
        TEST(test_r506_what_was_seen_to_have_ended_is_known_from_then_on),
        TEST(test_r503_a_look_after_a_listing_has_the_rest_of_the_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

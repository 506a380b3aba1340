/* start: a resume, which begins a new session on the disk that the last one left, and billing. The looks
 * before and after it are plain ones. Killed anywhere, the next look goes by what the service tells. */
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "providers/vercel/options.h"
#include "providers/vercel/vercel.h"

#define PROBE_MS   20000 /* the first call of the wrapper starts the desktop */
#define PROBES_MAX 3
#define MARGIN_MS  5000 /* the service ends the command when we are gone */
#define MISSES_MAX 5    /* looks, for 2 s: one that is behind does not know of the sandbox yet */

static enum step_result fail_lost(struct step_context *c, struct error *e, const char *why)
{
    c->outcome = EV_LOST;
    error_set(e, ERROR_ACTION_FAILED, 0, "%s", why);
    return STEP_FAILED;
}

static enum step_result fail_gone(struct vercel_box *box, struct step_context *c, bool stranger,
                                  struct error *e)
{
    box->boot.seen = (struct hosted){ 0 };
    vercel_print_gone(c->facts, stranger, box->note, sizeof(box->note));
    return fail_lost(c, e, box->note);
}

/* --- look --------------------------------------------------------------------------------------------- */

/* A session that is just ending is waited for: a resume in between is answered differently by different
 * versions of the service. */
static enum step_result step_look(void *self, struct step_context *c, struct error *e)
{
    struct vercel_box *box = self;
    bool stranger = false;
    struct hosted *seen = &box->boot.seen;
    int r = vercel_look(box, c->facts, VERCEL_CALL_MS, seen, &stranger, e);

    if (r < 0)
        return STEP_FAILED;
    if (r == API_GONE)
        return fail_gone(box, c, stranger, e);
    if (r == API_ENDED || seen->status == HOSTED_RUNNING || vercel_can_resume(seen))
        return STEP_DONE;
    if (vercel_explain_loss(seen) != NULL)
        return fail_lost(c, e, vercel_explain_loss(seen));
    return vercel_poll(c);
}

/* --- resume ------------------------------------------------------------------------------------------- */

static enum step_result confirm_gone(struct vercel_box *box, struct step_context *c, struct error *e)
{
    bool stranger = false;
    int r = vercel_look(box, c->facts, VERCEL_CALL_MS, &box->boot.seen, &stranger, e);

    if (r == API_GONE)
        return fail_gone(box, c, stranger, e);
    if (r >= 0) {
        error_set(e, ERROR_ACTION_FAILED, 0,
                  "the service has the sandbox, but says that there is none to resume");
        e->delivery = DELIVERY_NOT_DELIVERED;
        e->retry = RETRY_SAFE;
    }
    return STEP_FAILED;
}

/* Repeating it changes nothing, so what became of one that was lost need not be known. */
static enum step_result step_resume(void *self, struct step_context *c, struct error *e)
{
    struct vercel_box *box = self;
    struct hosted *seen = &box->boot.seen;

    if (vercel_connect(box, c->facts, e) < 0)
        return STEP_FAILED;
    if (seen->status == HOSTED_RUNNING) {
        vercel_write_session(c->facts, seen, c->outputs);
        return STEP_DONE;
    }
    switch (api_get(box->api, facts_get(c->facts, "hosted"), true, VERCEL_CALL_MS, seen, NULL, e)) {
    case API_FOUND:
        vercel_write_session(c->facts, seen, c->outputs);
        return STEP_DONE;
    case API_GONE: /* was it there a moment ago? */
        return confirm_gone(box, c, e);
    case API_ENDED:
        return fail_lost(c, e, "the service has no snapshot of its disk any more");
    default:
        return STEP_FAILED;
    }
}

/* By now the creation or the resume has had its effect: that the look after it had none says nothing. */
static enum step_result fail_begun(struct error *e)
{
    e->delivery = DELIVERY_DELIVERED_UNVERIFIED;
    e->retry = RETRY_SAFE; /* of a start; and of a create, which finds the sandbox there */
    return STEP_FAILED;
}

/* --- await -------------------------------------------------------------------------------------------- */

/* The look may be answered by somebody who does not know of the new session yet. */
static bool is_earlier(const struct facts *facts, const struct hosted *seen)
{
    const char *session = facts_get(facts, "session");

    return session != NULL && seen->session[0] != '\0' && strcmp(session, seen->session) != 0;
}

static enum step_result judge(struct vercel_box *box, struct step_context *c, struct error *e)
{
    const struct hosted *seen = &box->boot.seen;

    switch (seen->status) {
    case HOSTED_RUNNING:
        vercel_write_session(c->facts, seen, c->outputs);
        return STEP_DONE;
    case HOSTED_FAILED:
        return fail_lost(c, e, "its session failed on the service before it ran");
    case HOSTED_STOPPING:
    case HOSTED_SNAPSHOTTING:
    case HOSTED_STOPPED:
    case HOSTED_ABORTED:
        if (is_earlier(c->facts, seen))
            break;
        error_set(e, ERROR_ACTION_FAILED, 0, "its session was '%s' on the service before it ran", seen->word);
        return STEP_FAILED;
    case HOSTED_PENDING:
    case HOSTED_OTHER:
        break;
    }
    if (clock_mono_ms() - box->boot.since_ms <= VERCEL_PENDING_MS)
        return vercel_poll(c);
    error_set(e, ERROR_TIMEOUT, 0, "its session was still '%s' on the service after %d s", seen->word,
              VERCEL_PENDING_MS / 1000);
    return STEP_FAILED;
}

enum step_result vercel_step_await(void *self, struct step_context *c, struct error *e)
{
    struct vercel_box *box = self;
    struct vercel_boot *boot = &box->boot;
    bool stranger = false;

    if (c->attempt == 1) { /* the answer before may have said it all */
        boot->since_ms = clock_mono_ms();
        boot->misses = 0;
        if (boot->seen.status == HOSTED_RUNNING)
            return STEP_DONE;
    }
    switch (vercel_look(box, c->facts, VERCEL_CALL_MS, &boot->seen, &stranger, e)) {
    case API_FOUND:
        boot->misses = 0;
        return judge(box, c, e);
    case API_GONE:
        if (!stranger && ++boot->misses < MISSES_MAX)
            return vercel_poll(c);
        return fail_gone(box, c, stranger, e);
    case API_ENDED:
        error_set(e, ERROR_ACTION_FAILED, 0, "its session ended on the service before it ran");
        return STEP_FAILED;
    default:
        return fail_begun(e);
    }
}

/* --- probe -------------------------------------------------------------------------------------------- */

static int discard(void *self, const char *bytes, size_t size, struct error *e)
{
    (void)self, (void)bytes, (void)size, (void)e;
    return 0;
}

/* Only "no such program" says that there is none; how it ends, if it does, is its own business. 1, 0, -1. */
static int has_wrapper(struct vercel_box *box, const struct facts *facts, struct error *e)
{
    static const char *const args[] = { "version", NULL };
    const struct api_command command = { .program = VERCEL_WRAPPER, .args = args, .timeout_ms = PROBE_MS };
    const struct api_stream stream = { .on_bytes = discard,
                                       .wake_fd = -1,
                                       .deadline_ms = PROBE_MS + MARGIN_MS };
    const char *session = facts_get(facts, "session");
    enum command_start start = COMMAND_ENDED;

    if (vercel_connect(box, facts, e) < 0)
        return -1;
    if (session == NULL)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the service does not tell the session's id");
    if (api_run(box->api, session, &command, &stream, &start, e) < 0)
        return -1;
    if (start == COMMAND_SESSION_GONE)
        return error_set(e, ERROR_ACTION_FAILED, 0, "its session ended before it could be used");
    return start != COMMAND_NO_PROGRAM;
}

static enum step_result end_probe(struct vercel_box *box, struct step_context *c, bool found)
{
    facts_set(c->outputs, "desktop", found ? "" : "missing");
    c->outcome = found ? EV_GUEST_READY : EV_SETUP_REQUIRED;
    if (!found) {
        vercel_print_missing(c->facts, box->note, sizeof(box->note));
        c->note = box->note;
    }
    return STEP_DONE;
}

/* What is run only tells its version, so it may run twice. */
enum step_result vercel_step_probe(void *self, struct step_context *c, struct error *e)
{
    struct vercel_box *box = self;
    struct error cause = { 0 };

    if (!vercel_wants_desktop(c->facts))
        return end_probe(box, c, true);
    int found = has_wrapper(box, c->facts, &cause);

    if (found >= 0)
        return end_probe(box, c, found);
    if (c->attempt < PROBES_MAX && cause.delivery == DELIVERY_UNKNOWN)
        return vercel_poll(c);
    *e = cause;
    return fail_begun(e);
}

const struct step vercel_start_steps[] = {
    { "look", step_look, false },
    { "resume", step_resume, false },
    { "await", vercel_step_await, false },
    { "probe", vercel_step_probe, false },
    { 0 },
};

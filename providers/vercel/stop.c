/* stop: asked for, then waited for. That the service has taken the request is no end: a snapshot is made, for
 * seconds or minutes. May be repeated. */
#include "providers/vercel/vercel.h"

#define ASK_AGAIN                                                                                            \
    20 /* looks: a session that still says "running" 10 s later has not heard it, or is another one */

/* When it has been asked to stop before, that the last call had no effect says nothing. */
static enum step_result fail(const struct step_context *c, struct error *e)
{
    if (c->attempt > 1 && e->delivery == DELIVERY_NOT_DELIVERED)
        e->delivery = DELIVERY_DELIVERED_UNVERIFIED;
    return STEP_FAILED;
}

/* The end of a sandbox whose disk is lost is no stop: only a removal helps. WHY lives as long as the box. */
static enum step_result end_lost(struct step_context *c, const char *why)
{
    c->note = why;
    c->outcome = EV_LOST;
    return STEP_DONE;
}

/* Looked at at once afterwards: the reply may have come only when all was over. A lost reply is no lost
 * request: the looks tell whether the session was asked to stop. When they do not it is asked once more.
 * A session that is pending may not take it yet. */
static enum step_result ask(struct vercel_box *box, struct step_context *c, const struct hosted *seen,
                            struct error *e)
{
    struct error cause = { 0 };

    if (c->attempt % ASK_AGAIN != 1 && !box->halt.refused)
        return vercel_poll(c);
    c->again_ms = 0;
    int asked = api_stop(box->api, seen->session, VERCEL_CALL_MS / 2, &cause);

    box->halt.refused = asked == API_REFUSED && seen->status == HOSTED_PENDING;
    if (box->halt.refused)
        return vercel_poll(c);
    if (asked >= 0 && asked != API_REFUSED)
        return STEP_AGAIN;
    if (cause.delivery == DELIVERY_UNKNOWN && !box->halt.lost) {
        box->halt.lost = true;
        return STEP_AGAIN;
    }
    *e = cause;
    return fail(c, e);
}

static enum step_result judge(struct vercel_box *box, struct step_context *c, const struct hosted *seen,
                              struct error *e)
{
    vercel_write_session(c->facts, seen, c->outputs);
    switch (seen->status) {
    case HOSTED_STOPPED:
    case HOSTED_ABORTED:
    case HOSTED_FAILED:
        return vercel_can_resume(seen) ? STEP_DONE : end_lost(c, vercel_explain_loss(seen));
    case HOSTED_PENDING:
    case HOSTED_RUNNING:
        return ask(box, c, seen, e);
    case HOSTED_STOPPING:
    case HOSTED_SNAPSHOTTING:
    case HOSTED_OTHER:
        break;
    }
    return vercel_poll(c);
}

static enum step_result step_halt(void *self, struct step_context *c, struct error *e)
{
    struct vercel_box *box = self;
    struct hosted seen;
    bool stranger = false;

    if (c->attempt == 1)
        box->halt = (struct vercel_halt){ .lost = false };
    switch (vercel_look(box, c->facts, VERCEL_CALL_MS, &seen, &stranger, e)) {
    case API_FOUND:
        return judge(box, c, &seen, e);
    case API_ENDED:
        return STEP_DONE;
    case API_GONE:
        vercel_print_gone(c->facts, stranger, box->note, sizeof(box->note));
        return end_lost(c, box->note);
    default:
        return fail(c, e);
    }
}

const struct step vercel_stop_steps[] = {
    { "halt", step_halt, false },
    { 0 },
};

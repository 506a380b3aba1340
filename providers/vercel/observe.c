/* observe: what the service tells, by a plain look that wakes nothing and costs nothing. */
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/text.h"
#include "providers/vercel/vercel.h"

/* While it runs. */
static void describe_running(const struct facts *facts, const struct hosted *seen, struct observation *out)
{
    char until[32];

    if (vercel_lacks_desktop(facts)) {
        vercel_print_missing(facts, out->message, sizeof(out->message));
    } else if (seen->expires_ms > 0) {
        text_format_time(until, seen->expires_ms, false);
        snprintf(out->message, sizeof(out->message), "until %s, then it is stopped", until);
    }
}

static enum fsm_event event_of(const struct facts *facts, const struct hosted *seen)
{
    switch (seen->status) {
    case HOSTED_RUNNING:
        return vercel_lacks_desktop(facts) ? EV_SETUP_REQUIRED : EV_GUEST_READY;
    case HOSTED_STOPPING:
    case HOSTED_SNAPSHOTTING:
        return EV_GUEST_STOPPING;
    case HOSTED_STOPPED:
    case HOSTED_ABORTED:
    case HOSTED_FAILED:
        return vercel_can_resume(seen) ? EV_GUEST_GONE : EV_LOST;
    case HOSTED_PENDING:
    case HOSTED_OTHER:
        break;
    }
    return EV_NONE;
}

static void describe(const struct facts *facts, const struct hosted *seen, struct observation *out)
{
    static const char *const words[] = {
        [HOSTED_STOPPING] = "its session is being stopped on the service",
        [HOSTED_SNAPSHOTTING] = "a snapshot of its disk is being made, with which its session ends",
        [HOSTED_STOPPED] = "", /* as recorded, with the reason that was told then */
        [HOSTED_ABORTED] = "its session was aborted on the service",
    };
    const char *clause = vercel_explain_loss(seen);

    if (clause == NULL && (size_t)seen->status < ARRAY_LEN(words))
        clause = words[seen->status];
    if (seen->status == HOSTED_RUNNING)
        describe_running(facts, seen, out);
    else if (clause != NULL)
        snprintf(out->message, sizeof(out->message), "%s", clause);
    else
        snprintf(out->message, sizeof(out->message), "the service says that it is '%s'", seen->word);
}

/* As vercel_look(), by the listing where that is proof. */
static int look(struct vercel_box *box, const struct facts *facts, int deadline_ms, struct hosted *seen,
                bool *stranger, struct error *e)
{
    int64_t end_ms = clock_mono_ms() + deadline_ms;

    if (box->place->view != NULL) {
        int found = vercel_view_find(box->place->view, facts, seen, e);

        if (found != API_GONE)
            return found;
        int64_t left_ms = end_ms - clock_mono_ms();

        deadline_ms = left_ms > 0 ? (int)left_ms : 0;
    }
    return vercel_look(box, facts, deadline_ms, seen, stranger, e);
}

int vercel_observe(void *self, const struct facts *facts, int deadline_ms, struct observation *out,
                   struct error *e)
{
    struct vercel_box *box = self;
    struct hosted seen;
    bool stranger = false;
    int r = look(box, facts, deadline_ms, &seen, &stranger, e);

    memset(out, 0, offsetof(struct observation, facts));
    out->facts.count = 0;
    if (r < 0)
        return -1;
    if (r == API_GONE) {
        out->event = EV_LOST;
        vercel_print_gone(facts, stranger, out->message, sizeof(out->message));
    } else if (r == API_ENDED) {
        out->event = EV_GUEST_GONE;
    } else {
        out->event = event_of(facts, &seen);
        out->alive = seen.status == HOSTED_RUNNING;
        describe(facts, &seen, out);
        vercel_write_session(facts, &seen, &out->facts);
    }
    box->was_stopped = out->event == EV_GUEST_GONE;
    return 0;
}

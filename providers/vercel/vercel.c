#include "providers/vercel/vercel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "providers/vercel/image.h"
#include "providers/vercel/options.h"

/* How long a command waits for its worker. A create is not waited for: it boots a machine. A start does as
 * well, but the next line of a script needs its end, and so does that of a stop. */
#define START_GRACE_MS 20000
#define STOP_GRACE_MS  40000

/* --- the client --------------------------------------------------------------------------------------- */

void vercel_find_credentials(struct credentials *out, struct error *trouble)
{
    if (credentials_find(out, trouble) < 0)
        credentials_done(out);
}

int vercel_open_api(const struct credentials *from, const struct error *trouble, const char *team,
                    const char *project, struct api **out, struct error *e)
{
    struct credentials mine = *from;

    if (from->token == NULL) {
        *e = *trouble;
        return -1;
    }
    mine.token = mem_copy_text(from->token);
    if (team != NULL && project != NULL && credentials_aim(&mine, team, project, "the sandbox", e) < 0) {
        credentials_done(&mine);
        return -1;
    }
    return api_open(&mine, out, e);
}

int vercel_connect(struct vercel_box *box, const struct facts *facts, struct error *e)
{
    if (box->api != NULL && box->api_owner == getpid())
        return 0;
    box->api = NULL; /* before the fork(): its connections are the parent's, and not ours to close */
    box->api_owner = getpid();
    if (vercel_open_api(&box->credentials, &box->trouble, facts_get(facts, "team"),
                        facts_get(facts, "project"), &box->api, e) < 0)
        return -1;
    api_set_options(box->api, box->place->unrecorded);
    return 0;
}

static int left_until(int64_t end_ms)
{
    int64_t left = end_ms - clock_mono_ms();

    return left > 0 ? (int)left : 0;
}

static int look_once(struct vercel_box *box, const struct facts *facts, int64_t end_ms, struct hosted *out,
                     bool *stranger, struct error *e)
{
    int found = api_get(box->api, facts_get(facts, "hosted"), false, left_until(end_ms), out, NULL, e);

    *stranger = found == API_FOUND && strcmp(out->tag, facts_get(facts, "id")) != 0;
    return *stranger ? API_GONE : found;
}

/* What was there is not given up for one word: it is gone when that is said twice, of a project that is known
 * to the service. */
static int confirm_gone(struct vercel_box *box, const struct facts *facts, int64_t end_ms, struct hosted *out,
                        bool *stranger, struct error *e)
{
    int known = api_check(box->api, left_until(end_ms), e);

    if (known < 0)
        return -1;
    if (known == API_GONE)
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0,
                         "the service does not know the project '%s' of '%s' (any more)",
                         facts_get(facts, "project"), box->place->name);
    return look_once(box, facts, end_ms, out, stranger, e);
}

int vercel_look(struct vercel_box *box, const struct facts *facts, int deadline_ms, struct hosted *out,
                bool *stranger, struct error *e)
{
    int64_t end_ms = clock_mono_ms() + deadline_ms;
    bool other = false;
    int found = API_GONE;

    if (facts_get(facts, "hosted") != NULL && facts_get(facts, "id") != NULL) {
        if (vercel_connect(box, facts, e) < 0)
            return -1;
        found = look_once(box, facts, end_ms, out, &other, e);
        if (found == API_GONE && !other && facts_get(facts, "session") != NULL)
            found = confirm_gone(box, facts, end_ms, out, &other, e);
    }
    if (stranger != NULL)
        *stranger = other;
    return found;
}

/* --- what is recorded --------------------------------------------------------------------------------- */

static bool is_recorded(const struct facts *facts, const char *key, const char *session)
{
    const char *known = facts_get(facts, key);

    return known != NULL && strcmp(known, session) == 0;
}

bool vercel_has_ended(const struct facts *facts, const char *session)
{
    return is_recorded(facts, "ended", session);
}

void vercel_write_session(const struct facts *facts, const struct hosted *seen, struct facts *out)
{
    if (seen->session[0] == '\0')
        return;
    if (!is_recorded(facts, "session", seen->session))
        facts_set(out, "session", seen->session);
    if (vercel_can_resume(seen) && !vercel_has_ended(facts, seen->session))
        facts_set(out, "ended", seen->session);
}

bool vercel_lacks_desktop(const struct facts *facts)
{
    const char *desktop = facts_get(facts, "desktop");

    return desktop != NULL && strcmp(desktop, "missing") == 0;
}

void vercel_print_missing(const struct facts *facts, char *out, size_t room)
{
    const char *image = facts_get(facts, "set.image");

    snprintf(
        out, room,
        VERCEL_WRAPPER " is not in %s%.100s%s: stop it, remove it, and create it again from an image that is "
                       "built from the files that 'sandbox install vercel' has written",
        image == NULL ? "its image" : "the image '", image == NULL ? "" : image, image == NULL ? "" : "'");
}

/* --- what is seen ------------------------------------------------------------------------------------- */

bool vercel_can_resume(const struct hosted *seen)
{
    return seen->status == HOSTED_STOPPED ||
           (seen->status == HOSTED_ABORTED && seen->persistent && seen->has_snapshot);
}

const char *vercel_explain_loss(const struct hosted *seen)
{
    if (seen->status == HOSTED_FAILED)
        return "its session failed on the service, and its disk with it";
    if (seen->status == HOSTED_ABORTED && !vercel_can_resume(seen))
        return "its session was aborted on the service, and no snapshot of its disk is kept";
    return NULL;
}

void vercel_print_gone(const struct facts *facts, bool stranger, char *out, size_t room)
{
    const char *hosted = facts_get(facts, "hosted");

    if (hosted == NULL)
        snprintf(out, room, "it was never created on the service");
    else if (stranger)
        snprintf(out, room, "the service has another sandbox that is named '%s', which is not ours", hosted);
    else
        snprintf(out, room, "the service has no sandbox '%s' any more: it was deleted there", hosted);
}

enum step_result vercel_poll(struct step_context *c)
{
    c->again_ms = VERCEL_POLL_MS;
    return STEP_AGAIN;
}

/* --- the provider ------------------------------------------------------------------------------------- */

static int vercel_open(const struct provider_place *place, void **self, struct error *e)
{
    struct vercel_box *box = mem_alloc(sizeof(*box));

    (void)e; /* without credentials there still is what is recorded: who needs them fails */
    box->place = place;
    box->dir = -1;
    vercel_find_credentials(&box->credentials, &box->trouble);
    *self = box;
    return 0;
}

static void vercel_close(void *self)
{
    struct vercel_box *box = self;

    if (box == NULL)
        return;
    if (box->api_owner == getpid())
        api_close(box->api);
    credentials_done(&box->credentials);
    util_close_fd(&box->dir);
    free(box);
}

const struct provider_ops vercel_ops = {
    .name = "vercel",
    .summary = "a hosted Linux microVM, on Vercel Sandbox",
    .inspect_host = vercel_inspect_host,
    .create_options = vercel_create_options,
    .start_options = vercel_start_options,
    .can_clone = true,
    .stopped_can_change = true,
    .open = vercel_open,
    .close = vercel_close,
    .check_create = vercel_check_create,
    .check_clone = vercel_check_clone,
    .plan = {
        [OPERATION_INSTALL] = { .steps = vercel_install_steps, .grace_ms = -1 },
        [OPERATION_CREATE] = { .steps = vercel_create_steps },
        [OPERATION_CLONE] = { .steps = vercel_clone_steps },
        [OPERATION_START] = { .steps = vercel_start_steps,
                              .grace_ms = START_GRACE_MS,
                              .bound_ms = VERCEL_START_BOUND_MS },
        [OPERATION_STOP] = { .steps = vercel_stop_steps,
                             .grace_ms = STOP_GRACE_MS,
                             .bound_ms = VERCEL_STOP_BOUND_MS },
        [OPERATION_REMOVE] = { .steps = vercel_remove_steps, .grace_ms = -1 },
    },
    .observe = vercel_observe,
    .view_open = vercel_view_open,
    .view_close = vercel_view_close,
    .cannot_be_set_up = vercel_lacks_desktop,
    .explain_interruption = vercel_explain_interruption,
    .exec = vercel_exec,
};

/* rm: what carries our id is deleted on the service, then the directory. Each may have been done by a run
 * before. */
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/log.h"
#include "providers/home.h"
#include "providers/vercel/vercel.h"

#define LATE_MS 2000  /* a create that was interrupted may still be under way on the service */
#define HALT_MS 30000 /* then the service ends it with the deletion */

/* --- the service -------------------------------------------------------------------------------------- */

static bool is_alive(const struct hosted *seen)
{
    return seen->status == HOSTED_RUNNING || seen->status == HOSTED_PENDING ||
           seen->status == HOSTED_STOPPING || seen->status == HOSTED_SNAPSHOTTING;
}

/* Not nothing was done, whatever the last call says, once it was stopped. */
static enum step_result fail(const struct vercel_box *box, struct error *e)
{
    if (box->removal.was_heard && e->delivery == DELIVERY_NOT_DELIVERED)
        e->delivery = DELIVERY_DELIVERED_UNVERIFIED;
    return STEP_FAILED;
}

/* Had it stopped as a whole sandbox, and has somebody else begun a session since? What is recorded tells it
 * after an interrupted removal, too, which makes it broken. */
static bool was_resumed(const struct vercel_box *box, const struct facts *facts, const struct hosted *seen)
{
    const char *session = facts_get(facts, "session");
    bool was_whole = session != NULL && vercel_has_ended(facts, session);

    return is_alive(seen) && (box->was_stopped || (was_whole && strcmp(session, seen->session) != 0));
}

/* the service would stop and delete it without a question, so the question is ours. */
static enum step_result refuse(const struct vercel_box *box, const struct hosted *seen, struct error *e)
{
    e->suggestion = "Stop it there, or wait for its time limit; then remove it.";
    error_set(e, ERROR_INVALID_STATE, 0,
              "'%s' is '%s' on the service: it was resumed elsewhere while it was to be removed",
              box->place->name, seen->word);
    return STEP_FAILED;
}

/* What is broken and lives all the same cannot be stopped by a command, so it is here. That it cannot be is
 * no reason to keep it. */
static enum step_result halt(struct vercel_box *box, struct step_context *c, const struct hosted *seen)
{
    struct error e = { 0 };

    if (box->removal.asked_ms == 0) {
        box->removal.asked_ms = clock_mono_ms();
        (void)api_stop(box->api, seen->session, VERCEL_CALL_MS / 2, &e);
        box->removal.was_heard = e.delivery != DELIVERY_NOT_DELIVERED; /* a refusal says so, too */
        if (e.code != ERROR_NONE)
            log_debug("cannot stop %s before its removal: %s", seen->name, e.message);
    }
    return vercel_poll(c);
}

/* That it is gone, said of what was there a moment ago, may be said of its session alone: it is looked for.
 */
static enum step_result delete_it(struct vercel_box *box, struct step_context *c, const struct hosted *seen,
                                  struct error *e)
{
    int r = api_delete(box->api, seen->name, VERCEL_CALL_MS / 2, e);

    if (r != API_GONE)
        return r < 0 ? fail(box, e) : STEP_DONE;
    if (!box->removal.denied) {
        box->removal.denied = true;
        return vercel_poll(c);
    }
    error_set(e, ERROR_ACTION_FAILED, 0,
              "the service has '%s', but does not delete it: it says that it is gone", seen->name);
    return STEP_FAILED;
}

static enum step_result delete_hosted(struct vercel_box *box, struct step_context *c,
                                      const struct hosted *seen, struct error *e)
{
    int64_t asked_ms = box->removal.asked_ms;

    if (was_resumed(box, c->facts, seen))
        return refuse(box, seen, e);
    if (is_alive(seen) && seen->session[0] != '\0' && (asked_ms == 0 || clock_mono_ms() - asked_ms < HALT_MS))
        return halt(box, c, seen);
    return delete_it(box, c, seen, e);
}

/* The journal's word outlives the sandbox. */
static void note_late(struct vercel_box *box, const char *hosted)
{
    snprintf(
        box->note, sizeof(box->note),
        "the service has no '%.*s'; should its creation, which was never confirmed, take effect there yet, "
        "delete it there",
        HOSTED_NAME_SIZE, hosted);
}

/* Nothing that is ours is there. When its creation was never confirmed it may come yet. */
static enum step_result end_gone(struct vercel_box *box, struct step_context *c, bool stranger)
{
    const char *hosted = facts_get(c->facts, "hosted");

    if (stranger) {
        vercel_print_gone(c->facts, stranger, box->note, sizeof(box->note));
        return STEP_DONE;
    }
    if (hosted == NULL || facts_get(c->facts, "session") != NULL || box->removal.denied)
        return STEP_DONE;
    if (c->attempt > 1) {
        note_late(box, hosted);
        return STEP_DONE;
    }
    c->again_ms = LATE_MS;
    return STEP_AGAIN;
}

static enum step_result step_hosted(void *self, struct step_context *c, struct error *e)
{
    struct vercel_box *box = self;
    struct hosted seen;
    bool stranger = false;

    if (c->attempt == 1)
        box->removal = (struct vercel_removal){ .asked_ms = 0 };
    switch (vercel_look(box, c->facts, VERCEL_CALL_MS / 2, &seen, &stranger, e)) {
    case API_FOUND:
        return delete_hosted(box, c, &seen, e);
    case API_GONE:
        return end_gone(box, c, stranger);
    case API_ENDED:
        error_set(e, ERROR_ACTION_FAILED, 0, "the service tells of '%s' only that its session has ended",
                  facts_get(c->facts, "hosted"));
        return STEP_FAILED;
    default:
        return fail(box, e);
    }
}

/* --- the directory ------------------------------------------------------------------------------------ */

static enum step_result step_set_aside(void *self, struct step_context *c, struct error *e)
{
    struct vercel_box *box = self;
    const struct root *root = box->place->root;

    if (home_claim(root, box->place->name, &box->dir, e) < 0)
        return STEP_FAILED;
    return home_set_aside(root, box->place->name, c->token, e) < 0 ? STEP_FAILED : STEP_DONE;
}

static enum step_result step_delete(void *self, struct step_context *c, struct error *e)
{
    struct vercel_box *box = self;

    if (box->note[0] != '\0')
        c->note = box->note;
    return home_delete(box->place->root, c->token, file_remove_tree, e) < 0 ? STEP_FAILED : STEP_DONE;
}

const struct step vercel_remove_steps[] = {
    { "delete-hosted", step_hosted, false },
    { "set-aside", step_set_aside, false },
    { "delete", step_delete, false },
    { 0 },
};

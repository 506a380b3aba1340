/* create and clone: one sandbox on the service, never two, never one that nobody knows.
 *
 * The service takes no idempotency key, and tells "the name is taken" by the same 400 as anything else. So
 * the name and a random id are on record before the first request; the id goes along as a tag; and after any
 * answer but a yes the service is asked what it has under that name before anything is sent again. Killed
 * anywhere, what may be there is in the journal, and rm finds it. Not resumed. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/journal.h"
#include "providers/home.h"
#include "providers/vercel/options.h"
#include "providers/vercel/vercel.h"

#define SUFFIX_SIZE  8 /* of the id, in the name: 32 bits keep machines apart that share a project */
#define REQUESTS_MAX 3 /* as many as the vendor's client sends */

static const char take_another[] =
    "Remove it and create it again: its name on the service gets another random part then.";

/* --- identify ----------------------------------------------------------------------------------------- */

static int make_home(struct vercel_box *box, const struct step_context *c, struct error *e)
{
    const struct root *root = box->place->root;

    home_sweep(root->sandboxes, HOME_GONE, file_remove_tree);
    if (home_make(root, box->place->name, c->attempt > 1 || box->dir >= 0, &box->dir, e) < 0)
        return -1;
    return file_sync_dir(root->sandboxes, e);
}

/* Where it is to be: a clone where its source is, for the service copies it there; another where the options
 * say, or the credentials. */
static void choose_project(const struct vercel_box *box, const struct facts *facts, struct facts *out)
{
    const char *team = facts_get(facts, "set.team"), *project = facts_get(facts, "set.project");

    if (box->place->source != NULL) {
        team = facts_get(box->place->source_facts, "team");
        project = facts_get(box->place->source_facts, "project");
    }
    facts_set(out, "team", team != NULL ? team : box->credentials.team);
    facts_set(out, "project", project != NULL ? project : box->credentials.project);
}

static int identify(struct vercel_box *box, struct step_context *c, struct error *e)
{
    char hosted[HOSTED_NAME_SIZE];

    choose_project(box, c->facts, c->outputs);
    if (make_home(box, c, e) < 0 || vercel_connect(box, c->outputs, e) < 0)
        return -1;
    snprintf(hosted, sizeof(hosted), "%s-%.*s", box->place->name, SUFFIX_SIZE, c->token);
    facts_set(c->outputs, "id", c->token);
    facts_set(c->outputs, "hosted", hosted);
    return 0;
}

static enum step_result step_identify(void *self, struct step_context *c, struct error *e)
{
    return identify(self, c, e) < 0 ? STEP_FAILED : STEP_DONE;
}

/* --- making it ---------------------------------------------------------------------------------------- */

/* Behind the cause, which is cut so that the journal keeps both. */
static void add_what_is_left(const struct facts *facts, struct error *e)
{
    struct error cause = *e;
    char left[JOURNAL_REASON_SIZE] = "";

    vercel_explain_interruption(NULL, facts, left, sizeof(left));
    e->code = ERROR_NONE;
    error_set(e, cause.code, 0, "%.*s%s", (int)(sizeof(left) - 1 - strlen(left)), cause.message, left);
    e->sys = cause.sys;
}

/* A failure after which something may be there must say so: the request may be carried out even now. */
static enum step_result fail(const struct vercel_box *box, const struct facts *facts,
                             const struct error *cause, struct error *e)
{
    *e = *cause;
    if (box->making.lost) {
        add_what_is_left(facts, e);
        e->delivery = DELIVERY_UNKNOWN;
        e->retry = RETRY_UNSAFE;
    }
    return STEP_FAILED;
}

static enum step_result adopt(struct vercel_box *box, struct step_context *c, const struct hosted *made)
{
    box->boot.seen = *made;
    vercel_write_session(c->facts, made, c->outputs);
    return STEP_DONE;
}

/* When to look again. A request of which nothing came back may still be under way there; after one that was
 * refused there is nothing to wait for. 0: no more. */
static int next_look_ms(const struct vercel_making *m)
{
    static const int pauses_ms[] = { 500, 1000, 2000, 3000 };

    assert(m->looks > 0);
    return m->lost && (size_t)m->looks <= ARRAY_LEN(pauses_ms) ? pauses_ms[m->looks - 1] : 0;
}

/* What is there under the name, before anything is sent again? */
static enum step_result look_for_it(struct vercel_box *box, struct step_context *c, struct error *e)
{
    struct vercel_making *m = &box->making;
    struct hosted found;
    struct error cause = { 0 };
    bool stranger = false;
    int r = vercel_look(box, c->facts, VERCEL_CALL_MS, &found, &stranger, &cause);

    m->looks++;
    if (r == API_FOUND)
        return adopt(box, c, &found);
    if (stranger) {
        e->suggestion = take_another;
        error_set(e, ERROR_NAME_TAKEN, 0,
                  "the service has another sandbox that is named '%s', which is not ours: it was left alone",
                  facts_get(c->facts, "hosted"));
        return STEP_FAILED;
    }
    c->again_ms = next_look_ms(m);
    if (c->again_ms > 0)
        return STEP_AGAIN;
    if (m->refused || r != API_GONE || m->requests >= REQUESTS_MAX)
        return fail(box, c->facts, &m->answer, e);
    m->must_look = false; /* it is not there: the same request cannot make a second one */
    return STEP_AGAIN;
}

/* The usual reason at first: nobody has pushed the image yet. A 400 brings a suggestion of its own. */
static void explain_refusal(struct error *answer, const struct facts *facts)
{
    answer->code = ERROR_INVALID_ARGS;
    if (answer->suggestion == NULL && facts_get(facts, "set.image") != NULL)
        answer->suggestion = "Correct what the message names. An image has to be built, from the files that "
                             "'sandbox install vercel' has written, pushed, and 'Ready' in the registry.";
}

/* SOURCE: its name on the service; NULL: none. */
static enum step_result send(struct vercel_box *box, struct step_context *c, const char *source,
                             const struct json *source_tags, struct error *e)
{
    AUTO_JSON struct json *body =
        vercel_print_body(c->facts, box->place->unrecorded, source != NULL, facts_get(c->facts, "hosted"),
                          facts_get(c->facts, "id"), source_tags);
    struct vercel_making *m = &box->making;
    struct error why = { 0 }, lost = { 0 };
    struct hosted made;
    int r = api_create(box->api, source, facts_get(c->facts, "set.runtime") != NULL, body, VERCEL_CALL_MS,
                       &made, &why, &lost);

    m->requests++;
    m->looks = 0;
    if (r == API_FOUND)
        return adopt(box, c, &made);
    if (r == API_GONE) {
        error_set(&why, ERROR_ACTION_FAILED, 0, "the service has no sandbox '%s' to fork (any more)", source);
        return fail(box, c->facts, &why, e);
    }
    if (r < 0 && lost.delivery != DELIVERY_UNKNOWN)
        return fail(box, c->facts, &lost, e);
    m->must_look = true;
    m->refused = r == API_REFUSED;
    m->lost = m->lost || r < 0;
    m->answer = r < 0 ? lost : why;
    if (m->refused)
        explain_refusal(&m->answer, c->facts);
    return STEP_AGAIN;
}

static bool begin(struct vercel_box *box, const struct step_context *c, struct error *e)
{
    if (c->attempt == 1)
        box->making = (struct vercel_making){ .must_look = false };
    return vercel_connect(box, c->facts, e) == 0;
}

static enum step_result step_create(void *self, struct step_context *c, struct error *e)
{
    struct vercel_box *box = self;

    if (!begin(box, c, e))
        return STEP_FAILED;
    return box->making.must_look ? look_for_it(box, c, e) : send(box, c, NULL, NULL, e);
}

/* It is there, and may run and cost, whatever kept it from being of use; unless it is seen to be gone. */
static enum step_result note_made(const struct vercel_box *box, const struct facts *facts,
                                  enum step_result result, struct error *e)
{
    if (result == STEP_FAILED && box->boot.seen.name[0] != '\0')
        add_what_is_left(facts, e);
    return result;
}

/* What was not there yet cannot be lost. */
static enum step_result step_await(void *self, struct step_context *c, struct error *e)
{
    enum step_result result = vercel_step_await(self, c, e);

    c->outcome = EV_NONE;
    return note_made(self, c->facts, result, e);
}

static enum step_result step_probe(void *self, struct step_context *c, struct error *e)
{
    return note_made(self, c->facts, vercel_step_probe(self, c, e), e);
}

const struct step vercel_create_steps[] = {
    { "identify", step_identify, false },
    { "create", step_create, false },
    { "await", step_await, false },
    { "probe", step_probe, false },
    { 0 },
};

/* --- clone -------------------------------------------------------------------------------------------- */

/* Is the source such that a fork has its disk? That is taken from the last snapshot, and without one the
 * service would give the bare image. */
static int check_source(const struct vercel_box *box, const struct hosted *source, struct error *e)
{
    const char *name = box->place->source;

    if (!vercel_can_resume(source))
        return error_set(e, ERROR_INVALID_STATE, 0,
                         "cannot clone '%s': it is '%s' on the service, not stopped", name, source->word);
    if (!source->persistent) {
        e->suggestion = "Clone another one, or create it again without persistent=false.";
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "cannot clone '%s': it was created with persistent=false, so its disk is not kept",
                         name);
    }
    if (!source->has_snapshot)
        return error_set(
            e, ERROR_INVALID_STATE, 0,
            "cannot clone '%s': the service has no snapshot of its disk; start and stop it to get one", name);
    return 0;
}

/* FACTS are the source's. */
static int find_source(struct vercel_box *box, const struct facts *facts, struct json **tags, struct error *e)
{
    const char *hosted = facts_get(facts, "hosted"), *id = facts_get(facts, "id");
    struct hosted found;
    int r = API_GONE;

    if (hosted != NULL && id != NULL)
        r = vercel_connect(box, facts, e) < 0
                ? -1
                : api_get(box->api, hosted, false, VERCEL_CALL_MS, &found, tags, e);
    if (r < 0)
        return -1;
    if (r != API_FOUND || strcmp(found.tag, id) != 0)
        return error_set(e, ERROR_INVALID_STATE, 0, "cannot clone '%s': it is gone on the service",
                         box->place->source);
    return check_source(box, &found, e);
}

/* Those of a fork, with its source's: what the service would refuse only when all is on record. */
static int check_tags(const struct vercel_box *box, const struct json *source_tags, struct error *e)
{
    const struct facts none = { .count = 0 };
    AUTO_JSON struct json *body =
        vercel_print_body(&none, box->place->unrecorded, true, box->place->name, "", source_tags);
    size_t count = json_count_members(json_get(body, "tags"));

    return count <= VERCEL_TAGS_MAX
               ? 0
               : error_set(
                     e, ERROR_INVALID_ARGS, 0,
                     "--set tag.NAME: with the tags of '%s', which a fork gets too, and agent-desktop's "
                     "own there would be %zu; the service takes %d",
                     box->place->source, count, VERCEL_TAGS_MAX);
}

int vercel_check_clone(void *self, struct error *e)
{
    struct vercel_box *box = self;
    AUTO_JSON struct json *tags = NULL;

    if (find_source(box, box->place->source_facts, &tags, e) < 0)
        return -1;
    return check_tags(box, tags, e);
}

/* The tags of a request take the place of those that the service would copy, so the source's are sent along.
 */
static enum step_result step_fork(void *self, struct step_context *c, struct error *e)
{
    struct vercel_box *box = self;
    AUTO_JSON struct json *tags = NULL;
    struct error cause = { 0 };

    if (!begin(box, c, e))
        return STEP_FAILED;
    if (box->making.must_look)
        return look_for_it(box, c, e);
    if (find_source(box, box->place->source_facts, &tags, &cause) < 0)
        return fail(box, c->facts, &cause, e);
    return send(box, c, facts_get(box->place->source_facts, "hosted"), tags, e);
}

const struct step vercel_clone_steps[] = {
    { "identify", step_identify, false },
    { "fork", step_fork, false },
    { "await", step_await, false },
    { "probe", step_probe, false },
    { 0 },
};

/* --- an interruption ---------------------------------------------------------------------------------- */

/* Asks nobody: the journal knows as much as is needed. */
void vercel_explain_interruption(void *self, const struct facts *facts, char *out, size_t room)
{
    const char *hosted = facts_get(facts, "hosted");
    size_t size = strlen(out);

    (void)self;
    if (hosted != NULL)
        snprintf(out + size, room - size, "; the service %s '%s', which rm removes",
                 facts_get(facts, "session") != NULL ? "holds" : "may hold", hosted);
}

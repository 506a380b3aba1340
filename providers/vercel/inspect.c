#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/text.h"
#include "providers/provider.h"
#include "providers/vercel/api.h"
#include "providers/vercel/credentials.h"
#include "providers/vercel/image.h"

#define LIMIT_MS 1900 /* of the 2 s of provider_ops.inspect_host: the one request gets what is left of it */

struct inspection {
    struct text message;
    const char *fix;
};

/* CLAUSE as a sentence. */
static void add_sentence(struct inspection *i, const char *clause)
{
    size_t first = i->message.size, size = strlen(clause);

    if (size == 0)
        return;
    text_print(&i->message, "%s%s%s", first > 0 ? " " : "", clause,
               strchr(".!?", clause[size - 1]) == NULL ? "." : "");
    first += first > 0;
    if (clause[0] >= 'a' && clause[0] <= 'z')
        i->message.bytes[first] = (char)(clause[0] - 'a' + 'A');
}

static enum fsm_provider_state explain(struct inspection *i, const struct error *why, const char *fix)
{
    const char *suggestion = error_suggestion(why);

    add_sentence(i, why->message);
    if (suggestion != NULL)
        add_sentence(i, suggestion);
    i->fix = fix;
    return PROVIDER_UNAVAILABLE;
}

/* Whoever did not answer, or not to this question, proves nothing. */
static enum fsm_provider_state judge(struct inspection *i, const struct error *why, const char *fix,
                                     struct error *e)
{
    if (why->code == ERROR_AUTH_FAILED ||
        why->code == ERROR_PROVIDER_UNAVAILABLE || /* nothing to ask with; or the plan, or its bill */
        why->code == ERROR_PLATFORM_NOT_SUPPORTED) /* no libcurl */
        return explain(i, why, fix);
    *e = *why;
    return PROVIDER_NONE;
}

/* As api_check(). */
static int ask(const struct credentials *c, int64_t end_ms, struct error *e)
{
    struct credentials mine = *c;
    struct api *api = NULL;
    int64_t left;
    int result;

    mine.token = mem_copy_text(c->token);
    if (api_open(&mine, &api, e) < 0)
        return -1;
    left = end_ms - clock_mono_ms();
    result = api_check(api, left > 1 ? (int)left : 1, e);
    api_close(api);
    return result;
}

static enum fsm_provider_state explain_unknown_project(const struct credentials *c, struct inspection *i)
{
    AUTO_FREE char *line =
        mem_print("the service does not know the project '%s', which %s names, in the team '%s'", c->project,
                  c->project_source, c->team);

    add_sentence(i, line);
    add_sentence(i,
                 c->project_fix != NULL
                     ? "Run 'vercel link', then 'vercel env pull', in this directory for one that is there"
                     : "Name one that is there: ids are on the settings pages of the project and the team");
    i->fix = c->project_fix;
    return PROVIDER_UNAVAILABLE;
}

static enum fsm_provider_state look_at_files(const struct root *root, const struct credentials *c,
                                             struct inspection *i)
{
    bool written = image_is_written(root);
    AUTO_FREE char *line =
        mem_print("the service takes the credentials of %s for the project '%s'", c->source, c->project);
    char path[IMAGE_PATH_SIZE];

    image_path(root, path);
    AUTO_FREE char *files = mem_print("the build files of the desktop image %s '%s'",
                                      written ? "are in" : "are not written yet; they will be in", path);

    add_sentence(i, line);
    add_sentence(i, files);
    return written ? PROVIDER_READY : PROVIDER_MISSING;
}

static enum fsm_provider_state look(struct inspection *i, const struct root *root, struct error *e)
{
    int64_t end_ms = clock_mono_ms() + LIMIT_MS;
    struct credentials c;
    struct error why = { 0 };
    enum fsm_provider_state state;
    int known;

    if (credentials_find(&c, &why) < 0)
        state = judge(i, &why, c.fix, e);
    else if ((known = ask(&c, end_ms, &why)) < 0)
        state = judge(i, &why, why.code == ERROR_AUTH_FAILED ? c.fix : NULL, e);
    else
        state = known == API_GONE ? explain_unknown_project(&c, i) : look_at_files(root, &c, i);
    credentials_done(&c);
    return state;
}

int vercel_inspect_host(const struct root *root, struct provider_host_report *out, struct error *e)
{
    struct inspection i = { 0 };

    out->state = look(&i, root, e);
    snprintf(out->message, sizeof(out->message), "%s", text_get(&i.message));
    snprintf(out->fix, sizeof(out->fix), "%s", i.fix != NULL ? i.fix : "");
    text_done(&i.message);
    return out->state == PROVIDER_NONE ? -1 : 0;
}

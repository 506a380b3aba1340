#include "providers/vercel/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/text.h"
#include "providers/vercel/exchange.h"

#define BASE_URL  "https://vercel.com/api"
#define PAGE_SIZE "50" /* sandboxes; as the vendor's CLI asks for */
#define PAGES_MAX 400  /* the service keeps fewer sandboxes for one project */

static int64_t end_after(int deadline_ms)
{
    return clock_mono_ms() + deadline_ms;
}

/* --- the client -------------------------------------------------------------------------------------- */

static int choose_base(struct api *a, struct error *e)
{
    const char *told = getenv("VERCEL_API_URL");
    const char *base = told != NULL && told[0] != '\0' ? told : BASE_URL;
    struct error why = { 0 };

    if (strpbrk(base, "?#") != NULL || http_check_url(a->http, base, &why) < 0)
        return error_set(
            e, ERROR_INVALID_ARGS, 0,
            "VERCEL_API_URL is neither an https address nor an http address of this host itself");
    a->base = mem_copy_text(base);
    for (size_t size = strlen(a->base); size > 0 && a->base[size - 1] == '/'; size--)
        a->base[size - 1] = '\0';
    return 0;
}

int api_open(struct credentials *c, struct api **out, struct error *e)
{
    struct api *a = mem_alloc(sizeof(*a));

    a->credentials = *c;
    *c = (struct credentials){ 0 };
    if (http_open(&a->http, e) < 0 || choose_base(a, e) < 0) {
        api_close(a);
        return -1;
    }
    a->bearer = mem_print("Bearer %s", a->credentials.token);
    *out = a;
    return 0;
}

void api_set_options(struct api *a, char *const *options)
{
    a->options = options;
}

void api_set_wake(struct api *a, const struct api_wake *wake)
{
    a->wake = *wake;
}

void api_close(struct api *a)
{
    if (a == NULL)
        return;
    util_wipe_text(&a->bearer);
    free(a->base);
    credentials_done(&a->credentials);
    http_close(a->http);
    free(a);
}

/* --- sandboxes --------------------------------------------------------------------------------------- */

static int read_hosted(const struct api *a, const struct exchange *x, struct hosted *out, struct error *e)
{
    const struct json *session = json_get(x->reply, "session");

    if (session == NULL || !reply_read_sandbox(json_get(x->reply, "sandbox"), session, out))
        return exchange_set_wrong_reply(a, x, e);
    return API_FOUND;
}

int api_get(struct api *a, const char *name, bool resume, int deadline_ms, struct hosted *out,
            struct json **tags, struct error *e)
{
    AUTO_EXCHANGE struct exchange x = { .name = resume ? CALL_RESUME : CALL_GET,
                                        .end_ms = end_after(deadline_ms),
                                        .names = { name } };
    int found = exchange_ask(a, &x, e);

    if (found == API_FOUND)
        found = read_hosted(a, &x, out, e);
    if (found == API_FOUND && tags != NULL)
        *tags = reply_copy_tags(json_get(x.reply, "sandbox"));
    return found;
}

int api_create(struct api *a, const char *source, bool legacy, const struct json *body, int deadline_ms,
               struct hosted *out, struct error *why, struct error *e)
{
    AUTO_JSON struct json *whole = json_clone(body);
    AUTO_WIPE char *text = NULL; /* may have secrets in "env" */
    AUTO_EXCHANGE struct exchange x = { .name = legacy ? CALL_CREATE_LEGACY : CALL_CREATE,
                                        .end_ms = end_after(deadline_ms),
                                        .names = { source } };
    int found;

    if (source != NULL)
        x.name = CALL_FORK;
    else
        json_put_string(whole, "projectId", a->credentials.project);
    text = json_print(whole);
    x.body = text;
    found = exchange_ask(a, &x, e);
    if (found == API_REFUSED)
        exchange_set_refusal(a, &x, why);
    return found == API_FOUND ? read_hosted(a, &x, out, e) : found;
}

int api_stop(struct api *a, const char *session, int deadline_ms, struct error *e)
{
    AUTO_EXCHANGE struct exchange x = { .name = CALL_STOP,
                                        .end_ms = end_after(deadline_ms),
                                        .names = { session } };
    int found = exchange_ask(a, &x, e);

    if (found == API_REFUSED)
        exchange_set_refusal(a, &x, e);
    return found;
}

int api_delete(struct api *a, const char *name, int deadline_ms, struct error *e)
{
    AUTO_EXCHANGE struct exchange x = { .name = CALL_DELETE,
                                        .end_ms = end_after(deadline_ms),
                                        .names = { name } };

    return exchange_ask(a, &x, e);
}

/* --- the list ---------------------------------------------------------------------------------------- */

/* GONE: there is no such project. */
static int list_page(struct api *a, struct exchange *x, const char *limit, const char *order,
                     const char *tags, const char *cursor, struct error *e)
{
    const struct parameter parameters[] = {
        { "limit", limit },     { "sortBy", order == NULL ? NULL : "createdAt" },
        { "sortOrder", order }, { "tags", tags },
        { "cursor", cursor },   { NULL, NULL },
    };
    int found;

    x->parameters = parameters;
    found = exchange_ask(a, x, e);
    x->parameters = NULL;
    if (found == API_FOUND && json_get_kind(x->reply, "sandboxes") != JSON_KIND_ARRAY)
        return exchange_set_wrong_reply(a, x, e);
    return found;
}

typedef int one_fn(void *self, const struct hosted *one, struct error *e);

/* 1 when ON_ONE had enough: 0 or -1 else. */
static int give_page(struct api *a, const struct exchange *x, one_fn *on_one, void *self, struct error *e)
{
    const struct json *page = json_get(x->reply, "sandboxes");
    bool enough = false;

    for (size_t i = 0; i < json_count(page); i++) {
        struct hosted one;

        if (!reply_read_sandbox(json_at(page, i), NULL, &one))
            return exchange_set_wrong_reply(a, x, e);
        int r = on_one(self, &one, e);

        if (r < 0)
            return -1;
        enough = enough || r > 0;
    }
    return enough ? 1 : 0;
}

int api_list(struct api *a, enum api_order order, int deadline_ms, one_fn *on_one, void *self,
             struct error *e)
{
    static const char *const orders[] = { [API_NEWEST_FIRST] = "desc", [API_OLDEST_FIRST] = "asc" };
    AUTO_EXCHANGE struct exchange x = { .name = CALL_LIST, .end_ms = end_after(deadline_ms) };
    AUTO_JSON struct json *cursors = json_new_object(); /* those that were followed */
    AUTO_FREE char *cursor = NULL;

    for (int pages = 0; pages < PAGES_MAX; pages++) {
        const char *next;

        int found = list_page(a, &x, PAGE_SIZE, orders[order], HOSTED_TAG_OURS, cursor, e);

        if (found != API_FOUND)
            return found < 0 ? -1 : exchange_set_refusal(a, &x, e);
        int given = give_page(a, &x, on_one, self, e);

        if (given != 0)
            return given < 0 ? -1 : 0;
        if (!reply_read_pagination(json_get(x.reply, "pagination"), &next))
            return exchange_set_wrong_reply(a, &x, e);
        if (next == NULL)
            return 0;
        if (json_get(cursors, next) != NULL)
            break;
        json_put_bool(cursors, next, true);
        free(cursor);
        cursor = mem_copy_text(next);
    }
    error_set(e, ERROR_ACTION_FAILED, 0, "cannot list the sandboxes: the pages of '%s' do not end",
              http_host(a->http));
    return exchange_set_delivery(&x, e);
}

int api_check(struct api *a, int deadline_ms, struct error *e)
{
    AUTO_EXCHANGE struct exchange x = { .name = CALL_LIST, .end_ms = end_after(deadline_ms) };

    return list_page(a, &x, "1", NULL, NULL, NULL, e);
}

/* --- commands ---------------------------------------------------------------------------------------- */

static char *print_command(const struct api_command *c)
{
    AUTO_JSON struct json *body = json_new_object();
    struct json *args = json_new_array();

    for (const char *const *arg = c->args; *arg != NULL; arg++)
        json_add_string(args, *arg);
    json_put_string(body, "command", c->program);
    json_put(body, "args", args);
    json_put(body, "env", json_new_object());
    json_put_bool(body, "sudo", false);
    json_put_bool(body, "wait", true);
    json_put_bool(body, "logs", true);
    json_put_int(body, "timeout", c->timeout_ms);
    return json_print(body);
}

int api_run(struct api *a, const char *session, const struct api_command *c, const struct api_stream *s,
            enum command_start *start, struct error *e)
{
    AUTO_FREE char *body = print_command(c);
    AUTO_EXCHANGE struct exchange x = {
        .name = CALL_RUN, .end_ms = end_after(s->deadline_ms), .names = { session }, .body = body, .stream = s
    };
    struct error own = { 0 };
    int outcome = exchange_ask(a, &x, &own);

    if (outcome < 0 && (!x.streams || x.refused || own.code == ERROR_TIMEOUT)) {
        *e = own;
        return -1;
    }
    if (outcome == OUTCOME_NO_PROGRAM)
        *start = COMMAND_NO_PROGRAM;
    else
        *start = outcome == API_GONE || outcome == API_ENDED ? COMMAND_SESSION_GONE : COMMAND_ENDED;
    return 0;
}

int api_logs(struct api *a, const char *session, const char *command, const struct api_stream *s,
             struct error *e)
{
    AUTO_EXCHANGE struct exchange x = {
        .name = CALL_LOGS, .end_ms = end_after(s->deadline_ms), .names = { session, command }, .stream = s
    };

    return exchange_ask(a, &x, e);
}

int api_command_status(struct api *a, const char *session, const char *command, bool wait, int deadline_ms,
                       int *status, struct error *e)
{
    AUTO_EXCHANGE struct exchange x = { .name = wait ? CALL_COMMAND_END : CALL_COMMAND,
                                        .end_ms = end_after(deadline_ms),
                                        .names = { session, command } };
    int found = exchange_ask(a, &x, e);

    if (found == API_FOUND && !reply_read_command(json_get(x.reply, "command"), status))
        return exchange_set_wrong_reply(a, &x, e);
    return found;
}

int api_kill(struct api *a, const char *session, const char *command, int number, int deadline_ms,
             struct error *e)
{
    AUTO_FREE char *body = mem_print("{\"signal\":%d}", number);
    AUTO_EXCHANGE struct exchange x = {
        .name = CALL_KILL, .end_ms = end_after(deadline_ms), .names = { session, command }, .body = body
    };
    struct error refusal = { 0 }, ignored = { 0 };
    int found = exchange_ask(a, &x, e), status = -1;

    if (found != OUTCOME_UNCLEAR)
        return found;
    exchange_set_refusal(a, &x, &refusal);
    found = api_command_status(a, session, command, false, exchange_left(&x), &status, &ignored);
    if (found < 0 || (found == API_FOUND && status < 0)) {
        *e = refusal;
        return -1;
    }
    return found;
}

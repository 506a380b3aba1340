#include "providers/vercel/exchange.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/util.h"

#define STALL_MS  10000 /* after so long a silence another attempt promises more than further waiting */
#define SETTLE_MS 500   /* between two requests of one that is refused for the moment */
#define REPLY_MAX ((size_t)8 << 20)
#define ERROR_MAX ((size_t)64 << 10)

/* --- the calls --------------------------------------------------------------------------------------- */

static const struct call {
    const char *purpose; /* "cannot ..." */
    const char *method;
    const char *path;         /* each * is a name or an id */
    const char *project;      /* the parameter that tells it, which is not the same everywhere; NULL: none */
    struct parameter special; /* what makes this call of several with one path */
    enum http_repeat repeat;  /* nothing would tell a create, a fork or a run that is sent twice from two */
    bool acts;                /* may change something */
    bool takes_time;          /* before the reply's first byte: nothing can be said about a silence */
} calls[] = {
    /* clang-format off */
    [CALL_GET]           = { "look at the sandbox", "GET", "/v2/sandboxes/*", "projectId",
                             .repeat = HTTP_REPEATABLE },
    [CALL_RESUME]        = { "resume the sandbox", "GET", "/v2/sandboxes/*", "projectId", { "resume", "true" },
                             .repeat = HTTP_REPEATABLE, .acts = true, .takes_time = true },
    [CALL_CREATE]        = { "create the sandbox", "POST", "/v3/sandboxes", NULL, /* in the body */
                             .repeat = HTTP_ONCE, .acts = true, .takes_time = true },
    [CALL_CREATE_LEGACY] = { "create the sandbox", "POST", "/v2/sandboxes", NULL,
                             .repeat = HTTP_ONCE, .acts = true, .takes_time = true },
    [CALL_FORK]          = { "fork the sandbox", "POST", "/v2/sandboxes/*/fork", "projectId",
                             .repeat = HTTP_ONCE, .acts = true, .takes_time = true },
    [CALL_STOP]          = { "stop the session", "POST", "/v2/sandboxes/sessions/*/stop", NULL,
                             .repeat = HTTP_REPEATABLE, .acts = true, .takes_time = true },
    [CALL_DELETE]        = { "delete the sandbox", "DELETE", "/v2/sandboxes/*", "projectId",
                             { "deleteOrphanSnapshots", "true" },
                             .repeat = HTTP_REPEATABLE, .acts = true, .takes_time = true },
    [CALL_LIST]          = { "list the sandboxes", "GET", "/v2/sandboxes", "project",
                             .repeat = HTTP_REPEATABLE },
    [CALL_SESSION]       = { "look at the session", "GET", "/v2/sandboxes/sessions/*", NULL,
                             .repeat = HTTP_REPEATABLE },
    [CALL_RUN]           = { "run the command", "POST", "/v2/sandboxes/sessions/*/cmd", NULL,
                             .repeat = HTTP_ONCE, .acts = true, .takes_time = true },
    [CALL_LOGS]          = { "read the command's output", "GET", "/v2/sandboxes/sessions/*/cmd/*/logs", NULL,
                             .repeat = HTTP_REPEATABLE, .takes_time = true },
    [CALL_COMMAND]       = { "look at the command", "GET", "/v2/sandboxes/sessions/*/cmd/*", NULL,
                             .repeat = HTTP_REPEATABLE },
    [CALL_COMMAND_END]   = { "wait for the command", "GET", "/v2/sandboxes/sessions/*/cmd/*", NULL,
                             { "wait", "true" }, .repeat = HTTP_REPEATABLE, .takes_time = true },
    [CALL_KILL]          = { "signal the command", "POST", "/v2/sandboxes/sessions/*/cmd/*/kill", NULL,
                             .repeat = HTTP_REPEATABLE, .acts = true },
    /* clang-format on */
};
_Static_assert(ARRAY_LEN(calls) == CALL_COUNT, "each call has a row");

/* --- what an answer means ---------------------------------------------------------------------------- */

#define BIT(name) (1U << (name))
#define CREATES   (BIT(CALL_CREATE) | BIT(CALL_CREATE_LEGACY) | BIT(CALL_FORK))
#define IN_SESSION                                                                                           \
    (BIT(CALL_STOP) | BIT(CALL_SESSION) | BIT(CALL_RUN) | BIT(CALL_LOGS) | BIT(CALL_COMMAND) |               \
     BIT(CALL_COMMAND_END) | BIT(CALL_KILL))
#define GETS       (BIT(CALL_GET) | BIT(CALL_RESUME))
#define ANY_STATUS 0 /* 409, 410 or 422: which of them goes with a code is not certain */

/* The first row that fits; what none does is an error. 401, 402, 403 and 429 have none. */
static const struct rule {
    unsigned int calls;
    int status;
    const char *code; /* NULL: any, or none */
    int outcome;
} rules[] = {
    { CREATES, 400, NULL, API_REFUSED },
    { CREATES, 409, NULL, API_REFUSED },
    { BIT(CALL_FORK), 404, NULL, API_GONE },
    { CREATES, 404, NULL, API_REFUSED },     /* no such image, or project */
    { BIT(CALL_LIST), 404, NULL, API_GONE }, /* no such project */
    { BIT(CALL_RUN), 400, "executable_not_found", OUTCOME_NO_PROGRAM },
    { BIT(CALL_DELETE), 404, NULL, API_GONE },
    { BIT(CALL_DELETE), 410, NULL, API_GONE },
    { BIT(CALL_STOP), ANY_STATUS, "sandbox_stopping", API_FOUND },
    { BIT(CALL_STOP), ANY_STATUS, "sandbox_snapshotting", API_FOUND },
    { BIT(CALL_RESUME), ANY_STATUS, "sandbox_stopping", OUTCOME_AGAIN },
    { BIT(CALL_RESUME), ANY_STATUS, "sandbox_snapshotting", OUTCOME_AGAIN },
    { BIT(CALL_RESUME), ANY_STATUS, "sandbox_stopped", OUTCOME_ERROR }, /* that is why it is to be resumed */
    { IN_SESSION, ANY_STATUS, "sandbox_stopping", API_ENDED }, /* and a snapshot stops it: no way back */
    { IN_SESSION, ANY_STATUS, "sandbox_snapshotting", API_ENDED },
    { IN_SESSION, ANY_STATUS, "sandbox_stopped", API_ENDED },
    { GETS, ANY_STATUS, "snapshot_not_found", API_ENDED },
    { BIT(CALL_KILL), 400, NULL, OUTCOME_UNCLEAR }, /* which of them an ended command gets is not certain */
    { BIT(CALL_KILL), 404, NULL, OUTCOME_UNCLEAR },
    { BIT(CALL_KILL), ANY_STATUS, NULL, OUTCOME_UNCLEAR },
    { GETS, 404, "not_found", API_GONE }, /* others may be of something on the way */
    { GETS, 410, "sandbox_stopped", API_ENDED },
    { IN_SESSION, 404, NULL, API_GONE },
    { IN_SESSION, 410, NULL, API_ENDED },
    { BIT(CALL_RUN), 422, NULL, OUTCOME_AGAIN },
    { BIT(CALL_STOP), 422, NULL, API_REFUSED },
};

static bool fits_status(int rule, int status)
{
    return rule == status || (rule == ANY_STATUS && (status == 409 || status == 410 || status == 422));
}

static int find_outcome(enum call_name name, int status, const char *code)
{
    if (status / 100 == 2)
        return API_FOUND;
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if ((rules[i].calls & BIT(name)) != 0 && fits_status(rules[i].status, status) &&
            (rules[i].code == NULL || strcmp(rules[i].code, code) == 0))
            return rules[i].outcome;
    return OUTCOME_ERROR;
}

#define ANY_5XX 5

static const struct error_row {
    int status;
    enum error_code code;
    const char *phrase; /* with the host before it */
    const char *suggestion;
} error_rows[] = {
    { 401, ERROR_AUTH_FAILED, "does not accept the credentials of ", NULL },
    { 403, ERROR_AUTH_FAILED, "does not accept the credentials of ", NULL },
    { 402, ERROR_PROVIDER_UNAVAILABLE, "wants another plan, or a payment",
      "Look at the plan and the billing of the team on the service." },
    { 429, ERROR_LIMIT_REACHED, "refuses it for now", "Wait, or stop a sandbox that is not needed." },
    { 400, ERROR_ACTION_FAILED, "does not do it", "Correct what the message names." },
    { ANY_5XX, ERROR_ACTION_FAILED, "cannot do it now", NULL },
    { 0, ERROR_ACTION_FAILED, "does not do it", NULL },
};

static const struct error_row *find_error_row(int status)
{
    const struct error_row *row = error_rows;

    if (status / 100 == 5)
        status = ANY_5XX;
    while (row->status != status && row->status != 0)
        row++;
    return row;
}

/* --- one exchange ------------------------------------------------------------------------------------ */

void exchange_done(struct exchange *x)
{
    http_answer_done(&x->answer);
    text_done(&x->other);
    json_free(steal(&x->reply));
}

int exchange_left(const struct exchange *x)
{
    int64_t left = x->end_ms - clock_mono_ms();

    return left > 0 ? (int)left : 0;
}

int exchange_set_delivery(const struct exchange *x, struct error *e)
{
    const struct call *call = &calls[x->name];
    bool acted = call->acts && x->answer.may_have_acted;

    e->delivery = acted ? DELIVERY_UNKNOWN : DELIVERY_NOT_DELIVERED;
    e->retry = acted && call->repeat == HTTP_ONCE ? RETRY_UNSAFE : RETRY_SAFE;
    return -1;
}

/* "HTTP status 422, bad_request: no such thing" */
static void describe_answer(const struct api *a, const struct exchange *x, struct text *out)
{
    const char *retry_after = http_header(a->http, "Retry-After");
    char value[64];

    text_print(out, "HTTP status %d", x->answer.status);
    if (x->refusal.code[0] != '\0')
        text_print(out, ", %s", x->refusal.code);
    if (x->refusal.words[0] != '\0')
        text_print(out, ": %s", x->refusal.words);
    if (x->answer.status == 429 && retry_after != NULL) {
        reply_copy_without(a->credentials.token, retry_after, value, sizeof(value));
        text_print(out, "; Retry-After: %s", value);
    }
}

int exchange_set_refusal(const struct api *a, const struct exchange *x, struct error *e)
{
    const struct error_row *row = find_error_row(x->answer.status);
    const char *source = row->code == ERROR_AUTH_FAILED ? a->credentials.source : NULL;
    struct text answer = { 0 };

    describe_answer(a, x, &answer);
    if (e->code == ERROR_NONE)
        e->suggestion = row->suggestion;
    error_set(e, row->code, 0, "cannot %s: '%s' %s%s (%s)", calls[x->name].purpose, http_host(a->http),
              row->phrase, source != NULL ? source : "", text_get(&answer));
    text_done(&answer);
    return exchange_set_delivery(x, e);
}

int exchange_set_wrong_reply(const struct api *a, const struct exchange *x, struct error *e)
{
    struct text answer = { 0 };
    char type[sizeof(x->answer.type)];

    reply_copy_without(a->credentials.token, x->answer.type, type, sizeof(type));
    describe_answer(a, x, &answer);
    error_set(e, ERROR_ACTION_FAILED, 0, "cannot %s: the reply of '%s' is not as it should be (%s%s%s)",
              calls[x->name].purpose, http_host(a->http), text_get(&answer), type[0] != '\0' ? "; " : "",
              type);
    text_done(&answer);
    return exchange_set_delivery(x, e);
}

/* --- sending ----------------------------------------------------------------------------------------- */

/* RFC 3986 2.3: the unreserved ones stay. */
static void add_encoded(struct text *url, const char *word)
{
    static const char unreserved[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

    for (; *word != '\0'; word++) {
        if (strchr(unreserved, *word) != NULL)
            text_add(url, word, 1);
        else
            text_print(url, "%%%02X", (unsigned int)(unsigned char)*word);
    }
}

static void add_parameter(struct text *url, const char *name, const char *value)
{
    if (name == NULL || value == NULL || value[0] == '\0')
        return;
    text_print(url, "%s%s=", strchr(url->bytes, '?') == NULL ? "?" : "&", name);
    add_encoded(url, value);
}

static void print_url(const struct api *a, const struct exchange *x, struct text *url)
{
    const struct call *call = &calls[x->name];
    const char *const *name = x->names;

    text_add_string(url, a->base);
    for (const char *at = call->path; *at != '\0'; at++) {
        if (*at == '*')
            add_encoded(url, *name++);
        else
            text_add(url, at, 1);
    }
    add_parameter(url, "teamId", a->credentials.team);
    add_parameter(url, call->project, a->credentials.project);
    add_parameter(url, call->special.name, call->special.value);
    for (const struct parameter *p = x->parameters; p != NULL && p->name != NULL; p++)
        add_parameter(url, p->name, p->value);
}

static bool is_json(const char *type)
{
    return strcmp(type, "application/json") == 0;
}

static bool is_stream(const struct http_answer *head)
{
    return head->status / 100 == 2 && strcmp(head->type, "application/x-ndjson") == 0;
}

/* In place of a stream comes at times what says why there is none. */
static int take_head(void *self, const struct http_answer *head, struct error *e)
{
    struct exchange *x = self;

    (void)e;
    text_done(&x->other);
    x->streams = is_stream(head);
    return x->streams || is_json(head->type) ? HTTP_GO_ON : HTTP_ENOUGH;
}

static int note_next(struct exchange *x, int next)
{
    x->refused = x->refused || next < 0;
    x->enough = x->enough || next == HTTP_ENOUGH;
    return next;
}

static int take_bytes(void *self, const char *bytes, size_t size, struct error *e)
{
    struct exchange *x = self;

    if (x->streams)
        return note_next(x, x->stream->on_bytes(x->stream->self, bytes, size, e));
    text_add(&x->other, bytes, size);
    return x->other.size > ERROR_MAX ? HTTP_ENOUGH : HTTP_GO_ON;
}

static int take_wake(void *self, struct error *e)
{
    struct exchange *x = self;

    return note_next(x, x->wake.on_wake(x->wake.self, e));
}

static struct api_wake choose_wake(const struct api *a, const struct exchange *x)
{
    const struct api_stream *s = x->stream;

    return s == NULL ? a->wake : (struct api_wake){ s->on_wake, s->wake_fd, s->self };
}

static int request(struct api *a, struct exchange *x, struct error *e)
{
    const struct call *call = &calls[x->name];
    const struct http_header headers[] = {
        { "Authorization", a->bearer },
        { x->body != NULL ? "Content-Type" : NULL, "application/json" },
        { NULL, NULL },
    };
    struct text url = { 0 };
    struct http_request r = { .method = call->method,
                              .headers = headers,
                              .secret = true,
                              .compressed = x->stream == NULL,
                              .repeat = call->repeat,
                              .deadline_ms = exchange_left(x),
                              .stall_ms = call->takes_time ? 0 : STALL_MS,
                              .body = x->body,
                              .body_size = x->body != NULL ? (int64_t)strlen(x->body) : 0,
                              .max = REPLY_MAX,
                              .self = x };
    int result;

    if (x->stream != NULL) {
        r.on_head = take_head;
        r.on_body = take_bytes;
    }
    r.on_wake = x->wake.on_wake != NULL ? take_wake : NULL;
    r.wake_fd = x->wake.fd;
    print_url(a, x, &url);
    r.url = text_get(&url);
    result = http_request(a->http, &r, &x->answer, e);
    text_done(&url);
    return result;
}

/* True when there is nothing wrong with a yes, as far as can be said without knowing what is needed of it. */
static bool read_document(struct exchange *x)
{
    struct error ignored = { 0 };

    if (x->answer.status == 204)
        return true;
    return is_json(x->answer.type) &&
           json_parse_foreign(text_get(&x->answer.body), x->answer.body.size, "the reply",
                              ERROR_ACTION_FAILED, &x->reply, &ignored) == 0 &&
           json_get_kind(x->reply, "error") == JSON_KIND_ABSENT;
}

/* One request with its repetitions. An outcome, or -1. */
static int ask_once(struct api *a, struct exchange *x, struct error *e)
{
    const struct text *said;

    exchange_done(x);
    x->streams = false;
    if (request(a, x, e) < 0) {
        x->streams = is_stream(&x->answer); /* it may have broken before its first byte */
        return x->refused ? -1 : exchange_set_delivery(x, e);
    }
    if (x->enough)
        return API_FOUND;
    said = x->other.size > 0 ? &x->other : &x->answer.body;
    reply_read_refusal(text_get(said), said->size, a->credentials.token, a->options, &x->refusal);
    if (x->answer.status / 100 == 2 && !(x->stream != NULL ? x->streams : read_document(x)))
        return exchange_set_wrong_reply(a, x, e);
    return find_outcome(x->name, x->answer.status, x->refusal.code);
}

/* --- again, after a while ---------------------------------------------------------------------------- */

static bool is_called_off(const struct exchange *x)
{
    const struct api_stream *s = x->stream;

    return s != NULL && s->is_called_off != NULL && s->is_called_off(s->self);
}

static int take_idle_wake(void *self, struct error *e)
{
    struct exchange *x = self;
    int next = take_wake(x, e);

    return next == HTTP_GO_ON && is_called_off(x) ? HTTP_ENOUGH : next;
}

/* While the request itself is not under way. */
static struct api_wake get_idle_wake(struct exchange *x)
{
    if (x->wake.on_wake == NULL)
        return (struct api_wake){ 0 };
    return (struct api_wake){ take_idle_wake, x->wake.fd, x };
}

/* HTTP_GO_ON: it is; HTTP_ENOUGH: the caller had enough; -1: it is not, or the caller has refused, with *e.
 */
static int check_pending(struct api *a, struct exchange *x, struct error *e)
{
    AUTO_EXCHANGE struct exchange look = {
        .name = CALL_SESSION, .end_ms = x->end_ms, .names = { x->names[0] }, .wake = get_idle_wake(x)
    };
    struct error own = { 0 };
    enum hosted_status status;
    char word[HOSTED_WORD_SIZE];
    int found = ask_once(a, &look, &own);

    if (look.refused)
        *e = own;
    if (look.enough)
        return HTTP_ENOUGH;
    if (found != API_FOUND || !reply_read_status(json_get(look.reply, "session"), &status, word))
        return -1;
    return status == HOSTED_PENDING ? HTTP_GO_ON : -1;
}

/* Nobody says which 422 means that a session is not ready yet: the second time, the session is asked.
 * HTTP_GO_ON, HTTP_ENOUGH, or -1: to ask again does not help, or the caller has refused. */
static int settle(struct api *a, struct exchange *x, int tries, struct error *e)
{
    struct api_wake wake = get_idle_wake(x);
    int next = x->name == CALL_RUN && tries > 1 ? check_pending(a, x, e) : HTTP_GO_ON;

    if (next != HTTP_GO_ON)
        return next;
    return exchange_left(x) > SETTLE_MS ? http_wait(SETTLE_MS, wake.fd, wake.on_wake, wake.self, e) : -1;
}

int exchange_ask(struct api *a, struct exchange *x, struct error *e)
{
    x->wake = choose_wake(a, x);
    int outcome = ask_once(a, x, e);

    for (int tries = 1; outcome == OUTCOME_AGAIN; tries++) {
        int next = is_called_off(x) ? -1 : settle(a, x, tries, e);

        if (next == HTTP_ENOUGH && x->enough)
            return API_FOUND;
        if (next != HTTP_GO_ON)
            return x->refused ? -1 : exchange_set_refusal(a, x, e);
        outcome = ask_once(a, x, e);
    }
    return outcome == OUTCOME_ERROR ? exchange_set_refusal(a, x, e) : outcome;
}

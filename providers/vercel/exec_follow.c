/* The output of a command, from the service's stream to the caller's.
 *
 * Both of the command's streams come in one, so that a reader who takes nothing of one holds up the other
 * one, too; one who reads stderr only behind the end of stdout would wait for ever. When that lasts, what
 * comes of the first waits on the disk. */
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "providers/remote/http.h"
#include "providers/vercel/execution.h"
#include "providers/vercel/ndjson.h"

#define STALL_MS       1000 /* so long without room on one stream, and the other one gets past */
#define FIRST_PAUSE_MS 100  /* before the output is asked for again; doubles as long as nothing new comes */
#define LAST_PAUSE_MS  2000
#define GARBLED_MAX    3
#define SHORT_MAX      5    /* tellings in a row that end before what was passed on, of what has ended */
#define WAIT_MS        1000 /* for the end to be told, at a time: it cannot be interrupted */

/* One telling of the output. */
struct telling {
    struct execution *x;
    struct ndjson *reader;
    struct relay_position at;
    bool enough;     /* nothing more of it is wanted */
    bool broken_off; /* the service says so, or the last line was cut */
    bool is_garbled; /* a line was none */
    bool has_failed; /* here, and would again */
};

/* --- events --------------------------------------------------------------------------------------------- */

void execution_take_status(struct execution *x, int status)
{
    x->status = status < 0 || status > 255 ? 255 : status;
    x->status_known = true;
}

/* What was to be said to it may have waited for this. */
static int take_id(struct telling *t, const char *id, struct error *e)
{
    struct execution *x = t->x;
    size_t size = strlen(id);

    if (size == 0 || size >= sizeof(x->command))
        return error_set(e, ERROR_ACTION_FAILED, 0,
                         "the service tells no id of the command that could be used");
    memcpy(x->command, id, size + 1);
    t->enough = x->ending != ENDING_NONE && !execution_watch(x);
    return 0;
}

static int take_command(struct telling *t, const struct ndjson_event *event, struct error *e)
{
    if (t->x->command[0] == '\0' && take_id(t, event->id, e) < 0)
        return -1;
    if (event->ended) {
        execution_take_status(t->x, event->status);
        t->x->finished = t->enough = true;
    }
    return 0;
}

/* 0 when there is; -1 when the telling is to end. */
static int wait_for_room(struct telling *t, enum relay_stream stream)
{
    struct execution *x = t->x;
    int64_t stall_ms = clock_mono_ms() + STALL_MS;
    bool may_spool = !x->relay.is_joined;

    while (!relay_has_room(&x->relay, stream)) {
        int64_t left = stall_ms - clock_mono_ms();

        if (may_spool && left <= 0) {
            relay_spool(&x->relay, stream);
            may_spool = false;
            continue;
        }
        lookout_wait(x->lookout, may_spool ? (int)left : -1);
        t->enough = !execution_watch(x);
        if (t->enough)
            return -1;
    }
    return 0;
}

static int take_output(struct telling *t, enum relay_stream stream, const char *bytes, size_t size,
                       struct error *e)
{
    while (size > 0) {
        size_t taken = 0;

        if (relay_pass(&t->x->relay, &t->at, stream, bytes, size, &taken, e) < 0) {
            t->has_failed = true;
            return -1;
        }
        bytes += taken;
        size -= taken;
        if (taken == 0 && wait_for_room(t, stream) < 0)
            return -1;
    }
    return 0;
}

static int take_error(struct telling *t, const struct ndjson_event *event)
{
    snprintf(t->x->said, sizeof(t->x->said), "%s: %s", event->code, event->message);
    t->broken_off = t->enough = true;
    return -1;
}

static int on_event(void *self, const struct ndjson_event *event, struct error *e)
{
    struct telling *t = self;

    switch (event->kind) {
    case NDJSON_COMMAND:
        return take_command(t, event, e);
    case NDJSON_OUTPUT:
        return take_output(t, event->stream == 2 ? RELAY_ERR : RELAY_OUT, event->bytes, event->size, e);
    case NDJSON_ERROR:
        return take_error(t, event);
    }
    return 0;
}

/* --- the transfer --------------------------------------------------------------------------------------- */

/* libcurl asks for news only when nothing comes for a moment. */
static bool is_called_off(struct telling *t)
{
    if (lookout_wait(t->x->lookout, 0) && !execution_watch(t->x))
        t->enough = true;
    return t->enough;
}

static int on_bytes(void *self, const char *bytes, size_t size, struct error *e)
{
    struct telling *t = self;
    struct error own = { 0 };

    if (is_called_off(t))
        return HTTP_ENOUGH;
    int r = ndjson_feed(t->reader, bytes, size, on_event, t, &own);

    if (own.code != ERROR_NONE) {
        t->is_garbled = !t->has_failed;
        t->x->garbled += t->is_garbled;
        *e = own;
        return -1;
    }
    return r < 0 || t->enough ? HTTP_ENOUGH : HTTP_GO_ON;
}

static int on_wake(void *self, struct error *e)
{
    struct telling *t = self;

    (void)e;
    t->enough = t->enough || !execution_watch(t->x);
    return t->enough ? HTTP_ENOUGH : HTTP_GO_ON;
}

/* A command that is being ended already is not begun any more. */
static bool is_ending(void *self)
{
    const struct telling *t = self;

    return t->x->ending != ENDING_NONE;
}

static struct api_stream begin_telling(struct telling *t)
{
    int64_t left = execution_limit_ms(t->x) - clock_mono_ms();

    t->reader = ndjson_new(t->x->box->credentials.token);
    return (struct api_stream){ .on_bytes = on_bytes,
                                .on_wake = on_wake,
                                .wake_fd = lookout_fd(t->x->lookout),
                                .is_called_off = is_ending,
                                .deadline_ms = left > 1 ? (int)left : 1,
                                .self = t };
}

/* A last line that was cut is no worse than one that is missing. */
static void end_telling(struct telling *t)
{
    struct error half = { 0 };

    if (!t->enough && ndjson_end(t->reader, on_event, t, &half) < 0)
        t->broken_off = true;
    ndjson_free(t->reader);
}

/* --- finding it again ----------------------------------------------------------------------------------- */

static void ask_status(struct execution *x)
{
    struct error why = { 0 };
    int status = -1;
    int found = api_command_status(x->box->api, x->session, x->command, true, WAIT_MS, &status, &why);

    x->session_ended = found == API_ENDED || found == API_GONE;
    if (found == API_FOUND && status >= 0)
        execution_take_status(x, status);
}

/* Waiting does not help with these; nor with lines that cannot be read, again and again. */
static bool is_final(const struct telling *t, const struct error *why)
{
    return why->code == ERROR_AUTH_FAILED || why->code == ERROR_PROVIDER_UNAVAILABLE || t->has_failed ||
           (t->is_garbled && t->x->garbled >= GARBLED_MAX);
}

/* A telling has come to its end. That of a command that had ended before is complete when it is as long as
 * what was passed on; that of one that still ran may have ended anywhere. When it stays shorter, the service
 * has lost some, or cuts characters elsewhere: nobody can say what is missing, and the end is told all the
 * same. */
static void take_end(struct execution *x, const struct telling *t, bool had_ended, bool progress)
{
    if (!had_ended) {
        ask_status(x);
        return;
    }
    x->finished = !progress && relay_is_whole(&x->relay, &t->at);
    x->shorter = progress ? 0 : x->shorter + !x->finished;
    x->is_short = x->shorter >= SHORT_MAX;
}

/* Tells the output once more. *PROGRESS: something new was learnt. */
static int tell_again(struct execution *x, bool *progress, struct error *e)
{
    struct telling t = { .x = x };
    struct error why = { 0 };
    bool had_ended = x->status_known;
    uint64_t before = relay_given(&x->relay);
    struct api_stream stream = begin_telling(&t);
    int found = api_logs(x->box->api, x->session, x->command, &stream, &why);

    end_telling(&t);
    *progress = relay_given(&x->relay) > before;
    if (x->gave_up)
        return 0;
    if (found < 0 && is_final(&t, &why)) {
        *e = why;
        return -1;
    }
    if (found == API_FOUND && !t.broken_off)
        take_end(x, &t, had_ended, *progress);
    else
        x->session_ended = found == API_ENDED || found == API_GONE;
    *progress = *progress || x->status_known != had_ended;
    return 0;
}

/* Between two tellings; what happens here meanwhile is done. */
static void pause_before(struct execution *x, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;

    for (int64_t left = ms; left > 0 && execution_watch(x); left = until_ms - clock_mono_ms())
        lookout_wait(x->lookout, (int)left);
}

static bool is_over(const struct execution *x)
{
    return x->finished || x->gave_up || x->session_ended || x->is_short;
}

static int find_again(struct execution *x, struct error *e)
{
    int64_t pause_ms = FIRST_PAUSE_MS;

    while (!is_over(x)) {
        bool progress = false;

        if (tell_again(x, &progress, e) < 0)
            return -1;
        pause_ms = progress ? FIRST_PAUSE_MS : pause_ms * 2 < LAST_PAUSE_MS ? pause_ms * 2 : LAST_PAUSE_MS;
        if (!is_over(x))
            pause_before(x, pause_ms);
    }
    return 0;
}

int execution_follow(struct execution *x, const struct api_command *command, enum command_start *start,
                     struct error *e)
{
    struct telling t = { .x = x };
    struct error why = { 0 };

    lookout_set_alarm(x->lookout, x->end_ms);
    struct api_stream stream = begin_telling(&t);
    int r = api_run(x->box->api, x->session, command, &stream, start, &why);

    end_telling(&t);
    if (x->command[0] == '\0') {
        *e = why;
        return r;
    }
    if (r < 0)
        log_debug("the command's stream broke off: %s", why.message);
    if (t.has_failed)
        *e = why;
    if (!t.has_failed && find_again(x, e) == 0)
        return 0;
    execution_abandon(x, e);
    return -1;
}

/* http_download() of http.h: what a server may answer to "the rest of it, please" (RFC 9110 14.2 and 13.1.5).
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/log.h"
#include "providers/remote/http.h"
#include "providers/remote/http_pause.h"
#include "providers/remote/http_sink.h"

#define NEXT_TO_NOTHING 16384 /* bytes in stall_ms: no connection that anybody would wait for */
#define TRIES_MIN       4     /* before giving up, however long one of them took */
#define CHANGES_MAX     5
#define TELL_MS         250

/* What tells one version of a file from another; "" unknown. */
struct version {
    char etag[256];
    char modified[64];
};

struct download {
    const struct http_download *d;
    struct http *h;
    struct http_sink *sink;

    struct version version; /* of the file that the sink has the beginning of */
    int64_t total;          /* its size; -1: unknown */
    bool unproven;   /* it may hold bytes of another version, or lack its end, and only the hash can tell */
    bool whole_only; /* the server's ranges are not what they say */
    int changes;

    /* the attempt at hand */
    int64_t from;  /* where the range that was asked for begins; 0: the whole file was asked for */
    int64_t end;   /* what comes after this many bytes of the file does not belong to it; -1: unknown */
    char why[512]; /* it has not been the last one */
    bool changed;  /* the server has another version now */
    bool rejected; /* what came was not usable for a reason that the next request takes into account */

    /* patience: since when there was next to no progress, how many attempts ago, and from where */
    int64_t mark_ms, mark;
    int tries;
    int64_t told_ms;
};

enum outcome { OUTCOME_FAILED = -1, OUTCOME_COMPLETE, OUTCOME_AGAIN };

/* ---- which version ---- */

static void copy_header(const struct http *h, const char *name, char *out, size_t room)
{
    const char *value = http_header(h, name);

    if (value == NULL || strlen(value) >= room)
        value = "";
    snprintf(out, room, "%s", value);
}

static void read_version(const struct http *h, struct version *out)
{
    copy_header(h, "ETag", out->etag, sizeof(out->etag));
    copy_header(h, "Last-Modified", out->modified, sizeof(out->modified));
}

static bool differ(const char *a, const char *b)
{
    return a[0] != '\0' && b[0] != '\0' && strcmp(a, b) != 0;
}

/* For If-Range, which must not have a weak tag (RFC 9110 13.1.5); "" when there is nothing. */
static const char *get_validator(const struct version *v)
{
    return v->etag[0] == '"' ? v->etag : v->modified;
}

/* Nothing of the file is left. What has been seen of it counts as progress all the same: coming that far
 * again does not. */
static int restart(struct download *dl, struct error *e)
{
    dl->version = (struct version){ 0 };
    dl->total = -1;
    dl->unproven = false;
    return http_sink_restart(dl->sink, e);
}

/* And another one is to come, of which nothing has been seen. */
static int begin_anew(struct download *dl, struct error *e)
{
    dl->mark = 0;
    return restart(dl, e);
}

/* ---- the answer's head ---- */

struct range {
    int64_t first, last; /* -1 with "*" */
    int64_t total;       /* -1 with "*" */
};

/* Digits at *AT, and moves it behind them; or "*", which is -1. */
static bool read_position(const char **at, int64_t *out)
{
    size_t digits = strspn(*at, "0123456789");

    if (**at == '*') {
        *out = -1;
        *at += 1;
        return true;
    }
    if (digits == 0 || digits > 18) /* INT64_MAX has 19 */
        return false;
    *out = strtoll(*at, NULL, 10);
    *at += digits;
    return true;
}

/* Content-Range, RFC 9110 14.4: first-last/total, where "*" stands for the first two, or for the total. */
static bool read_range(const struct http *h, struct range *out)
{
    const char *at = http_header(h, "Content-Range");

    *out = (struct range){ -1, -1, -1 };
    if (at == NULL || strncasecmp(at, "bytes ", 6) != 0)
        return false;
    at += 6;
    if (!read_position(&at, &out->first))
        return false;
    if (out->first >= 0 && (*at++ != '-' || !read_position(&at, &out->last) || out->last < out->first))
        return false;
    return *at++ == '/' && read_position(&at, &out->total) && *at == '\0';
}

/* Notes why this attempt is not the last one. */
static void note(struct download *dl, const char *why)
{
    snprintf(dl->why, sizeof(dl->why), "%s", why);
}

static int take_rest(struct download *dl, const struct http_answer *head)
{
    struct version version;
    struct range range;

    if (!read_range(dl->h, &range) || range.first != dl->from ||
        (head->size >= 0 && head->size != range.last + 1 - range.first) ||
        (range.total >= 0 && range.last >= range.total)) {
        note(dl, "the server sent another range than it was asked for");
        dl->whole_only = dl->rejected = true;
        return HTTP_ENOUGH;
    }
    read_version(dl->h, &version);
    if (differ(version.etag, dl->version.etag) || differ(version.modified, dl->version.modified) ||
        (dl->total >= 0 && range.total >= 0 && range.total != dl->total)) {
        note(dl, "the file has changed on the server");
        dl->changed = dl->rejected = true;
        return HTTP_ENOUGH;
    }
    if (get_validator(&dl->version)[0] == '\0')
        dl->unproven = true;
    dl->version = version;
    if (range.total >= 0)
        dl->total = range.total;
    dl->end = range.last + 1;
    return HTTP_GO_ON;
}

static int take_whole(struct download *dl, const struct http_answer *head, struct error *e)
{
    if (http_sink_size(dl->sink) > 0) {
        log_debug("download: '%s' sends the whole file again", http_host(dl->h));
        if (restart(dl, e) < 0)
            return -1;
    }
    read_version(dl->h, &dl->version);
    dl->total = head->size;
    dl->end = head->size;
    return HTTP_GO_ON;
}

static int on_head(void *self, const struct http_answer *head, struct error *e)
{
    struct download *dl = self;

    if (head->status == 206 && dl->from > 0)
        return take_rest(dl, head);
    if (head->status == 200)
        return take_whole(dl, head, e);
    note(dl, "the server sent what it was not asked for");
    return HTTP_ENOUGH;
}

/* ---- its body ---- */

static void tell(struct download *dl, bool now)
{
    int64_t ms = clock_mono_ms();

    if (dl->d->on_bytes == NULL || (!now && ms - dl->told_ms < TELL_MS))
        return;
    dl->told_ms = ms;
    dl->d->on_bytes(dl->d->self, http_sink_size(dl->sink), dl->total);
}

static int on_body(void *self, const char *bytes, size_t size, struct error *e)
{
    struct download *dl = self;
    int64_t room = dl->end - http_sink_size(dl->sink);
    bool surplus = dl->end >= 0 && room < (int64_t)size;

    if (http_sink_add(dl->sink, bytes, surplus ? (size_t)room : size, e) < 0)
        return -1;
    tell(dl, false);
    return surplus ? HTTP_ENOUGH : HTTP_GO_ON;
}

/* ---- one attempt ---- */

static int send_request(struct download *dl, struct http_answer *answer, struct error *e)
{
    char range[48];
    const char *validator = get_validator(&dl->version);
    struct http_header headers[4] = { { "Accept-Encoding", "identity" } };
    const struct http_request request = { .url = dl->d->url,
                                          .headers = headers,
                                          .repeat = HTTP_REPEATABLE,
                                          .tries = 1, /* another one is another request */
                                          .deadline_ms = -1,
                                          .stall_ms = dl->d->stall_ms,
                                          .stall_bytes = NEXT_TO_NOTHING,
                                          .on_head = on_head,
                                          .on_body = on_body,
                                          .self = dl };

    dl->from = dl->whole_only ? 0 : http_sink_size(dl->sink);
    dl->end = -1;
    dl->changed = dl->rejected = false;
    dl->why[0] = '\0';
    if (dl->from > 0) {
        snprintf(range, sizeof(range), "bytes=%lld-", (long long)dl->from);
        headers[1] = (struct http_header){ "Range", range };
        if (validator[0] != '\0')
            headers[2] = (struct http_header){ "If-Range", validator };
    }
    return http_request(dl->h, &request, answer, e);
}

/* The end of the message is that of the file. */
static bool is_complete(struct download *dl)
{
    int64_t size = http_sink_size(dl->sink);

    if (dl->total < 0) /* all that came, and nothing said how much it was to be */
        dl->unproven = true;
    return dl->total < 0 || size == dl->total;
}

/* 416: there is nothing from that position on. */
static enum outcome judge_no_rest(struct download *dl)
{
    struct range range;

    read_range(dl->h, &range);
    if (range.total >= 0 ? range.total == dl->from : dl->total < 0 || dl->total == dl->from) {
        dl->total = dl->from;
        return OUTCOME_COMPLETE;
    }
    dl->changed = dl->rejected = true;
    note(dl, "the file has become shorter on the server");
    return OUTCOME_AGAIN;
}

static enum outcome judge_answer(struct download *dl, const struct http_answer *a)
{
    if (dl->why[0] != '\0')
        return OUTCOME_AGAIN;
    if (a->status == 200 || a->status == 206) {
        if (is_complete(dl))
            return OUTCOME_COMPLETE;
        note(dl, "the server sent too few bytes");
        return OUTCOME_AGAIN;
    }
    snprintf(dl->why, sizeof(dl->why), "the server answered with HTTP status %d", a->status);
    if (a->status == 416 && dl->from > 0)
        return judge_no_rest(dl);
    if (a->status == 412)
        dl->changed = dl->rejected = true;
    return dl->changed || a->may_pass ? OUTCOME_AGAIN : OUTCOME_FAILED;
}

static enum outcome attempt(struct download *dl, struct http_answer *answer, struct error *e)
{
    if (send_request(dl, answer, e) == 0)
        return judge_answer(dl, answer);
    if (!answer->may_pass)
        return OUTCOME_FAILED;
    snprintf(dl->why, sizeof(dl->why), "%s", e->message);
    *e = (struct error){ 0 };
    /* all that was promised came, but not the end of the message */
    return dl->end >= 0 && dl->end == dl->total && is_complete(dl) ? OUTCOME_COMPLETE : OUTCOME_AGAIN;
}

/* ---- all attempts ---- */

/* The error that ends it: besides the cause, how far it came. */
static int fail(const struct download *dl, struct error *e)
{
    const char *cause = e->code == ERROR_NONE ? dl->why : e->message;
    struct error whole = *e; /* with its suggestion and disposition */
    char of[32] = "";

    if (e->code == ERROR_INVALID_ARGS)
        return -1;
    whole.code = ERROR_NONE;
    if (dl->total >= 0)
        snprintf(of, sizeof(of), " of %lld", (long long)dl->total);
    error_set(&whole, e->code == ERROR_NONE ? ERROR_ACTION_FAILED : e->code, 0,
              "the download from '%s' ended after %lld%s bytes: %s", http_host(dl->h),
              (long long)http_sink_size(dl->sink), of, cause);
    whole.sys = e->sys; /* its text is in the cause */
    *e = whole;
    return -1;
}

/* What is to come at the least, over all attempts of give_up_ms. */
static int64_t get_least_progress(const struct http_download *d)
{
    return d->stall_ms > 0 && d->give_up_ms > d->stall_ms
               ? (int64_t)NEXT_TO_NOTHING * (d->give_up_ms / d->stall_ms)
               : NEXT_TO_NOTHING;
}

static bool has_patience(struct download *dl)
{
    int64_t now = clock_mono_ms(), size = http_sink_size(dl->sink);

    if (size - dl->mark >= get_least_progress(dl->d)) {
        dl->mark = size;
        dl->mark_ms = now;
        dl->tries = 0;
        return true;
    }
    dl->tries++;
    return dl->tries < TRIES_MIN || now - dl->mark_ms < dl->d->give_up_ms;
}

/* A connection that has brought something is followed by the next one at once, and one that has not is tried
 * again at once. Only what goes on failing, or says so, is left in peace. */
static void pause_for(const struct download *dl, const struct http_answer *answer, int64_t size_before)
{
    bool brought = http_sink_size(dl->sink) - size_before >= NEXT_TO_NOTHING;
    bool refused = answer->may_pass && answer->status >= 400;
    int64_t ms = http_pause_ms(dl->h, answer, dl->tries);

    if (refused || (!brought && !dl->rejected && dl->tries > 1))
        clock_sleep_ms(ms < dl->d->give_up_ms ? (int)ms : dl->d->give_up_ms);
}

/* The whole file, as far as can be told without its hash. */
static int fetch(struct download *dl, struct error *e)
{
    for (;;) {
        int64_t before = http_sink_size(dl->sink);
        struct http_answer answer;
        enum outcome outcome = attempt(dl, &answer, e);

        http_answer_done(&answer);
        if (http_sink_flush(dl->sink, e) < 0 || outcome == OUTCOME_FAILED)
            return fail(dl, e);
        tell(dl, true);
        if (outcome == OUTCOME_COMPLETE)
            return 0;
        log_debug("download: %lld bytes are here, then: %s", (long long)http_sink_size(dl->sink), dl->why);
        if (!has_patience(dl) || (dl->changed && ++dl->changes > CHANGES_MAX))
            return fail(dl, e);
        if (dl->changed && begin_anew(dl, e) < 0)
            return -1;
        pause_for(dl, &answer, before);
    }
}

static int fetch_proven(struct download *dl, char sum[HTTP_SHA1_SIZE], struct error *e)
{
    for (bool again = false;; again = true) {
        if (fetch(dl, e) < 0 || http_sink_sum(dl->sink, sum, e) < 0)
            return -1;
        if (dl->d->sha1 == NULL || strcasecmp(sum, dl->d->sha1) == 0)
            return 0;
        if (again || !dl->unproven)
            return error_set(e, ERROR_ACTION_FAILED, 0,
                             "what '%s' sent is not what was published: %lld bytes with the SHA-1 %s, not %s",
                             http_host(dl->h), (long long)http_sink_size(dl->sink), sum, dl->d->sha1);
        log_debug("download: begun anew, for %s is not the sum", sum);
        if (begin_anew(dl, e) < 0)
            return -1;
    }
}

int http_download(const struct http_download *d, char sum[HTTP_SHA1_SIZE], struct error *e)
{
    struct download dl = { .d = d, .total = -1 };
    int result = -1;

    if (http_open(&dl.h, e) == 0 && http_sink_open(d->file, &dl.sink, e) == 0) {
        dl.unproven = http_sink_size(dl.sink) > 0;
        dl.mark = http_sink_size(dl.sink);
        dl.mark_ms = clock_mono_ms();
        if (!dl.unproven || d->sha1 != NULL || begin_anew(&dl, e) == 0)
            result = fetch_proven(&dl, sum, e);
    }
    if (result == 0)
        result = file_sync_full(d->file, e);
    http_sink_close(dl.sink);
    http_close(dl.h);
    return result;
}

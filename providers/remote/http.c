#include "providers/remote/http.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "providers/remote/http_exchange.h"
#include "providers/remote/http_pause.h"

#define REDIRECTS_MAX 10
#define GET_STALL_MS  10000 /* http_get(): then another attempt promises more than further waiting */

void http_answer_done(struct http_answer *a)
{
    text_done(&a->body);
}

/* ---- one attempt ---- */

static bool may_follow(const struct http_request *r)
{
    bool only_asks = r->method == NULL || strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;

    return only_asks && !r->secret;
}

/* The exchange and those that it is redirected to. */
static enum http_end attempt(struct http *h, const struct http_request *r, int64_t deadline_at,
                             struct http_answer *a, struct http_exchange *x, struct error *e)
{
    enum http_end end;

    if (http_exchange_aim(h, r->url, false, e) < 0)
        return HTTP_END_REFUSED;
    end = http_exchange_run(h, r, deadline_at, a, x, e);
    for (int hops = 0; end == HTTP_END_DONE && x->redirect != NULL && may_follow(r); hops++) {
        AUTO_FREE char *target = steal(&x->redirect);

        if (hops == REDIRECTS_MAX) {
            error_set(e, ERROR_ACTION_FAILED, 0, "'%s' redirects more than %d times", http_host(h), hops);
            return HTTP_END_REFUSED;
        }
        if (http_exchange_aim(h, target, true, e) < 0)
            return HTTP_END_REFUSED;
        end = http_exchange_run(h, r, deadline_at, a, x, e);
    }
    free(steal(&x->redirect));
    return end;
}

int http_check_url(struct http *h, const char *url, struct error *e)
{
    return http_exchange_aim(h, url, false, e);
}

/* ---- again? ---- */

/* 408 is sent by what has waited for the rest of a request, perhaps on the way. */
static bool may_have_acted(const struct http_answer *a)
{
    if (a->fate != HTTP_ANSWERED)
        return a->fate == HTTP_UNKNOWN;
    return a->status / 100 != 4 || a->status == 408;
}

static bool is_worth_repeating(const struct http_request *r, const struct http_answer *a,
                               const struct http_exchange *x)
{
    bool without_effect = a->fate == HTTP_NOT_SENT || a->status == 429;

    return a->may_pass && !x->given && (without_effect || r->repeat == HTTP_REPEATABLE);
}

int http_wait(int64_t ms, int wake_fd, int (*on_wake)(void *self, struct error *e), void *self,
              struct error *e)
{
    int64_t until = clock_mono_ms() + ms;
    struct pollfd wake = { .fd = on_wake == NULL ? -1 : wake_fd, .events = POLLIN };

    for (int64_t left = ms; left > 0; left = until - clock_mono_ms()) {
        int ready = poll(&wake, 1, (int)left);

        if (ready < 0 && errno != EINTR)
            return error_set(e, ERROR_INTERNAL, errno, "cannot wait");
        int next = ready > 0 && on_wake != NULL ? on_wake(self, e) : HTTP_GO_ON;

        if (next != HTTP_GO_ON)
            return next;
    }
    return HTTP_GO_ON;
}

/* ---- how it ended ---- */

static void fill_error(const struct http *h, const struct http_request *r, enum http_end end, int tries,
                       const struct http_answer *a, const struct http_exchange *x, struct error *e)
{
    char times[32] = "";

    if (end == HTTP_END_DONE || end == HTTP_END_REFUSED) /* filled */
        return;
    if (tries > 1)
        snprintf(times, sizeof(times), " (tried %d times)", tries);
    if (end == HTTP_END_LATE)
        error_set(e, ERROR_TIMEOUT, 0, "'%s' has not answered within %d ms%s", http_host(h), r->deadline_ms,
                  times);
    else
        error_set(e, ERROR_ACTION_FAILED, 0, "%s '%s': %s%s",
                  a->fate == HTTP_NOT_SENT ? "cannot connect to" : "the connection broke with", http_host(h),
                  x->why, times);
    e->delivery = a->may_have_acted ? DELIVERY_UNKNOWN : DELIVERY_NOT_DELIVERED;
    e->retry = !a->may_have_acted || r->repeat == HTTP_REPEATABLE ? RETRY_SAFE : RETRY_UNSAFE;
}

int http_request(struct http *h, const struct http_request *r, struct http_answer *out, struct error *e)
{
    int64_t deadline_at = r->deadline_ms < 0 ? -1 : clock_mono_ms() + r->deadline_ms;
    struct http_exchange x = { 0 };
    int next = HTTP_GO_ON;

    assert(deadline_at >= 0 || r->tries == 1);
    *out = (struct http_answer){ .size = -1 };
    for (int tries = 1; next == HTTP_GO_ON; tries++) {
        enum http_end end = attempt(h, r, deadline_at, out, &x, e);
        int64_t pause_ms = http_pause_ms(h, out, tries);

        out->may_have_acted = out->may_have_acted || may_have_acted(out);
        out->may_pass = end == HTTP_END_BROKEN || (end == HTTP_END_DONE && http_pause_helps(out->status));
        if (tries == r->tries || !is_worth_repeating(r, out, &x) ||
            clock_mono_ms() + pause_ms >= deadline_at) {
            fill_error(h, r, end, tries, out, &x, e);
            return end == HTTP_END_DONE ? 0 : -1;
        }
        next = http_wait(pause_ms, r->wake_fd, r->on_wake, r->self, e);
    }
    return next == HTTP_ENOUGH ? 0 : -1;
}

/* ---- a document ---- */

int http_get(const char *url, size_t max, int deadline_ms, struct text *out, struct error *e)
{
    struct http_request request = { .url = url,
                                    .compressed = true,
                                    .repeat = HTTP_REPEATABLE,
                                    .deadline_ms = deadline_ms,
                                    .stall_ms = GET_STALL_MS,
                                    .max = max };
    struct http_answer answer;
    struct http *h = NULL;
    int result;

    if (http_open(&h, e) < 0)
        return -1;
    result = http_request(h, &request, &answer, e);
    if (result == 0 && answer.status != 200)
        result = error_set(e, ERROR_ACTION_FAILED, 0, "'%s' answered with HTTP status %d", http_host(h),
                           answer.status);
    if (result == 0) {
        *out = answer.body;
        answer.body = (struct text){ 0 };
    }
    http_answer_done(&answer);
    http_close(h);
    return result;
}

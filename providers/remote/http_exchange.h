/* providers/remote/http_exchange.h - one request and its answer, over libcurl. For http.c only: what is tried
 * again and what is followed is decided there. */
#ifndef PROVIDERS_REMOTE_HTTP_EXCHANGE_H
#define PROVIDERS_REMOTE_HTTP_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/remote/http.h"

enum http_end {
    HTTP_END_DONE,     /* with a whole answer, or a callback had enough of it */
    HTTP_END_REFUSED,  /* by a callback, which has filled *e */
    HTTP_END_BROKEN,   /* no connection, or it broke, or brought too little: it may go better next time */
    HTTP_END_HOPELESS, /* for example, the certificate is not accepted: it will not */
    HTTP_END_LATE      /* the deadline */
};

struct http_exchange {
    char why[256];  /* BROKEN, HOPELESS: a phrase, may be of the peer's making */
    bool given;     /* on_body has got something */
    char *redirect; /* where a 3xx answer points to, absolute; NULL; free() */
};

/* Sets where the next exchange goes. INVALID_ARGS for an address that is not allowed; for one that the peer
 * gave, REDIRECTED, it is ACTION_FAILED, as is a way from https to http. */
int http_exchange_aim(struct http *h, const char *url, bool redirected, struct error *e);

/* Sends R there and takes the answer. A does not keep anything from before. DEADLINE_AT: clock_mono_ms(), -1
 * for none. */
enum http_end http_exchange_run(struct http *h, const struct http_request *r, int64_t deadline_at,
                                struct http_answer *a, struct http_exchange *x, struct error *e);

/* Seconds since 1970 of an HTTP date (RFC 9110 5.6.7, all three forms); -1 when it is none. */
int64_t http_exchange_parse_date(const struct http *h, const char *text);

#endif

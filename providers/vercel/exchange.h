/* providers/vercel/exchange.h - one request to the service with its answer. For api.c only.
 *
 * Here are the tables: of the calls, of what an answer means to each, of what a refusal is for our callers.
 */
#ifndef PROVIDERS_VERCEL_EXCHANGE_H
#define PROVIDERS_VERCEL_EXCHANGE_H

#include "core/json.h"
#include "core/text.h"
#include "providers/remote/http.h"
#include "providers/vercel/api.h"
#include "providers/vercel/reply.h"

struct api {
    struct http *http;
    struct credentials credentials;
    char *bearer; /* secret: the value of the header field */
    char *base;   /* without a slash at the end */
    struct api_wake wake;
    char *const *options; /* api_set_options() */
};

enum call_name {
    CALL_GET,
    CALL_RESUME,
    CALL_CREATE,
    CALL_CREATE_LEGACY,
    CALL_FORK,
    CALL_STOP,
    CALL_DELETE,
    CALL_LIST,
    CALL_SESSION,
    CALL_RUN,
    CALL_LOGS,
    CALL_COMMAND,
    CALL_COMMAND_END,
    CALL_KILL,
    CALL_COUNT
};

enum outcome { /* an enum api_found, or one of these */
               OUTCOME_ERROR = API_REFUSED + 1,
               OUTCOME_NO_PROGRAM,
               OUTCOME_AGAIN,  /* refused for the moment */
               OUTCOME_UNCLEAR /* a no, but perhaps only to what is done already */
};

struct parameter {     /* of a query */
    const char *name;  /* NULL ends the list */
    const char *value; /* NULL, "": it is left out */
};

struct exchange { /* what it is about, then what came of it; exchange_done() */
    enum call_name name;
    int64_t end_ms;                     /* clock_mono_ms() */
    const char *names[2];               /* for the path */
    const struct parameter *parameters; /* NULL: none */
    const char *body;                   /* NULL: none */
    const struct api_stream *stream;    /* NULL: a document is wanted */

    struct api_wake wake; /* the stream's, or the client's; of a look between two requests, its owner's */
    struct http_answer answer;
    struct reply_refusal refusal;
    struct json *reply; /* of a document; NULL: none was needed */
    struct text other;  /* what came instead of a stream */
    bool streams;       /* the head of one came */
    bool refused;       /* by the caller's callback, with *e */
    bool enough;        /* for the caller's callback */
};

void exchange_done(struct exchange *x);
#define AUTO_EXCHANGE __attribute__((cleanup(exchange_done)))

/* Sends it, again where that does no harm and as far as end_ms allows, and reads the answer. An enum
 * api_found (FOUND also when a callback had enough), OUTCOME_NO_PROGRAM, OUTCOME_UNCLEAR; or -1. May be used
 * anew. */
int exchange_ask(struct api *a, struct exchange *x, struct error *e);

int exchange_left(const struct exchange *x); /* milliseconds */

/* All give -1 and tell of the failed call what it may have done, as far as can be known. */
int exchange_set_delivery(const struct exchange *x, struct error *e); /* only that: *E is filled already */
int exchange_set_refusal(const struct api *a, const struct exchange *x, struct error *e);
int exchange_set_wrong_reply(const struct api *a, const struct exchange *x,
                             struct error *e); /* a yes that is none */

#endif

/* providers/vercel/ndjson.h - reads the stream of a command: lines of JSON, cut anywhere by the transport, of
 * any length up to a limit; nothing else is kept, so that a line bounds the memory. Pure: no I/O. Fuzzed. */
#ifndef PROVIDERS_VERCEL_NDJSON_H
#define PROVIDERS_VERCEL_NDJSON_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

#define NDJSON_LINE_MAX                                                                                      \
    (64 << 20) /* our own limit: the service tells none, and lines of megabytes are usual */

struct ndjson; /* one stream */

/* SECRET, the token, is lent until the end: where an error line repeats it, "..." stands in its place. */
struct ndjson *ndjson_new(const char *secret);
void ndjson_free(struct ndjson *n); /* NULL is fine */

enum ndjson_kind {
    NDJSON_COMMAND, /* id ("": not told); ended, with the status 0 to 255, when it has one: only that ends it
                     */
    NDJSON_OUTPUT,  /* bytes for stdout (stream 1) or stderr (2), to be passed on as they are */
    NDJSON_ERROR    /* the service has broken the stream off: code, message; "" what it does not say */
};

struct ndjson_event { /* lent until the callback returns */
    enum ndjson_kind kind;
    const char *id;
    bool ended;
    int status;
    int stream;
    const char *bytes;
    size_t size;
    char code[64]; /* "sandbox_stopped"; both cleaned, and without the secret */
    char message[256];
};

/* Takes SIZE bytes more and calls ON_EVENT for each line that they complete; -1 of it ends the reading. Blank
 * lines and lines of unknown kinds are skipped, CRLF ends a line like LF. Bytes that are not UTF-8 and halves
 * of surrogate pairs come out as U+FFFD. A line that is no JSON, or longer than the limit: ACTION_FAILED. */
int ndjson_feed(struct ndjson *n, const char *bytes, size_t size,
                int (*on_event)(void *self, const struct ndjson_event *event, struct error *e), void *self,
                struct error *e);

/* The stream is over: a last line without its newline counts. A half one is ACTION_FAILED. */
int ndjson_end(struct ndjson *n,
               int (*on_event)(void *self, const struct ndjson_event *event, struct error *e), void *self,
               struct error *e);

#endif

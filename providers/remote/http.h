/* providers/remote/http.h - HTTP for the catalog, the image and the hosted service; hides libcurl, which is
 * opened on first use.
 *
 * One place for time limits, retries and TLS. Only https, or http to a loopback address (127.0.0.0/8, ::1,
 * localhost), which is asked directly, never through a proxy. Certificates are always verified. Redirects are
 * followed by requests that change nothing and carry no secret, and never from https to http. Proxy and CA
 * settings are those that curl's users know (https_proxy, all_proxy, no_proxy; CURL_CA_BUNDLE, SSL_CERT_FILE,
 * SSL_CERT_DIR). Nobody's .netrc, cookies or curlrc; no secret gets into a message. */
#ifndef PROVIDERS_REMOTE_HTTP_H
#define PROVIDERS_REMOTE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/text.h"

struct http; /* a client with the connections that it keeps: opaque, not for two threads, lost in a fork() */

/* PLATFORM_NOT_SUPPORTED, naming the package, without libcurl. *out is ended with http_close(). */
int http_open(struct http **out, struct error *e);
void http_close(struct http *h); /* NULL is fine */

struct http_header {
    const char *name; /* NULL ends the list */
    const char *value;
};

/* What became of a request: may it have had its effect? */
enum http_fate {
    HTTP_NOT_SENT, /* certainly not: nothing of it left this machine */
    HTTP_UNKNOWN,  /* it was sent, wholly or in part, and no answer came */
    HTTP_ANSWERED  /* an answer's head came: the status tells. 429 is a no, 5xx may come from something on the
                      way */
};

/* May a request be sent again when it is not known what became of it? */
enum http_repeat {
    /* No: only what certainly had no effect (not sent, 429) is tried again. Never sent over a connection that
     * was used before: libcurl by itself sends again what a dying one took without an answer, POST too. */
    HTTP_ONCE,
    HTTP_REPEATABLE /* Yes: also after broken connections, 408 and 5xx */
};

struct http_answer {
    enum http_fate fate; /* of the last attempt; always set */
    int status;          /* 0: no head came */
    bool may_have_acted; /* one of the attempts may have had its effect: all but those not sent and noes (4xx)
                          */
    bool may_pass;    /* no answer, or a refusal, that the next attempt may not meet: what is tried again */
    char type[64];    /* media type in lower case, without parameters; "" unknown */
    int64_t size;     /* of the whole body as announced; -1: not */
    struct text body; /* what on_body was not given */
};

enum http_next { HTTP_GO_ON = 0, HTTP_ENOUGH = 1 }; /* of callbacks, besides -1 with *e */

struct http_request {
    const char *method; /* NULL: GET */
    const char *url;
    const struct http_header *headers; /* NULL: none; Content-Type for a body, Authorization ... */
    bool secret;     /* headers or body carry credentials: a redirect is an answer like others */
    bool compressed; /* the answer may come compressed; what is given on is not */
    enum http_repeat repeat;

    int tries;       /* at most so many; 0: until the deadline */
    int deadline_ms; /* over all attempts and the pauses between them; -1: none, then with one try */
    int stall_ms;    /* so long with fewer than stall_bytes breaks a connection; 0: it may be silent */
    int stall_bytes; /* of bodies, either way; 0: one */

    /* The body: BODY, or what ON_READ puts into BYTES, at most ROOM, from OFFSET on (again from 0 in another
     * attempt); it returns the count, 0 at the end, -1 with *e. */
    const void *body;
    int64_t body_size; /* -1, with on_read: not known before */
    long (*on_read)(void *self, int64_t offset, void *bytes, size_t room, struct error *e);

    size_t max; /* a 2xx answer's body larger than this is an error; others are cut at it */

    /* For a 2xx answer: its head, once in every attempt, before the first byte of the body; then the body as
     * it comes, in pieces of any size. Bytes that were given on are not taken back: then there is no further
     * attempt. NULL: not wanted; the body is kept in the answer. */
    int (*on_head)(void *self, const struct http_answer *head, struct error *e);
    int (*on_body)(void *self, const char *bytes, size_t size, struct error *e);

    /* Called when WAKE_FD becomes readable, also between attempts; NULL: wake_fd does not count. */
    int (*on_wake)(void *self, struct error *e);
    int wake_fd;

    void *self;
};

/* 0 with an answer, whatever its status: also one that ended early because a callback had enough, with the
 * status 0 when none had come by then. -1: no answer, or not all of it; OUT tells what came, and e->delivery
 * and e->retry are true. INVALID_ARGS: an address that is not allowed; TIMEOUT: the deadline; ACTION_FAILED:
 * all else, naming the host. Tried again, with growing pauses or as Retry-After says (seconds or a date), as
 * far as the deadline allows: what *r says may be. A certificate that is not accepted is not tried again. OUT
 * is freed with http_answer_done() in every case. */
int http_request(struct http *h, const struct http_request *r, struct http_answer *out, struct error *e);
void http_answer_done(struct http_answer *a);

/* Waits MS, as between two attempts: HTTP_GO_ON when they are over; else what ON_WAKE has said, which is
 * called when WAKE_FD becomes readable; NULL: it does not count. */
int http_wait(int64_t ms, int wake_fd, int (*on_wake)(void *self, struct error *e), void *self,
              struct error *e);

/* INVALID_ARGS when http_request() would not go to URL. Nothing is sent or looked up. */
int http_check_url(struct http *h, const char *url, struct error *e);

/* A header field of the last answer, in any spelling of NAME; NULL when it has none. Lent until the next
 * request. Callbacks may ask. */
const char *http_header(const struct http *h, const char *name);

const char *http_host(const struct http *h); /* who was asked last, for messages; lent likewise */

/* GETs a document of at most MAX bytes into *OUT. 5xx, 429 and broken connections are tried again within
 * DEADLINE_MS. Errors: ACTION_FAILED naming host and status, TIMEOUT. */
int http_get(const char *url, size_t max, int deadline_ms, struct text *out, struct error *e);

#define HTTP_SHA1_SIZE 41 /* 40 hexadecimal digits */

struct http_download {
    const char *url;
    int file;         /* descriptor, open to read and write; what it holds already is the beginning */
    const char *sha1; /* published, in either case; NULL: none; then what FILE holds is begun anew */
    int stall_ms;     /* a connection that brings next to nothing (16 KiB) for so long is broken */
    int give_up_ms;   /* so long at no better pace than that, over all attempts, ends it */
    void (*on_bytes)(void *self, int64_t done, int64_t total); /* some times a second; total -1: unknown */
    void *self;
};

/* Downloads a large file. A broken connection goes on where it stopped (Range with If-Range, so that another
 * file under the same address is seen and begun anew); a server that answers with the whole file, a wrong
 * range or too few bytes is understood. The hash is computed on the way. 0 with a durable file whose SHA-1 is
 * in SUM; -1: ACTION_FAILED (with the number of bytes that are there), STORE_FULL. A wrong hash is
 * ACTION_FAILED too. */
int http_download(const struct http_download *d, char sum[HTTP_SHA1_SIZE], struct error *e);

#endif

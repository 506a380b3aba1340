/* providers/vercel/api.h - the calls of the hosted service that we make, typed.
 *
 * One place for addresses, bodies, what is sent again and what an error status means; as the vendor's SDK
 * (@vercel/sandbox 3.5.0) has them, where nothing else is said. What may have had its effect is told apart
 * from what certainly had none: of each error e->delivery is DELIVERY_UNKNOWN or DELIVERY_NOT_DELIVERED, of
 * that one call, and e->retry is true. A look that fails is NOT_DELIVERED: who looked after something else
 * was done has to say so. Nothing here decides a state. Replies may have more members than are read, and in
 * any order.
 *
 * Errors of all calls: AUTH_FAILED (401, 403), PROVIDER_UNAVAILABLE (402: plan or billing, with the service's
 * words), LIMIT_REACHED (429 to the end), TIMEOUT (the deadline), ACTION_FAILED (the rest, naming the status
 * and the service's code; also a yes without what belongs to it). The token is in none of them, not even
 * where the service sends it back. */
#ifndef PROVIDERS_VERCEL_API_H
#define PROVIDERS_VERCEL_API_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "core/json.h"
#include "providers/vercel/credentials.h"

#define HOSTED_NAME_SIZE 132             /* 128 at most (documentation of create) */
#define HOSTED_TAG       "agent-desktop" /* its value proves that a sandbox is ours: a random id */
#define HOSTED_TAG_SIZE  24
#define HOSTED_WORD_SIZE 24

struct api; /* a client; not for two threads, lost in a fork() */

/* Takes the credentials over from C, in every case. The base URL is VERCEL_API_URL, or the service's own;
 * INVALID_ARGS for one that is neither https nor http to a loopback address. Sends nothing. */
int api_open(struct credentials *c, struct api **out, struct error *e);
void api_close(struct api *a); /* NULL is fine */

struct api_wake {
    int (*on_wake)(void *self, struct error *e); /* as of struct http_request; NULL: none */
    int fd;
    void *self;
};

/* From now on WAKE holds for all calls that have no stream: -1 of it, with *e, ends the call. */
void api_set_wake(struct api *a, const struct api_wake *wake);

/* "KEY=VALUE" of what the caller has in its requests and nobody else may see, NULL-terminated, lent for good;
 * NULL: none. Where the service quotes such a value, it is blotted out, as the token is. */
void api_set_options(struct api *a, char *const *options);

enum hosted_status { /* of a session; a word that is not known is HOSTED_OTHER and never "running" */
                     HOSTED_OTHER = 0,
                     HOSTED_PENDING,
                     HOSTED_RUNNING,
                     HOSTED_STOPPING,
                     HOSTED_SNAPSHOTTING,
                     HOSTED_STOPPED,
                     HOSTED_FAILED,
                     HOSTED_ABORTED
};

struct hosted { /* a sandbox with its current session */
    char name[HOSTED_NAME_SIZE];
    char session[VERCEL_ID_SIZE]; /* "" in a list that does not say */
    char tag[HOSTED_TAG_SIZE];    /* the value of HOSTED_TAG; "" when it has none */
    enum hosted_status status;    /* the session's where it is told, else the sandbox's */
    char word[HOSTED_WORD_SIZE];  /* the status as it was told, cleaned */
    bool persistent;
    bool has_snapshot;
    int64_t expires_ms; /* wall clock; 0: not told */
};

/* What became of a request that names something. */
enum api_found {
    API_GONE = 0,  /* 404 */
    API_FOUND = 1, /* *out is filled */
    API_ENDED = 2, /* 410: the session has ended; for a resume: nothing to resume from (snapshot_not_found) */
    API_REFUSED = 3 /* create, fork: 400, 409 (a create also: 404), with *why: invalid, or the name is taken;
                       only a look tells. stop: not for now */
    /* -1: an error */
};

/* GET of a sandbox by its name. RESUME starts a stopped one, and billing; repeating it changes nothing. TAGS,
 * unless NULL, gets all its tags, to be freed. GONE, FOUND, ENDED, -1. */
int api_get(struct api *a, const char *name, bool resume, int deadline_ms, struct hosted *out,
            struct json **tags, struct error *e);

/* POST of BODY (without projectId, which is added here), once: sent again only where it certainly had no
 * effect. SOURCE: fork that sandbox; NULL: create. LEGACY: a runtime instead of an image (v2). GONE is a
 * source that is not there. FOUND, REFUSED, GONE, -1; with DELIVERY_UNKNOWN the caller must look before
 * anything else. */
int api_create(struct api *a, const char *source, bool legacy, const struct json *body, int deadline_ms,
               struct hosted *out, struct error *why, struct error *e);

/* Asks the session to stop; that it has been asked to is no end yet: api_get() tells. FOUND, GONE, ENDED, -1.
 * A session that is under way to its end anyway (422 stopping, snapshotting) is FOUND. REFUSED, with *e, is
 * any other 422: not for now, as of one that is pending. */
int api_stop(struct api *a, const char *session, int deadline_ms, struct error *e);

/* DELETE with the snapshots that nobody else needs. The service does not ask whether it runs: the caller has.
 * FOUND or GONE, -1. */
int api_delete(struct api *a, const char *name, int deadline_ms, struct error *e);

/* All sandboxes of the project that carry HOSTED_TAG_OURS, page by page in the order of their creation, with
 * ON_ONE for each: 1 of it ends the listing with this page, -1 at once. A cursor that comes twice, or pages
 * without end, are ACTION_FAILED. */
enum api_order { API_NEWEST_FIRST, API_OLDEST_FIRST };
#define HOSTED_TAG_OURS                                                                                      \
    "made-by:agent-desktop" /* key:value; so that strangers' sandboxes need not be listed */
int api_list(struct api *a, enum api_order order, int deadline_ms,
             int (*on_one)(void *self, const struct hosted *one, struct error *e), void *self,
             struct error *e);

/* One request that proves that the credentials are good for the project (list with limit=1). FOUND, or GONE
 * when there is no such project; -1. */
int api_check(struct api *a, int deadline_ms, struct error *e);

/* --- commands in a session: R-504 -------------------------------------------------------------------- */

struct api_command { /* one element for each argument: no shell, no quoting. All text is valid UTF-8 */
    const char *program;
    const char *const *args; /* NULL-terminated */
    int timeout_ms;          /* the service ends it with SIGKILL then */
};

enum command_start {
    COMMAND_NO_PROGRAM = 0, /* 400 executable_not_found */
    COMMAND_ENDED,          /* the stream is over: what it told is with the reader */
    COMMAND_SESSION_GONE    /* 404, 410: no such session any more; nothing ran */
};

/* What a stream is given to: bytes of NDJSON, in any pieces. -1 with *e to end it. */
typedef int api_bytes_fn(void *self, const char *bytes, size_t size, struct error *e);

struct api_stream {
    api_bytes_fn *on_bytes;
    int (*on_wake)(void *self, struct error *e); /* as of struct http_request: HTTP_GO_ON, HTTP_ENOUGH, -1 */
    int wake_fd;

    /* Asked while nothing is under way, before what was refused for the moment is sent again, and after each
     * wake meanwhile: true leaves it at the refusal. NULL: never. */
    bool (*is_called_off)(void *self);

    int deadline_ms; /* over the whole of it */
    void *self;
};

/* Runs the command and takes its stream (wait, logs), once: never sent again over a connection that was used.
 * 422 of a session that is still pending, and 429, are tried again within the deadline. 0 with *START: also
 * when the stream broke off or on_wake had enough, which the reader knows by the last line that is missing.
 * -1: DELIVERY_UNKNOWN when it may run, as with TIMEOUT in the middle of the stream; the error of a callback
 * stands as it is. */
int api_run(struct api *a, const char *session, const struct api_command *c, const struct api_stream *s,
            enum command_start *start, struct error *e);

/* The output of a command again, from its beginning, until the command ends. FOUND, GONE, ENDED, -1; broken
 * off is -1 with ACTION_FAILED. */
int api_logs(struct api *a, const char *session, const char *command, const struct api_stream *s,
             struct error *e);

/* How the command ended. With WAIT it blocks until it has; TIMEOUT when that takes longer than DEADLINE_MS.
 * FOUND with *status, -1 while it runs; GONE, ENDED, -1. */
int api_command_status(struct api *a, const char *session, const char *command, bool wait, int deadline_ms,
                       int *status, struct error *e);

/* Sends it a signal, by number. FOUND also when it has ended already, which is asked when the service
 * refuses; GONE, ENDED, -1. */
int api_kill(struct api *a, const char *session, const char *command, int number, int deadline_ms,
             struct error *e);

#endif

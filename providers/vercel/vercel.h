/* providers/vercel/vercel.h - the `vercel` provider: hosted Linux microVMs, and what its parts share.
 *
 * On the service a sandbox has a name derived from ours, with a random id behind it, and a tag with the same
 * id: what does not carry it is somebody else's, and is never adopted, stopped or deleted.
 *
 * Facts:
 *   hosted          the name there
 *   id              the tag's value, recorded before the first request
 *   team, project   where it is, whatever the credentials say later on
 *   session         the last one that was told; absent: its creation was never confirmed
 *   ended           the last one that was seen to have ended with a disk that can be resumed
 *   desktop         "missing": agent-desktop-run is not in the image (needs_setup)
 *
 * The provider keeps no state in files: sandboxes/<name>/ is there for sandbox.json. */
#ifndef PROVIDERS_VERCEL_VERCEL_H
#define PROVIDERS_VERCEL_VERCEL_H

#include <sys/types.h>

#include "providers/provider.h"
#include "providers/vercel/api.h"

#define VERCEL_WRAPPER "agent-desktop-run" /* takes agent-desktop's arguments; the only place */

#define VERCEL_CALL_MS 30000 /* one call of an operation, with all that is sent again */
#define VERCEL_POLL_MS 500   /* the vendor's clients */
#define VERCEL_PENDING_MS                                                                                    \
    300000 /* of a create: a session that does not come to run; the vendor's client waits as long */
#define VERCEL_START_BOUND_MS 120000
#define VERCEL_STOP_BOUND_MS  300000 /* 18 s are usual, minutes have been reported: a snapshot is made */

struct vercel_making {   /* a create or a fork between the calls of its step; create.c */
    bool must_look;      /* a request was sent, and its answer was no yes */
    bool lost;           /* of one of the requests nothing came back */
    bool refused;        /* the last one */
    int requests, looks; /* looks: since the last request */
    struct error answer; /* the last one's */
};

struct vercel_boot {    /* a new session, on its way from create, clone or start to running; start.c */
    struct hosted seen; /* by the step before, "" where none was: saves asking again */
    int64_t since_ms;   /* mono; when it began to be waited for */
    int misses;         /* looks since it was last seen */
};

struct vercel_halt { /* between the calls of its step; stop.c */
    bool lost;       /* no answer came to its request */
    bool refused;    /* by a session that was pending, when it was last asked */
};

struct vercel_removal { /* between the calls of its step; remove.c */
    int64_t asked_ms;   /* mono; when it was asked to stop; 0: was not */
    bool was_heard;     /* or may have been */
    bool denied;        /* it was there, and said to be gone when it was to be deleted */
};

struct vercel_box { /* a handle */
    const struct provider_place *place;
    struct credentials credentials; /* as found when it was opened: a worker is in another directory */
    struct error trouble;           /* why there are none */
    struct api *api;                /* vercel_connect() */
    pid_t api_owner;
    int dir;          /* sandboxes/<name>; -1 until opened */
    bool was_stopped; /* as last observed by this handle */
    struct vercel_making making;
    struct vercel_boot boot;
    struct vercel_removal removal;
    struct vercel_halt halt;
    char note[256]; /* what step_context.note may point to */
};

/* The credentials of this command; without a token, and with *TROUBLE, when there are none. */
void vercel_find_credentials(struct credentials *out, struct error *trouble);

/* Opens a client for PROJECT of TEAM (NULL: the credentials' own); FROM stays the caller's. TROUBLE: why FROM
 * has no token. */
int vercel_open_api(const struct credentials *from, const struct error *trouble, const char *team,
                    const char *project, struct api **out, struct error *e);

/* Opens the client for the project that FACTS name (all credentials' own when there is none yet). Once in
 * each process. */
int vercel_connect(struct vercel_box *box, const struct facts *facts, struct error *e);

/* The sandbox of FACTS as the service has it, without waking it. FOUND only when it is ours: a stranger under
 * that name is GONE, with *STRANGER (may be NULL) set. GONE also when no name is recorded. What was there
 * before (a session is recorded) is GONE only when the service says so twice and knows the project: else an
 * error. */
int vercel_look(struct vercel_box *box, const struct facts *facts, int deadline_ms, struct hosted *out,
                bool *stranger, struct error *e);

/* Keeps the facts `session` and `ended` up to date: sets in OUT what is told and not what FACTS have. */
void vercel_write_session(const struct facts *facts, const struct hosted *seen, struct facts *out);
bool vercel_has_ended(const struct facts *facts, const char *session); /* recorded as such */

/* Can the ended session be followed by another? Its disk is kept, or is not wanted to be. */
bool vercel_can_resume(const struct hosted *seen);

/* Why no session can follow, a clause; NULL when one can, or this one has not ended. */
const char *vercel_explain_loss(const struct hosted *seen);

/* What GONE of vercel_look() means, a clause. */
void vercel_print_gone(const struct facts *facts, bool stranger, char *out, size_t room);

/* What is said of a sandbox without VERCEL_WRAPPER: a clause, with the way out. */
void vercel_print_missing(const struct facts *facts, char *out, size_t room);
bool vercel_lacks_desktop(const struct facts *facts); /* recorded as such */

extern const struct step vercel_create_steps[], vercel_clone_steps[]; /* create.c */
extern const struct step vercel_start_steps[];                        /* start.c */
extern const struct step vercel_stop_steps[];                         /* stop.c */
extern const struct step vercel_remove_steps[];                       /* remove.c */
observe_fn vercel_observe;                                            /* observe.c */

enum step_result vercel_poll(struct step_context *c); /* STEP_AGAIN, after VERCEL_POLL_MS */

/* Steps of create, clone and start: waits until the session runs, or with EV_LOST never will; sees whether it
 * has a desktop. start.c */
step_fn vercel_step_await, vercel_step_probe;

/* create.c: provider_ops.check_clone, explain_interruption. */
int vercel_check_clone(void *self, struct error *e);
void vercel_explain_interruption(void *self, const struct facts *facts, char *out, size_t room);

/* view.c: provider_ops.view_open: for many sandboxes the project is listed once. */
int vercel_view_open(const struct root *root, size_t count, int deadline_ms, void **view, struct error *e);
void vercel_view_close(void *view);

/* For vercel_observe(), from any thread: FOUND when the listing has it, as ours, and proves what a look would
 * tell; GONE when not, which proves nothing: it may have come since, or lack the tag that is listed by.
 * Blocks until the project is listed, within the view's deadline. -1 when it could not be. */
int vercel_view_find(void *view, const struct facts *facts, struct hosted *out, struct error *e);

/* exec.c: provider_ops.exec. */
int vercel_exec(void *self, const struct facts *facts, const struct exec_request *request,
                struct exec_result *out, struct error *e);

extern const struct provider_ops vercel_ops;

#endif

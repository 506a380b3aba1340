/* providers/provider.h - the contract between a provider and everything above it.
 *
 * A provider does the work on one kind of sandbox. It gets facts and gives back outputs; it never writes
 * the journal, decides a state or prints. What it keeps on disk lies below sandboxes/<name>/ (all but
 * sandbox.json) and providers/<provider>/. */
#ifndef PROVIDERS_PROVIDER_H
#define PROVIDERS_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/facts.h"
#include "core/root.h"
#include "fsm/lifecycle.h"
#include "fsm/step.h"

/* One --set key. Validation, --help and completion read these rows. */
struct provider_option {
    const char *key;   /* "screen"; ends with '.' when any key with this prefix is meant ("env.") */
    const char *value; /* how help shows the value: "WIDTHxHEIGHT" */
    const char *help;  /* one line, not capitalised, no full stop */
    /* Checks VALUE and writes what is recorded (at most FACT_VALUE_SIZE). NULL: any text. On failure
     * INVALID_ARGS with a message that names the accepted values. */
    int (*check)(const char *value, char out[FACT_VALUE_SIZE], struct error *e);
    /* May be a secret, or longer than a fact: goes to provider_place.unrecorded alone, and the journal gets
     * the key. CHECK's OUT is then not used, and its message does not tell the value. */
    bool unrecorded;
};

struct provider_host_report {
    enum fsm_provider_state state; /* UNAVAILABLE, MISSING or READY as found (WORKING and BROKEN come
                                      from the journal) */
    char message[1024];            /* all findings, one sentence each */
    char fix[512];                 /* the command line that unlocks most; "" when there is none */
};

/* Which sandbox, on which host. Lent: outlives the handle. */
struct provider_place {
    const struct root *root;          /* root->sandboxes is open unless nothing was ever created */
    const char *name;                 /* NULL for an install of the provider */
    const char *source;               /* clone: the source's name, else NULL */
    const struct facts *source_facts; /* and what is recorded of it */
    int op_lock; /* the op lock during an operation, else -1: children that change things inherit it */
    char *const *unrecorded; /* create, clone: "KEY=VALUE" of such options, NULL-terminated; NULL: none */
    void *view;              /* of view_open(), for observe(); NULL: none */
};

enum exec_delivery { EXEC_NOT_SENT, EXEC_SENT, EXEC_FINISHED };

struct exec_request {
    bool own_binary;            /* run this agent-desktop; argv[0] is "agent-desktop" */
    char *const *argv;          /* NULL-terminated bytes, passed on exactly */
    int streams[3];             /* the caller's 0, 1, 2; -1: /dev/null. A directory is INVALID_ARGS */
    int timeout_ms;             /* then SIGTERM, 2 s, SIGKILL to the whole command, and TIMEOUT */
    const volatile int *signal; /* set by a handler: forwarded once, then as for the time limit */
    int signal_fd;              /* becomes readable when *signal was set, or suspend() is due; -1 */
    /* Ctrl-Z: called when signal_fd is readable while *signal is 0, to stop the caller until it is continued.
     * Meanwhile the command's process group is stopped; the time limit goes on. NULL: never due. */
    void (*suspend)(void);
};

struct exec_result {
    enum exec_delivery delivery;
    bool stdout_used; /* a byte of the command reached streams[1], or may have: not told apart */
    bool status_known;
    int status; /* exit status when it exited */
    int signal; /* N when it was ended by signal N, else 0 */
};

struct provider_ops {
    const char *name;    /* as typed after --provider */
    const char *summary; /* one phrase */

    /* Is the host fit? Changes nothing. At most 2 s: a host that did not answer by then is TIMEOUT, not
     * unfit. */
    int (*inspect_host)(const struct root *root, struct provider_host_report *out, struct error *e);

    const struct provider_option *create_options; /* end with a keyless row; never NULL */
    const char *needed; /* the --set that a first create cannot do without: "ipsw=latest"; NULL: none */
    const struct provider_option *start_options;
    bool can_window;     /* start --window */
    bool can_clone;      /* --set from=SANDBOX */
    bool limits_running; /* only so many run at once: where a start meets LIMIT_REACHED, another one's stop
                            helps */
    bool stopped_can_change; /* hosted: others may start or remove it, so a stopped one is observed too */

    /* A handle for one sandbox; cheap, changes nothing. The caller ends it with close(). */
    int (*open)(const struct provider_place *place, void **self, struct error *e);
    void (*close)(void *self); /* NULL is fine */

    /* Checks the options as a whole before anything is done; INVALID_ARGS, or AUTH_FAILED where the
     * credentials are not for what they name. FACTS has "set.KEY" for each; defaults may be added. NULL:
     * nothing to check. */
    int (*check_create)(void *self, struct facts *facts, struct error *e);

    /* Checks the stopped source of a clone, as place->source and source_facts tell it. INVALID_STATE: a start
     * of the source is the way to make it fit; INVALID_ARGS: nothing does. NULL: nothing to check. */
    int (*check_clone)(void *self, struct error *e);

    /* OPERATION_INSTALL is the provider's own: its steps' handle is a const struct provider_place *
     * without a name; NULL steps: there is nothing to install. All others work with a handle of open(). */
    struct plan plan[FSM_OPERATION_COUNT];
    observe_fn *observe;

    /* One look at many: what the service has, asked for once, before COUNT sandboxes are observed side by
     * side by handles whose place has *VIEW; NULL when it is not worth while. NULL slots: each is looked at
     * by itself. */
    int (*view_open)(const struct root *root, size_t count, int deadline_ms, void **view, struct error *e);
    void (*view_close)(void *view);

    /* A needs_setup, recorded in FACTS, that no person can end: all that helps is to stop and remove it.
     * NULL: never. */
    cannot_be_set_up_fn *cannot_be_set_up;

    /* Adds to the general words in OUT ("its creation was interrupted", "cancelled by sandbox stop") how far
     * a create or clone came, or what it has left: " after 4.1 of 18.3 GB were downloaded". NULL: nothing to
     * add. */
    void (*explain_interruption)(void *self, const struct facts *facts, char *out, size_t room);

    /* Runs a command inside and waits for its end. 0 when the command ended by itself or by the caller's
     * signal, with *out; -1 with *e (and *out telling how far it came): TIMEOUT, ACTION_FAILED (it could
     * not be run, or the connection was lost: never status 0), INVALID_STATE (the guest is gone). */
    int (*exec)(void *self, const struct facts *facts, const struct exec_request *request,
                struct exec_result *out, struct error *e);
};

/* All providers of this build, ending with NULL; registry.c. Checks on first use that no required slot is
 * empty (a programming error: asserts). */
const struct provider_ops *const *provider_list(void);
const struct provider_ops *provider_find(const char *name); /* NULL when unknown */
const char *provider_default_name(void);                    /* for this system */

#endif

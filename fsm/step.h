/* fsm/step.h - what a provider gives the engine: operations as tables of steps, and a look at the world.
 *
 * A step does one thing and may run twice: it looks at the world, not at its memory of it, then acts. It
 * never sleeps for long (STEP_AGAIN: the engine owns the clock), sets a state, writes the journal or
 * prints. */
#ifndef FSM_STEP_H
#define FSM_STEP_H

#include <stdbool.h>

#include "core/error.h"
#include "core/facts.h"
#include "fsm/lifecycle.h"

enum fsm_operation {
    OPERATION_NONE = 0,
    OPERATION_INSTALL, /* of a provider */
    OPERATION_CREATE,
    OPERATION_CLONE,
    OPERATION_START,
    OPERATION_STOP,
    OPERATION_REMOVE,
    FSM_OPERATION_COUNT
};

const char *fsm_operation_name(enum fsm_operation operation); /* "create", as journaled */

enum step_result { STEP_DONE, STEP_AGAIN, STEP_FAILED };

struct step_context {
    const struct facts *facts; /* recorded so far: options among them, as "set.KEY" */
    struct facts *outputs;     /* empty; merged into the facts with the step's "done" */
    const char *token;         /* of this operation: names temporary things */
    int attempt;               /* 1 at first; counts on over STEP_AGAIN */
    int again_ms;              /* set with STEP_AGAIN: when to come back */
    bool resumed;              /* an interrupted operation is being finished */
    enum fsm_event outcome;    /* the last step may set it: what the operation led to (start:
                                  EV_GUEST_READY or EV_SETUP_REQUIRED); EV_NONE means EV_DONE. A step of
                                  start that fails may set EV_LOST: the sandbox is gone for good */
    const char *note;          /* static or owned by self: the reason of the last move, a clause as in
                                  observation.message; NULL */
};

typedef enum step_result step_fn(void *self, struct step_context *c, struct error *e);

struct step {
    const char *name; /* at most 23 letters; the journal stores it, so it never changes its meaning */
    step_fn *run;
    bool inside; /* writes only inside the sandbox's own directory: shares one "begin" with the inside
                    steps next to it */
};

struct plan {
    const struct step *steps; /* ends with a nameless row; NULL: the operation is not supported */
    int grace_ms;             /* how long the command waits for its worker; -1: runs in the command itself */
    int bound_ms;             /* how long the activity may take before it is overdue; 0: no bound */
};

/* What the world shows of one sandbox. */
struct observation {
    enum fsm_event event; /* EV_GUEST_READY, EV_GUEST_GONE ...; EV_NONE: nothing is proven */
    bool alive;           /* the session process lives, ready or not */
    char message[512];  /* for a person, behind "demo is running: ": a clause, no capital, no full stop; "" */
    struct facts facts; /* changed facts that go with the event */
};

/* Never blocks beyond DEADLINE_MS from now. 0 with *out, -1 when not even that could be found out. */
typedef int observe_fn(void *self, const struct facts *facts, int deadline_ms, struct observation *out,
                       struct error *e);

/* What is recorded tells that nobody can give it the setup that it lacks. Stays true while it is stopped: its
 * start would change nothing. */
typedef bool cannot_be_set_up_fn(const struct facts *facts);

#endif

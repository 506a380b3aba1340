/* fsm/engine.h - runs operations: lock, intent, steps, outcome; sees what interrupted ones left.
 *
 * Order of everything: intent in the journal, effect, outcome in the journal, and only then a reply. The
 * engine is the only caller of journal_ops for lifecycle entries and the only place where a state changes.
 * Each transaction of an operation checks the operation's random token: whoever declares its owner dead
 * writes another one, so an owner that wakes up late is fenced off. */
#ifndef FSM_ENGINE_H
#define FSM_ENGINE_H

#include <stdbool.h>

#include "core/host.h"
#include "core/journal.h"
#include "fsm/lifecycle.h"
#include "fsm/step.h"

struct engine {
    const struct journal_ops *journal;
    void *journal_self;
    const struct host_ops *host;
    void *host_self;
};

/* One sandbox as the engine sees it: its provider's tables and handle. */
struct engine_subject {
    const char *name;
    const char *provider;
    const struct plan *plans; /* FSM_OPERATION_COUNT of them */
    observe_fn *observe;
    /* Adds to the words about an interrupted or cancelled create or clone; NULL: nothing to add. */
    void (*explain_interruption)(void *self, const struct facts *facts, char *out, size_t room);
    bool stopped_can_change; /* hosted: a stopped one may be resumed elsewhere, so look at it too */
    cannot_be_set_up_fn *cannot_be_set_up; /* NULL: never */
    void *self;                            /* the provider's */
};

struct engine_look {
    bool found;
    struct journal_record record; /* state "missing" when not found */
    enum fsm_place place;
    enum fsm_known known;
    char message[512]; /* the observation's; "" when there is nothing to add */
};

/* What a record tells besides its place, before anything is observed. CANNOT_BE_SET_UP: the provider's; NULL.
 */
enum fsm_known engine_find_known(const struct journal_record *r, cannot_be_set_up_fn *cannot_be_set_up);

/* The truth about one sandbox, made so: reads the fold, observes without any lock, and when that proves
 * a change takes the op lock (never waiting long), reads again and records it. SUBJECT->self may be NULL
 * when the provider is unknown to this build; then only the fold counts. */
int engine_look(const struct engine *engine, const struct engine_subject *subject, int deadline_ms,
                struct engine_look *out, struct error *e);

/* May EVENT happen here? 1: it is a move, go on to engine_run(); 0: same, answer the state; -1: refused
 * with the table's code. A refusal is recorded unless it repeats the last entry. */
int engine_decide(const struct engine *engine, const struct engine_subject *subject,
                  const struct engine_look *look, enum fsm_event event, struct error *e);

struct engine_request {
    enum fsm_operation operation;
    enum fsm_event event;                          /* EV_CREATE, EV_CLONE, EV_START, EV_STOP, EV_REMOVE */
    const char *options;                           /* as given, secrets left out; NULL */
    const struct facts *facts;                     /* the checked options, recorded with the move; NULL */
    void (*on_step)(void *self, const char *step); /* progress for a person; NULL */
    void *on_step_self;
};

/* The whole operation, by a caller who holds the op lock. LOOK is what engine_decide() approved and is
 * updated to what is recorded at the end. Fails with SANDBOX_BUSY, SANDBOX_EXISTS or INVALID_STATE when
 * another command was faster (nothing is done), with the failing step's error when the work failed (the
 * state is recorded), with ACTION_FAILED when the operation was cancelled meanwhile. */
int engine_run(const struct engine *engine, const struct engine_subject *subject,
               const struct engine_request *request, struct engine_look *look, struct error *e);

/* Stops an operation that another process owns: records the cancel, or the stop, with a new token,
 * which fences the owner, ends its process, and takes the op lock. 1 with the lock in *lock_fd when work
 * remains (starting: run OPERATION_STOP), 0 when it is over (installing and cloning are broken now, or
 * another look has seen the end of a start meanwhile), -1. */
int engine_cancel(const struct engine *engine, const struct engine_subject *subject, struct engine_look *look,
                  int *lock_fd, struct error *e);

#endif

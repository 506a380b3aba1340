/* fsm/operation.h - one operation on its way, in either table: intent, steps, outcome. For fsm/ alone.
 *
 * Entries that become true together are one batch, and one transaction. Each transaction of an operation
 * checks the operation's random token: whoever declares its owner dead writes another one. */
#ifndef FSM_OPERATION_H
#define FSM_OPERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/journal.h"
#include "fsm/engine.h"
#include "fsm/step.h"

#define BATCH_MAX 16 /* op, move, begin; or the done of every step that shared a begin, move, end */

struct batch { /* { .count = 0 } is an empty one */
    struct journal_entry entries[BATCH_MAX];
    size_t count;
};

struct operation;

/* A table of places and events; both are the numbers of its own enums, 0 is none. */
struct machine {
    enum fsm_verdict (*find_edge)(unsigned place, unsigned event, unsigned *to);
    const char *(*event_name)(unsigned event);
    const char *(*state_name)(unsigned place);
    const char *(*activity_name)(unsigned place); /* NULL when none */
    unsigned (*parse)(const struct journal_record *r);
    unsigned done, failed; /* the events that end an operation */

    /* The error for EVENT in PLACE, which the table refuses. Always -1. */
    int (*refuse)(const struct journal_record *r, unsigned place, unsigned event, struct error *e);
    /* What a failed step leads to; 0: the state stands until a look has a proof. */
    unsigned (*find_failure)(const struct operation *o, const struct step_context *c);
};

struct operation {
    const struct machine *machine;
    const struct engine *engine;
    const struct engine_subject *subject;
    const struct engine_request *request; /* all but its event */
    unsigned event;                       /* the command, of the machine's table */
    unsigned seen;                 /* observed before, and recorded with the intent where it moves; 0 */
    struct journal_record *record; /* as it stands; updated */
    unsigned place;                /* of the record; updated */

    /* operation_run()'s own */
    const struct plan *plan;
    int64_t started_ms; /* boot time */
    char id[JOURNAL_ID_SIZE];
    char op[JOURNAL_ID_SIZE];
    char token[JOURNAL_ID_SIZE];
    bool resumed;
};

struct journal_entry *batch_add(struct batch *b, enum journal_kind kind, const struct engine_subject *subject,
                                const char *id, const char *op);

/* FROM on EVENT must be a move. */
struct journal_entry *batch_add_move(struct batch *b, const struct machine *machine,
                                     const struct engine_subject *subject, const char *id, const char *op,
                                     unsigned from, unsigned event);

void batch_add_end(struct batch *b, const struct engine_subject *subject, const char *id, const char *op,
                   const char *code, const char *message);

/* 1 when recorded, 0 when the guard did not hold, -1; RECORD is what stands unless it failed. */
int batch_commit(const struct batch *b, const struct engine *engine, const char *name,
                 const struct journal_guard *guard, struct journal_record *record, struct error *e);

/* As engine_run(). */
int operation_run(struct operation *o, struct error *e);

#endif

/* core/journal.h - the seam to the journal: entries, the fold of them, and one transaction.
 *
 * The engine writes through journal_ops and never sees how they are kept; store/ fills it, tests fill it
 * with a store in memory. States are text here: what they mean is fsm/'s. */
#ifndef CORE_JOURNAL_H
#define CORE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/facts.h"
#include "core/process.h"

#define JOURNAL_ID_SIZE     17 /* 64 random bits in hex: an incarnation, an operation, a token */
#define JOURNAL_WORD_SIZE   24 /* names of states, events, commands, steps, providers */
#define JOURNAL_REASON_SIZE 256
#define JOURNAL_ENTRY_MAX   65536 /* bytes of one stored entry */
#define JOURNAL_NAME_SIZE   33

enum journal_kind {
    JOURNAL_OP,      /* command, options, token: before anything is done */
    JOURNAL_MOVE,    /* event, from, to, activity, reason, facts: a transition */
    JOURNAL_STEP,    /* step, phase begin/done/failed, attempt, facts: around a step */
    JOURNAL_END,     /* code, message: the operation is over */
    JOURNAL_EXEC,    /* attempt, phase, word, argc, bytes, then status/signal/unknown, duration_ms */
    JOURNAL_REFUSED, /* event, state: a lifecycle command that the table refused */
    JOURNAL_KIND_COUNT
};

/* One entry. To write: what is NULL or 0 (or -1 for status) is left out; seq, time, boot, mono, actor and
 * prev are the journal's to fill. Read: text is lent by the entry's owner and ends with it. */
struct journal_entry {
    uint64_t seq;
    int64_t time_ms; /* wall */
    const char *boot;
    int64_t mono_ms; /* since boot */
    enum journal_kind kind;
    const char *name;
    const char *id; /* this incarnation of the name */
    const char *provider;
    const char *op; /* operation id */
    int64_t actor_pid, actor_uid, actor_start;
    const char *actor_version;

    const char *command, *options, *token;
    const char *event, *from, *to, *activity, *reason;
    const char *step, *phase;
    int64_t attempt;
    const char *code, *message;
    const char *word; /* exec: the first word of the command line, never more */
    int64_t argc, bytes;
    int64_t status; /* exec: exit status, -1 = none */
    int64_t signal;
    bool unknown;
    int64_t duration_ms;
    const char *state;
    const struct facts *facts; /* changed by this entry; an empty value removes one */
};

/* The current fold of one sandbox's entries. */
struct journal_record {
    char name[JOURNAL_NAME_SIZE];
    char id[JOURNAL_ID_SIZE];
    char provider[JOURNAL_WORD_SIZE];
    char state[JOURNAL_WORD_SIZE];
    char activity[JOURNAL_WORD_SIZE]; /* "" when none */
    char reason[JOURNAL_REASON_SIZE]; /* of the last move; "" when none */
    char token[JOURNAL_ID_SIZE];      /* of the operation that may write; "" when none */
    char op[JOURNAL_ID_SIZE];
    char command[JOURNAL_WORD_SIZE]; /* of that operation */
    struct process_id owner;         /* of that operation: the actor of its op entry */
    char refused[JOURNAL_WORD_SIZE]; /* event of the last entry when that was a refusal */
    uint64_t seq;                    /* last entry that changed this record (exec entries do not) */
    int64_t created_ms;              /* wall time of the incarnation's first entry */
    int64_t moved_ms;                /* wall time, and time since boot, of the last move */
    int64_t moved_boot_ms;
    char moved_boot[BOOT_ID_SIZE];
    bool damaged; /* the stored record could not be read: state is "broken", reason says so */
    struct facts facts;
};

/* What must still hold inside the transaction; NULL and 0 ask for nothing. */
struct journal_guard {
    bool absent; /* there is no record of the name */
    const char *id;
    const char *state; /* with activity; both or only the state */
    const char *activity;
    const char *token;
    uint64_t seq; /* last sequence number of the record */
    bool ends;    /* asks for nothing: on a full disk the commit may use the room kept for ending things */
};

struct journal_ops {
    /* 1 with *out, 0 when there is no such sandbox, -1. A stored record that cannot be read gives 1 and
     * out->damaged. */
    int (*find)(void *self, const char *name, struct journal_record *out, struct error *e);

    /* One transaction: checks GUARD, appends the entries in order, folds them, stores the fold. 1 when
     * committed (durable when it returns) with the new fold in *after (may be NULL; state "missing" when
     * the record is gone); 0 when the guard did not hold, with what stands in *after (state "missing"
     * when there is none); -1 on failure: nothing, or after a failed commit possibly all, is stored.
     * STORE_FULL when little room is left and the guard does not say that this ends something.
     * Entries' name must equal NAME. The actor of every entry is this process. */
    int (*commit)(void *self, const char *name, const struct journal_guard *guard,
                  const struct journal_entry *entries, size_t count, struct journal_record *after,
                  struct error *e);
};

const char *journal_kind_name(enum journal_kind kind);

/* Starts a record as a missing sandbox's. */
void journal_record_init(struct journal_record *r, const char *name);

bool journal_record_exists(const struct journal_record *r); /* false: missing */

/* The fold: R after ENTRY. Pure; the only way a record changes. Rules:
 *   op       id (the entry's), provider, op, command, token, owner (pid, start, boot); created_ms when the
 *            id is new
 *   move     state, activity, reason, facts merged; moved_*; to "missing" ends the record
 *   step     done: facts merged; begin and failed: nothing more
 *   end      token, op, command, owner cleared
 *   exec     nothing, not even seq
 *   refused  refused = event; every other kind but exec clears it */
void journal_fold(struct journal_record *r, const struct journal_entry *entry);

#endif

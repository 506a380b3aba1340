/* fsm/lifecycle.h - the life of a sandbox, and of a provider, as constant tables.
 *
 * A place is a state with its activity. Every pair of place and event is in the table: as a move, as
 * "same" (the answer is the state; nothing is written) or as a refusal with its code. Pure: no I/O, no
 * clock. specs/lifecycle.md and specs/lifecycle.pml are printed from these tables. */
#ifndef FSM_LIFECYCLE_H
#define FSM_LIFECYCLE_H

#include <stdbool.h>

#include "core/error.h"

enum fsm_place {
    FSM_NONE = 0, /* not a place: what a word that means nothing is read as */
    FSM_MISSING,
    FSM_INSTALLING, /* state working, from here ... */
    FSM_CLONING,
    FSM_STARTING,
    FSM_STOPPING,
    FSM_REMOVING, /* ... to here */
    FSM_NEEDS_SETUP,
    FSM_RUNNING,
    FSM_STOPPED,
    FSM_BROKEN,
    FSM_PLACE_COUNT
};

enum fsm_event {
    EV_NONE = 0,
    /* commands */
    EV_CREATE,
    EV_CLONE,
    EV_START,
    EV_STOP,
    EV_REMOVE,
    EV_CANCEL,
    /* outcomes of an operation */
    EV_DONE,
    EV_FAILED,
    /* observations */
    EV_GUEST_READY,
    EV_SETUP_REQUIRED,
    EV_SETUP_DONE,
    EV_SETUP_LOST,
    EV_GUEST_STOPPING,
    EV_GUEST_GONE,
    EV_LOST,
    EV_OWNER_LOST,
    FSM_EVENT_COUNT
};

enum fsm_verdict { FSM_REFUSE = 0, FSM_MOVE, FSM_SAME };

struct fsm_edge {
    enum fsm_verdict verdict;
    enum fsm_place to;    /* of a move; the place itself for same */
    enum error_code code; /* of a refusal */
};

/* Never NULL for a real place and event. */
const struct fsm_edge *fsm_find_edge(enum fsm_place place, enum fsm_event event);

const char *fsm_place_name(enum fsm_place place);    /* "starting": unique, for people and the spec */
const char *fsm_state_name(enum fsm_place place);    /* "working" */
const char *fsm_activity_name(enum fsm_place place); /* "starting", or NULL */
const char *fsm_event_name(enum fsm_event event);
enum fsm_place fsm_parse_place(const char *state, const char *activity); /* FSM_NONE if unknown */
enum fsm_place fsm_parse_state(const char *state); /* first place of that state, FSM_NONE if unknown */

bool fsm_is_working(enum fsm_place place);   /* an operation is under way */
bool fsm_is_volatile(enum fsm_place place);  /* may change by itself: is to be observed */
bool fsm_is_cloneable(enum fsm_place place); /* may be the source of a clone */
bool fsm_can_exec(enum fsm_place place);

/* What helps next: a command of the family and whether a person must act first. */
enum fsm_next_command {
    NEXT_NONE = 0,
    NEXT_INSTALL, /* sandbox install PROVIDER */
    NEXT_CREATE,  /* sandbox create NAME --provider PROVIDER */
    NEXT_START,
    NEXT_STATUS,
    NEXT_STOP,
    NEXT_REMOVE,
    NEXT_HOST_FIX, /* the provider's own command line: needs a person */
    FSM_NEXT_COUNT
};

struct fsm_next {
    enum fsm_next_command command;
    bool needs_person;
};

/* What is known besides the place. */
enum fsm_known {
    KNOWN_NOTHING = 0,
    KNOWN_OVERDUE, /* the activity has no owner that works, and outlived its bound */
    KNOWN_UNFIT,   /* it lacks a setup that nobody can give: all that helps is to remove it */
    KNOWN_COUNT
};

struct fsm_next fsm_find_next(enum fsm_place place, enum fsm_known known);

/* After EVENT was refused in PLACE (EV_NONE: an exec, or a look at what is not there): the way out. NEXT_NONE
 * when there is none. */
struct fsm_next fsm_find_next_after_refusal(enum fsm_place place, enum fsm_known known, enum fsm_event event);

const char *fsm_next_verb(enum fsm_next_command command); /* "start"; NULL for none and the host's fix */

/* Providers: the second, smaller table. */
enum fsm_provider_state {
    PROVIDER_NONE = 0,
    PROVIDER_UNAVAILABLE,
    PROVIDER_MISSING,
    PROVIDER_WORKING,
    PROVIDER_READY,
    PROVIDER_BROKEN,
    FSM_PROVIDER_STATE_COUNT
};

enum fsm_provider_event {
    PROVIDER_EV_NONE = 0,
    PROVIDER_EV_INSTALL, /* command */
    PROVIDER_EV_DONE,    /* outcomes */
    PROVIDER_EV_FAILED,
    PROVIDER_EV_OWNER_LOST,
    PROVIDER_EV_HOST_LACKS, /* observations: a requirement is not met ... */
    PROVIDER_EV_HOST_READY, /* ... all are, and nothing needs to be built */
    PROVIDER_EV_NOT_BUILT,  /* ... all are, and what must be built is not there */
    FSM_PROVIDER_EVENT_COUNT
};

struct fsm_provider_edge {
    enum fsm_verdict verdict;
    enum fsm_provider_state to;
    enum error_code code;
};

const struct fsm_provider_edge *fsm_find_provider_edge(enum fsm_provider_state state,
                                                       enum fsm_provider_event event);
const char *fsm_provider_state_name(enum fsm_provider_state state);
const char *fsm_provider_event_name(enum fsm_provider_event event);
struct fsm_next fsm_find_provider_next(enum fsm_provider_state state);

#endif

#include "fsm/lifecycle.h"

#include <assert.h>
#include <string.h>

/* The life of a sandbox. Working places are in brackets; `lost` (proven gone for good) leads to broken from
 * every place between the dashed lines and is not drawn.
 *
 *    missing <------------------- done ----------------- [removing] <------------------+
 *       |                                                  |    ^                      |
 *       | create, clone                 failed, owner_lost |    | remove               |
 *       v                                                  v    |                      |
 *    [installing]  -------- failed, owner_lost, cancel --> broken                      | remove
 *    [cloning]                                                                         |
 *       | done (or guest_ready, setup_required, as below from starting)                |
 *  - - -|- - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - | - - -
 *       +--------------------------------------------------------> stopped ------------+
 *                                                                  ^ |   ^
 *                              failed, guest_gone, cancel          | |   |
 *                            +-------------------------------------+ |   | done,
 *                            |                     start             |   | guest_gone
 *                        [starting] <--------------------------------+   |
 *                         |   |   |                                      |
 *          setup_required |   |   +------------- stop ------------> [stopping]
 *                         |   | guest_ready                           ^    |
 *                         v   v                                       |    | failed, guest_ready,
 *               needs_setup  running ---- stop, guest_stopping -------+    | setup_required
 *                  |  ^  |    ^ |  ^  (needs_setup too)                    |
 *                  |  |  +----+ |  +---------------------------------------+
 *                  |  |  setup_ |     (setup_required: to needs_setup)
 *                  |  |  done   |
 *                  |  +---------+ setup_lost
 *                  +-- guest_gone (running too) --> stopped
 *  - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - -
 *
 * What is true in each:
 *   missing       nothing on disk bears the name, nothing runs
 *   installing,   an owner holds the op lock, or its death has not been seen yet; what is on disk is not a
 *   cloning       sandbox yet and never becomes one without that owner
 *   starting      there is a whole sandbox; a guest may live, ready or not. The owner holds the op lock, or
 *                 the session process the run lock; with neither, the next look moves it on
 *   needs_setup   a guest lives, and a person has something to do in it; or nobody can (KNOWN_UNFIT)
 *   running       a guest lives and answers; only here is exec allowed
 *   stopping      a guest may still live; the owner ends it
 *   stopped       a whole sandbox, and no guest: so it may be copied
 *   removing      the owner deletes; what is on disk is no sandbox any more
 *   broken        something may be left of it, and only a removal helps
 *
 * Whoever applies an outcome or an observation in a working place holds the op lock; cancel, and stop in
 * starting, are the exceptions: they fence the owner with a new token first. An abandoned starting or
 * stopping (owner_lost) stays what it is: what the guest is then seen to be decides, by guest_ready,
 * setup_required or guest_gone. The order matters (STALE_LOOK in specs/lifecycle.pml): read the fold, find
 * the lock free, observe the guest, take the lock, find the fold unchanged. Observed before the lock was
 * found free, a guest that the owner started just before it died would be recorded as gone. */

#define MOVE(place)                                                                                          \
    {                                                                                                        \
        FSM_MOVE, (place), ERROR_NONE                                                                        \
    }
#define SAME(place)                                                                                          \
    {                                                                                                        \
        FSM_SAME, (place), ERROR_NONE                                                                        \
    }
#define REFUSE(code)                                                                                         \
    {                                                                                                        \
        FSM_REFUSE, 0, (code)                                                                                \
    }
#define EXISTS REFUSE(ERROR_SANDBOX_EXISTS)

/* A pair that is not listed is a refusal with the code that fsm_find_edge() adds. */
/* clang-format off */
static const struct fsm_edge edges[][FSM_EVENT_COUNT] = {
    [FSM_MISSING] = {
        [EV_CREATE]         = MOVE(FSM_INSTALLING),
        [EV_CLONE]          = MOVE(FSM_CLONING),
    },
    [FSM_INSTALLING] = {
        [EV_CREATE]         = EXISTS,
        [EV_CLONE]          = EXISTS,
        [EV_CANCEL]         = MOVE(FSM_BROKEN), /* stop is refused here: the command cancels instead */
        [EV_DONE]           = MOVE(FSM_STOPPED),
        [EV_FAILED]         = MOVE(FSM_BROKEN),
        [EV_GUEST_READY]    = MOVE(FSM_RUNNING), /* hosted: what is created runs at once */
        [EV_SETUP_REQUIRED] = MOVE(FSM_NEEDS_SETUP),
        [EV_GUEST_GONE]     = SAME(FSM_INSTALLING),
        [EV_OWNER_LOST]     = MOVE(FSM_BROKEN),
    },
    [FSM_CLONING] = {
        [EV_CREATE]         = EXISTS,
        [EV_CLONE]          = EXISTS,
        [EV_CANCEL]         = MOVE(FSM_BROKEN),
        [EV_DONE]           = MOVE(FSM_STOPPED),
        [EV_FAILED]         = MOVE(FSM_BROKEN),
        [EV_GUEST_READY]    = MOVE(FSM_RUNNING),
        [EV_SETUP_REQUIRED] = MOVE(FSM_NEEDS_SETUP),
        [EV_GUEST_GONE]     = SAME(FSM_CLONING),
        [EV_OWNER_LOST]     = MOVE(FSM_BROKEN),
    },
    [FSM_STARTING] = {
        [EV_CREATE]         = EXISTS,
        [EV_CLONE]          = EXISTS,
        [EV_START]          = SAME(FSM_STARTING),
        [EV_STOP]           = MOVE(FSM_STOPPING),
        [EV_CANCEL]         = MOVE(FSM_STOPPED),
        [EV_FAILED]         = MOVE(FSM_STOPPED),
        [EV_GUEST_READY]    = MOVE(FSM_RUNNING), /* no EV_DONE: a start says what it led to */
        [EV_SETUP_REQUIRED] = MOVE(FSM_NEEDS_SETUP),
        [EV_GUEST_GONE]     = MOVE(FSM_STOPPED),
        [EV_LOST]           = MOVE(FSM_BROKEN),
        [EV_OWNER_LOST]     = SAME(FSM_STARTING),
    },
    [FSM_STOPPING] = {
        [EV_CREATE]         = EXISTS,
        [EV_CLONE]          = EXISTS,
        [EV_STOP]           = SAME(FSM_STOPPING), /* an abandoned one is resumed */
        [EV_DONE]           = MOVE(FSM_STOPPED),
        [EV_FAILED]         = MOVE(FSM_RUNNING), /* only when the guest is proven alive */
        [EV_GUEST_READY]    = MOVE(FSM_RUNNING),
        [EV_SETUP_REQUIRED] = MOVE(FSM_NEEDS_SETUP),
        [EV_GUEST_STOPPING] = SAME(FSM_STOPPING),
        [EV_GUEST_GONE]     = MOVE(FSM_STOPPED),
        [EV_LOST]           = MOVE(FSM_BROKEN),
        [EV_OWNER_LOST]     = SAME(FSM_STOPPING),
    },
    [FSM_REMOVING] = {
        [EV_CREATE]         = EXISTS,
        [EV_CLONE]          = EXISTS,
        [EV_REMOVE]         = SAME(FSM_REMOVING),
        [EV_DONE]           = MOVE(FSM_MISSING),
        [EV_FAILED]         = MOVE(FSM_BROKEN), /* removing it again finishes the job */
        [EV_GUEST_GONE]     = SAME(FSM_REMOVING),
        [EV_LOST]           = SAME(FSM_REMOVING), /* which is what was asked for */
        [EV_OWNER_LOST]     = MOVE(FSM_BROKEN),
    },
    [FSM_NEEDS_SETUP] = {
        [EV_CREATE]         = EXISTS,
        [EV_CLONE]          = EXISTS,
        [EV_START]          = SAME(FSM_NEEDS_SETUP),
        [EV_STOP]           = MOVE(FSM_STOPPING),
        [EV_SETUP_REQUIRED] = SAME(FSM_NEEDS_SETUP),
        [EV_SETUP_DONE]     = MOVE(FSM_RUNNING), /* not EV_GUEST_READY: the setup is recorded with it */
        [EV_SETUP_LOST]     = SAME(FSM_NEEDS_SETUP),
        [EV_GUEST_STOPPING] = MOVE(FSM_STOPPING),
        [EV_GUEST_GONE]     = MOVE(FSM_STOPPED),
        [EV_LOST]           = MOVE(FSM_BROKEN),
    },
    [FSM_RUNNING] = {
        [EV_CREATE]         = EXISTS,
        [EV_CLONE]          = EXISTS,
        [EV_START]          = SAME(FSM_RUNNING),
        [EV_STOP]           = MOVE(FSM_STOPPING),
        [EV_GUEST_READY]    = SAME(FSM_RUNNING),
        [EV_SETUP_DONE]     = SAME(FSM_RUNNING),
        [EV_SETUP_LOST]     = MOVE(FSM_NEEDS_SETUP), /* needs proof: a time-out proves nothing */
        [EV_GUEST_STOPPING] = MOVE(FSM_STOPPING),
        [EV_GUEST_GONE]     = MOVE(FSM_STOPPED),
        [EV_LOST]           = MOVE(FSM_BROKEN),
    },
    [FSM_STOPPED] = {
        [EV_CREATE]         = EXISTS,
        [EV_CLONE]          = EXISTS,
        [EV_START]          = MOVE(FSM_STARTING),
        [EV_STOP]           = SAME(FSM_STOPPED),
        [EV_REMOVE]         = MOVE(FSM_REMOVING),
        [EV_GUEST_READY]    = MOVE(FSM_RUNNING), /* resumed elsewhere */
        [EV_SETUP_REQUIRED] = MOVE(FSM_NEEDS_SETUP),
        [EV_GUEST_GONE]     = SAME(FSM_STOPPED),
        [EV_LOST]           = MOVE(FSM_BROKEN),
    },
    [FSM_BROKEN] = {
        [EV_CREATE]         = EXISTS,
        [EV_CLONE]          = EXISTS,
        [EV_REMOVE]         = MOVE(FSM_REMOVING),
        [EV_GUEST_GONE]     = SAME(FSM_BROKEN),
        [EV_LOST]           = SAME(FSM_BROKEN),
    },
};
/* clang-format on */
_Static_assert(ARRAY_LEN(edges) == FSM_PLACE_COUNT, "each place has its edges");

/* What else a place is; a working place's activity is its name. */
static const struct place {
    const char *name;
    const char *state;
    bool working;
    bool can_change; /* by itself */
    bool cloneable;
    bool can_exec;
} places[] = {
    [FSM_NONE] = { .name = "none", .state = "none" },
    [FSM_MISSING] = { .name = "missing", .state = "missing" },
    [FSM_INSTALLING] = { .name = "installing", .state = "working", .working = true, .can_change = true },
    [FSM_CLONING] = { .name = "cloning", .state = "working", .working = true, .can_change = true },
    [FSM_STARTING] = { .name = "starting", .state = "working", .working = true, .can_change = true },
    [FSM_STOPPING] = { .name = "stopping", .state = "working", .working = true, .can_change = true },
    [FSM_REMOVING] = { .name = "removing", .state = "working", .working = true, .can_change = true },
    [FSM_NEEDS_SETUP] = { .name = "needs_setup", .state = "needs_setup", .can_change = true },
    [FSM_RUNNING] = { .name = "running", .state = "running", .can_change = true, .can_exec = true },
    [FSM_STOPPED] = { .name = "stopped", .state = "stopped", .cloneable = true },
    [FSM_BROKEN] = { .name = "broken", .state = "broken" },
};
_Static_assert(ARRAY_LEN(places) == FSM_PLACE_COUNT, "each place is described");

/* The journal stores these: never renamed. */
static const char *const event_names[] = {
    [EV_NONE] = "none",
    [EV_CREATE] = "create",
    [EV_CLONE] = "clone",
    [EV_START] = "start",
    [EV_STOP] = "stop",
    [EV_REMOVE] = "remove",
    [EV_CANCEL] = "cancel",
    [EV_DONE] = "done",
    [EV_FAILED] = "failed",
    [EV_GUEST_READY] = "guest_ready",
    [EV_SETUP_REQUIRED] = "setup_required",
    [EV_SETUP_DONE] = "setup_done",
    [EV_SETUP_LOST] = "setup_lost",
    [EV_GUEST_STOPPING] = "guest_stopping",
    [EV_GUEST_GONE] = "guest_gone",
    [EV_LOST] = "lost",
    [EV_OWNER_LOST] = "owner_lost",
};
_Static_assert(ARRAY_LEN(event_names) == FSM_EVENT_COUNT, "each event has a name");

const struct fsm_edge *fsm_find_edge(enum fsm_place place, enum fsm_event event)
{
    static const struct fsm_edge not_found = REFUSE(ERROR_SANDBOX_NOT_FOUND);
    static const struct fsm_edge invalid_state = REFUSE(ERROR_INVALID_STATE);

    assert(place > FSM_NONE && place < FSM_PLACE_COUNT);
    assert(event > EV_NONE && event < FSM_EVENT_COUNT);

    const struct fsm_edge *edge = &edges[place][event];

    if (edge->verdict != FSM_REFUSE || edge->code != ERROR_NONE)
        return edge;
    return place == FSM_MISSING ? &not_found : &invalid_state;
}

static const struct place *get_place(enum fsm_place place)
{
    assert(place < FSM_PLACE_COUNT);
    return &places[place];
}

const char *fsm_place_name(enum fsm_place place)
{
    return get_place(place)->name;
}

const char *fsm_state_name(enum fsm_place place)
{
    return get_place(place)->state;
}

const char *fsm_activity_name(enum fsm_place place)
{
    return get_place(place)->working ? get_place(place)->name : NULL;
}

const char *fsm_event_name(enum fsm_event event)
{
    assert(event < FSM_EVENT_COUNT);
    return event_names[event];
}

enum fsm_place fsm_parse_place(const char *state, const char *activity)
{
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        const char *expected = places[p].working ? places[p].name : "";

        if (strcmp(places[p].state, state) == 0 && strcmp(expected, activity != NULL ? activity : "") == 0)
            return p;
    }
    return FSM_NONE;
}

enum fsm_place fsm_parse_state(const char *state)
{
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        if (strcmp(places[p].state, state) == 0)
            return p;
    }
    return FSM_NONE;
}

bool fsm_is_working(enum fsm_place place)
{
    return get_place(place)->working;
}

bool fsm_is_volatile(enum fsm_place place)
{
    return get_place(place)->can_change;
}

bool fsm_is_cloneable(enum fsm_place place)
{
    return get_place(place)->cloneable;
}

bool fsm_can_exec(enum fsm_place place)
{
    return get_place(place)->can_exec;
}

/* The next command, as things are ... */
static const struct fsm_next nexts[] = {
    [FSM_MISSING] = { NEXT_NONE, false }, /* it is as it was asked to be */
    [FSM_INSTALLING] = { NEXT_STATUS, false }, [FSM_CLONING] = { NEXT_STATUS, false },
    [FSM_STARTING] = { NEXT_STATUS, false },   [FSM_STOPPING] = { NEXT_STATUS, false },
    [FSM_REMOVING] = { NEXT_STATUS, false },   [FSM_NEEDS_SETUP] = { NEXT_STATUS, true },
    [FSM_RUNNING] = { NEXT_NONE, false },      [FSM_STOPPED] = { NEXT_START, false },
    [FSM_BROKEN] = { NEXT_REMOVE, false },
};
_Static_assert(ARRAY_LEN(nexts) == FSM_PLACE_COUNT, "each place has its next");

/* ... and where something else is known that changes it. */
static const struct turn {
    enum fsm_place place;
    enum fsm_known known;
    struct fsm_next next;
} turns[] = {
    { FSM_STARTING, KNOWN_OVERDUE, { NEXT_STOP, false } },  /* a stop ends the silent guest ... */
    { FSM_STOPPING, KNOWN_OVERDUE, { NEXT_STOP, false } },  /* ... and resumes a stop */
    { FSM_NEEDS_SETUP, KNOWN_UNFIT, { NEXT_STOP, false } }, /* its start would lead back here: so it ... */
    { FSM_STOPPED, KNOWN_UNFIT, { NEXT_REMOVE, false } },   /* ... is removed */
};

/* After a refusal the way out is the place's own next, but for these; the first that fits counts. Place or
 * event none: any, exec included, which is no event. */
static const struct detour {
    enum fsm_place place;
    enum fsm_event event;
    enum fsm_next_command command;
} detours[] = {
    { FSM_INSTALLING, EV_REMOVE, NEXT_STOP },
    { FSM_CLONING, EV_REMOVE, NEXT_STOP },
    { FSM_STARTING, EV_REMOVE, NEXT_STOP },
    { FSM_RUNNING, EV_REMOVE, NEXT_STOP },
    { FSM_NEEDS_SETUP, EV_REMOVE, NEXT_STOP },
    { FSM_MISSING, EV_REMOVE, NEXT_NONE }, /* it is gone already */
    { FSM_MISSING, EV_NONE, NEXT_CREATE },
    { FSM_NONE, EV_CREATE, NEXT_NONE }, /* another name is needed */
    { FSM_NONE, EV_CLONE, NEXT_NONE },
};

static const char *const verbs[] = {
    [NEXT_NONE] = NULL,       [NEXT_INSTALL] = "install", [NEXT_CREATE] = "create", [NEXT_START] = "start",
    [NEXT_STATUS] = "status", [NEXT_STOP] = "stop",       [NEXT_REMOVE] = "rm",     [NEXT_HOST_FIX] = NULL,
};
_Static_assert(ARRAY_LEN(verbs) == FSM_NEXT_COUNT, "each next command has a verb, or none");

struct fsm_next fsm_find_next(enum fsm_place place, enum fsm_known known)
{
    assert(place < FSM_PLACE_COUNT && known < KNOWN_COUNT);
    for (size_t i = 0; i < ARRAY_LEN(turns); i++) {
        if (turns[i].place == place && turns[i].known == known)
            return turns[i].next;
    }
    return nexts[place];
}

struct fsm_next fsm_find_next_after_refusal(enum fsm_place place, enum fsm_known known, enum fsm_event event)
{
    for (size_t i = 0; i < ARRAY_LEN(detours); i++) {
        const struct detour *d = &detours[i];

        if ((d->event == event || d->event == EV_NONE) && (d->place == place || d->place == FSM_NONE))
            return (struct fsm_next){ d->command, false };
    }
    return fsm_find_next(place, known);
}

const char *fsm_next_verb(enum fsm_next_command command)
{
    assert(command < FSM_NEXT_COUNT);
    return verbs[command];
}

/* The life of a provider. The host decides between unavailable, missing and ready whenever it is looked at;
 * only an install leads through working, and only its owner decides there.
 *
 *    unavailable <--> missing <--> ready       host_lacks, not_built, host_ready: each to its own
 *                        |           ^
 *                install |           | done
 *                        v           |
 *          +--------> working -------+
 *  install |             |
 *          |             | failed, owner_lost
 *          +--------- broken                   host_lacks: unavailable; host_ready: ready
 *
 *   unavailable   the host lacks something that only a person can give
 *   missing       the host is fit, and what must be built is not there
 *   working       an owner holds the install's lock, or its death has not been seen yet
 *   ready         a sandbox can be created
 *   broken        the last install failed or was interrupted; another one resumes it */
/* clang-format off */
static const struct fsm_provider_edge provider_edges[][FSM_PROVIDER_EVENT_COUNT] = {
    [PROVIDER_UNAVAILABLE] = {
        [PROVIDER_EV_INSTALL]    = REFUSE(ERROR_PROVIDER_UNAVAILABLE),
        [PROVIDER_EV_HOST_LACKS] = SAME(PROVIDER_UNAVAILABLE),
        [PROVIDER_EV_HOST_READY] = MOVE(PROVIDER_READY),
        [PROVIDER_EV_NOT_BUILT]  = MOVE(PROVIDER_MISSING),
    },
    [PROVIDER_MISSING] = {
        [PROVIDER_EV_INSTALL]    = MOVE(PROVIDER_WORKING),
        [PROVIDER_EV_HOST_LACKS] = MOVE(PROVIDER_UNAVAILABLE),
        [PROVIDER_EV_HOST_READY] = MOVE(PROVIDER_READY),
        [PROVIDER_EV_NOT_BUILT]  = SAME(PROVIDER_MISSING),
    },
    [PROVIDER_WORKING] = {
        [PROVIDER_EV_INSTALL]    = SAME(PROVIDER_WORKING),
        [PROVIDER_EV_DONE]       = MOVE(PROVIDER_READY),
        [PROVIDER_EV_FAILED]     = MOVE(PROVIDER_BROKEN),
        [PROVIDER_EV_OWNER_LOST] = MOVE(PROVIDER_BROKEN),
        [PROVIDER_EV_NOT_BUILT]  = SAME(PROVIDER_WORKING),
    },
    [PROVIDER_READY] = {
        [PROVIDER_EV_INSTALL]    = SAME(PROVIDER_READY),
        [PROVIDER_EV_HOST_LACKS] = MOVE(PROVIDER_UNAVAILABLE),
        [PROVIDER_EV_HOST_READY] = SAME(PROVIDER_READY),
        [PROVIDER_EV_NOT_BUILT]  = MOVE(PROVIDER_MISSING), /* a new build of ours, or someone deleted it */
    },
    [PROVIDER_BROKEN] = {
        [PROVIDER_EV_INSTALL]    = MOVE(PROVIDER_WORKING),
        [PROVIDER_EV_HOST_LACKS] = MOVE(PROVIDER_UNAVAILABLE),
        [PROVIDER_EV_HOST_READY] = MOVE(PROVIDER_READY),
        [PROVIDER_EV_NOT_BUILT]  = SAME(PROVIDER_BROKEN), /* keeps the reason why */
    },
};
/* clang-format on */
_Static_assert(ARRAY_LEN(provider_edges) == FSM_PROVIDER_STATE_COUNT, "each provider state has its edges");

static const char *const provider_state_names[] = {
    [PROVIDER_NONE] = "none",       [PROVIDER_UNAVAILABLE] = "unavailable",
    [PROVIDER_MISSING] = "missing", [PROVIDER_WORKING] = "working",
    [PROVIDER_READY] = "ready",     [PROVIDER_BROKEN] = "broken",
};
_Static_assert(ARRAY_LEN(provider_state_names) == FSM_PROVIDER_STATE_COUNT, "each provider state has a name");

static const char *const provider_event_names[] = {
    [PROVIDER_EV_NONE] = "none",
    [PROVIDER_EV_INSTALL] = "install",
    [PROVIDER_EV_DONE] = "done",
    [PROVIDER_EV_FAILED] = "failed",
    [PROVIDER_EV_OWNER_LOST] = "owner_lost",
    [PROVIDER_EV_HOST_LACKS] = "host_lacks",
    [PROVIDER_EV_HOST_READY] = "host_ready",
    [PROVIDER_EV_NOT_BUILT] = "not_built",
};
_Static_assert(ARRAY_LEN(provider_event_names) == FSM_PROVIDER_EVENT_COUNT, "each provider event has a name");

static const struct fsm_next provider_nexts[] = {
    [PROVIDER_NONE] = { NEXT_NONE, false },
    [PROVIDER_UNAVAILABLE] = { NEXT_HOST_FIX, true },
    [PROVIDER_MISSING] = { NEXT_INSTALL, false },
    [PROVIDER_WORKING] = { NEXT_INSTALL, false }, /* asks again */
    [PROVIDER_READY] = { NEXT_CREATE, false },
    [PROVIDER_BROKEN] = { NEXT_INSTALL, false },
};
_Static_assert(ARRAY_LEN(provider_nexts) == FSM_PROVIDER_STATE_COUNT, "each provider state has its next");

const struct fsm_provider_edge *fsm_find_provider_edge(enum fsm_provider_state state,
                                                       enum fsm_provider_event event)
{
    static const struct fsm_provider_edge invalid_state = REFUSE(ERROR_INVALID_STATE);

    assert(state > PROVIDER_NONE && state < FSM_PROVIDER_STATE_COUNT);
    assert(event > PROVIDER_EV_NONE && event < FSM_PROVIDER_EVENT_COUNT);

    const struct fsm_provider_edge *edge = &provider_edges[state][event];

    return edge->verdict == FSM_REFUSE && edge->code == ERROR_NONE ? &invalid_state : edge;
}

const char *fsm_provider_state_name(enum fsm_provider_state state)
{
    assert(state < FSM_PROVIDER_STATE_COUNT);
    return provider_state_names[state];
}

const char *fsm_provider_event_name(enum fsm_provider_event event)
{
    assert(event < FSM_PROVIDER_EVENT_COUNT);
    return provider_event_names[event];
}

struct fsm_next fsm_find_provider_next(enum fsm_provider_state state)
{
    assert(state < FSM_PROVIDER_STATE_COUNT);
    return provider_nexts[state];
}

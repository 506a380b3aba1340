/* specs/lifecycle.pml - printed by `fsm-spec pml` from fsm/lifecycle.c and tools/specs/lifecycle.pml.in:
 * change those, then build the target `specs`. */
/* One sandbox, its journal, its op lock and its guest; any number of commands and looks, any of which may
 * die between any two steps. tests/fsm/spin_model.sh verifies it.
 *
 *   worker    gives create, start, stop and rm without end, in any order; two of them
 *   judge     looks without end, and may so declare an owner dead; two of them
 *   follower  at any moment, whatever the dead have left, one person is alone and follows `next`; in some lives
 *             the setup that is asked for cannot be given
 *   chaos     the guest boots, dies, loses or gets its setup
 *
 * Two abstractions keep the model finite without a bound on the number of commands. A token, 64 random bits
 * in truth, is the process that drew it, and is nobody's once that process has ended. What a process goes to
 * record on the strength of what it read (plan) is taken from it by every commit, instead of it comparing the
 * seq when it has the lock.
 *
 * Asserted: what is true in each place, after every change of the journal or the world (check), so that no
 * sandbox is lost and nothing of a removed one is left; each outcome is written by the holder of the token
 * and is a move (conclude); a look at a working place without an owner moves it on, unless the guest lives and
 * says nothing (name_event); following `next` ends in a resting place, in few commands (follower).
 *
 * Planted bugs, each of which must be found:
 *   NO_TOKEN      outcomes are written without comparing the token
 *   NO_LOCK       the op lock is taken whoever has it
 *   NO_RECHECK    a look writes without comparing the seq it read before it had the lock
 *   STALE_LOOK    a look observes the guest first and only then asks whether the owner lives
 *   BLIND_JUDGE   no look ever finds that an owner is dead */

/* --- the tables -------------------------------------------------------------------------------------- */

#define NONE 0
#define MISSING 1
#define INSTALLING 2
#define CLONING 3
#define STARTING 4
#define STOPPING 5
#define REMOVING 6
#define NEEDS_SETUP 7
#define RUNNING 8
#define STOPPED 9
#define BROKEN 10
#define WORKING(p) (p == INSTALLING || p == CLONING || p == STARTING || p == STOPPING || p == REMOVING)
#define CHANGES(p) (p == INSTALLING || p == CLONING || p == STARTING || p == STOPPING || p == REMOVING || p == NEEDS_SETUP || p == RUNNING)

#define EV_NONE 0
#define EV_CREATE 1
#define EV_CLONE 2
#define EV_START 3
#define EV_STOP 4
#define EV_REMOVE 5
#define EV_CANCEL 6
#define EV_DONE 7
#define EV_FAILED 8
#define EV_GUEST_READY 9
#define EV_SETUP_REQUIRED 10
#define EV_SETUP_DONE 11
#define EV_SETUP_LOST 12
#define EV_GUEST_STOPPING 13
#define EV_GUEST_GONE 14
#define EV_LOST 15
#define EV_OWNER_LOST 16
#define EVENTS 17

#define NEXT_NONE 0
#define NEXT_INSTALL 1
#define NEXT_CREATE 2
#define NEXT_START 3
#define NEXT_STATUS 4
#define NEXT_STOP 5
#define NEXT_RM 6

/* Where an event leads: the place itself for same, NONE for a refusal. */
hidden byte edges[187] = {
    /* NONE */
    NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE,
    /* MISSING */
    NONE, INSTALLING, CLONING, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE,
    /* INSTALLING */
    NONE, NONE, NONE, NONE, NONE, NONE, BROKEN, STOPPED, BROKEN, RUNNING, NEEDS_SETUP, NONE, NONE, NONE, INSTALLING, NONE, BROKEN,
    /* CLONING */
    NONE, NONE, NONE, NONE, NONE, NONE, BROKEN, STOPPED, BROKEN, RUNNING, NEEDS_SETUP, NONE, NONE, NONE, CLONING, NONE, BROKEN,
    /* STARTING */
    NONE, NONE, NONE, STARTING, STOPPING, NONE, STOPPED, NONE, STOPPED, RUNNING, NEEDS_SETUP, NONE, NONE, NONE, STOPPED, BROKEN, STARTING,
    /* STOPPING */
    NONE, NONE, NONE, NONE, STOPPING, NONE, NONE, STOPPED, RUNNING, RUNNING, NEEDS_SETUP, NONE, NONE, STOPPING, STOPPED, BROKEN, STOPPING,
    /* REMOVING */
    NONE, NONE, NONE, NONE, NONE, REMOVING, NONE, MISSING, BROKEN, NONE, NONE, NONE, NONE, NONE, REMOVING, REMOVING, BROKEN,
    /* NEEDS_SETUP */
    NONE, NONE, NONE, NEEDS_SETUP, STOPPING, NONE, NONE, NONE, NONE, NONE, NEEDS_SETUP, RUNNING, NEEDS_SETUP, STOPPING, STOPPED, BROKEN, NONE,
    /* RUNNING */
    NONE, NONE, NONE, RUNNING, STOPPING, NONE, NONE, NONE, NONE, RUNNING, NONE, RUNNING, NEEDS_SETUP, STOPPING, STOPPED, BROKEN, NONE,
    /* STOPPED */
    NONE, NONE, NONE, STARTING, STOPPED, REMOVING, NONE, NONE, NONE, RUNNING, NEEDS_SETUP, NONE, NONE, NONE, STOPPED, BROKEN, NONE,
    /* BROKEN */
    NONE, NONE, NONE, NONE, NONE, REMOVING, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, BROKEN, BROKEN, NONE
};
#define EDGE(p, e)    edges[(p) * EVENTS + (e)]
#define REFUSED(p, e) (EDGE(p, e) == NONE)
#define MOVES(p, e)   (EDGE(p, e) != NONE && EDGE(p, e) != p)

/* The command that helps next, by what is known besides the place. */
#define KNOWN_NOTHING 0
#define KNOWN_OVERDUE 1
#define KNOWN_UNFIT 2
#define KNOWNS 3
hidden byte nexts[33] = {
    NEXT_NONE, NEXT_NONE, NEXT_NONE, /* NONE */
    NEXT_NONE, NEXT_NONE, NEXT_NONE, /* MISSING */
    NEXT_STATUS, NEXT_STATUS, NEXT_STATUS, /* INSTALLING */
    NEXT_STATUS, NEXT_STATUS, NEXT_STATUS, /* CLONING */
    NEXT_STATUS, NEXT_STOP, NEXT_STATUS, /* STARTING */
    NEXT_STATUS, NEXT_STOP, NEXT_STATUS, /* STOPPING */
    NEXT_STATUS, NEXT_STATUS, NEXT_STATUS, /* REMOVING */
    NEXT_STATUS, NEXT_STATUS, NEXT_STOP, /* NEEDS_SETUP */
    NEXT_NONE, NEXT_NONE, NEXT_NONE, /* RUNNING */
    NEXT_START, NEXT_START, NEXT_RM, /* STOPPED */
    NEXT_RM, NEXT_RM, NEXT_RM /* BROKEN */
};
hidden byte persons[33] = {
    0, 0, 0, /* NONE */
    0, 0, 0, /* MISSING */
    0, 0, 0, /* INSTALLING */
    0, 0, 0, /* CLONING */
    0, 0, 0, /* STARTING */
    0, 0, 0, /* STOPPING */
    0, 0, 0, /* REMOVING */
    1, 1, 0, /* NEEDS_SETUP */
    0, 0, 0, /* RUNNING */
    0, 0, 0, /* STOPPED */
    0, 0, 0 /* BROKEN */
};
#define NEXT(p, known)         nexts[(p) * KNOWNS + (known)]
#define NEEDS_PERSON(p, known) persons[(p) * KNOWNS + (known)]

/* --- the world --------------------------------------------------------------------------------------- */

#define NOBODY 7
#define BIT(i) (1 << (i))

#define G_GONE   0 /* the guest */
#define G_SILENT 1 /* lives, and proves no more than that */
#define G_READY  2
#define G_SETUP  3 /* answers, and waits for a person */

byte place = MISSING;    /* the journal: the fold ... */
byte token = NOBODY;     /* ... and who may write the outcome: the recorded owner */
byte plan[5] = EV_NONE;  /* the event process i goes to record; none once anything was written meanwhile */
byte lock = NOBODY;      /* the op lock; the kernel frees it */
byte busy;               /* bit i: process i is in the middle of something */
byte killed;             /* bit i: process i was ended by another, and takes no further step */
byte victim[2] = NOBODY; /* whom a worker is about to end: pid and start time, so never a successor */
byte guest = G_GONE;
bool files;              /* the sandbox's directory has something in it */
bool calm;               /* only the follower acts, and work no longer fails */
bool unfit;              /* what the guest's setup lacks, nobody can give: told from then on */

#ifdef NO_LOCK
#define FREE true
#else
#define FREE (lock == NOBODY)
#endif

#ifdef NO_TOKEN
#define FENCED(me) false
#else
#define FENCED(me) (token != me)
#endif

#ifdef BLIND_JUDGE
#define OWNED true
#else
#define OWNED (lock != NOBODY)
#endif

#define WHOLE(p) (p == STARTING || p == STOPPING || p == NEEDS_SETUP || p == RUNNING || p == STOPPED)
#define QUIET(p) (p == MISSING || p == STOPPED || p == BROKEN || p == REMOVING)

inline check()
{
    assert(place != MISSING || !files); /* nothing is left of a removed one */
    assert(!WHOLE(place) || files);     /* no sandbox is lost */
    assert(!QUIET(place) || guest == G_GONE);
}

#define LOOKING EVENTS /* a plan: a look that has not observed anything yet */

inline overtake(judge)
{
#ifdef NO_RECHECK
    if :: plan[judge] == LOOKING -> plan[judge] = EV_NONE :: else fi
#else
    plan[judge] = EV_NONE
#endif
}

/* After every commit. */
inline committed()
{
    plan[0] = EV_NONE;
    plan[1] = EV_NONE;
    overtake(2);
    overtake(3);
    plan[4] = EV_NONE;
    check()
}

/* Process i is no more, or its command is over: a successor with its number is somebody else. */
inline forget(i)
{
    if :: lock == i -> lock = NOBODY :: else fi;
    if :: token == i -> token = NOBODY :: else fi;
    if :: victim[0] == i -> victim[0] = NOBODY :: else fi;
    if :: victim[1] == i -> victim[1] = NOBODY :: else fi;
    plan[i] = EV_NONE;
    busy = busy & ~BIT(i)
}

inline kill(i)
{
    killed = killed | BIT(i);
    forget(i)
}

/* --- an operation, by a holder of the lock ----------------------------------------------------------- */

/* Before each of its steps the process may die instead. One that has neither the lock nor the token leaves no
 * trace. */
#define CRASH !calm -> goto ended

/* The steps. Each ends with the outcome in `ev`. */
inline install()
{
    atomic { files = true; check(); if :: ev = EV_DONE :: !calm -> ev = EV_FAILED fi }
}

inline boot()
{
    atomic { guest = G_SILENT; check() };
    if
    :: CRASH
    :: atomic { guest == G_READY -> ev = EV_GUEST_READY }
    :: atomic { guest == G_SETUP -> ev = EV_SETUP_REQUIRED }
    :: atomic { guest = G_GONE; check(); ev = EV_FAILED } /* it died, or was waited for long enough */
    fi
}

inline halt()
{
    if
    :: atomic { guest = G_GONE; check(); ev = EV_DONE }
    :: atomic { !calm && guest == G_READY -> ev = EV_FAILED }
    :: atomic { !calm && guest == G_SETUP -> ev = EV_SETUP_REQUIRED }
    fi
}

inline delete()
{
    if
    :: atomic { files = false; check(); if :: ev = EV_DONE :: !calm -> ev = EV_FAILED fi }
    :: atomic { !calm -> ev = EV_FAILED }
    fi
}

/* The last transaction. */
inline conclude(me)
{
    if
    :: FENCED(me)
    :: else ->
        assert(token == me);
        assert(MOVES(place, ev));
        place = EDGE(place, ev);
        token = NOBODY;
        committed()
    fi
}

/* The first transaction, if what was decided on still stands; then the steps; then the last one. */
inline operate(me)
{
    atomic {
        job = NONE;
        if
        :: CRASH
        :: plan[me] != EV_NONE ->
            place = EDGE(place, plan[me]);
            job = place;
            token = me;
            committed()
        :: else
        fi
    };
    if
    :: CRASH
    :: job == INSTALLING || job == CLONING -> install()
    :: job == STARTING -> boot()
    :: job == STOPPING -> halt()
    :: job == REMOVING -> delete()
    :: job == NONE
    fi;
    if
    :: CRASH
    :: atomic { if :: job != NONE -> job = NONE; conclude(me); ev = EV_NONE :: else fi }
    fi
}

/* A stop, of what another process is doing: fence it, end it, take its lock, finish. */
inline cancel(me)
{
    atomic {
        job = NONE;
        if
        :: plan[me] != EV_NONE ->
            victim[me] = token;
            place = EDGE(place, plan[me]);
            job = place;
            token = (WORKING(place) -> me : NOBODY);
            committed()
        :: else
        fi
    };
    atomic {
        if
        :: CRASH
        :: victim[me] == 0 -> kill(0)
        :: victim[me] == 1 -> kill(1)
        :: else
        fi;
        victim[me] = NOBODY
    };
    if
    :: CRASH
    :: atomic { job == STOPPING && place == STOPPING && FREE -> lock = me; plan[me] = EV_STOP }; operate(me)
    :: job != STOPPING || place != STOPPING || !FREE
    fi
}

/* --- looking ----------------------------------------------------------------------------------------- */

/* What was seen, as an event in the place. */
inline name_event(me)
{
    if
    :: WORKING(place) && MOVES(place, EV_OWNER_LOST) -> plan[me] = EV_OWNER_LOST
    :: else ->
        if
        :: saw == G_GONE -> plan[me] = EV_GUEST_GONE
        :: saw == G_SILENT -> plan[me] = EV_NONE
        :: saw == G_READY -> plan[me] = (place == NEEDS_SETUP -> EV_SETUP_DONE : EV_GUEST_READY)
        :: saw == G_SETUP -> plan[me] = (place == RUNNING -> EV_SETUP_LOST : EV_SETUP_REQUIRED)
        fi
    fi;
    assert(plan[me] == EV_NONE || !REFUSED(place, plan[me]));
    if :: !MOVES(place, plan[me]) -> plan[me] = EV_NONE :: else fi;
    assert(!WORKING(place) || plan[me] != EV_NONE || saw == G_SILENT) /* working leaves */
}

/* A look reads the fold, asks whether the owner lives, then observes the guest; begin_look() is the first two
 * in one step. A live owner ends the look: it will say what happened. */
#ifdef STALE_LOOK
#define WORTH_A_LOOK CHANGES(place)
#define OWNED_LATE   (WORKING(place) && OWNED)
#else
#define WORTH_A_LOOK (CHANGES(place) && !(WORKING(place) && OWNED))
#define OWNED_LATE   false
#endif

inline begin_look(me)
{
    plan[me] = LOOKING;
    busy = busy | BIT(me);
#ifdef STALE_LOOK
    saw = guest
#endif
}

inline look(me)
{
    atomic {
#ifndef STALE_LOOK
        saw = guest;
#endif
        if
        :: plan[me] == LOOKING && !OWNED_LATE -> name_event(me)
        :: else -> plan[me] = EV_NONE
        fi;
        saw = G_GONE
    };
    if
    :: atomic { plan[me] != EV_NONE && FREE -> lock = me };
        atomic {
            if
            :: CRASH
            :: plan[me] != EV_NONE ->
                place = (REFUSED(place, plan[me]) -> place : EDGE(place, plan[me]));
                token = NOBODY;
                committed()
            :: else
            fi;
            forget(me)
        }
    :: plan[me] == EV_NONE || !FREE /* somebody works on it: what is recorded is the answer */
    fi
}

/* --- who acts ---------------------------------------------------------------------------------------- */

/* A command that the table does not refuse; stop is tried as cancel where it is refused. A same is only
 * worth going on with where it resumes an abandoned stop. */
inline decide(me)
{
    if
    :: plan[me] = EV_CREATE
    :: plan[me] = EV_START
    :: plan[me] = EV_STOP
    :: plan[me] = EV_REMOVE
    fi;
    if :: plan[me] == EV_STOP && REFUSED(place, plan[me]) -> plan[me] = EV_CANCEL :: else fi;
    if
    :: MOVES(place, plan[me]) || (plan[me] == EV_STOP && place == STOPPING) -> busy = busy | BIT(me)
    :: else -> plan[me] = EV_NONE
    fi
}

#define DEAD           ((killed & BIT(_pid)) != 0)
#define CANCELS(p, ev) (ev == EV_CANCEL || (ev == EV_STOP && p == STARTING))

active [2] proctype worker()
{
    byte ev, job;

again:
    {
        if
        :: calm -> goto over
        :: atomic { !calm -> decide(_pid) }
        fi;
        if
        :: plan[_pid] == EV_NONE /* nothing to do, or another command was faster */
        :: atomic { plan[_pid] != EV_NONE && plan[_pid] != EV_CANCEL && FREE -> lock = _pid }; operate(_pid)
        :: CANCELS(place, plan[_pid]) && !FREE -> cancel(_pid)
        :: (plan[_pid] == EV_CANCEL) == FREE /* busy; or nobody is there to cancel: a look will say so */
        fi
    } unless { DEAD };
ended:
    atomic { forget(_pid); killed = killed & ~BIT(_pid); ev = 0; job = 0; goto again };
over:
    skip
}

active [2] proctype judge()
{
    byte saw;

again:
    {
        if
        :: calm -> goto over
        :: atomic { !calm && WORTH_A_LOOK -> begin_look(_pid) }
        fi;
        look(_pid)
    } unless { DEAD };
ended:
    atomic { forget(_pid); killed = killed & ~BIT(_pid); saw = 0; goto again };
over:
    skip
}

/* What nobody works on is overdue in the end. A stopped one that is unfit has been stopped to be removed. */
#define KNOWN(p)     (WORKING(p) -> KNOWN_OVERDUE : (unfit -> KNOWN_UNFIT : KNOWN_NOTHING))
#define RESTING(p)   (p == RUNNING || (p == STOPPED && !unfit) || p == MISSING || NEEDS_PERSON(p, KNOWN(p)))
#define COMMANDS_MAX 2 /* of a follower, before it rests */

active proctype follower()
{
    byte ev, saw, job, commands;

    atomic { busy == 0 && killed == 0 -> calm = true; if :: unfit = true :: skip fi };
    do
    :: if
        :: atomic { WORTH_A_LOOK -> begin_look(_pid) }; look(_pid)
        :: else
        fi;
        atomic {
            if :: RESTING(place) -> break :: else fi;
            ev = NEXT(place, KNOWN(place));
            plan[_pid] = (ev == NEXT_STOP -> EV_STOP : (ev == NEXT_RM -> EV_REMOVE : EV_NONE));
            assert(plan[_pid] != EV_NONE && !REFUSED(place, plan[_pid]));
            ev = EV_NONE;
            commands++;
            assert(commands <= COMMANDS_MAX);
            assert(lock == NOBODY);
            lock = _pid
        };
        operate(_pid);
ended:
        atomic { forget(_pid) }
    od
}

active proctype chaos()
{
end:
    do
    :: atomic { guest != G_GONE -> guest = G_GONE }
    :: atomic { guest == G_SILENT || (guest == G_SETUP && !unfit) -> guest = G_READY }
    :: atomic { guest == G_SILENT || guest == G_READY -> guest = G_SETUP }
    od
}

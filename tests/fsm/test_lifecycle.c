/* The two tables of the lifecycle, pair by pair, and a search over them that proves R-308. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/journal.h"
#include "core/util.h"
#include "fsm/lifecycle.h"
#include "fsm/step.h"

/* --- every pair, as the design has it ---------------------------------------------------------------- */

/* One letter a pair, in the order of the enums, written by hand from the design. A letter of place_keys is a
 * move there: missing, installing, cloning, starting, stopping (x), removing, needs_setup, Running, stOpped,
 * broken. '=' is same, '.' INVALID_STATE, '?' SANDBOX_NOT_FOUND, '!' SANDBOX_EXISTS. */
static const char place_keys[FSM_PLACE_COUNT + 1] = "-micsxrnROb";

static const struct pair_row {
    enum fsm_place place;
    const char *commands;     /* create clone start stop remove cancel */
    const char *outcomes;     /* done failed */
    const char *observations; /* guest_ready setup_required setup_done setup_lost guest_stopping guest_gone
                                 lost owner_lost */
} pair_rows[] = {
    { FSM_MISSING, "ic????", "??", "????????" },     { FSM_INSTALLING, "!!...b", "Ob", "Rn...=.b" },
    { FSM_CLONING, "!!...b", "Ob", "Rn...=.b" },     { FSM_STARTING, "!!=x.O", ".O", "Rn...Ob=" },
    { FSM_STOPPING, "!!.=..", "OR", "Rn..=Ob=" },    { FSM_REMOVING, "!!..=.", "mb", ".....==b" },
    { FSM_NEEDS_SETUP, "!!=x..", "..", ".=R=xOb." }, { FSM_RUNNING, "!!=x..", "..", "=.=nxOb." },
    { FSM_STOPPED, "!!s=r.", "..", "Rn...=b." },     { FSM_BROKEN, "!!..r.", "..", ".....==." },
};

static void check_pair(enum fsm_place place, enum fsm_event event, char expected)
{
    const struct fsm_edge *edge = fsm_find_edge(place, event);
    const char *key = strchr(place_keys, expected);

    if (key != NULL) {
        assert_int_equal(edge->verdict, FSM_MOVE);
        assert_int_equal(edge->to, key - place_keys);
        assert_int_not_equal(edge->to, place);
        assert_int_equal(edge->code, ERROR_NONE);
        return;
    }
    if (expected == '=') {
        assert_int_equal(edge->verdict, FSM_SAME);
        assert_int_equal(edge->to, place);
        assert_int_equal(edge->code, ERROR_NONE);
        return;
    }
    assert_int_equal(edge->verdict, FSM_REFUSE);
    assert_int_equal(edge->code, expected == '?'   ? ERROR_SANDBOX_NOT_FOUND
                                 : expected == '!' ? ERROR_SANDBOX_EXISTS
                                                   : ERROR_INVALID_STATE);
}

static void test_lifecycle__each_pair_is_a_move_same_or_a_refusal_with_its_code(void **state)
{
    (void)state; /* */
    assert_int_equal(ARRAY_LEN(pair_rows), FSM_PLACE_COUNT - 1);
    for (size_t i = 0; i < ARRAY_LEN(pair_rows); i++) {
        const struct pair_row *row = &pair_rows[i];
        enum fsm_event event = EV_CREATE;

        for (const char *c = row->commands; *c != '\0'; c++)
            check_pair(row->place, event++, *c);
        for (const char *c = row->outcomes; *c != '\0'; c++)
            check_pair(row->place, event++, *c);
        for (const char *c = row->observations; *c != '\0'; c++)
            check_pair(row->place, event++, *c);
        assert_int_equal(event, FSM_EVENT_COUNT);
    }
}

static void test_lifecycle__a_working_place_has_an_answer_to_the_death_of_its_owner(void **state)
{
    (void)state; /* moved on at once, or by what the guest is then seen to be */
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        const struct fsm_edge *edge = fsm_find_edge(p, EV_OWNER_LOST);

        if (!fsm_is_working(p)) {
            assert_int_equal(edge->verdict, FSM_REFUSE);
            continue;
        }
        if (edge->verdict == FSM_MOVE)
            continue;
        assert_int_equal(edge->verdict, FSM_SAME);
        assert_int_equal(fsm_find_edge(p, EV_GUEST_READY)->to, FSM_RUNNING);
        assert_int_equal(fsm_find_edge(p, EV_SETUP_REQUIRED)->to, FSM_NEEDS_SETUP);
        assert_int_equal(fsm_find_edge(p, EV_GUEST_GONE)->to, FSM_STOPPED);
    }
}

static void test_lifecycle__every_place_can_be_reached_from_missing(void **state)
{
    bool reached[FSM_PLACE_COUNT] = { [FSM_MISSING] = true };

    (void)state;
    for (int round = 0; round < FSM_PLACE_COUNT; round++) {
        for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
            for (enum fsm_event e = EV_CREATE; reached[p] && e < FSM_EVENT_COUNT; e++) {
                if (fsm_find_edge(p, e)->verdict == FSM_MOVE)
                    reached[fsm_find_edge(p, e)->to] = true;
            }
        }
    }
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++)
        assert_true(reached[p]);
}

/* --- names and predicates ------------------------------------------------------------------------------ */

static void test_lifecycle__names_round_trip(void **state)
{
    (void)state;
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        assert_int_equal(fsm_parse_place(fsm_state_name(p), fsm_activity_name(p)), p);
        assert_true(strlen(fsm_place_name(p)) < JOURNAL_WORD_SIZE);
        assert_string_equal(fsm_state_name(fsm_parse_state(fsm_state_name(p))), fsm_state_name(p));
        assert_true(fsm_parse_state(fsm_state_name(p)) <= p);
        for (enum fsm_place q = FSM_MISSING; q < p; q++)
            assert_string_not_equal(fsm_place_name(p), fsm_place_name(q));
    }
    for (enum fsm_provider_state s = PROVIDER_NONE; s < FSM_PROVIDER_STATE_COUNT; s++) {
        assert_true(strlen(fsm_provider_state_name(s)) < JOURNAL_WORD_SIZE);
        for (enum fsm_provider_state q = PROVIDER_NONE; q < s; q++)
            assert_string_not_equal(fsm_provider_state_name(s), fsm_provider_state_name(q));
    }
}

static void test_lifecycle__event_and_operation_names_are_distinct_journal_words(void **state)
{
    (void)state;
    for (enum fsm_event e = EV_NONE; e < FSM_EVENT_COUNT; e++) {
        assert_true(strlen(fsm_event_name(e)) < JOURNAL_WORD_SIZE);
        for (enum fsm_event f = EV_NONE; f < e; f++)
            assert_string_not_equal(fsm_event_name(e), fsm_event_name(f));
    }
    for (enum fsm_provider_event e = PROVIDER_EV_NONE; e < FSM_PROVIDER_EVENT_COUNT; e++) {
        assert_true(strlen(fsm_provider_event_name(e)) < JOURNAL_WORD_SIZE);
        for (enum fsm_provider_event f = PROVIDER_EV_NONE; f < e; f++)
            assert_string_not_equal(fsm_provider_event_name(e), fsm_provider_event_name(f));
    }
    for (enum fsm_operation o = OPERATION_NONE; o < FSM_OPERATION_COUNT; o++) {
        assert_true(strlen(fsm_operation_name(o)) < JOURNAL_WORD_SIZE);
        for (enum fsm_operation p = OPERATION_NONE; p < o; p++)
            assert_string_not_equal(fsm_operation_name(o), fsm_operation_name(p));
    }
}

static void test_lifecycle__words_that_mean_nothing_are_no_place(void **state)
{
    (void)state;
    assert_int_equal(fsm_parse_place("", ""), FSM_NONE);
    assert_int_equal(fsm_parse_place("none", NULL), FSM_NONE);
    assert_int_equal(fsm_parse_place("working", NULL), FSM_NONE);
    assert_int_equal(fsm_parse_place("working", "running"), FSM_NONE);
    assert_int_equal(fsm_parse_place("running", "starting"), FSM_NONE);
    assert_int_equal(fsm_parse_place("Running", ""), FSM_NONE);
    assert_int_equal(fsm_parse_place("running", ""), FSM_RUNNING); /* as the journal keeps it */
    assert_int_equal(fsm_parse_state("starting"), FSM_NONE);
    assert_int_equal(fsm_parse_state("working"), FSM_INSTALLING);
}

static void test_lifecycle__predicates_hold_where_they_should(void **state)
{
    (void)state;
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        bool working = strcmp(fsm_state_name(p), "working") == 0;

        assert_int_equal(fsm_is_working(p), working);
        assert_int_equal(fsm_is_volatile(p), working || p == FSM_RUNNING || p == FSM_NEEDS_SETUP);
        assert_int_equal(fsm_is_cloneable(p), p == FSM_STOPPED);
        assert_int_equal(fsm_can_exec(p), p == FSM_RUNNING);
        if (working)
            assert_string_equal(fsm_activity_name(p), fsm_place_name(p));
        else
            assert_null(fsm_activity_name(p));
    }
}

/* --- next (R-104, R-308) ------------------------------------------------------------------------------- */

static void check_next(struct fsm_next next, enum fsm_next_command command, bool needs_person)
{
    assert_int_equal(next.command, command);
    assert_int_equal(next.needs_person, needs_person);
}

static void test_lifecycle__next_is_what_helps_in_each_place(void **state)
{
    static const struct {
        enum fsm_place place;
        enum fsm_next_command next, overdue, unfit;
        bool needs_person; /* not where it is unfit */
    } rows[] = {
        { FSM_MISSING, NEXT_NONE, NEXT_NONE, NEXT_NONE, false },
        { FSM_INSTALLING, NEXT_STATUS, NEXT_STATUS, NEXT_STATUS, false },
        { FSM_CLONING, NEXT_STATUS, NEXT_STATUS, NEXT_STATUS, false },
        { FSM_STARTING, NEXT_STATUS, NEXT_STOP, NEXT_STATUS, false },
        { FSM_STOPPING, NEXT_STATUS, NEXT_STOP, NEXT_STATUS, false },
        { FSM_REMOVING, NEXT_STATUS, NEXT_STATUS, NEXT_STATUS, false },
        { FSM_NEEDS_SETUP, NEXT_STATUS, NEXT_STATUS, NEXT_STOP, true },
        { FSM_RUNNING, NEXT_NONE, NEXT_NONE, NEXT_NONE, false },
        { FSM_STOPPED, NEXT_START, NEXT_START, NEXT_REMOVE, false },
        { FSM_BROKEN, NEXT_REMOVE, NEXT_REMOVE, NEXT_REMOVE, false },
    };

    (void)state;
    assert_int_equal(ARRAY_LEN(rows), FSM_PLACE_COUNT - 1);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check_next(fsm_find_next(rows[i].place, KNOWN_NOTHING), rows[i].next, rows[i].needs_person);
        check_next(fsm_find_next(rows[i].place, KNOWN_OVERDUE), rows[i].overdue, rows[i].needs_person);
        check_next(fsm_find_next(rows[i].place, KNOWN_UNFIT), rows[i].unfit, false);
    }
}

static void test_lifecycle__a_refusal_shows_the_way_out(void **state)
{
    static const struct {
        enum fsm_place place;
        enum fsm_event event;
        enum fsm_next_command command;
    } rows[] = {
        { FSM_RUNNING, EV_REMOVE, NEXT_STOP }, /* */
        { FSM_STARTING, EV_REMOVE, NEXT_STOP },    { FSM_NEEDS_SETUP, EV_REMOVE, NEXT_STOP },
        { FSM_INSTALLING, EV_REMOVE, NEXT_STOP },  { FSM_CLONING, EV_REMOVE, NEXT_STOP },
        { FSM_STOPPING, EV_REMOVE, NEXT_STATUS },  { FSM_STOPPING, EV_START, NEXT_STATUS },
        { FSM_INSTALLING, EV_START, NEXT_STATUS }, { FSM_REMOVING, EV_START, NEXT_STATUS },
        { FSM_REMOVING, EV_STOP, NEXT_STATUS },    { FSM_BROKEN, EV_START, NEXT_REMOVE },
        { FSM_BROKEN, EV_STOP, NEXT_REMOVE },      { FSM_STOPPED, EV_CREATE, NEXT_NONE }, /* */
        { FSM_BROKEN, EV_CLONE, NEXT_NONE },       { FSM_MISSING, EV_START, NEXT_CREATE },
        { FSM_MISSING, EV_STOP, NEXT_CREATE },     { FSM_MISSING, EV_REMOVE, NEXT_NONE },
        { FSM_STOPPED, EV_NONE, NEXT_START }, /* exec, which is no event */
        { FSM_MISSING, EV_NONE, NEXT_CREATE },     { FSM_BROKEN, EV_NONE, NEXT_REMOVE },
        { FSM_RUNNING, EV_NONE, NEXT_NONE },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check_next(fsm_find_next_after_refusal(rows[i].place, KNOWN_NOTHING, rows[i].event), rows[i].command,
                   false);
        if (rows[i].event != EV_NONE)
            assert_int_equal(fsm_find_edge(rows[i].place, rows[i].event)->verdict, FSM_REFUSE);
    }
}

/* A start would only lead back to where the command was refused. */
static void test_lifecycle__a_refusal_of_what_cannot_be_set_up_leads_to_its_removal(void **state)
{
    (void)state;
    check_next(fsm_find_next_after_refusal(FSM_NEEDS_SETUP, KNOWN_UNFIT, EV_NONE), NEXT_STOP, false);
    check_next(fsm_find_next_after_refusal(FSM_NEEDS_SETUP, KNOWN_UNFIT, EV_REMOVE), NEXT_STOP, false);
    check_next(fsm_find_next_after_refusal(FSM_STOPPED, KNOWN_UNFIT, EV_NONE), NEXT_REMOVE, false);
    check_next(fsm_find_next_after_refusal(FSM_STOPPED, KNOWN_UNFIT, EV_CREATE), NEXT_NONE, false);
}

static enum fsm_event event_of(enum fsm_next_command command)
{
    static const enum fsm_event events[FSM_NEXT_COUNT] = {
        [NEXT_CREATE] = EV_CREATE,
        [NEXT_START] = EV_START,
        [NEXT_STOP] = EV_STOP,
        [NEXT_REMOVE] = EV_REMOVE,
    };

    return events[command];
}

static void test_lifecycle__no_next_is_refused_itself(void **state)
{
    (void)state;
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        for (enum fsm_event e = EV_NONE; e <= EV_CANCEL; e++) {
            if (e != EV_NONE && fsm_find_edge(p, e)->verdict != FSM_REFUSE)
                continue;
            for (enum fsm_known k = KNOWN_NOTHING; k < KNOWN_COUNT; k++) {
                enum fsm_event next = event_of(fsm_find_next_after_refusal(p, k, e).command);

                /* a stop is tried as a cancel where it is refused */
                assert_true(next == EV_NONE || fsm_find_edge(p, next)->verdict != FSM_REFUSE ||
                            (next == EV_STOP && fsm_find_edge(p, EV_CANCEL)->verdict == FSM_MOVE));
            }
        }
    }
}

static void test_lifecycle__verbs_are_the_words_of_the_command_line(void **state)
{
    (void)state;
    assert_null(fsm_next_verb(NEXT_NONE));
    assert_null(fsm_next_verb(NEXT_HOST_FIX));
    assert_string_equal(fsm_next_verb(NEXT_INSTALL), "install");
    assert_string_equal(fsm_next_verb(NEXT_CREATE), "create");
    assert_string_equal(fsm_next_verb(NEXT_START), "start");
    assert_string_equal(fsm_next_verb(NEXT_STATUS), "status");
    assert_string_equal(fsm_next_verb(NEXT_STOP), "stop");
    assert_string_equal(fsm_next_verb(NEXT_REMOVE), "rm");
}

/* --- an exhaustive search ----------------------------------------------------------------------- */

/* Somebody at PLACE, knowing what a node says, runs `next`, and the world answers in each way that it can. A
 * step is *progress* when the command did its work, or a look saw how things are (which includes that time
 * passed: overdue). It is a *setback* when the work failed or was interrupted. Proven below: progress alone
 * never comes back to where it was and never ends but in a resting place; a setback leads only to where the
 * same holds. So whoever follows `next` rests as soon as setbacks end. */
struct node {
    enum fsm_place place;
    bool overdue;
    bool unfit; /* the setup that it lacks cannot be given: for the rest of its life */
};

#define NODE_COUNT (FSM_PLACE_COUNT * 4)

struct graph {
    bool seen[NODE_COUNT];
    bool progress[NODE_COUNT][NODE_COUNT];
    struct node todo[NODE_COUNT];
    size_t todo_count;
};

static size_t index_of(struct node n)
{
    return (size_t)n.place * 4 + (n.overdue ? 2 : 0) + (n.unfit ? 1 : 0);
}

static struct node node_of(size_t index)
{
    return (struct node){ (enum fsm_place)(index / 4), index % 4 >= 2, index % 2 == 1 };
}

static struct fsm_next next_of(struct node n)
{
    return fsm_find_next(n.place, n.overdue ? KNOWN_OVERDUE : n.unfit ? KNOWN_UNFIT : KNOWN_NOTHING);
}

static void reach(struct graph *g, struct node n)
{
    if (g->seen[index_of(n)])
        return;
    g->seen[index_of(n)] = true;
    g->todo[g->todo_count++] = n;
}

static void add_progress(struct graph *g, struct node from, struct node to)
{
    g->progress[index_of(from)][index_of(to)] = true;
    reach(g, to);
}

/* A stopped one that can be used no more has been stopped to be removed: it is no place to rest at. */
static bool is_resting(struct node n)
{
    return n.place == FSM_RUNNING || (n.place == FSM_STOPPED && !n.unfit) || n.place == FSM_MISSING ||
           next_of(n).needs_person;
}

/* How the owner of an activity may end it well: ends with EV_NONE. */
static const enum fsm_event successes[FSM_PLACE_COUNT][4] = {
    [FSM_INSTALLING] = { EV_DONE, EV_GUEST_READY, EV_SETUP_REQUIRED },
    [FSM_CLONING] = { EV_DONE, EV_GUEST_READY, EV_SETUP_REQUIRED },
    [FSM_STARTING] = { EV_GUEST_READY, EV_SETUP_REQUIRED },
    [FSM_STOPPING] = { EV_DONE },
    [FSM_REMOVING] = { EV_DONE },
};

/* Where EVENT leads from WORK; a removed one takes with it what was known. */
static struct node after(struct node n, enum fsm_place work, enum fsm_event event)
{
    const struct fsm_edge *edge = fsm_find_edge(work, event);

    assert_int_not_equal(edge->verdict, FSM_REFUSE);
    return (struct node){ edge->to, false, n.unfit && edge->to != FSM_MISSING };
}

/* FROM sees EVENT happen in WORK. A guest that cannot be set up is never ready; one that is to be set up may
 * turn out to be such a guest. */
static void see(struct graph *g, struct node from, enum fsm_place work, enum fsm_event event)
{
    struct node to = after(from, work, event);

    if (event == EV_GUEST_READY && from.unfit)
        return;
    add_progress(g, from, to);
    to.unfit = to.unfit || event == EV_SETUP_REQUIRED;
    add_progress(g, from, to);
}

/* The activity at WORK ends, in each way that it can, for somebody who is at FROM. */
static void end_activity(struct graph *g, struct node from, enum fsm_place work)
{
    assert_true(fsm_is_working(work));
    for (const enum fsm_event *e = successes[work]; *e != EV_NONE; e++)
        see(g, from, work, *e);
    reach(g, after(from, work, EV_FAILED));
    reach(g, after(from, work, EV_OWNER_LOST));
}

/* A look at a working place: its owner ends it meanwhile, or is dead. */
static void follow_status(struct graph *g, struct node from)
{
    static const enum fsm_event guest[] = { EV_GUEST_READY, EV_SETUP_REQUIRED, EV_GUEST_GONE };

    end_activity(g, from, from.place);
    if (fsm_find_edge(from.place, EV_OWNER_LOST)->verdict == FSM_MOVE) {
        see(g, from, from.place, EV_OWNER_LOST);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(guest); i++)
        see(g, from, from.place, guest[i]);
    /* the guest lives and says nothing, until the bound is over */
    assert_false(from.overdue);
    add_progress(g, from, (struct node){ from.place, true, from.unfit });
}

static void follow_next(struct graph *g, struct node from)
{
    struct fsm_next next = next_of(from);

    if (next.command == NEXT_STATUS) {
        follow_status(g, from);
        return;
    }
    assert_int_not_equal(event_of(next.command), EV_NONE);
    const struct fsm_edge *edge = fsm_find_edge(from.place, event_of(next.command));

    /* same: the engine resumes an activity that nobody works on */
    assert_int_not_equal(edge->verdict, FSM_REFUSE);
    end_activity(g, from, edge->to);
}

/* Progress from AT never returns to a node on the way, and ends only in rest. */
static void check_progress(const struct graph *g, size_t at, bool *on_the_way)
{
    bool leads_on = false;

    assert_false(on_the_way[at]);
    if (is_resting(node_of(at)))
        return;
    on_the_way[at] = true;
    for (size_t to = 0; to < NODE_COUNT; to++) {
        if (!g->progress[at][to])
            continue;
        leads_on = true;
        check_progress(g, to, on_the_way);
    }
    on_the_way[at] = false;
    assert_true(leads_on);
}

static void search(struct graph *g)
{
    for (size_t i = 0; i < NODE_COUNT; i++) {
        struct node n = node_of(i);
        bool stays = n.place != FSM_NONE && fsm_is_working(n.place) &&
                     fsm_find_edge(n.place, EV_OWNER_LOST)->verdict == FSM_SAME;

        if (n.place != FSM_NONE && (!n.overdue || stays) && !(n.unfit && n.place == FSM_MISSING))
            reach(g, n);
    }
    while (g->todo_count > 0) {
        struct node n = g->todo[--g->todo_count];

        if (!is_resting(n))
            follow_next(g, n);
    }
}

static void test_lifecycle__following_next_ends_in_rest(void **state)
{
    struct graph g = { .todo_count = 0 };

    (void)state;
    search(&g);
    for (size_t i = 0; i < NODE_COUNT; i++) {
        bool on_the_way[NODE_COUNT] = { false };

        if (g.seen[i])
            check_progress(&g, i, on_the_way);
    }
}

/* Does each way of progress from AT end at MISSING? That each ends is the search's. */
static bool ends_in_removal(const struct graph *g, size_t at)
{
    struct node n = node_of(at);

    if (is_resting(n))
        return n.place == FSM_MISSING;
    for (size_t to = 0; to < NODE_COUNT; to++) {
        if (g->progress[at][to] && !ends_in_removal(g, to))
            return false;
    }
    return true;
}

static void test_lifecycle__what_cannot_be_set_up_ends_in_its_removal(void **state)
{
    struct graph g = { .todo_count = 0 };

    (void)state; /* */
    search(&g);
    assert_true(ends_in_removal(&g, index_of((struct node){ FSM_NEEDS_SETUP, false, true })));
    assert_true(ends_in_removal(&g, index_of((struct node){ FSM_STOPPED, false, true })));
    assert_false(ends_in_removal(&g, index_of((struct node){ FSM_NEEDS_SETUP, false, false })));
}

/* a ready provider, create, start. Only from the resting places; the rest is the search's. */
static void test_lifecycle__following_next_from_nothing_leads_to_running(void **state)
{
    (void)state;
    assert_int_equal(fsm_find_provider_next(PROVIDER_READY).command, NEXT_CREATE);
    enum fsm_place created = fsm_find_edge(fsm_find_edge(FSM_MISSING, EV_CREATE)->to, EV_DONE)->to;

    assert_int_equal(fsm_find_next(created, KNOWN_NOTHING).command, NEXT_START);
    assert_int_equal(fsm_find_edge(fsm_find_edge(created, EV_START)->to, EV_GUEST_READY)->to, FSM_RUNNING);
    assert_int_equal(fsm_find_next(FSM_RUNNING, KNOWN_NOTHING).command, NEXT_NONE);
}

/* --- providers ----------------------------------------------------------------------------------------- */

static const struct provider_row {
    enum fsm_provider_state state;
    const char *pairs; /* install done failed owner_lost host_lacks host_ready not_built; to u m w r b */
    enum fsm_next_command next;
    bool needs_person;
} provider_rows[] = {
    { PROVIDER_UNAVAILABLE, "X...=rm", NEXT_HOST_FIX, true },
    { PROVIDER_MISSING, "w...ur=", NEXT_INSTALL, false },
    { PROVIDER_WORKING, "=rbb..=", NEXT_INSTALL, false },
    { PROVIDER_READY, "=...u=m", NEXT_CREATE, false },
    { PROVIDER_BROKEN, "w...ur=", NEXT_INSTALL, false },
};

static void check_provider_pair(enum fsm_provider_state from, enum fsm_provider_event event, char expected)
{
    static const char provider_keys[FSM_PROVIDER_STATE_COUNT + 1] = "-umwrb";
    const struct fsm_provider_edge *edge = fsm_find_provider_edge(from, event);
    const char *key = strchr(provider_keys, expected);

    if (key != NULL) {
        assert_int_equal(edge->verdict, FSM_MOVE);
        assert_int_equal(edge->to, key - provider_keys);
    } else if (expected == '=') {
        assert_int_equal(edge->verdict, FSM_SAME);
        assert_int_equal(edge->to, from);
    } else {
        assert_int_equal(edge->verdict, FSM_REFUSE);
        assert_int_equal(edge->code, expected == 'X' ? ERROR_PROVIDER_UNAVAILABLE : ERROR_INVALID_STATE);
    }
}

static void test_lifecycle__each_provider_pair_and_next_is_as_designed(void **state)
{
    (void)state; /* */
    assert_int_equal(ARRAY_LEN(provider_rows), FSM_PROVIDER_STATE_COUNT - 1);
    for (size_t i = 0; i < ARRAY_LEN(provider_rows); i++) {
        const struct provider_row *row = &provider_rows[i];
        enum fsm_provider_event event = PROVIDER_EV_INSTALL;

        for (const char *c = row->pairs; *c != '\0'; c++)
            check_provider_pair(row->state, event++, *c);
        assert_int_equal(event, FSM_PROVIDER_EVENT_COUNT);
        check_next(fsm_find_provider_next(row->state), row->next, row->needs_person);
    }
}

static void test_lifecycle__following_next_of_a_provider_ends_in_ready_or_with_a_person(void **state)
{
    (void)state; /* R-308; a failed or interrupted install is a setback, to broken, where the same holds */
    for (enum fsm_provider_state s = PROVIDER_UNAVAILABLE; s < FSM_PROVIDER_STATE_COUNT; s++) {
        struct fsm_next next = fsm_find_provider_next(s);

        if (next.needs_person || next.command == NEXT_CREATE)
            continue;
        assert_int_equal(next.command, NEXT_INSTALL);
        const struct fsm_provider_edge *install = fsm_find_provider_edge(s, PROVIDER_EV_INSTALL);

        assert_int_equal(install->to, PROVIDER_WORKING); /* a move, or same: asked again */
        assert_int_equal(fsm_find_provider_edge(PROVIDER_WORKING, PROVIDER_EV_DONE)->to, PROVIDER_READY);
        assert_int_equal(fsm_find_provider_edge(PROVIDER_WORKING, PROVIDER_EV_FAILED)->to, PROVIDER_BROKEN);
        assert_int_equal(fsm_find_provider_edge(PROVIDER_WORKING, PROVIDER_EV_OWNER_LOST)->to,
                         PROVIDER_BROKEN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lifecycle__each_pair_is_a_move_same_or_a_refusal_with_its_code),
        cmocka_unit_test(test_lifecycle__a_working_place_has_an_answer_to_the_death_of_its_owner),
        cmocka_unit_test(test_lifecycle__every_place_can_be_reached_from_missing),
        cmocka_unit_test(test_lifecycle__names_round_trip),
        cmocka_unit_test(test_lifecycle__event_and_operation_names_are_distinct_journal_words),
        cmocka_unit_test(test_lifecycle__words_that_mean_nothing_are_no_place),
        cmocka_unit_test(test_lifecycle__predicates_hold_where_they_should),
        cmocka_unit_test(test_lifecycle__next_is_what_helps_in_each_place),
        cmocka_unit_test(test_lifecycle__a_refusal_shows_the_way_out),
        cmocka_unit_test(test_lifecycle__a_refusal_of_what_cannot_be_set_up_leads_to_its_removal),
        cmocka_unit_test(test_lifecycle__no_next_is_refused_itself),
        cmocka_unit_test(test_lifecycle__verbs_are_the_words_of_the_command_line),
        cmocka_unit_test(test_lifecycle__following_next_ends_in_rest),
        cmocka_unit_test(test_lifecycle__what_cannot_be_set_up_ends_in_its_removal),
        cmocka_unit_test(test_lifecycle__following_next_from_nothing_leads_to_running),
        cmocka_unit_test(test_lifecycle__each_provider_pair_and_next_is_as_designed),
        cmocka_unit_test(test_lifecycle__following_next_of_a_provider_ends_in_ready_or_with_a_person),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

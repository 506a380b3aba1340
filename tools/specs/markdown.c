#include "tools/specs/spec.h"

#include "core/util.h"
#include "fsm/lifecycle.h"

/* What a state says to whoever reads it. */
static const char *const place_meanings[] = {
    [FSM_NONE] = "",
    [FSM_MISSING] = "no such sandbox: not created yet, or removed",
    [FSM_INSTALLING] = "being created",
    [FSM_CLONING] = "being copied from another sandbox",
    [FSM_STARTING] = "a guest is being started, and has not answered yet",
    [FSM_STOPPING] = "the guest is being ended",
    [FSM_REMOVING] = "being deleted",
    [FSM_NEEDS_SETUP] = "a guest runs and waits for a person",
    [FSM_RUNNING] = "a guest runs and answers",
    [FSM_STOPPED] = "a whole sandbox without a guest",
    [FSM_BROKEN] = "its creation did not end well, or a part of it is gone for good",
};
_Static_assert(ARRAY_LEN(place_meanings) == FSM_PLACE_COUNT, "each place has a meaning");

static const char *const event_meanings[] = {
    [EV_NONE] = "",
    [EV_CREATE] = "command `create`",
    [EV_CLONE] = "command `create --set from=`",
    [EV_START] = "command `start`",
    [EV_STOP] = "command `stop`",
    [EV_REMOVE] = "command `rm`",
    [EV_CANCEL] = "command `stop`, where stop itself is refused",
    [EV_DONE] = "the operation did what it was to do",
    [EV_FAILED] = "the operation gave up",
    [EV_GUEST_READY] = "the guest answers",
    [EV_SETUP_REQUIRED] = "the guest lives and waits for a person",
    [EV_SETUP_DONE] = "the person has finished",
    [EV_SETUP_LOST] = "what the person had set up is proven to be gone",
    [EV_GUEST_STOPPING] = "the guest is being stopped from elsewhere",
    [EV_GUEST_GONE] = "no guest lives",
    [EV_LOST] = "the sandbox is proven to be gone for good",
    [EV_OWNER_LOST] = "nobody works on the operation any more",
};
_Static_assert(ARRAY_LEN(event_meanings) == FSM_EVENT_COUNT, "each event has a meaning");

static const char *const provider_state_meanings[] = {
    [PROVIDER_NONE] = "",
    [PROVIDER_UNAVAILABLE] = "the host lacks something that a person must give",
    [PROVIDER_MISSING] = "the host is fit; the provider is not installed",
    [PROVIDER_WORKING] = "being installed",
    [PROVIDER_READY] = "a sandbox can be created",
    [PROVIDER_BROKEN] = "its install failed or was interrupted",
};
_Static_assert(ARRAY_LEN(provider_state_meanings) == FSM_PROVIDER_STATE_COUNT, "each state has a meaning");

static const char *const provider_event_meanings[] = {
    [PROVIDER_EV_NONE] = "",
    [PROVIDER_EV_INSTALL] = "command `install`",
    [PROVIDER_EV_DONE] = "the install did what it was to do",
    [PROVIDER_EV_FAILED] = "the install gave up",
    [PROVIDER_EV_OWNER_LOST] = "nobody works on the install any more",
    [PROVIDER_EV_HOST_LACKS] = "the host lacks something",
    [PROVIDER_EV_HOST_READY] = "the host is fit, and nothing has to be built",
    [PROVIDER_EV_NOT_BUILT] = "the host is fit, and what has to be built is not there",
};
_Static_assert(ARRAY_LEN(provider_event_meanings) == FSM_PROVIDER_EVENT_COUNT, "each event has a meaning");

static const char *yes(bool value)
{
    return value ? "yes" : "";
}

static void print_places(FILE *out)
{
    fputs("| place | state | activity | meaning | may change by itself | exec | may be cloned |\n"
          "|---|---|---|---|---|---|---|\n",
          out);
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        const char *activity = fsm_activity_name(p);

        fprintf(out, "| %s | `%s` | %s | %s | %s | %s | %s |\n", fsm_place_name(p), fsm_state_name(p),
                activity != NULL ? activity : "", place_meanings[p], yes(fsm_is_volatile(p)),
                yes(fsm_can_exec(p)), yes(fsm_is_cloneable(p)));
    }
}

static void print_events(FILE *out)
{
    fputs("| event | meaning |\n|---|---|\n", out);
    for (enum fsm_event e = EV_CREATE; e < FSM_EVENT_COUNT; e++)
        fprintf(out, "| %s | %s |\n", fsm_event_name(e), event_meanings[e]);
}

/* One pair: where it leads, "same", or the refusal's code; the most frequent code is a dot. */
static void print_cell(FILE *out, enum fsm_verdict verdict, const char *to, enum error_code code)
{
    if (verdict == FSM_MOVE)
        fprintf(out, " **%s** |", to);
    else if (verdict == FSM_SAME)
        fputs(" same |", out);
    else if (code == ERROR_INVALID_STATE)
        fputs(" · |", out);
    else
        fprintf(out, " %s |", error_code_name(code));
}

static void print_rule(FILE *out, int columns)
{
    for (int i = 0; i < columns; i++)
        fputs("|---", out);
    fputs("|\n", out);
}

static void print_edges(FILE *out, const char *title, enum fsm_event first, enum fsm_event last)
{
    fprintf(out, "\n%s:\n\n| |", title);
    for (enum fsm_event e = first; e <= last; e++)
        fprintf(out, " %s |", fsm_event_name(e));
    fputc('\n', out);
    print_rule(out, (int)(last - first) + 2);
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        fprintf(out, "| %s |", fsm_place_name(p));
        for (enum fsm_event e = first; e <= last; e++) {
            const struct fsm_edge *edge = fsm_find_edge(p, e);

            print_cell(out, edge->verdict, fsm_place_name(edge->to), edge->code);
        }
        fputc('\n', out);
    }
}

static const char *next_text(struct fsm_next next)
{
    const char *verb = fsm_next_verb(next.command);

    if (verb != NULL)
        return verb;
    return next.command == NEXT_NONE ? "nothing" : "the host's own command";
}

static void print_next_cell(FILE *out, struct fsm_next next)
{
    fprintf(out, " %s%s |", next_text(next), next.needs_person ? ", after a person acted" : "");
}

static void print_nexts(FILE *out)
{
    fputs("| | next | next, when overdue | next, when its setup cannot be given |\n|---|---|---|---|\n", out);
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        fprintf(out, "| %s |", fsm_place_name(p));
        for (enum fsm_known k = KNOWN_NOTHING; k < KNOWN_COUNT; k++)
            print_next_cell(out, fsm_find_next(p, k));
        fputc('\n', out);
    }
}

/* Only what a person can type: a cancel is never asked for by name. */
static void print_ways_out(FILE *out)
{
    fputs("| |", out);
    for (enum fsm_event e = EV_CREATE; e <= EV_REMOVE; e++)
        fprintf(out, " %s |", fsm_event_name(e));
    fputc('\n', out);
    print_rule(out, EV_REMOVE - EV_CREATE + 2);
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        fprintf(out, "| %s |", fsm_place_name(p));
        for (enum fsm_event e = EV_CREATE; e <= EV_REMOVE; e++) {
            bool cancels = e == EV_STOP && fsm_find_edge(p, EV_CANCEL)->verdict == FSM_MOVE;

            if (fsm_find_edge(p, e)->verdict == FSM_REFUSE && !cancels)
                print_next_cell(out, fsm_find_next_after_refusal(p, KNOWN_NOTHING, e));
            else
                fputs(" |", out);
        }
        fputc('\n', out);
    }
}

static void print_provider(FILE *out)
{
    fputs("| state | meaning | next |\n|---|---|---|\n", out);
    for (enum fsm_provider_state s = PROVIDER_UNAVAILABLE; s < FSM_PROVIDER_STATE_COUNT; s++) {
        fprintf(out, "| `%s` | %s |", fsm_provider_state_name(s), provider_state_meanings[s]);
        print_next_cell(out, fsm_find_provider_next(s));
        fputc('\n', out);
    }
    fputs("\n| event | meaning |\n|---|---|\n", out);
    for (enum fsm_provider_event e = PROVIDER_EV_INSTALL; e < FSM_PROVIDER_EVENT_COUNT; e++)
        fprintf(out, "| %s | %s |\n", fsm_provider_event_name(e), provider_event_meanings[e]);
    fputs("\n| |", out);
    for (enum fsm_provider_event e = PROVIDER_EV_INSTALL; e < FSM_PROVIDER_EVENT_COUNT; e++)
        fprintf(out, " %s |", fsm_provider_event_name(e));
    fputc('\n', out);
    print_rule(out, FSM_PROVIDER_EVENT_COUNT);
    for (enum fsm_provider_state s = PROVIDER_UNAVAILABLE; s < FSM_PROVIDER_STATE_COUNT; s++) {
        fprintf(out, "| %s |", fsm_provider_state_name(s));
        for (enum fsm_provider_event e = PROVIDER_EV_INSTALL; e < FSM_PROVIDER_EVENT_COUNT; e++) {
            const struct fsm_provider_edge *edge = fsm_find_provider_edge(s, e);

            print_cell(out, edge->verdict, fsm_provider_state_name(edge->to), edge->code);
        }
        fputc('\n', out);
    }
}

void spec_print_markdown(FILE *out)
{
    fputs("<!-- Printed by `fsm-spec md` from fsm/lifecycle.c: change that, then build the target `specs`. "
          "-->\n"
          "# The lifecycle\n\n"
          "Every pair of a place and an event is one of: a move (**bold**: where it leads), *same* (the "
          "answer is\n"
          "the state, nothing is written), or a refusal with its code; a dot is `INVALID_STATE`. The "
          "diagram, and\n"
          "what is true in each place, stand above the table in `fsm/lifecycle.c`; `lifecycle.pml` is the "
          "same\n"
          "table as a model.\n\n## Sandboxes\n\n",
          out);
    print_places(out);
    fputc('\n', out);
    print_events(out);
    print_edges(out, "Commands", EV_CREATE, EV_CANCEL);
    print_edges(out, "Outcomes of an operation", EV_DONE, EV_FAILED);
    print_edges(out, "Observations", EV_GUEST_READY, EV_OWNER_LOST);
    fputs("\nAn abandoned starting or stopping stays what it is: what the guest is then seen to be moves it "
          "on.\n"
          "A failed stopping is running only when the guest is proven alive.\n\n### The next command\n\n",
          out);
    print_nexts(out);
    fputs("\nAfter a refusal (no entry: not refused; `stop` also cancels):\n\n", out);
    print_ways_out(out);
    fputs("\n## Providers\n\n", out);
    print_provider(out);
}

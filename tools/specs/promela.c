#include "tools/specs/spec.h"

#include <ctype.h>
#include <string.h>

#include "core/util.h"
#include "fsm/lifecycle.h"

#define LINE_SIZE 256

/* "setup_lost" as "EV_SETUP_LOST"; OUT has LINE_SIZE bytes. */
static const char *constant(char *out, const char *prefix, const char *name)
{
    snprintf(out, LINE_SIZE, "%s%s", prefix, name);
    for (char *c = out; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    return out;
}

static const char *place_constant(char *out, enum fsm_place place)
{
    return constant(out, "", fsm_place_name(place));
}

static const char *next_constant(char *out, enum fsm_next_command command)
{
    const char *verb = fsm_next_verb(command);

    return constant(out, "NEXT_", verb != NULL ? verb : "NONE");
}

static void print_banner(FILE *out)
{
    fputs("/* specs/lifecycle.pml - printed by `fsm-spec pml` from fsm/lifecycle.c and "
          "tools/specs/lifecycle.pml.in:\n"
          " * change those, then build the target `specs`. */\n",
          out);
}

/* "#define WORKING(p) (p == A || p == B)" */
static void print_predicate(FILE *out, const char *name, bool (*holds)(enum fsm_place place))
{
    char buffer[LINE_SIZE];
    const char *separator = "";

    fprintf(out, "#define %s(p) (", name);
    for (enum fsm_place p = FSM_MISSING; p < FSM_PLACE_COUNT; p++) {
        if (!holds(p))
            continue;
        fprintf(out, "%sp == %s", separator, place_constant(buffer, p));
        separator = " || ";
    }
    fputs(")\n", out);
}

static void print_places(FILE *out)
{
    char buffer[LINE_SIZE];

    for (enum fsm_place p = FSM_NONE; p < FSM_PLACE_COUNT; p++)
        fprintf(out, "#define %s %d\n", place_constant(buffer, p), (int)p);
    print_predicate(out, "WORKING", fsm_is_working);
    print_predicate(out, "CHANGES", fsm_is_volatile);
}

static void print_events(FILE *out)
{
    char buffer[LINE_SIZE];

    for (enum fsm_event e = EV_NONE; e < FSM_EVENT_COUNT; e++)
        fprintf(out, "#define %s %d\n", constant(buffer, "EV_", fsm_event_name(e)), (int)e);
    fprintf(out, "#define EVENTS %d\n", (int)FSM_EVENT_COUNT);
}

static void print_next_commands(FILE *out)
{
    char buffer[LINE_SIZE];

    fprintf(out, "#define NEXT_NONE %d\n", (int)NEXT_NONE);
    for (enum fsm_next_command c = NEXT_NONE; c < FSM_NEXT_COUNT; c++) {
        if (fsm_next_verb(c) != NULL)
            fprintf(out, "#define %s %d\n", next_constant(buffer, c), (int)c);
    }
}

/* One row a place; the row of NONE is there so that a place is its index. */
static void print_edges(FILE *out)
{
    char buffer[LINE_SIZE];

    fprintf(out, "hidden byte edges[%d] = {\n", FSM_PLACE_COUNT * FSM_EVENT_COUNT);
    for (enum fsm_place p = FSM_NONE; p < FSM_PLACE_COUNT; p++) {
        fprintf(out, "    /* %s */\n    ", place_constant(buffer, p));
        for (enum fsm_event e = EV_NONE; e < FSM_EVENT_COUNT; e++) {
            bool listed = p != FSM_NONE && e != EV_NONE && fsm_find_edge(p, e)->verdict != FSM_REFUSE;

            fprintf(out, "%s%s", e == EV_NONE ? "" : ", ",
                    place_constant(buffer, listed ? fsm_find_edge(p, e)->to : FSM_NONE));
        }
        fputs(p == FSM_PLACE_COUNT - 1 ? "\n" : ",\n", out);
    }
    fputs("};\n", out);
}

static void print_nexts(FILE *out)
{
    char buffer[LINE_SIZE];

    fprintf(out,
            "#define KNOWN_NOTHING %d\n#define KNOWN_OVERDUE %d\n#define KNOWN_UNFIT %d\n#define KNOWNS %d\n",
            (int)KNOWN_NOTHING, (int)KNOWN_OVERDUE, (int)KNOWN_UNFIT, (int)KNOWN_COUNT);
    fprintf(out, "hidden byte nexts[%d] = {\n", FSM_PLACE_COUNT * KNOWN_COUNT);
    for (enum fsm_place p = FSM_NONE; p < FSM_PLACE_COUNT; p++) {
        for (enum fsm_known k = KNOWN_NOTHING; k < KNOWN_COUNT; k++)
            fprintf(out, "%s%s", k == KNOWN_NOTHING ? "    " : ", ",
                    next_constant(buffer, fsm_find_next(p, k).command));
        fprintf(out, "%s /* %s */\n", p == FSM_PLACE_COUNT - 1 ? "" : ",", place_constant(buffer, p));
    }
    fprintf(out, "};\nhidden byte persons[%d] = {\n", FSM_PLACE_COUNT * KNOWN_COUNT);
    for (enum fsm_place p = FSM_NONE; p < FSM_PLACE_COUNT; p++) {
        for (enum fsm_known k = KNOWN_NOTHING; k < KNOWN_COUNT; k++)
            fprintf(out, "%s%d", k == KNOWN_NOTHING ? "    " : ", ", fsm_find_next(p, k).needs_person);
        fprintf(out, "%s /* %s */\n", p == FSM_PLACE_COUNT - 1 ? "" : ",", place_constant(buffer, p));
    }
    fputs("};\n", out);
}

static const struct part {
    const char *line;
    void (*print)(FILE *out);
} parts[] = {
    { "@banner@\n", print_banner }, { "@places@\n", print_places },
    { "@events@\n", print_events }, { "@next_commands@\n", print_next_commands },
    { "@edges@\n", print_edges },   { "@nexts@\n", print_nexts },
};

static const struct part *find_part(const char *line)
{
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (strcmp(parts[i].line, line) == 0)
            return &parts[i];
    }
    return NULL;
}

int spec_print_promela(FILE *template, FILE *out)
{
    char line[LINE_SIZE];

    while (fgets(line, sizeof(line), template) != NULL) {
        if (line[0] != '@') {
            fputs(line, out);
            continue;
        }
        const struct part *part = find_part(line);

        if (part == NULL) {
            fprintf(stderr, "fsm-spec: no part of the tables is called %s", line);
            return -1;
        }
        part->print(out);
    }
    return 0;
}

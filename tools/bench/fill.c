/* tools/bench/fill.c - a state root of any size, made through the store itself.
 *
 *   fill SANDBOXES EVENTS [TEAM PROJECT]
 *
 * In AGENT_DESKTOP_HOME: so many stopped sandboxes (box-1 ...), and as many exec entries of box-1 as it takes
 * for the journal to hold EVENTS entries. With TEAM and PROJECT they are hosted there, and run: box-1 as
 * "box-1-00000001", with the id 0000000000000001. Directories of sandboxes are not made: what is measured
 * reads the journal. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/util.h"
#include "store/journal.h"

#define BATCH 500 /* exec entries in one transaction */

struct place { /* of hosted ones; NULL: there is no such */
    const char *team, *project;
};

static bool describe_hosted(struct facts *facts, const struct place *place, const char *name, int number,
                            const char *id)
{
    char hosted[FACT_VALUE_SIZE];

    snprintf(hosted, sizeof(hosted), "%s-%08x", name, (unsigned)number);
    return facts_set(facts, "hosted", hosted) && facts_set(facts, "id", id) &&
           facts_set(facts, "team", place->team) && facts_set(facts, "project", place->project);
}

static int add_sandbox(struct journal *j, int number, const struct place *place, struct error *e)
{
    bool hosted = place->team != NULL;
    struct facts facts = { .count = 0 };
    char name[JOURNAL_NAME_SIZE], id[JOURNAL_ID_SIZE];

    snprintf(name, sizeof(name), "box-%d", number);
    snprintf(id, sizeof(id), "%016x", (unsigned)number);
    struct journal_entry entries[] = {
        { .kind = JOURNAL_OP, .command = "create", .token = id, .status = -1 },
        { .kind = JOURNAL_MOVE,
          .event = "create",
          .from = "missing",
          .to = "working",
          .activity = "installing",
          .status = -1 },
        { .kind = JOURNAL_STEP, .step = "directories", .phase = "begin", .attempt = 1, .status = -1 },
        { .kind = JOURNAL_STEP, .step = "directories", .phase = "done", .attempt = 1, .status = -1 },
        { .kind = JOURNAL_MOVE,
          .event = hosted ? "guest_ready" : "done",
          .from = "working",
          .to = hosted ? "running" : "stopped",
          .facts = hosted ? &facts : NULL,
          .status = -1 },
        { .kind = JOURNAL_END, .code = "OK", .status = -1 },
    };
    const struct journal_guard absent = { .absent = true };

    if (hosted && !describe_hosted(&facts, place, name, number, id))
        return error_set(e, ERROR_INVALID_ARGS, 0, "TEAM or PROJECT is too long");
    for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
        entries[i].name = name;
        entries[i].id = entries[i].op = id;
        entries[i].provider = hosted ? "vercel" : "linux";
    }
    return journal_lmdb_ops.commit(j, name, &absent, entries, ARRAY_LEN(entries), NULL, e);
}

static int add_execs(struct journal *j, long count, struct error *e)
{
    static struct journal_entry entries[BATCH];
    const struct journal_guard none = { .id = "0000000000000001" };

    for (long done = 0; done < count; done += BATCH) {
        size_t n = count - done < BATCH ? (size_t)(count - done) : BATCH;

        for (size_t i = 0; i < n; i++)
            entries[i] = (struct journal_entry){ .kind = JOURNAL_EXEC,
                                                 .name = "box-1",
                                                 .id = none.id,
                                                 .provider = "linux",
                                                 .phase = i % 2 == 0 ? "begin" : "done",
                                                 .attempt = (done + (long)i) / 2 + 1,
                                                 .word = "true",
                                                 .argc = 1,
                                                 .bytes = 5,
                                                 .status = i % 2 == 0 ? -1 : 0 };
        if (journal_lmdb_ops.commit(j, "box-1", &none, entries, n, NULL, e) != 1)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct error e = { 0 };
    struct root root;
    struct journal *j = NULL;
    bool complete = argc == 3 || argc == 5;
    struct place place = { argc == 5 ? argv[3] : NULL, argc == 5 ? argv[4] : NULL };
    long sandboxes = complete ? strtol(argv[1], NULL, 10) : 0;
    long events = complete ? strtol(argv[2], NULL, 10) : 0;

    if (sandboxes < 1) {
        fprintf(stderr, "usage: fill SANDBOXES EVENTS [TEAM PROJECT]\n");
        return 2;
    }
    if (root_open(ROOT_WRITE, &root, &e) < 0 || journal_open(&root, JOURNAL_WRITE, &j, &e) != 1)
        goto failed;
    for (int i = 1; i <= sandboxes; i++)
        if (add_sandbox(j, i, &place, &e) != 1)
            goto failed;
    if (add_execs(j, events - 6 * sandboxes, &e) < 0)
        goto failed;
    journal_close(j);
    root_close(&root);
    return 0;

failed:
    fprintf(stderr, "fill: %s\n", e.message[0] != '\0' ? e.message : "a sandbox exists already");
    return 1;
}

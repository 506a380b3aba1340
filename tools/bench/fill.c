/* tools/bench/fill.c - a state root of any size, made through the store itself.
 *
 *   fill SANDBOXES EVENTS
 *
 * In AGENT_DESKTOP_HOME: so many stopped sandboxes (box-1 ...), and as many exec entries of box-1 as it takes
 * for the journal to hold EVENTS entries. Directories of sandboxes are not made: what is measured reads the
 * journal. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/util.h"
#include "store/journal.h"

#define BATCH 500 /* exec entries in one transaction */

static int add_sandbox(struct journal *j, int number, struct error *e)
{
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
        { .kind = JOURNAL_MOVE, .event = "done", .from = "working", .to = "stopped", .status = -1 },
        { .kind = JOURNAL_END, .code = "OK", .status = -1 },
    };
    const struct journal_guard absent = { .absent = true };

    for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
        entries[i].name = name;
        entries[i].id = entries[i].op = id;
        entries[i].provider = "linux";
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
    long sandboxes = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    long events = argc == 3 ? strtol(argv[2], NULL, 10) : 0;

    if (sandboxes < 1) {
        fprintf(stderr, "usage: fill SANDBOXES EVENTS\n");
        return 2;
    }
    if (root_open(ROOT_WRITE, &root, &e) < 0 || journal_open(&root, JOURNAL_WRITE, &j, &e) != 1)
        goto failed;
    for (int i = 1; i <= sandboxes; i++)
        if (add_sandbox(j, i, &e) != 1)
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

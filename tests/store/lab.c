#include "tests/store/lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util.h"

#define OP    "0123456789abcdef"
#define TOKEN "fedcba9876543210"

void lab_root(const struct scratch *s, struct root *out)
{
    *out = (struct root){ .dir = s->dir, .sandboxes = -1, .locks = -1 };
    snprintf(out->path, sizeof(out->path), "%s", s->path);
}

static int report(int r, const struct error *e)
{
    if (r < 0)
        fprintf(stderr, "%s: %s\n", error_code_name(e->code), e->message);
    return r;
}

struct journal *lab_open(const struct scratch *s)
{
    struct error e = { 0 };
    struct journal *j;
    struct root root;

    lab_root(s, &root);
    if (report(journal_open(&root, JOURNAL_WRITE, &j, &e), &e) != 1)
        exit(99);
    return j;
}

static int commit(struct journal *j, const char *name, bool ends, const struct journal_entry *entries,
                  size_t count)
{
    struct journal_guard guard = { .ends = ends };
    struct error e = { 0 };

    return report(journal_lmdb_ops.commit(j, name, &guard, entries, count, NULL, &e), &e);
}

int lab_commit(struct journal *j, const char *name, const struct journal_entry *entries, size_t count)
{
    return commit(j, name, false, entries, count);
}

int lab_run(struct journal *j, const char *name, const char *command, const char *from, const char *working,
            const char *to)
{
    struct facts facts = { 0 };
    struct journal_entry base = { .name = name, .id = "1111111111111111", .provider = "linux", .op = OP };
    struct journal_entry op = base, move = base, begin = base, done = base, moved = base, end = base;

    facts_set(&facts, "address", "10.0.0.7");
    op.kind = JOURNAL_OP;
    op.command = command;
    op.token = TOKEN;
    move.kind = moved.kind = JOURNAL_MOVE;
    move.event = command;
    move.from = from;
    move.to = "working";
    move.activity = working;
    begin.kind = done.kind = JOURNAL_STEP;
    begin.step = done.step = "work";
    begin.phase = "begin";
    begin.attempt = done.attempt = 1;
    done.phase = "done";
    done.facts = &facts;
    moved.event = "done";
    moved.from = "working";
    moved.to = to;
    end.kind = JOURNAL_END;

    const struct journal_entry first[] = { op, move, begin }, last[] = { done, moved, end };
    bool ends = strcmp(command, "stop") == 0 || strcmp(command, "remove") == 0;
    int r = commit(j, name, ends, first, ARRAY_LEN(first));

    return r == 1 ? commit(j, name, true, last, ARRAY_LEN(last)) : r;
}

int lab_create(struct journal *j, const char *name)
{
    return lab_run(j, name, "create", "missing", "installing", "stopped");
}

int lab_start(struct journal *j, const char *name)
{
    return lab_run(j, name, "start", "stopped", "starting", "running");
}

int lab_stop(struct journal *j, const char *name)
{
    return lab_run(j, name, "stop", "running", "stopping", "stopped");
}

int lab_remove(struct journal *j, const char *name)
{
    return lab_run(j, name, "remove", "stopped", "removing", "missing");
}

int lab_exec(struct journal *j, const char *name)
{
    return lab_exec_many(j, name, 1);
}

int lab_exec_many(struct journal *j, const char *name, uint64_t n)
{
    struct journal_entry entries[500];
    size_t count = 0;

    for (uint64_t i = 0; i < n; i++) {
        entries[count++] = (struct journal_entry){
            .kind = JOURNAL_EXEC, .name = name, .phase = "done", .word = "true", .argc = 1, .attempt = 1
        };
        if (count < ARRAY_LEN(entries) && i + 1 < n)
            continue;
        int r = lab_commit(j, name, entries, count);

        if (r != 1)
            return r;
        count = 0;
    }
    return 1;
}

const char *lab_state(struct journal *j, const char *name)
{
    static char out[64];
    struct journal_record record;
    struct error e = { 0 };
    int r = journal_lmdb_ops.find(j, name, &record, &e);

    snprintf(out, sizeof(out), "%s%s", r < 0 ? "error " : "",
             r < 0 ? error_code_name(e.code) : (r == 0 ? "missing" : record.state));
    return out;
}

int lab_random_command(struct journal *j, unsigned *seed, int names)
{
    static int (*const commands[])(struct journal *, const char *) = { lab_create, lab_start, lab_stop,
                                                                       lab_remove, lab_exec };
    char name[2] = { (char)('a' + rand_r(seed) % names), '\0' };
    struct journal_entry refused = {
        .kind = JOURNAL_REFUSED, .name = name, .event = "start", .state = "missing"
    };
    size_t which = (size_t)rand_r(seed) % (ARRAY_LEN(commands) + 1);

    return which < ARRAY_LEN(commands) ? commands[which](j, name) : lab_commit(j, name, &refused, 1);
}

bool lab_verify(const struct scratch *s, struct journal_verdict *out)
{
    struct journal_verdict verdict;
    struct error e = { 0 };
    struct root root;

    lab_root(s, &root);
    if (report(journal_verify(&root, &verdict, &e), &e) < 0)
        return false;
    if (!verdict.verified && out == NULL)
        fprintf(stderr, "broken at %llu: %s\n", (unsigned long long)verdict.broken_at, verdict.message);
    if (out != NULL)
        *out = verdict;
    return verdict.verified;
}

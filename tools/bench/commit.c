/* tools/bench/commit.c - a journaled transition against a bare LMDB commit of the same bytes (P-4).
 *
 *   commit ROUNDS DIRECTORY
 *
 * DIRECTORY (empty, on the disk that is meant) gets a state root and a bare environment. Both in turn, the
 * order changing. Prints two medians in microseconds: ours, bare. The bare one stores the values that ours
 * stored last. */
#include <lmdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/util.h"
#include "store/journal.h"

#define ENTRIES   3 /* the last transaction of a start: step done, move, end */
#define VALUE_MAX 4096

struct value {
    char bytes[VALUE_MAX];
    size_t size;
};

struct bare {
    MDB_env *env;
    MDB_dbi tables[4]; /* events, sandboxes, history, meta */
    uint64_t seq;
};

static const char *const table_names[] = { "events", "sandboxes", "history", "meta" };

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "commit: %s failed\n", what);
        exit(1);
    }
}

static void commit_ours(struct journal *j, int number)
{
    struct error e = { 0 };
    const struct journal_guard guard = { .absent = number == 0 };
    struct facts facts = { .count = 0 };
    struct journal_entry entries[ENTRIES] = {
        { .kind = JOURNAL_STEP,
          .step = "desktop",
          .phase = "done",
          .attempt = 1,
          .facts = &facts,
          .status = -1 },
        { .kind = JOURNAL_MOVE, .event = "guest_ready", .from = "working", .to = "running", .status = -1 },
        { .kind = JOURNAL_END, .code = "OK", .status = -1 },
    };

    facts_set(&facts, "display", ":100");
    for (int i = 0; i < ENTRIES; i++) {
        entries[i].name = "demo";
        entries[i].id = entries[i].op = "0123456789abcdef";
        entries[i].provider = "linux";
    }
    if (journal_lmdb_ops.commit(j, "demo", &guard, entries, ENTRIES, NULL, &e) != 1) {
        fprintf(stderr, "commit: %s\n", e.message);
        exit(1);
    }
}

static void open_bare(struct bare *b, const char *path, unsigned flags, mode_t make)
{
    MDB_txn *txn = NULL;

    if (make != 0)
        check(mkdir(path, make) == 0, "mkdir");
    check(mdb_env_create(&b->env) == 0 && mdb_env_set_maxdbs(b->env, 8) == 0 &&
              mdb_env_set_mapsize(b->env, (size_t)1 << 32) == 0 &&
              mdb_env_open(b->env, path, flags | MDB_NOLOCK, 0600) == 0 &&
              mdb_txn_begin(b->env, NULL, flags & MDB_RDONLY, &txn) == 0,
          "open");
    for (size_t i = 0; i < ARRAY_LEN(table_names); i++)
        check(mdb_dbi_open(txn, table_names[i], make != 0 ? MDB_CREATE : 0, &b->tables[i]) == 0,
              table_names[i]);
    check(mdb_txn_commit(txn) == 0, "open");
}

/* The values of our last transaction: ENTRIES events, then the record, then the head. */
static void read_values(const char *path, struct value values[ENTRIES + 2])
{
    struct bare b = { .env = NULL };
    MDB_txn *txn = NULL;
    MDB_cursor *cursor = NULL;
    MDB_val key, data;

    open_bare(&b, path, MDB_RDONLY, 0);
    check(mdb_txn_begin(b.env, NULL, MDB_RDONLY, &txn) == 0, "begin");
    for (int table = 0, n = 0; table < 4; table += table == 1 ? 2 : 1) {
        check(mdb_cursor_open(txn, b.tables[table], &cursor) == 0, "cursor");
        for (int i = 0; i < (table == 0 ? ENTRIES : 1); i++, n++) {
            check(mdb_cursor_get(cursor, &key, &data, i == 0 ? MDB_LAST : MDB_PREV) == 0 &&
                      data.mv_size <= VALUE_MAX,
                  "read");
            memcpy(values[n].bytes, data.mv_data, data.mv_size);
            values[n].size = data.mv_size;
        }
        mdb_cursor_close(cursor);
    }
    mdb_txn_abort(txn);
    mdb_env_close(b.env);
}

static int put(MDB_txn *txn, MDB_dbi table, const void *key, size_t key_size, const struct value *value,
               unsigned flags)
{
    MDB_val k = { key_size, (void *)(uintptr_t)key };
    MDB_val v = { value == NULL ? 0 : value->size, value == NULL ? NULL : (void *)(uintptr_t)value->bytes };

    return mdb_put(txn, table, &k, &v, flags);
}

static void commit_bare(struct bare *b, const struct value values[ENTRIES + 2])
{
    MDB_txn *txn = NULL;
    int failed = mdb_txn_begin(b->env, NULL, 0, &txn);

    for (int i = 0; i < ENTRIES; i++) {
        uint64_t key = __builtin_bswap64(++b->seq);
        char history[5 + sizeof(key)] = "demo";

        memcpy(history + 5, &key, sizeof(key));
        failed |= put(txn, b->tables[0], &key, sizeof(key), &values[i], MDB_APPEND);
        failed |= put(txn, b->tables[2], history, sizeof(history), NULL, 0);
    }
    failed |= put(txn, b->tables[1], "demo", 4, &values[ENTRIES], 0);
    failed |= put(txn, b->tables[3], "head", 4, &values[ENTRIES + 1], 0);
    check(!failed && mdb_txn_commit(txn) == 0, "bare commit");
}

static struct journal *open_ours(struct root *root)
{
    struct error e = { 0 };
    struct journal *j = NULL;

    if (root_open(ROOT_WRITE, root, &e) < 0 || journal_open(root, JOURNAL_WRITE, &j, &e) != 1) {
        fprintf(stderr, "commit: %s\n", e.message);
        exit(1);
    }
    return j;
}

/* Times ours and the bare one ROUNDS times, the order changing. */
static void measure(struct journal *j, struct bare *bare, const struct value values[ENTRIES + 2], int rounds,
                    double *ours_us, double *bare_us)
{
    for (int i = 0; i < rounds; i++) {
        bool ours = i % 2 == 0;

        for (int turn = 0; turn < 2; turn++, ours = !ours) {
            double begun = now_us();

            if (ours)
                commit_ours(j, i + 1);
            else
                commit_bare(bare, values);
            (ours ? ours_us : bare_us)[i] = now_us() - begun;
        }
    }
}

int main(int argc, char **argv)
{
    int rounds = argc == 3 ? (int)strtol(argv[1], NULL, 10) : 0;
    char home[512], ours_path[600], bare_path[600];
    static struct value values[ENTRIES + 2];
    struct root root;
    struct bare bare = { .seq = 0 };

    if (rounds < 1) {
        fprintf(stderr, "usage: commit ROUNDS DIRECTORY\n");
        return 2;
    }
    AUTO_FREE double *ours_us = calloc((size_t)rounds, sizeof(double));
    AUTO_FREE double *bare_us = calloc((size_t)rounds, sizeof(double));

    snprintf(home, sizeof(home), "%s/state", argv[2]);
    snprintf(ours_path, sizeof(ours_path), "%s/journal", home);
    snprintf(bare_path, sizeof(bare_path), "%s/bare", argv[2]);
    check(ours_us != NULL && bare_us != NULL && setenv("AGENT_DESKTOP_HOME", home, 1) == 0, "set-up");
    struct journal *j = open_ours(&root);

    commit_ours(j, 0);
    commit_ours(j, 1);
    journal_close(j);
    read_values(ours_path, values);
    root_close(&root);
    j = open_ours(&root);
    open_bare(&bare, bare_path, 0, 0700);
    measure(j, &bare, values, rounds, ours_us, bare_us);
    qsort(ours_us, (size_t)rounds, sizeof(double), by_size);
    qsort(bare_us, (size_t)rounds, sizeof(double), by_size);
    printf("%.1f %.1f\n", ours_us[rounds / 2], bare_us[rounds / 2]);
    mdb_env_close(bare.env);
    journal_close(j);
    root_close(&root);
    return 0;
}

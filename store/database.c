#include "store/database.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/mapping.h"
#include "core/mem.h"
#include "core/root.h"
#include "core/util.h"
#include "store/crash.h"

#define WAIT_MS          2000
#define MAP_BYTES        (UINT64_C(4) << 30) /* address space, not disk */
#define MAP_BYTES_LEAST  (UINT64_C(4) << 20)
#define MAP_BYTES_MAX    (UINT64_C(1) << 40)
#define RESERVE_BYTES    (256 * 1024)        /* 8 commits of the largest kind, measured on a full ext4 */
#define RESERVE_TO_END   (RESERVE_BYTES / 2) /* the part of it that only ending things may use */
#define DATA_BYTES_LEAST 8192                /* LMDB's two meta pages */
#define DATA_FILE        "data.mdb"
#define LOCK_FILE        "lock"
#define TURN_FILE        "turn"

/* LMDB may count pages at the end of the file that it freed again before it wrote them, so a sound file
 * can be this much shorter than its last page number says. */
#define UNWRITTEN_PAGES 64

static const char *const table_names[] = {
    [TABLE_EVENTS] = "events",   [TABLE_SANDBOXES] = "sandboxes", [TABLE_PROVIDERS] = "providers",
    [TABLE_HISTORY] = "history", [TABLE_META] = "meta",
};
_Static_assert(ARRAY_LEN(table_names) == TABLE_COUNT, "each table has a name");

struct database {
    char path[ROOT_PATH_MAX + 32]; /* of the directory, for LMDB */
    pid_t pid;                     /* who opened it: a forked child must not use it */
    bool read_only;
    size_t map_bytes;
    bool map_is_ours; /* children do not get it */
    int lock;         /* -1: a read-only file system without the file, where nobody can write either */
    int turn;
    MDB_env *env; /* NULL after a failed commit, until the next transaction */
    MDB_dbi tables[TABLE_COUNT];
};

struct database_txn {
    struct database *db;
    MDB_txn *txn;
    uint64_t base;
    bool map_full; /* a put found the map too small: the transaction is run again in a larger one */
};

/* --- errors -------------------------------------------------------------------------------------------- */

static bool is_damage(int rc)
{
    static const int codes[] = { MDB_CORRUPTED,   MDB_PAGE_NOTFOUND, MDB_INVALID,      MDB_VERSION_MISMATCH,
                                 MDB_CURSOR_FULL, MDB_PAGE_FULL,     MDB_INCOMPATIBLE, MDB_NOTFOUND,
                                 MDB_BAD_VALSIZE, MDB_BAD_TXN,       MDB_KEYEXIST,     MDB_BAD_DBI };

    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (rc == codes[i])
            return true;
    return false;
}

static int fail(int rc, const char *what, struct error *e)
{
    if (is_damage(rc))
        return error_set(e, ERROR_STORE_CORRUPT, rc, "the journal is damaged: cannot %s (%s)", what,
                         mdb_strerror(rc));
    if (rc == MDB_MAP_FULL || rc == MDB_TXN_FULL)
        return error_set(e, ERROR_STORE_FULL, rc, "the journal is full: cannot %s", what);
    if (rc < 0)
        return error_set(e, ERROR_INTERNAL, rc, "cannot %s in the journal (%s)", what, mdb_strerror(rc));
    return error_set_errno(e, ERROR_INTERNAL, rc, "cannot %s in the journal", what);
}

/* --- locks --------------------------------------------------------------------------------------------- */

static int busy(struct error *e)
{
    return error_set(e, ERROR_STORE_BUSY, 0, "another process has held the journal for %d seconds",
                     WAIT_MS / 1000);
}

static int take(int fd, enum lock_mode mode, int64_t end_ms, struct error *e)
{
    int64_t left_ms = end_ms - clock_mono_ms();
    int taken = lock_take_fd(fd, mode, left_ms > 0 ? (int)left_ms : 0, e);

    return taken == 0 ? busy(e) : taken;
}

static void let_go(int fd)
{
    if (fd >= 0)
        (void)RETRY_EINTR(flock(fd, LOCK_UN));
}

static int enter(struct database *db, enum lock_mode mode, struct error *e)
{
    int64_t end_ms = clock_mono_ms() + WAIT_MS;

    assert(db->pid == getpid());
    if (db->lock < 0 || db->turn < 0)
        return 0;
    if (take(db->turn, LOCK_EXCLUSIVE, end_ms, e) < 0)
        return -1;
    int taken = take(db->lock, mode, end_ms, e);

    let_go(db->turn);
    return taken < 0 ? -1 : 0;
}

/* A missing one is made anew, by readers too: without it they would not see a writer. Only where nobody can
 * write, nobody needs it. */
static int make_lock(int dir, const char *name, bool read_only, int *out, struct error *e)
{
    AUTO_CLOSE int fd = RETRY_EINTR(openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));

    if (fd < 0 && read_only && (errno == EROFS || errno == EACCES))
        return 0;
    if (fd < 0 || fchmod(fd, 0600) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot make journal/%s", name);
    *out = steal_fd(&fd);
    return 0;
}

static int open_lock(int dir, const char *name, bool read_only, int *out, struct error *e)
{
    int access = read_only ? O_RDONLY : O_RDWR; /* flock(2) needs no write access */

    /* O_NONBLOCK: a FIFO that somebody put there must not hang us */
    *out = RETRY_EINTR(openat(dir, name, access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (*out >= 0)
        return 0;
    if (errno == ENOENT)
        return make_lock(dir, name, read_only, out, e);
    return error_set_errno(e, ERROR_INTERNAL, errno, "cannot open journal/%s", name);
}

/* --- what was acknowledged ----------------------------------------------------------------------------- */

/* In the file `lock`, written after a commit is durable and not synced itself: after a power cut it may be
 * behind data.mdb, never ahead. What does not look right is as good as absent. */
struct mark {
    uint64_t number;
    uint64_t inverse;
};

static void remember(const struct database *db, uint64_t number)
{
    struct mark mark = { .number = number, .inverse = ~number };

    if (RETRY_EINTR(pwrite(db->lock, &mark, sizeof(mark), 0)) != (ssize_t)sizeof(mark))
        log_debug("cannot note transaction %llu in the journal's lock file", (unsigned long long)number);
}

static int check_not_older(const struct database *db, uint64_t number, struct error *e)
{
    struct mark mark = { 0 };

    if (db->lock < 0 || RETRY_EINTR(pread(db->lock, &mark, sizeof(mark), 0)) != (ssize_t)sizeof(mark) ||
        mark.inverse != ~mark.number || number >= mark.number)
        return 0;
    return error_set(e, ERROR_STORE_CORRUPT, 0,
                     "journal/" DATA_FILE " is older than what was acknowledged (transaction %llu, not %llu)",
                     (unsigned long long)number, (unsigned long long)mark.number);
}

/* --- room on the disk ---------------------------------------------------------------------------------- */

/* Keeps blocks behind the end of the file: everything is copy-on-write, so on a full disk not even "it
 * failed, the disk is full" could be recorded without. 0, or errno of why there is less than wished. */
static int reserve(MDB_env *env)
{
    mdb_filehandle_t fd;
    struct stat st;

    mdb_env_get_fd(env, &fd);
    if (fstat(fd, &st) == 0 && st.st_blocks * 512 < st.st_size + RESERVE_TO_END &&
        file_reserve(fd, RESERVE_BYTES) < 0)
        return errno;
    return 0;
}

static bool is_full(int sys)
{
    return sys == ENOSPC || sys == EDQUOT || sys == EFBIG;
}

int database_check_room(struct database_txn *txn, struct error *e)
{
    int why = reserve(txn->db->env);

    if (!is_full(why)) /* a file system that cannot keep room is no reason to refuse */
        return 0;
    return error_set_errno(e, ERROR_STORE_FULL, why,
                           "the room that is left for the journal is kept for stop and rm");
}

static bool is_as_large_as_allowed(MDB_env *env)
{
    mdb_filehandle_t fd;
    struct rlimit limit;
    struct stat st;

    mdb_env_get_fd(env, &fd);
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && fstat(fd, &st) == 0 &&
           (rlim_t)st.st_size >= limit.rlim_cur;
}

/* LMDB calls a write that the disk had no room for, or that ended at the limit of file sizes, a short write,
 * EIO. */
static int commit_error(const struct database *db, int rc)
{
    if (rc != EIO)
        return rc;
    int why = is_as_large_as_allowed(db->env) ? EFBIG : reserve(db->env);

    return is_full(why) ? why : rc;
}

/* LMDB's commit ends with fsync(2), which on macOS is not the end. */
static int sync_medium(MDB_env *env)
{
    mdb_filehandle_t fd;

    mdb_env_get_fd(env, &fd);
    return file_sync_drive(fd) < 0 ? errno : 0;
}

/* --- the environment ----------------------------------------------------------------------------------- */

static void close_env(struct database *db)
{
    if (db->env != NULL)
        mdb_env_close(db->env);
    db->env = NULL;
    db->map_is_ours = false;
}

static int stat_file(const struct database *db, struct stat *st)
{
    char path[sizeof(db->path) + sizeof("/" DATA_FILE)];

    snprintf(path, sizeof(path), "%s/" DATA_FILE, db->path);
    return stat(path, st);
}

/* LMDB makes a new database of an empty file, and reads behind the end of a short one. */
static int check_file(const struct database *db, struct error *e)
{
    struct stat st;

    if (stat_file(db, &st) < 0)
        return errno == ENOENT
                   ? error_set(e, ERROR_STORE_CORRUPT, 0, "the journal has lost its file " DATA_FILE)
                   : error_set_errno(e, ERROR_INTERNAL, errno, "cannot look at journal/" DATA_FILE);
    if (!S_ISREG(st.st_mode) || st.st_size < DATA_BYTES_LEAST)
        return error_set(e, ERROR_STORE_CORRUPT, 0, "journal/" DATA_FILE " is cut off");
    return 0;
}

static int check_length(MDB_env *env, struct error *e)
{
    mdb_filehandle_t fd;
    MDB_envinfo info;
    MDB_stat pages;
    struct stat st;

    mdb_env_info(env, &info);
    mdb_env_stat(env, &pages);
    mdb_env_get_fd(env, &fd);
    if (fstat(fd, &st) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot look at journal/" DATA_FILE);
    if (pages.ms_psize != 0 && info.me_last_pgno <= (uint64_t)st.st_size / pages.ms_psize + UNWRITTEN_PAGES)
        return 0;
    return error_set(e, ERROR_STORE_CORRUPT, 0, "journal/" DATA_FILE " is cut off");
}

/* A handle that a reading transaction opened lasts when that is committed. */
static int open_tables(struct database *db, unsigned flags, struct error *e)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(db->env, NULL, flags == 0 ? MDB_RDONLY : 0, &txn);

    for (int i = 0; rc == 0 && i < TABLE_COUNT; i++) {
        rc = mdb_dbi_open(txn, table_names[i], flags, &db->tables[i]);
        if (rc != 0)
            mdb_txn_abort(txn);
    }
    if (rc == 0)
        rc = mdb_txn_commit(txn);
    return rc == 0 ? 0 : fail(commit_error(db, rc), "find the tables", e);
}

static bool has_address_space(size_t size)
{
    void *map = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (map == MAP_FAILED)
        return false;
    munmap(map, size);
    return true;
}

/* What is wished, or less under a limit of the address space (RLIMIT_AS): the rest of the process needs some,
 * too. LMDB takes more where the file is larger already. */
static size_t choose_map_size(size_t wished)
{
    size_t size = wished;

    while (size > MAP_BYTES_LEAST && !has_address_space(2 * size))
        size /= 4;
    return size;
}

/* LMDB maps as much as a meta page says, which may be damaged: no such map is not "out of memory" when all
 * that the file has can be mapped. */
static int open_error(const struct database *db, int rc)
{
    struct stat st;

    if (rc != ENOMEM || stat_file(db, &st) < 0 || !has_address_space((size_t)st.st_size + MAP_BYTES_LEAST))
        return rc;
    return MDB_INVALID;
}

/* LMDB does this for the descriptor of the meta pages only (0.9.24). */
static int close_on_exec(MDB_env *env, struct error *e)
{
    mdb_filehandle_t fd;

    mdb_env_get_fd(env, &fd);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot keep journal/" DATA_FILE " from children");
    return 0;
}

static int open_env(struct database *db, struct error *e)
{
    unsigned flags = MDB_NOLOCK | (db->read_only ? MDB_RDONLY : 0);
    int rc = mdb_env_create(&db->env);

    if (rc != 0)
        return fail(rc, "begin", e);
    rc = mdb_env_set_maxdbs(db->env, TABLE_COUNT);
    if (rc == 0)
        rc = mdb_env_set_mapsize(db->env, choose_map_size(db->map_bytes));
    if (rc == 0)
        rc = mdb_env_open(db->env, db->path, flags, 0600);
    if (rc != 0)
        return fail(open_error(db, rc), "open " DATA_FILE, e);
    return close_on_exec(db->env, e);
}

/* By a holder of the lock. */
static int ensure_env(struct database *db, struct error *e)
{
    if (db->env != NULL)
        return 0;
    if (check_file(db, e) == 0 && open_env(db, e) == 0 && check_length(db->env, e) == 0 &&
        open_tables(db, 0, e) == 0)
        return 0;
    close_env(db);
    return -1;
}

/* --- the map and children ------------------------------------------------------------------------------ */

/* LMDB does not tell where its map is, but what it stored lies in it: here a table's own record, of a
 * transaction that has changed nothing yet. */
static void keep_from_children(struct database *db, MDB_txn *txn)
{
    const char *name = table_names[TABLE_META];
    MDB_val key = { .mv_data = (void *)(uintptr_t)name, .mv_size = strlen(name) }, value;
    MDB_dbi tables;

    if (db->map_is_ours || db->read_only) /* a command that only reads starts no other process */
        return;
    db->map_is_ours = mdb_dbi_open(txn, NULL, 0, &tables) == 0 && mdb_get(txn, tables, &key, &value) == 0 &&
                      mapping_keep_from_children(value.mv_data);
}

/* --- transactions -------------------------------------------------------------------------------------- */

/* LMDB lets go of the old map first, so a failure leaves the environment without one. */
static int resize_map(struct database *db, size_t size)
{
    int rc = mdb_env_set_mapsize(db->env, size);

    db->map_is_ours = false;
    if (rc != 0)
        close_env(db);
    return rc;
}

/* Another process made the map grow: as large as it did (0), or, where that is more than this process may
 * have, as large as the file. */
static int follow_map(struct database *db, struct error *e)
{
    int rc = resize_map(db, 0);

    if (rc == ENOMEM)
        return ensure_env(db, e);
    return rc == 0 ? 0 : fail(rc, "make room", e);
}

static int begin(struct database *db, unsigned flags, struct database_txn *txn, struct error *e)
{
    *txn = (struct database_txn){ .db = db };
    if (ensure_env(db, e) < 0)
        return -1;
    int rc = mdb_txn_begin(db->env, NULL, flags, &txn->txn);

    if (rc == MDB_MAP_RESIZED) {
        if (follow_map(db, e) < 0)
            return -1;
        rc = mdb_txn_begin(db->env, NULL, flags, &txn->txn);
    }
    if (rc != 0)
        return fail(rc, "begin", e);
    keep_from_children(db, txn->txn);
    txn->base = mdb_txn_id(txn->txn) - (flags == MDB_RDONLY ? 0 : 1);
    if (check_not_older(db, txn->base, e) == 0)
        return 0;
    mdb_txn_abort(txn->txn);
    return -1;
}

static int read_once(struct database *db, database_txn_fn *fn, void *self, struct error *e)
{
    struct database_txn txn;

    if (begin(db, MDB_RDONLY, &txn, e) < 0)
        return -1;
    int r = fn(self, &txn, e);

    mdb_txn_abort(txn.txn);
    return r;
}

int database_read(struct database *db, database_txn_fn *fn, void *self, struct error *e)
{
    struct crash_guard guard;

    if (enter(db, LOCK_SHARED, e) < 0)
        return -1;
    crash_enter(&guard);
    int r = read_once(db, fn, self, e);

    crash_leave(&guard);
    let_go(db->lock);
    return r;
}

/* 1 when the map is larger now, -1. */
static int grow_map(struct database *db, struct error *e)
{
    MDB_envinfo info;

    mdb_env_info(db->env, &info);
    if (info.me_mapsize >= MAP_BYTES_MAX)
        return fail(MDB_MAP_FULL, "grow", e);
    int rc = resize_map(db, info.me_mapsize * 2);

    if (rc != 0)
        return fail(rc, "make room", e);
    db->map_bytes = info.me_mapsize * 2;
    log_debug("the journal's map is %zu bytes now", db->map_bytes);
    return 1;
}

/* After a failed commit nothing in memory counts: pages may be marked clean and be lost. The next transaction
 * opens the file anew and sees what is there. */
static int fail_commit(struct database *db, int rc, struct error *e)
{
    rc = commit_error(db, rc);
    close_env(db);
    fail(rc, "commit", e);
    e->delivery = DELIVERY_UNKNOWN;
    return -1;
}

/* As FN, or 2: the map had to grow, try again. */
static int write_once(struct database *db, database_txn_fn *fn, void *self, struct error *e)
{
    struct error failure = { 0 };
    struct database_txn txn;

    if (begin(db, 0, &txn, e) < 0)
        return -1;
    int r = fn(self, &txn, &failure);

    if (r != 1) {
        mdb_txn_abort(txn.txn);
        if (txn.map_full)
            return grow_map(db, e) < 0 ? -1 : 2;
        if (r < 0)
            *e = failure;
        return r;
    }
    int rc = mdb_txn_commit(txn.txn);

    if (rc == MDB_MAP_FULL)
        return grow_map(db, e) < 0 ? -1 : 2;
    if (rc == 0)
        rc = sync_medium(db->env);
    if (rc != 0)
        return fail_commit(db, rc, e);
    remember(db, txn.base + 1);
    (void)reserve(db->env);
    return 1;
}

int database_write(struct database *db, database_txn_fn *fn, void *self, struct error *e)
{
    struct crash_guard guard;
    int r;

    assert(!db->read_only);
    if (enter(db, LOCK_EXCLUSIVE, e) < 0)
        return -1;
    crash_enter(&guard);
    do
        r = write_once(db, fn, self, e);
    while (r == 2);
    crash_leave(&guard);
    let_go(db->lock);
    return r;
}

/* --- rows ---------------------------------------------------------------------------------------------- */

static MDB_val to_val(struct bytes b)
{
    return (MDB_val){ .mv_data = (void *)(uintptr_t)b.data, .mv_size = b.size }; /* LMDB only reads it */
}

static struct bytes to_bytes(const MDB_val *v)
{
    return (struct bytes){ .data = v->mv_data, .size = v->mv_size };
}

uint64_t database_txn_base(const struct database_txn *txn)
{
    return txn->base;
}

int database_get(struct database_txn *txn, enum database_table table, struct bytes key, struct bytes *value,
                 struct error *e)
{
    MDB_val k = to_val(key), v;
    int rc = mdb_get(txn->txn, txn->db->tables[table], &k, &v);

    if (rc == MDB_NOTFOUND)
        return 0;
    if (rc != 0)
        return fail(rc, "read", e);
    *value = to_bytes(&v);
    return 1;
}

static int put(struct database_txn *txn, enum database_table table, struct bytes key, struct bytes value,
               unsigned flags, struct error *e)
{
    MDB_val k = to_val(key), v = to_val(value);
    int rc = mdb_put(txn->txn, txn->db->tables[table], &k, &v, flags);

    txn->map_full |= rc == MDB_MAP_FULL;
    return rc == 0 ? 0 : fail(rc, "write", e);
}

int database_put(struct database_txn *txn, enum database_table table, struct bytes key, struct bytes value,
                 struct error *e)
{
    return put(txn, table, key, value, 0, e);
}

int database_append(struct database_txn *txn, enum database_table table, struct bytes key, struct bytes value,
                    struct error *e)
{
    return put(txn, table, key, value, MDB_APPEND | MDB_NOOVERWRITE, e);
}

int database_delete(struct database_txn *txn, enum database_table table, struct bytes key, struct error *e)
{
    MDB_val k = to_val(key);
    int rc = mdb_del(txn->txn, txn->db->tables[table], &k, NULL);

    txn->map_full |= rc == MDB_MAP_FULL;
    return rc == 0 ? 0 : fail(rc, "delete", e);
}

/* LMDB's own order, which the keys must keep. */
static int compare_keys(struct bytes a, struct bytes b)
{
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);

    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

/* From the row the cursor stands on (RC is what putting it there gave), by STEP, while keys keep the order.
 */
static int walk(MDB_cursor *cursor, int rc, MDB_val *key, MDB_val *value, MDB_cursor_op step,
                database_row_fn *fn, void *self, struct error *e)
{
    struct bytes last = { NULL, 0 };

    for (; rc == 0; rc = mdb_cursor_get(cursor, key, value, step)) {
        int order = last.data == NULL ? 0 : compare_keys(to_bytes(key), last);

        if (last.data != NULL && (step == MDB_NEXT ? order <= 0 : order >= 0))
            return error_set(e, ERROR_STORE_CORRUPT, 0, "the journal is damaged: rows are out of order");
        last = to_bytes(key);
        int r = fn(self, last, to_bytes(value), e);

        if (r <= 0)
            return r;
    }
    return rc == MDB_NOTFOUND ? 0 : fail(rc, "read", e);
}

int database_walk(struct database_txn *txn, enum database_table table, struct bytes from, database_row_fn *fn,
                  void *self, struct error *e)
{
    MDB_val key = to_val(from), value;
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn->txn, txn->db->tables[table], &cursor);

    if (rc != 0)
        return fail(rc, "read", e);
    rc = mdb_cursor_get(cursor, &key, &value, from.data == NULL ? MDB_FIRST : MDB_SET_RANGE);
    int r = walk(cursor, rc, &key, &value, MDB_NEXT, fn, self, e);

    mdb_cursor_close(cursor);
    return r;
}

int database_walk_back(struct database_txn *txn, enum database_table table, struct bytes from,
                       database_row_fn *fn, void *self, struct error *e)
{
    MDB_val key = to_val(from), value;
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn->txn, txn->db->tables[table], &cursor);

    if (rc != 0)
        return fail(rc, "read", e);
    rc = from.data == NULL ? MDB_NOTFOUND : mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    if (rc == 0 || rc == MDB_NOTFOUND) /* at the first key that is not smaller, or behind all of them */
        rc = mdb_cursor_get(cursor, &key, &value, rc == 0 ? MDB_PREV : MDB_LAST);
    int r = walk(cursor, rc, &key, &value, MDB_PREV, fn, self, e);

    mdb_cursor_close(cursor);
    return r;
}

/* --- opening ------------------------------------------------------------------------------------------- */

static void free_database(struct database **db)
{
    database_close(*db);
}

static int set_path(struct database *db, const char *parent_path, const char *name, struct error *e)
{
    int n = snprintf(db->path, sizeof(db->path), "%s/%s", parent_path, name);

    if (n < 0 || (size_t)n >= sizeof(db->path))
        return error_set(e, ERROR_INVALID_ARGS, 0, "the path of the state root is too long");
    return 0;
}

static struct database *new_database(bool read_only, size_t map_bytes)
{
    struct database *db = mem_alloc(sizeof(*db));

    db->pid = getpid();
    db->read_only = read_only;
    db->map_bytes = map_bytes == 0 ? MAP_BYTES : map_bytes;
    db->lock = db->turn = -1;
    return db;
}

static int open_locks(struct database *db, int dir, struct error *e)
{
    if (open_lock(dir, LOCK_FILE, db->read_only, &db->lock, e) < 0)
        return -1;
    return open_lock(dir, TURN_FILE, db->read_only, &db->turn, e);
}

static int look(void *self, struct database_txn *txn, struct error *e)
{
    (void)self, (void)txn, (void)e;
    return 0;
}

int database_open(int parent, const char *parent_path, const char *name,
                  const struct database_options *options, struct database **out, struct error *e)
{
    __attribute__((cleanup(free_database))) struct database *db =
        new_database(options->read_only, options->map_bytes);
    AUTO_CLOSE int dir = file_open_dir(parent, name);

    if (dir < 0 && errno == ENOENT)
        return 0;
    if (dir < 0)
        return error_set_errno(e, ERROR_PERM_DENIED, errno, "cannot open %s/%s", parent_path, name);
    if (set_path(db, parent_path, name, e) < 0 || open_locks(db, dir, e) < 0 ||
        database_read(db, look, NULL, e) < 0)
        return -1;
    *out = steal(&db);
    return 1;
}

void database_close(struct database *db)
{
    if (db == NULL)
        return;
    assert(db->pid == getpid());
    close_env(db);
    util_close_fd(&db->lock);
    util_close_fd(&db->turn);
    free(db);
}

/* --- creating ------------------------------------------------------------------------------------------ */

/* The mode is set before LMDB opens the file, twice: a umask of 0700 must not lock it out. */
static int make_data_file(int dir, struct error *e)
{
    AUTO_CLOSE int fd =
        RETRY_EINTR(openat(dir, DATA_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));

    if (fd < 0 || fchmod(fd, 0600) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot make journal/" DATA_FILE);
    return 0;
}

static int fill(struct database *db, int dir, database_txn_fn *init, void *self, struct error *e)
{
    if (make_data_file(dir, e) < 0 || open_locks(db, dir, e) < 0 || open_env(db, e) < 0 ||
        open_tables(db, MDB_CREATE, e) < 0)
        return -1;
    return database_write(db, init, self, e) == 1 ? file_sync_dir(dir, e) : -1;
}

/* By a holder of the parent's lock: so the temporary name is ours, and what lies there is a dead one's. */
static int create_locked(int parent, const char *parent_path, const char *name, database_txn_fn *init,
                         void *self, struct error *e)
{
    __attribute__((cleanup(free_database))) struct database *db = new_database(false, 0);
    char temporary[64];

    snprintf(temporary, sizeof(temporary), ".tmp-%s", name);
    if (faccessat(parent, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    if (set_path(db, parent_path, temporary, e) < 0 || file_remove_tree(parent, temporary, e) < 0)
        return -1;
    AUTO_CLOSE int dir = file_make_dir(parent, temporary, 0700, e);

    if (dir < 0 || fill(db, dir, init, self, e) < 0)
        return -1;
    if (renameat(parent, temporary, parent, name) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot put %s/%s in place", parent_path, name);
    return file_sync_dir(parent, e);
}

int database_create(int parent, const char *parent_path, const char *name, database_txn_fn *init, void *self,
                    struct error *e)
{
    AUTO_CLOSE int lock = RETRY_EINTR(openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

    if (lock < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot open %s", parent_path);
    int taken = lock_take_fd(lock, LOCK_EXCLUSIVE, WAIT_MS, e);

    if (taken <= 0)
        return taken == 0 ? busy(e) : -1;
    int r = create_locked(parent, parent_path, name, init, self, e);

    if (r < 0) { /* what is left of it would only be in the way of whoever frees the disk */
        struct error ignored = { 0 };
        char temporary[64];

        snprintf(temporary, sizeof(temporary), ".tmp-%s", name);
        (void)file_remove_tree(parent, temporary, &ignored);
    }
    return r;
}

/* The environment: creation, locks, growth, room on the disk, what others may not inherit. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/lock.h"
#include "core/util.h"
#include "store/database.h"
#include "tests/core/scratch.h"

#define SMALL_MAP (64 * 1024)

static struct bytes text_bytes(const char *text)
{
    return (struct bytes){ text, strlen(text) };
}

static int put_one(void *self, struct database_txn *txn, struct error *e)
{
    return database_put(txn, TABLE_META, text_bytes("key"), text_bytes(self), e) < 0 ? -1 : 1;
}

static int get_one(void *self, struct database_txn *txn, struct error *e)
{
    struct bytes value;
    int found = database_get(txn, TABLE_META, text_bytes("key"), &value, e);

    if (found == 1)
        snprintf(self, 32, "%.*s", (int)value.size, (const char *)value.data);
    return found;
}

static int create(const struct scratch *s)
{
    struct error e = { 0 };
    int r = database_create(s->dir, s->path, "journal", put_one, (void *)(uintptr_t) "first", &e);

    if (r < 0)
        fprintf(stderr, "%s\n", e.message);
    return r < 0 ? (int)e.code : 0;
}

static int open_with(const struct scratch *s, bool read_only, size_t map_bytes, struct database **out,
                     struct error *e)
{
    struct database_options options = { .read_only = read_only, .map_bytes = map_bytes };

    return database_open(s->dir, s->path, "journal", &options, out, e);
}

static struct database *must_open(const struct scratch *s, bool read_only, size_t map_bytes)
{
    struct database *db = NULL;
    struct error e = { 0 };

    if (open_with(s, read_only, map_bytes, &db, &e) != 1) {
        fprintf(stderr, "cannot open: %s\n", e.message);
        exit(99);
    }
    return db;
}

static const char *read_one(struct database *db)
{
    static char value[32];
    struct error e = { 0 };
    int r = database_read(db, get_one, value, &e);

    return r == 1 ? value : (r == 0 ? "absent" : error_code_name(e.code));
}

/* --- creation ------------------------------------------------------------------------------------------ */

static void test_database__is_made_whole_with_exact_modes(void **state)
{
    struct scratch *s = *state;
    mode_t before = umask(0777);
    int r = create(s);

    umask(before);
    assert_int_equal(r, 0);
    assert_int_equal(scratch_mode(s, "journal"), 0700);
    assert_int_equal(scratch_mode(s, "journal/data.mdb"), 0600);
    assert_int_equal(scratch_mode(s, "journal/lock"), 0600);
    assert_int_equal(scratch_mode(s, "journal/turn"), 0600);
    assert_false(scratch_exists(s, ".tmp-journal"));
    assert_false(scratch_exists(s, "journal/lock.mdb"));
}

static void test_database__is_absent_until_it_is_made(void **state)
{
    struct database *db = NULL;
    struct error e = { 0 };

    assert_int_equal(open_with(*state, true, 0, &db, &e), 0);
    assert_null(db);
}

static void test_database__takes_over_what_a_dead_creator_left(void **state)
{
    struct scratch *s = *state;

    assert_int_equal(mkdirat(s->dir, ".tmp-journal", 0700), 0);
    scratch_write(s, ".tmp-journal/data.mdb", "torn");
    assert_int_equal(create(s), 0);
    assert_false(scratch_exists(s, ".tmp-journal"));
}

static void test_database__is_not_made_twice(void **state)
{
    struct scratch *s = *state;

    assert_int_equal(create(s), 0);
    struct database *db = must_open(s, false, 0);
    struct error e = { 0 };

    assert_int_equal(database_write(db, put_one, (void *)(uintptr_t) "second", &e), 1);
    assert_int_equal(create(s), 0);
    assert_string_equal(read_one(db), "second");
    database_close(db);
}

static int create_in_child(void *arg)
{
    return create(arg);
}

static void test_database__many_creators_agree(void **state)
{
    pid_t children[8];

    for (size_t i = 0; i < ARRAY_LEN(children); i++)
        children[i] = scratch_start(create_in_child, *state);
    for (size_t i = 0; i < ARRAY_LEN(children); i++)
        assert_int_equal(scratch_wait(children[i]), 0);
    struct database *db = must_open(*state, true, 0);

    assert_string_equal(read_one(db), "first");
    database_close(db);
}

/* --- what is lost is not made anew --------------------------------------------------------------------- */

static enum error_code open_error(const struct scratch *s)
{
    struct database *db = NULL;
    struct error e = { 0 };

    if (open_with(s, true, 0, &db, &e) == 1)
        database_close(db);
    return e.code;
}

static void test_database__a_lost_or_empty_file_is_damage(void **state)
{
    struct scratch *s = *state;

    assert_int_equal(create(s), 0);
    scratch_write(s, "journal/data.mdb", "");
    assert_int_equal(open_error(s), ERROR_STORE_CORRUPT);
    assert_int_equal(unlinkat(s->dir, "journal/data.mdb", 0), 0);
    assert_int_equal(open_error(s), ERROR_STORE_CORRUPT);
    assert_false(scratch_exists(s, "journal/data.mdb"));
}

static void test_database__lost_lock_files_are_made_again(void **state)
{
    struct scratch *s = *state;

    assert_int_equal(create(s), 0);
    unlinkat(s->dir, "journal/lock", 0);
    unlinkat(s->dir, "journal/turn", 0);
    struct database *db = must_open(s, true, 0);

    assert_string_equal(read_one(db), "first");
    database_close(db);
    assert_int_equal(scratch_mode(s, "journal/lock"), 0600);
}

static void copy_file(const struct scratch *s, const char *from, const char *to)
{
    char command[256];

    snprintf(command, sizeof(command), "cp %s/%s %s/%s", s->path, from, s->path, to);
    assert_int_equal(system(command), 0);
}

static void test_database__an_older_file_is_not_taken_for_ours(void **state)
{
    struct scratch *s = *state;
    struct error e = { 0 };

    assert_int_equal(create(s), 0);
    copy_file(s, "journal/data.mdb", "old");
    struct database *db = must_open(s, false, 0);

    assert_int_equal(database_write(db, put_one, (void *)(uintptr_t) "second", &e), 1);
    database_close(db);
    copy_file(s, "old", "journal/data.mdb");
    assert_int_equal(open_error(s), ERROR_STORE_CORRUPT);
    scratch_write(s, "journal/lock", "not a mark, so it says nothing");
    assert_int_equal(open_error(s), ERROR_NONE);
}

static int open_with_fifo(void *arg)
{
    struct scratch *s = arg;

    CHECK(create(s) == 0);
    CHECK(unlinkat(s->dir, "journal/lock", 0) == 0 && mkfifoat(s->dir, "journal/lock", 0600) == 0);
    alarm(5);
    for (int read_only = 0; read_only < 2; read_only++) {
        struct database *db = must_open(s, read_only, 0);

        CHECK(strcmp(read_one(db), "first") == 0);
        database_close(db);
    }
    return 0;
}

static void test_database__a_fifo_for_a_lock_hangs_nobody(void **state)
{
    scratch_run_as_test(open_with_fifo, *state);
}

/* --- growth -------------------------------------------------------------------------------------------- */

static int put_much(void *self, struct database_txn *txn, struct error *e)
{
    char value[3000] = { 0 };

    for (unsigned i = 0; i < *(unsigned *)self; i++) {
        uint8_t key[2] = { (uint8_t)(i >> 8), (uint8_t)i };

        if (database_put(txn, TABLE_EVENTS, (struct bytes){ key, 2 }, (struct bytes){ value, sizeof(value) },
                         e) < 0)
            return -1;
    }
    return 1;
}

static int count_row(void *self, struct bytes key, struct bytes value, struct error *e)
{
    (void)key, (void)value, (void)e;
    ++*(unsigned *)self;
    return 1;
}

static int count_rows(void *self, struct database_txn *txn, struct error *e)
{
    return database_walk(txn, TABLE_EVENTS, (struct bytes){ NULL, 0 }, count_row, self, e);
}

static void test_database__the_map_grows_and_others_follow(void **state)
{
    struct scratch *s = *state;
    struct error e = { 0 };
    unsigned rows = 400, seen = 0;

    assert_int_equal(create(s), 0);
    struct database *writer = must_open(s, false, SMALL_MAP);

    /* in another process: one process must not open the same environment twice (lmdb.h, Caveats) */
    int ready[2], go[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    if (child == 0) {
        struct database *reader = must_open(s, true, SMALL_MAP);
        char byte = 'x';

        if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
            _exit(1);
        int r = database_read(reader, count_rows, &seen, &e);
        if (r < 0)
            fprintf(stderr, "%s\n", e.message);
        database_close(reader);
        _exit(r == 0 && seen == rows ? 0 : 2);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(database_write(writer, put_much, &rows, &e), 1);
    assert_int_equal(write(go[1], &byte, 1), 1);
    assert_int_equal(scratch_wait(child), 0);
    database_close(writer);

    writer = must_open(s, false, SMALL_MAP); /* smaller than what is there */
    rows = 800;
    assert_int_equal(database_write(writer, put_much, &rows, &e), 1);
    assert_int_equal(database_read(writer, count_rows, &seen, &e), 0);
    assert_int_equal(seen, 800);
    database_close(writer);
    for (size_t i = 0; i < 2; i++) {
        close(ready[i]);
        close(go[i]);
    }
}

/* Does this process have the journal in its memory? */
static bool has_map(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    bool found = false;

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        found = found || strstr(line, "/data.mdb") != NULL;
    if (maps != NULL)
        fclose(maps);
    return found;
}

static int check_no_map(void *arg)
{
    (void)arg;
    CHECK(!has_map());
    return 0;
}

/* A sandbox's first process is forked by the worker that starts it, and lives on without an exec. */
static void test_database__children_do_not_have_it_in_their_memory(void **state)
{
    struct scratch *s = *state;
    struct error e = { 0 };
    unsigned rows = 400;

    assert_int_equal(create(s), 0);
    struct database *db = must_open(s, false, SMALL_MAP);

    if (!has_map())
        skip(); /* no /proc/self/maps here */
    assert_int_equal(scratch_run(check_no_map, NULL), 0);
    assert_int_equal(database_write(db, put_much, &rows, &e), 1); /* the map grows: a new one */
    assert_true(has_map());
    assert_int_equal(scratch_run(check_no_map, NULL), 0);
    database_close(db);
}

static int put_then_refuse(void *self, struct database_txn *txn, struct error *e)
{
    return put_one(self, txn, e) < 0 ? -1 : 0;
}

static void test_database__without_a_yes_nothing_is_kept(void **state)
{
    struct scratch *s = *state;
    struct error e = { 0 };

    assert_int_equal(create(s), 0);
    struct database *db = must_open(s, false, 0);

    assert_int_equal(database_write(db, put_then_refuse, (void *)(uintptr_t) "second", &e), 0);
    assert_string_equal(read_one(db), "first");
    database_close(db);
}

static int put_falling(void *self, struct database_txn *txn, struct error *e)
{
    (void)self;
    if (database_append(txn, TABLE_EVENTS, text_bytes("b"), text_bytes("1"), e) < 0)
        return -1;
    return database_append(txn, TABLE_EVENTS, text_bytes("a"), text_bytes("2"), e) < 0 ? -1 : 1;
}

static void test_database__append_insists_on_the_end(void **state)
{
    struct scratch *s = *state;
    struct error e = { 0 };

    assert_int_equal(create(s), 0);
    struct database *db = must_open(s, false, 0);

    assert_int_equal(database_write(db, put_falling, NULL, &e), -1);
    assert_int_equal(e.code, ERROR_STORE_CORRUPT);
    database_close(db);
}

/* --- locks --------------------------------------------------------------------------------------------- */

static int hold(const struct scratch *s, const char *name, enum lock_mode mode)
{
    struct error e = { 0 };
    int fd = -1;

    assert_int_equal(lock_take(s->dir, name, mode, 0, &fd, &e), 1);
    return fd;
}

static void check_busy(struct database *db, bool writing)
{
    int64_t begun = clock_mono_ms();
    struct error e = { 0 };
    char value[32] = "third";
    int r = writing ? database_write(db, put_one, value, &e) : database_read(db, get_one, value, &e);
    int64_t took = clock_mono_ms() - begun;

    assert_int_equal(r, -1);
    assert_int_equal(e.code, ERROR_STORE_BUSY);
    assert_in_range(took, 1900, 3500);
}

static void test_database__nobody_waits_longer_than_two_seconds(void **state)
{
    struct scratch *s = *state;
    struct error e = { 0 };

    assert_int_equal(create(s), 0);
    struct database *db = must_open(s, false, 0);
    int held = hold(s, "journal/lock", LOCK_SHARED);

    assert_string_equal(read_one(db), "first"); /* readers do not hinder readers */
    check_busy(db, true);
    close(held);
    held = hold(s, "journal/lock", LOCK_EXCLUSIVE);
    check_busy(db, false);
    close(held);
    held = hold(s, "journal/turn", LOCK_EXCLUSIVE);
    check_busy(db, false);
    close(held);
    assert_int_equal(database_write(db, put_one, (void *)(uintptr_t) "second", &e), 1);
    database_close(db);
}

static int look_at_locks(void *self, struct database_txn *txn, struct error *e)
{
    const struct scratch *s = self;

    (void)txn;
    return lock_is_held(s->dir, "journal/lock", e) == 1 && lock_is_held(s->dir, "journal/turn", e) == 0 ? 0
                                                                                                        : -1;
}

static void test_database__a_writer_lets_the_turn_go_before_it_works(void **state)
{
    struct scratch *s = *state;
    struct error e = { 0 };

    assert_int_equal(create(s), 0);
    struct database *db = must_open(s, false, 0);

    assert_int_equal(database_write(db, look_at_locks, s, &e), 0);
    assert_int_equal(lock_is_held(s->dir, "journal/lock", &e), 0);
    database_close(db);
}

static void test_database__nothing_is_inherited_over_exec(void **state)
{
    struct scratch *s = *state;
    char command[192];

    assert_int_equal(create(s), 0);
    struct database *db = must_open(s, false, 0);

    snprintf(command, sizeof(command), "! ls -l /proc/self/fd | grep -q '%s/journal'", s->path);
    assert_int_equal(system(command), 0);
    database_close(db);
    db = must_open(s, true, 0);
    assert_int_equal(system(command), 0);
    database_close(db);
}

/* --- file systems -------------------------------------------------------------------------------------- */

static int read_on_read_only(void *arg)
{
    struct scratch *s = arg;
    struct error e = { 0 };

    if (!scratch_mount_small(s, "size=4m"))
        return SCRATCH_SKIP;
    CHECK(create(s) == 0);
    CHECK(unlinkat(s->dir, "journal/turn", 0) == 0); /* the locks need not even be there */
    CHECK(mount("tmpfs", s->path, "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0);
    struct database *db = must_open(s, true, 0);

    CHECK(strcmp(read_one(db), "first") == 0);
    database_close(db);
    CHECK(open_with(s, false, 0, &db, &e) == -1);
    CHECK(e.code == ERROR_PERM_DENIED);
    return 0;
}

static void test_database__is_read_on_a_read_only_file_system(void **state)
{
    scratch_run_as_test(read_on_read_only, *state);
}

/* Design, "256 kB reserved": with no free byte left "it failed, the disk is full" can be recorded. */
static int write_on_full(void *arg)
{
    struct scratch *s = arg;
    struct error e = { 0 };
    unsigned rows = 1000;

    if (!scratch_mount_small(s, "size=2m"))
        return SCRATCH_SKIP;
    CHECK(create(s) == 0);
    struct database *db = must_open(s, false, 0);

    CHECK(database_write(db, put_one, (void *)(uintptr_t) "second", &e) == 1);
    scratch_fill(s);
    for (int i = 0; i < 8; i++)
        CHECK(database_write(db, put_one, (void *)(uintptr_t) "third", &e) == 1);
    CHECK(database_write(db, put_much, &rows, &e) == -1);
    CHECK(e.code == ERROR_STORE_FULL);
    CHECK(strcmp(read_one(db), "third") == 0); /* opened anew, and what is there is whole */
    CHECK(database_write(db, put_one, (void *)(uintptr_t) "fourth", &(struct error){ 0 }) == 1);
    CHECK(unlinkat(s->dir, "filler", 0) == 0);
    rows = 50;
    CHECK(database_write(db, put_much, &rows, &(struct error){ 0 }) == 1);
    CHECK(strcmp(read_one(db), "fourth") == 0);
    database_close(db);
    return 0;
}

static void test_database__has_room_on_a_full_disk(void **state)
{
    scratch_run_as_test(write_on_full, *state);
}

static int create_on_full(void *arg)
{
    struct scratch *s = arg;

    if (!scratch_mount_small(s, "size=64k"))
        return SCRATCH_SKIP;
    scratch_fill(s);
    CHECK(create(s) == ERROR_STORE_FULL);
    CHECK(!scratch_exists(s, "journal"));
    CHECK(!scratch_exists(s, ".tmp-journal"));
    CHECK(unlinkat(s->dir, "filler", 0) == 0);
    CHECK(create(s) == 0);
    return 0;
}

static void test_database__a_full_disk_leaves_no_half_journal(void **state)
{
    scratch_run_as_test(create_on_full, *state);
}

/* --- limits of the process ----------------------------------------------------------------------------- */

static bool set_limit(__rlimit_resource_t which, rlim_t most)
{
    struct rlimit limit;

    if (getrlimit(which, &limit) < 0)
        return false;
    limit.rlim_cur = most;
    return setrlimit(which, &limit) == 0;
}

/* False where this process is larger already, as the sanitizers make it, and under valgrind, which counts its
 * own memory against the limit. */
static bool limit_address_space(rlim_t most)
{
    const size_t some = 32 << 20;
    const char *preloaded = getenv("LD_PRELOAD");

    if (preloaded != NULL && strstr(preloaded, "vgpreload") != NULL)
        return false;
    void *map = set_limit(RLIMIT_AS, most)
                    ? mmap(NULL, some, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                    : MAP_FAILED;

    return map != MAP_FAILED && munmap(map, some) == 0;
}

static int work_in_little_address_space(void *arg)
{
    static const rlim_t limits[] = { UINT64_C(3) << 30, 256 << 20, 96 << 20 };
    const struct scratch *s = arg;
    unsigned rows = 3000; /* more than the smallest map */

    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        if (!limit_address_space(limits[i]))
            return SCRATCH_SKIP;
        struct database *db = must_open(s, false, 0);

        CHECK(database_write(db, put_much, &rows, &(struct error){ 0 }) == 1);
        database_close(db);
        db = must_open(s, true, 0);
        CHECK(strcmp(read_one(db), "first") == 0);
        database_close(db);
    }
    return 0;
}

static void test_database__needs_no_more_address_space_than_there_is(void **state)
{
    assert_int_equal(create(*state), 0);
    scratch_run_as_test(work_in_little_address_space, *state);
}

static int write_much(void *arg)
{
    unsigned rows = 3000;
    struct database *db = must_open(arg, false, 0);

    CHECK(database_write(db, put_much, &rows, &(struct error){ 0 }) == 1);
    database_close(db);
    return 0;
}

/* The other one has a map of 4 GiB, and says so in the file. */
static int follow_in_little_address_space(void *arg)
{
    if (!limit_address_space(96 << 20))
        return SCRATCH_SKIP;
    struct database *db = must_open(arg, false, SMALL_MAP);

    CHECK(set_limit(RLIMIT_AS, RLIM_INFINITY));
    CHECK(scratch_run(write_much, arg) == 0);
    CHECK(set_limit(RLIMIT_AS, 96 << 20));
    CHECK(strcmp(read_one(db), "first") == 0);
    CHECK(database_write(db, put_one, (void *)(uintptr_t) "second", &(struct error){ 0 }) == 1);
    database_close(db);
    return 0;
}

static void test_database__follows_a_larger_map_as_far_as_it_can(void **state)
{
    assert_int_equal(create(*state), 0);
    scratch_run_as_test(follow_in_little_address_space, *state);
}

static int write_to_the_limit(void *arg)
{
    const struct scratch *s = arg;
    struct stat st;
    struct error e = { 0 };
    unsigned rows = 1000;

    signal(SIGXFSZ, SIG_IGN);
    CHECK(create(s) == 0);
    CHECK(fstatat(s->dir, "journal/data.mdb", &st, 0) == 0);
    /* behind the end of the file (EFBIG), inside of what is written (LMDB: EIO), at the end of a page */
    for (rlim_t more = 0; more <= 8192; more += 2048) {
        struct database *db = must_open(s, false, 0);

        e = (struct error){ 0 };
        CHECK(set_limit(RLIMIT_FSIZE, (rlim_t)st.st_size + more));
        CHECK(database_write(db, put_much, &rows, &e) == -1);
        CHECK(e.code == ERROR_STORE_FULL && strstr(error_suggestion(&e), "ulimit -f") != NULL);
        CHECK(strcmp(read_one(db), "first") == 0);
        CHECK(set_limit(RLIMIT_FSIZE, RLIM_INFINITY));
        database_close(db);
    }
    return 0;
}

static void test_database__at_the_limit_of_file_sizes_is_full(void **state)
{
    scratch_run_as_test(write_to_the_limit, *state);
}

static int write_to_the_limit_in_memory(void *arg)
{
    return scratch_mount_small(arg, "size=4m") ? write_to_the_limit(arg) : SCRATCH_SKIP;
}

/* There fallocate(2) has that limit, too. */
static void test_database__at_the_limit_of_file_sizes_in_memory_is_full(void **state)
{
    scratch_run_as_test(write_to_the_limit_in_memory, *state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(test_database__is_made_whole_with_exact_modes),
        TEST(test_database__is_absent_until_it_is_made),
        TEST(test_database__takes_over_what_a_dead_creator_left),
        TEST(test_database__is_not_made_twice),
        TEST(test_database__many_creators_agree),
        TEST(test_database__a_lost_or_empty_file_is_damage),
        TEST(test_database__lost_lock_files_are_made_again),
        TEST(test_database__an_older_file_is_not_taken_for_ours),
        TEST(test_database__a_fifo_for_a_lock_hangs_nobody),
        TEST(test_database__the_map_grows_and_others_follow),
        TEST(test_database__children_do_not_have_it_in_their_memory),
        TEST(test_database__without_a_yes_nothing_is_kept),
        TEST(test_database__append_insists_on_the_end),
        TEST(test_database__nobody_waits_longer_than_two_seconds),
        TEST(test_database__a_writer_lets_the_turn_go_before_it_works),
        TEST(test_database__nothing_is_inherited_over_exec),
        TEST(test_database__is_read_on_a_read_only_file_system),
        TEST(test_database__has_room_on_a_full_disk),
        TEST(test_database__a_full_disk_leaves_no_half_journal),
        TEST(test_database__needs_no_more_address_space_than_there_is),
        TEST(test_database__follows_a_larger_map_as_far_as_it_can),
        TEST(test_database__at_the_limit_of_file_sizes_is_full),
        TEST(test_database__at_the_limit_of_file_sizes_in_memory_is_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

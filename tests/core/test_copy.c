#include "core/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/mem.h"
#include "tests/core/scratch.h"

#define MIB INT64_C(1048576)

static void make(const struct scratch *s, const char *name, off_t size)
{
    int fd = openat(s->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    close(fd);
}

static void put(const struct scratch *s, const char *name, off_t at, const char *bytes, size_t size)
{
    int fd = openat(s->dir, name, O_WRONLY | O_CLOEXEC);

    assert_int_equal(pwrite(fd, bytes, size, at), size);
    close(fd);
}

static bool same(const struct scratch *a, const char *name_a, const struct scratch *b, const char *name_b)
{
    AUTO_CLOSE int fd_a = openat(a->dir, name_a, O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int fd_b = openat(b->dir, name_b, O_RDONLY | O_CLOEXEC);
    char block_a[65536], block_b[65536];

    for (;;) {
        ssize_t got_a = read(fd_a, block_a, sizeof(block_a)), got_b = read(fd_b, block_b, sizeof(block_b));

        if (got_a != got_b || got_a < 0 || memcmp(block_a, block_b, (size_t)got_a) != 0)
            return false;
        if (got_a == 0)
            return true;
    }
}

static struct stat look(const struct scratch *s, const char *name)
{
    struct stat st;

    assert_int_equal(fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

/* On one file system the kernel copies, or shares; between two it may refuse, and the data goes through here.
 */
static void test_copy__gives_the_same_bytes_in_a_file_of_its_own(void **state)
{
    struct scratch *here = *state, *memory;
    struct error e = { 0 };
    char block[100000];

    assert_int_equal(scratch_setup_in_memory((void **)&memory), 0);
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = (char)(i * i >> 3);
    make(here, "from", 700001);
    put(here, "from", 0, block, sizeof(block));
    put(here, "from", 333333, block, sizeof(block));
    put(here, "from", 600001, block, sizeof(block));
    assert_int_equal(fchmodat(here->dir, "from", 0444, 0), 0);

    const struct scratch *to[] = { here, memory };

    for (size_t i = 0; i < ARRAY_LEN(to); i++) {
        assert_int_equal(copy_file(here->dir, "from", to[i]->dir, "to", NULL, NULL, NULL, &e), 0);
        assert_true(same(here, "from", to[i], "to"));
        assert_int_equal(scratch_mode(to[i], "to"), 0600);
        put(to[i], "to", 5, "changed", 7);
        assert_false(same(here, "from", to[i], "to"));
    }
    assert_int_equal(scratch_teardown((void **)&memory), 0);
}

static void test_copy__of_an_empty_file_is_one(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };

    scratch_write(s, "from", "");
    assert_int_equal(copy_file(s->dir, "from", s->dir, "to", NULL, NULL, NULL, &e), 0);
    assert_int_equal(look(s, "to").st_size, 0);
}

/* A disk image of 64 GiB with three blocks in it. */
static void test_copy__keeps_holes(void **state)
{
    struct scratch *here = *state, *memory;
    struct error e = { 0 };
    off_t size = (off_t)(64 * 1024 * MIB);

    assert_int_equal(scratch_setup_in_memory((void **)&memory), 0);
    make(here, "from", size);
    put(here, "from", (off_t)(1000 * MIB), "first", 5);
    put(here, "from", (off_t)(40000 * MIB), "second", 6);
    put(here, "from", size - 4, "last", 4);

    const struct scratch *to[] = { here, memory };

    for (size_t i = 0; i < ARRAY_LEN(to); i++) {
        AUTO_CLOSE int fd = -1;
        char got[6];

        assert_int_equal(copy_file(here->dir, "from", to[i]->dir, "to", NULL, NULL, NULL, &e), 0);
        assert_int_equal(look(to[i], "to").st_size, size);
        assert_true(look(to[i], "to").st_blocks * 512 < MIB);
        fd = openat(to[i]->dir, "to", O_RDONLY | O_CLOEXEC);
        assert_int_equal(pread(fd, got, 5, (off_t)(1000 * MIB)), 5);
        assert_memory_equal(got, "first", 5);
        assert_int_equal(pread(fd, got, 6, (off_t)(40000 * MIB)), 6);
        assert_memory_equal(got, "second", 6);
        assert_int_equal(pread(fd, got, 6, size - 4), 4);
        assert_memory_equal(got, "last", 4);
    }
    assert_int_equal(scratch_teardown((void **)&memory), 0);
}

/* Does the file system itself say that a block of it belongs to others, too? */
static bool has_shared_blocks(const struct scratch *s, const char *name)
{
    AUTO_CLOSE int fd = openat(s->dir, name, O_RDONLY | O_CLOEXEC);
    uint64_t room[(sizeof(struct fiemap) + sizeof(struct fiemap_extent)) / sizeof(uint64_t)] = { 0 };
    struct fiemap *map = (struct fiemap *)room;

    map->fm_length = FIEMAP_MAX_OFFSET;
    map->fm_extent_count = 1;
    map->fm_flags = FIEMAP_FLAG_SYNC;
    return ioctl(fd, FS_IOC_FIEMAP, map) == 0 && map->fm_mapped_extents == 1 &&
           (map->fm_extents[0].fe_flags & FIEMAP_EXTENT_SHARED) != 0;
}

static void test_copy__tells_truly_whether_blocks_are_shared(void **state)
{
    struct scratch *here = *state, *memory;
    char block[65536] = "x";
    struct error e = { 0 };
    bool shared = false;

    assert_int_equal(scratch_setup_in_memory((void **)&memory), 0);
    make(here, "from", 0);
    put(here, "from", 0, block, sizeof(block));
    assert_int_equal(copy_file(here->dir, "from", here->dir, "to", NULL, NULL, &shared, &e), 0);
    assert_int_equal(shared, has_shared_blocks(here, "to"));
    shared = true;
    assert_int_equal(copy_file(here->dir, "from", memory->dir, "to", NULL, NULL, &shared, &e), 0);
    assert_false(shared);
    assert_int_equal(scratch_teardown((void **)&memory), 0);
}

struct heard {
    int count;
    int64_t last, total;
    bool falls; /* less than before, or more than all */
};

static void hear(void *self, int64_t done, int64_t total)
{
    struct heard *h = self;

    h->falls |= done < h->last || done > total || (h->count > 0 && total != h->total);
    h->last = done;
    h->total = total;
    h->count++;
}

static void test_copy__reports_how_much_of_the_data_is_done(void **state)
{
    const struct scratch *memory = *state;
    AUTO_FREE char *block = mem_alloc((size_t)MIB);
    struct heard h = { 0 };
    struct error e = { 0 };

    memset(block, 'x', (size_t)MIB);
    make(memory, "from", (off_t)(1000 * MIB)); /* 150 MiB in it */
    for (int i = 0; i < 150; i++)
        put(memory, "from", (off_t)((300 + i) * MIB), block, (size_t)MIB);
    assert_int_equal(copy_file(memory->dir, "from", memory->dir, "to", hear, &h, NULL, &e), 0);
    assert_int_equal(h.total, 150 * MIB);
    assert_int_equal(h.last, 150 * MIB);
    assert_false(h.falls);
    assert_in_range(h.count, 3, 4);
}

/* Bug case 6: what has the name already is never touched. */
static void test_copy__leaves_alone_what_is_there(void **state)
{
    const struct scratch *s = *state;
    const char *const names[] = { "file", "link", "broken-link", "dir", "from" };

    scratch_write(s, "from", "new");
    scratch_write(s, "file", "old");
    assert_int_equal(symlinkat("file", s->dir, "link"), 0);
    assert_int_equal(symlinkat("nowhere", s->dir, "broken-link"), 0);
    assert_int_equal(mkdirat(s->dir, "dir", 0700), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct stat before = look(s, names[i]);
        struct error e = { 0 };

        assert_int_equal(copy_file(s->dir, "from", s->dir, names[i], NULL, NULL, NULL, &e), -1);
        assert_int_equal(e.code, ERROR_ACTION_FAILED);
        assert_int_equal(e.sys, EEXIST);
        assert_int_equal(look(s, names[i]).st_ino, before.st_ino);
        assert_int_equal(look(s, names[i]).st_size, before.st_size);
    }
    assert_false(scratch_exists(s, "nowhere"));
}

static void test_copy__takes_regular_files_only(void **state)
{
    const struct scratch *s = *state;
    const char *const names[] = { "link", "dir", "fifo", "missing" };

    scratch_write(s, "file", "content");
    assert_int_equal(symlinkat("file", s->dir, "link"), 0);
    assert_int_equal(mkdirat(s->dir, "dir", 0700), 0);
    assert_int_equal(mkfifoat(s->dir, "fifo", 0600), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct error e = { 0 };

        assert_int_equal(copy_file(s->dir, names[i], s->dir, "to", NULL, NULL, NULL, &e), -1);
        assert_int_equal(e.code, ERROR_ACTION_FAILED);
        assert_non_null(strstr(e.message, names[i]));
        assert_false(scratch_exists(s, "to"));
    }
}

static int copy_to_full_disk(void *arg)
{
    struct scratch *small = arg; /* where FROM is, it becomes */
    int source = fcntl(small->dir, F_DUPFD_CLOEXEC, 0);
    struct error e = { 0 };

    if (!scratch_mount_small(small, "size=1m"))
        return SCRATCH_SKIP;
    CHECK(copy_file(source, "from", small->dir, "to", NULL, NULL, NULL, &e) == -1);
    CHECK(e.code == ERROR_STORE_FULL);
    CHECK(!scratch_exists(small, "to"));
    return 0;
}

/* Bug case 3 */
static void test_copy__leaves_nothing_on_a_disk_that_is_too_small(void **state)
{
    struct scratch *s = *state;
    AUTO_FREE char *block = mem_alloc((size_t)(2 * MIB));

    memset(block, 'x', (size_t)(2 * MIB));
    make(s, "from", 0);
    put(s, "from", 0, block, (size_t)(2 * MIB));
    scratch_run_as_test(copy_to_full_disk, s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_copy__gives_the_same_bytes_in_a_file_of_its_own, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_copy__of_an_empty_file_is_one, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_copy__keeps_holes, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_copy__tells_truly_whether_blocks_are_shared, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_copy__reports_how_much_of_the_data_is_done,
                                        scratch_setup_in_memory, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_copy__leaves_alone_what_is_there, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_copy__takes_regular_files_only, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_copy__leaves_nothing_on_a_disk_that_is_too_small, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

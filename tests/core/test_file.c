#include "core/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/text.h"
#include "tests/core/scratch.h"

static int count_entries(int dir)
{
    DIR *stream = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int count = -2; /* . and .. */

    while (readdir(stream) != NULL)
        count++;
    closedir(stream);
    return count;
}

static void assert_content(const struct scratch *s, const char *name, const char *expected)
{
    AUTO_FREE char *bytes = NULL;
    struct error e = { 0 };
    size_t size = 0;

    assert_int_equal(file_read(s->dir, name, 4096, &bytes, &size, &e), 1);
    assert_int_equal(size, strlen(expected));
    assert_string_equal(bytes, expected);
}

/* ---- reading and writing ---- */

static void on_alarm(int number)
{
    (void)number;
}

static int write_slowly(void *arg)
{
    static const char block[1 << 18];
    struct sigaction action = { .sa_handler = on_alarm };
    const struct itimerval every_ms = { { 0, 1000 }, { 0, 1000 } };
    const int *to = arg;

    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every_ms, NULL);
    return file_write_all(*to, block, sizeof(block)) < 0;
}

static void test_file__goes_on_after_short_and_interrupted_writes(void **state)
{
    int ends[2];
    size_t total = 0;
    char block[4096];
    ssize_t got;
    pid_t writer;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    writer = scratch_start(write_slowly, &ends[1]);
    close(ends[1]);
    while ((got = read(ends[0], block, sizeof(block))) > 0) {
        total += (size_t)got;
        if (total % (1 << 16) == 0)
            clock_sleep_ms(5); /* the pipe is full and signals arrive */
    }
    close(ends[0]);
    assert_int_equal(scratch_wait(writer), 0);
    assert_int_equal(total, 1 << 18);
}

static void test_file__reads_whole_files_and_tells_missing_ones(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    char *bytes = (char *)1;
    size_t size = 7;

    assert_int_equal(file_read(s->dir, "none", 10, &bytes, &size, &e), 0);
    assert_null(bytes);
    assert_int_equal(e.code, ERROR_NONE);
    scratch_write(s, "empty", "");
    assert_content(s, "empty", "");
    scratch_write(s, "f", "0123456789");
    assert_content(s, "f", "0123456789");
    assert_int_equal(file_read(s->dir, "f", 10, &bytes, &size, &e), 1);
    free(bytes);
    assert_int_equal(file_read(AT_FDCWD, "/proc/self/stat", 4096, &bytes, &size, &e), 1); /* st_size 0 */
    assert_true(size > 20);
    free(bytes);
}

static void test_file__refuses_to_read_what_is_too_large_a_link_or_no_file(void **state)
{
    const struct scratch *s = *state;
    static const char *const names[] = { "large", "link", "fifo", "dir" };
    char *bytes = (char *)1;
    size_t size = 7;

    scratch_write(s, "large", "0123456789x");
    scratch_write(s, "small", "0");
    assert_int_equal(symlinkat("small", s->dir, "link"), 0);
    assert_int_equal(mkfifoat(s->dir, "fifo", 0600), 0);
    assert_int_equal(mkdirat(s->dir, "dir", 0700), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct error e = { 0 };

        assert_int_equal(file_read(s->dir, names[i], 10, &bytes, &size, &e), -1);
        assert_true(e.code != ERROR_NONE && strstr(e.message, names[i]) != NULL);
        assert_ptr_equal(bytes, (char *)1);
    }
}

/* */
static void test_file__replaces_content_with_the_exact_mode(void **state)
{
    const struct scratch *s = *state;
    mode_t old = umask(0777);
    struct error e = { 0 };

    assert_int_equal(file_replace(s->dir, "f", "one", 3, 0600, &e), 0);
    assert_int_equal(file_replace(s->dir, "x", "", 0, 0700, &e), 0);
    umask(0);
    assert_int_equal(file_replace(s->dir, "f", "two!", 4, 0600, &e), 0);
    umask(old);
    assert_content(s, "f", "two!");
    assert_int_equal(scratch_mode(s, "f"), 0600);
    assert_int_equal(scratch_mode(s, "x"), 0700);
    assert_int_equal(count_entries(s->dir), 2);
}

static void test_file__replaces_a_link_and_not_its_target(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };

    scratch_write(s, "target", "kept");
    assert_int_equal(symlinkat("target", s->dir, "f"), 0);
    assert_int_equal(file_replace(s->dir, "f", "new", 3, 0600, &e), 0);
    assert_content(s, "target", "kept");
    assert_content(s, "f", "new");
}

static int replace_over_limit(void *arg)
{
    const struct scratch *s = arg;
    const struct rlimit limit = { 1000, 1000 };
    struct error e = { 0 };
    char content[5000] = "";

    signal(SIGXFSZ, SIG_IGN); /* write(2) is short first, then fails */
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(file_replace(s->dir, "f", content, sizeof(content), 0600, &e) == -1);
    CHECK(e.sys == EFBIG);
    return 0;
}

static void test_file__keeps_the_old_content_when_the_new_one_cannot_be_written(void **state)
{
    const struct scratch *s = *state;

    scratch_write(s, "f", "old");
    scratch_run_as_test(replace_over_limit, *state);
    assert_content(s, "f", "old");
    assert_int_equal(count_entries(s->dir), 1); /* and no temporary one */
}

static void test_file__keeps_what_it_cannot_replace(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };

    assert_int_equal(mkdirat(s->dir, "d", 0700), 0);
    assert_int_equal(file_replace(s->dir, "d", "x", 1, 0600, &e), -1);
    assert_int_equal(count_entries(s->dir), 1);
}

static int fill_file_system(void *arg)
{
    struct scratch *s = arg;
    static const char large[1 << 20];
    struct error e = { 0 };
    AUTO_CLOSE int dir = -1;

    if (!scratch_isolate_mounts(s) || mount("tmpfs", s->path, "tmpfs", 0, "size=64k") < 0)
        return SCRATCH_SKIP;
    dir = file_open_dir(AT_FDCWD, s->path);
    CHECK(file_replace(dir, "f", large, sizeof(large), 0600, &e) == -1);
    CHECK(e.code == ERROR_STORE_FULL);
    CHECK(count_entries(dir) == 0);
    return 0;
}

static void test_file__a_full_disk_is_store_full(void **state)
{
    scratch_run_as_test(fill_file_system, *state);
}

static int write_on_read_only(void *arg)
{
    struct scratch *s = arg;
    struct error replaced = { 0 }, made = { 0 }, removed = { 0 }, removed_dir = { 0 };
    AUTO_CLOSE int dir = -1;

    if (!scratch_isolate_mounts(s) || mount("tmpfs", s->path, "tmpfs", 0, "") < 0)
        return SCRATCH_SKIP;
    dir = file_open_dir(AT_FDCWD, s->path);
    CHECK(mkdirat(dir, "d", 0700) == 0 && file_replace(dir, "f", "old", 3, 0600, &made) == 0);
    CHECK(mount("tmpfs", s->path, "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0);
    CHECK(file_replace(dir, "f", "new", 3, 0600, &replaced) == -1 && replaced.code == ERROR_PERM_DENIED);
    CHECK(file_make_dir(dir, "new", 0700, &made) == -1 && made.code == ERROR_PERM_DENIED);
    CHECK(file_remove_tree(dir, "f", &removed) == -1 && removed.code == ERROR_PERM_DENIED);
    CHECK(file_remove_tree(dir, "d", &removed_dir) == -1 && removed_dir.code == ERROR_PERM_DENIED);
    CHECK(count_entries(dir) == 2);
    return 0;
}

static void test_file__a_read_only_file_system_is_perm_denied(void **state)
{
    scratch_run_as_test(write_on_read_only, *state);
}

static int make_without_inodes(void *arg)
{
    struct scratch *s = arg;
    struct error made = { 0 }, written = { 0 };
    AUTO_CLOSE int dir = -1;

    if (!scratch_isolate_mounts(s) || mount("tmpfs", s->path, "tmpfs", 0, "nr_inodes=1") < 0)
        return SCRATCH_SKIP;
    dir = file_open_dir(AT_FDCWD, s->path);
    CHECK(file_make_dir(dir, "new", 0700, &made) == -1 && made.code == ERROR_STORE_FULL);
    CHECK(file_replace(dir, "f", "x", 1, 0600, &written) == -1 && written.code == ERROR_STORE_FULL);
    return 0;
}

static void test_file__a_disk_without_inodes_is_store_full(void **state)
{
    scratch_run_as_test(make_without_inodes, *state);
}

/* ---- directories ---- */

static int make_under_any_umask(void *arg)
{
    const struct scratch *s = arg;
    struct error e = { 0 };
    int fd;

    CHECK(scratch_become_ordinary(s));
    umask(0777);
    fd = file_make_dir(s->dir, "tight", 0700, &e);
    CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    umask(0);
    CHECK(file_make_dir(s->dir, "wide", 0700, &e) >= 0);
    CHECK(file_make_dir(s->dir, "wide", 0700, &e) >= 0);
    CHECK(scratch_mode(s, "tight") == 0700 && scratch_mode(s, "wide") == 0700);
    return 0;
}

/* */
static void test_file__makes_directories_with_the_exact_mode(void **state)
{
    scratch_run_as_test(make_under_any_umask, *state);
}

static void test_file__takes_only_real_directories_for_one(void **state)
{
    const struct scratch *s = *state;
    static const char *const names[] = { "file", "link", "dangling" };

    assert_int_equal(mkdirat(s->dir, "dir", 0700), 0);
    scratch_write(s, "file", "");
    assert_int_equal(symlinkat("dir", s->dir, "link"), 0);
    assert_int_equal(symlinkat("nowhere", s->dir, "dangling"), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct error e = { 0 };

        assert_int_equal(file_make_dir(s->dir, names[i], 0700, &e), -1);
        assert_int_equal(e.code, ERROR_PERM_DENIED);
        assert_int_equal(file_open_dir(s->dir, names[i]), -1);
    }
    assert_false(scratch_exists(s, "nowhere"));
}

static int make_once(void *arg)
{
    const struct scratch *s = arg;
    struct error e = { 0 };

    return file_make_dir(s->dir, "d", 0700, &e) < 0;
}

static void test_file__many_may_make_the_same_directory_at_once(void **state)
{
    const struct scratch *s = *state;

    for (int round = 0; round < 20; round++) {
        pid_t pids[4];

        for (size_t i = 0; i < ARRAY_LEN(pids); i++)
            pids[i] = scratch_start(make_once, *state);
        for (size_t i = 0; i < ARRAY_LEN(pids); i++)
            assert_int_equal(scratch_wait(pids[i]), 0);
        assert_int_equal(unlinkat(s->dir, "d", AT_REMOVEDIR), 0);
    }
}

/* ---- removing ---- */

static void assert_removed(const struct scratch *s, const char *name)
{
    struct error e = { 0 };
    int result = file_remove_tree(s->dir, name, &e);

    assert_string_equal(e.message, "");
    assert_int_equal(result, 0);
    assert_false(scratch_exists(s, name));
}

static void test_file__removes_what_is_not_a_directory_itself(void **state)
{
    const struct scratch *s = *state;

    assert_removed(s, "missing");
    scratch_write(s, "file", "");
    assert_removed(s, "file");
    assert_int_equal(mkdirat(s->dir, "kept", 0700), 0);
    assert_int_equal(symlinkat("kept", s->dir, "link"), 0);
    assert_removed(s, "link");
    assert_true(scratch_exists(s, "kept"));
}

/* */
static void test_file__removes_a_tree_and_follows_no_link(void **state)
{
    const struct scratch *s = *state;

    assert_int_equal(mkdirat(s->dir, "kept", 0700), 0);
    scratch_write(s, "kept/f", "x");
    assert_int_equal(mkdirat(s->dir, "t", 0700), 0);
    assert_int_equal(mkdirat(s->dir, "t/a", 0700), 0);
    assert_int_equal(mkdirat(s->dir, "t/a/b", 0700), 0);
    scratch_write(s, "t/a/b/f", "x");
    scratch_write(s, "t/.hidden", "x");
    assert_int_equal(symlinkat("../kept", s->dir, "t/dir-link"), 0);
    assert_int_equal(symlinkat("../kept/f", s->dir, "t/file-link"), 0);
    assert_int_equal(symlinkat("nowhere", s->dir, "t/a/dangling"), 0);
    assert_int_equal(mkfifoat(s->dir, "t/fifo", 0600), 0);
    assert_removed(s, "t");
    assert_content(s, "kept/f", "x");
}

static int make_deep(int dir, int depth)
{
    int at = dup(dir);

    for (int i = 0; i < depth; i++) {
        int below = mkdirat(at, "d", 0700) < 0 ? -1 : openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        close(at);
        at = below;
        if (at < 0)
            return -1;
    }
    return close(at);
}

static int remove_deep(void *arg)
{
    const struct scratch *s = arg;
    struct rlimit limit;
    struct error e = { 0 };

    CHECK(make_deep(s->dir, 6000) == 0); /* no path is that long */
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(file_remove_tree(s->dir, "d", &e) == 0);
    CHECK(!scratch_exists(s, "d"));
    return 0;
}

static void test_file__removes_a_tree_deeper_than_paths_and_descriptors_reach(void **state)
{
    scratch_run_as_test(remove_deep, *state);
}

/* Branches on the way: a level that is read again must not lose or repeat any. */
static void test_file__removes_a_tree_that_branches_below_what_is_kept_open(void **state)
{
    const struct scratch *s = *state;
    struct text path = { 0 };

    text_add_string(&path, "t");
    for (int i = 0; i < 60; i++) {
        assert_int_equal(mkdirat(s->dir, text_get(&path), 0700), 0);
        for (int branch = 0; branch < 3; branch++) {
            AUTO_FREE char *side = mem_print("%s/s%d", text_get(&path), branch);
            AUTO_FREE char *file = mem_print("%s/f", side);

            assert_int_equal(mkdirat(s->dir, side, 0700), 0);
            scratch_write(s, file, "x");
        }
        text_add_string(&path, "/n");
    }
    text_done(&path);
    assert_removed(s, "t");
}

static void test_file__removes_a_wide_directory(void **state)
{
    const struct scratch *s = *state;

    assert_int_equal(mkdirat(s->dir, "t", 0700), 0);
    for (int i = 0; i < 3000; i++) {
        char name[32];

        snprintf(name, sizeof(name), "t/entry-%d", i);
        if (i % 10 == 0)
            assert_int_equal(mkdirat(s->dir, name, 0700), 0);
        else
            assert_int_equal(symlinkat("x", s->dir, name), 0);
    }
    assert_removed(s, "t");
}

static int remove_without_permissions(void *arg)
{
    const struct scratch *s = arg;
    static const mode_t modes[] = { 0, 0500, 0600, 0300, 0100 };
    struct error e = { 0 };

    CHECK(scratch_become_ordinary(s));
    CHECK(mkdirat(s->dir, "t", 0700) == 0);
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        AUTO_FREE char *name = mem_print("t/m%zu", i);
        AUTO_FREE char *inner = mem_print("%s/inner", name);

        CHECK(mkdirat(s->dir, name, 0700) == 0);
        CHECK(mkdirat(s->dir, inner, 0) == 0); /* as overlayfs leaves work/work */
        CHECK(fchmodat(s->dir, name, modes[i], 0) == 0);
    }
    CHECK(fchmodat(s->dir, "t", 0, 0) == 0);
    CHECK(file_remove_tree(s->dir, "t", &e) == 0);
    CHECK(!scratch_exists(s, "t"));
    return 0;
}

static void test_file__removes_directories_of_ours_whatever_their_mode(void **state)
{
    scratch_run_as_test(remove_without_permissions, *state);
}

static int refuse_what_is_mounted(struct scratch *s, const char *source, const char *type,
                                  unsigned long flags)
{
    char at[128];
    struct error below = { 0 }, itself = { 0 };

    if (!scratch_isolate_mounts(s))
        return SCRATCH_SKIP;
    CHECK(mkdirat(s->dir, "t", 0700) == 0 && mkdirat(s->dir, "t/a", 0700) == 0);
    CHECK(mkdirat(s->dir, "t/a/mnt", 0700) == 0 && mkdirat(s->dir, "other", 0700) == 0);
    scratch_write(s, "other/precious", "x");
    snprintf(at, sizeof(at), "%s/t/a/mnt", s->path);
    CHECK(mount(source, at, type, flags, "") == 0);
    if ((flags & MS_BIND) == 0)
        scratch_write(s, "t/a/mnt/precious", "x");
    CHECK(file_remove_tree(s->dir, "t", &below) == -1);
    CHECK(strstr(below.message, "'t/a/mnt'") != NULL);
    CHECK(file_remove_tree(s->dir, "t/a/mnt", &itself) == -1);
    CHECK(scratch_exists(s, "t/a/mnt/precious"));
    return 0;
}

static int refuse_other_file_system(void *arg)
{
    return refuse_what_is_mounted(arg, "tmpfs", "tmpfs", 0);
}

static int refuse_bind_mount(void *arg)
{
    struct scratch *s = arg;
    char source[128];

    snprintf(source, sizeof(source), "%s/other", s->path);
    return refuse_what_is_mounted(s, source, "none", MS_BIND);
}

static void test_file__does_not_remove_into_another_file_system(void **state)
{
    scratch_run_as_test(refuse_other_file_system, *state);
}

static void test_file__does_not_remove_into_a_bind_mount_of_the_same_file_system(void **state)
{
    scratch_run_as_test(refuse_bind_mount, *state);
}

static int make_files_for_ever(void *arg)
{
    const struct scratch *s = arg;

    for (unsigned int i = 0; i < 3000; i++) {
        char name[32];

        snprintf(name, sizeof(name), "t/a/f%u", i);
        close(openat(s->dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
    return 0;
}

/* Whoever still writes there: the removal ends, with success or with the reason. */
static void test_file__comes_to_an_end_when_somebody_fills_what_it_empties(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    pid_t writer;
    int result;

    assert_int_equal(mkdirat(s->dir, "t", 0700), 0);
    assert_int_equal(mkdirat(s->dir, "t/a", 0700), 0);
    writer = scratch_start(make_files_for_ever, *state);
    result = file_remove_tree(s->dir, "t", &e);
    assert_int_equal(scratch_wait(writer), 0);
    assert_true(result == 0 ? !scratch_exists(s, "t") : e.sys == ENOTEMPTY);
    assert_removed(s, "t");
}

/* ---- file systems ---- */

static int look_at_fuse(void *arg)
{
    struct scratch *s = arg;
    char options[128];
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC), dir;
    const char *name;

    /* A mount that belongs to another user answers statfs(2) with its type and asks no daemon. */
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=1,group_id=1", device);
    if (device < 0 || !scratch_isolate_mounts(s) || mount("x", s->path, "fuse", 0, options) < 0)
        return SCRATCH_SKIP;
    dir = open(s->path, O_PATH | O_CLOEXEC);
    name = file_network_filesystem(dir);
    CHECK(name != NULL && strstr(name, "FUSE") != NULL);
    return 0;
}

static void test_file__names_file_systems_where_locks_cannot_be_trusted(void **state)
{
    const struct scratch *s = *state;

    assert_null(file_network_filesystem(s->dir));
    scratch_run_as_test(look_at_fuse, *state);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
#define IN_MEMORY(test)    cmocka_unit_test_setup_teardown(test, scratch_setup_in_memory, scratch_teardown)

/* ---- room, times ---- */

static void test_file__keeps_room_behind_its_end_and_no_more(void **state)
{
    const struct scratch *s = *state;
    struct stat before, after;
    int fd;

    scratch_write(s, "a", "content");
    fd = openat(s->dir, "a", O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(fd, &before), 0);
    if (file_reserve(fd, 1 << 20) < 0 && errno == EOPNOTSUPP)
        skip();
    assert_int_equal(fstat(fd, &after), 0);
    assert_int_equal(after.st_size, 7);
    assert_true((after.st_blocks - before.st_blocks) * 512 >= 1 << 20);
    close(fd);
    assert_int_equal(fstatat(s->dir, "a", &after, 0), 0); /* it stays */
    assert_true((after.st_blocks - before.st_blocks) * 512 >= 1 << 20);
    assert_int_equal(file_reserve(-1, 1), -1);
}

static void test_file__tells_when_it_was_changed(void **state)
{
    const struct timespec times[] = { { .tv_sec = 5, .tv_nsec = 6 }, { .tv_sec = 7, .tv_nsec = 8 } };
    const struct scratch *s = *state;
    struct stat st;

    scratch_write(s, "a", "");
    assert_int_equal(utimensat(s->dir, "a", times, 0), 0);
    assert_int_equal(fstatat(s->dir, "a", &st, 0), 0);
    assert_int_equal(file_modified(&st).tv_sec, 7);
    assert_int_equal(file_modified(&st).tv_nsec, 8);
}

static void test_file__syncs_what_is_open_and_nothing_else(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };

    assert_int_equal(file_sync_full(s->dir, &e), 0);
    assert_int_equal(file_sync_full(-1, &e), -1);
    assert_int_equal(e.code, ERROR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file__goes_on_after_short_and_interrupted_writes),
        WITH_SCRATCH(test_file__reads_whole_files_and_tells_missing_ones),
        WITH_SCRATCH(test_file__refuses_to_read_what_is_too_large_a_link_or_no_file),
        WITH_SCRATCH(test_file__replaces_content_with_the_exact_mode),
        WITH_SCRATCH(test_file__replaces_a_link_and_not_its_target),
        WITH_SCRATCH(test_file__keeps_the_old_content_when_the_new_one_cannot_be_written),
        WITH_SCRATCH(test_file__keeps_what_it_cannot_replace),
        WITH_SCRATCH(test_file__a_full_disk_is_store_full),
        WITH_SCRATCH(test_file__a_read_only_file_system_is_perm_denied),
        WITH_SCRATCH(test_file__a_disk_without_inodes_is_store_full),
        WITH_SCRATCH(test_file__makes_directories_with_the_exact_mode),
        WITH_SCRATCH(test_file__takes_only_real_directories_for_one),
        WITH_SCRATCH(test_file__many_may_make_the_same_directory_at_once),
        WITH_SCRATCH(test_file__removes_what_is_not_a_directory_itself),
        WITH_SCRATCH(test_file__removes_a_tree_and_follows_no_link),
        IN_MEMORY(test_file__removes_a_tree_deeper_than_paths_and_descriptors_reach),
        WITH_SCRATCH(test_file__removes_a_tree_that_branches_below_what_is_kept_open),
        IN_MEMORY(test_file__removes_a_wide_directory),
        WITH_SCRATCH(test_file__removes_directories_of_ours_whatever_their_mode),
        WITH_SCRATCH(test_file__does_not_remove_into_another_file_system),
        WITH_SCRATCH(test_file__does_not_remove_into_a_bind_mount_of_the_same_file_system),
        WITH_SCRATCH(test_file__comes_to_an_end_when_somebody_fills_what_it_empties),
        WITH_SCRATCH(test_file__names_file_systems_where_locks_cannot_be_trusted),
        cmocka_unit_test_setup_teardown(test_file__keeps_room_behind_its_end_and_no_more, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_file__tells_when_it_was_changed, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_file__syncs_what_is_open_and_nothing_else, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"
#include "core/util.h"
#include "tools/desktop/desktop.h"
#include "tools/desktop/snapshots.h"

struct fixture {
    char dir[64];
    char snapshots[128];
};

static int make_root(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);

    strcpy(f->dir, "/tmp/test-snapshots-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->snapshots, sizeof f->snapshots, "%s/root/snapshots", f->dir);

    AUTO_FREE char *root = mem_print("%s/root", f->dir);

    setenv("AGENT_DESKTOP_HOME", root, 1);
    *state = f;
    return 0;
}

static int remove_root(void **state)
{
    struct fixture *f = *state;
    struct error e = { 0 };
    AUTO_CLOSE int tmp = open("/tmp", O_RDONLY | O_DIRECTORY);
    const int result = file_remove_tree(tmp, strrchr(f->dir, '/') + 1, &e);

    free(f);
    return result;
}

static void save(const char *id)
{
    AUTO_JSON struct json *record = json_new_object();
    struct error e = { 0 };

    json_put_string(record, "id", id);
    assert_int_equal(snapshots_save(id, record, &e), 0);
}

static int load(const char *id)
{
    AUTO_JSON struct json *record = NULL;
    struct error e = { 0 };
    const int found = snapshots_load(id, &record, &e);

    assert_int_equal(e.code, ERROR_NONE);
    if (found > 0)
        assert_string_equal(json_get_string(record, "id"), id);
    return found;
}

static void write_file(const struct fixture *f, const char *name, const char *bytes)
{
    AUTO_FREE char *path = mem_print("%s/%s", f->snapshots, name);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, bytes, strlen(bytes)), 0);
}

static size_t count_files(const struct fixture *f)
{
    DIR *dir = opendir(f->snapshots);
    size_t count = 0;

    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir)) != NULL;)
        count += d->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void test_snapshots__are_found_by_a_later_call(void **state)
{
    (void)state;
    save("0000000a");
    save("0000000b");
    assert_int_equal(load("0000000a"), 1);
    assert_int_equal(load("0000000b"), 1);
    assert_int_equal(load("0000000c"), 0);
}

static void test_snapshots__without_a_root_are_none_and_make_none(void **state)
{
    const struct fixture *f = *state;

    assert_int_equal(load("0000000a"), 0);
    assert_int_equal(access(f->snapshots, F_OK), -1);
}

static void test_snapshots__keep_the_newest(void **state)
{
    const struct fixture *f = *state;
    char id[REF_SNAPSHOT_SIZE];

    for (unsigned i = 0; i < DESKTOP_SNAPSHOTS_MAX + 5; i++) {
        AUTO_FREE char *path = NULL;

        snprintf(id, sizeof id, "%08x", i);
        save(id);
        /* A clock may be coarser than a save: each gets a time of its own, in the past. */
        path = mem_print("%s/%s.json", f->snapshots, id);
        assert_int_equal(
            utimensat(AT_FDCWD, path, (struct timespec[2]){ { 1000 + i, 0 }, { 1000 + i, 0 } }, 0), 0);
    }
    assert_int_equal(count_files(f), DESKTOP_SNAPSHOTS_MAX);
    assert_int_equal(load("00000004"), 0);
    assert_int_equal(load("00000005"), 1);
    assert_int_equal(load(id), 1);
}

static void test_snapshots__that_are_damaged_read_as_gone(void **state)
{
    const struct fixture *f = *state;
    static const char *const damaged[] = { "", "{", "{\"id\":1}{", "\xff\xfe" };

    save("0000000a");
    for (size_t i = 0; i < ARRAY_LEN(damaged); i++) {
        write_file(f, "0000000b.json", damaged[i]);
        assert_int_equal(load("0000000b"), 0);
    }
}

static void test_snapshots__are_readable_by_their_owner_only(void **state) /* */
{
    const struct fixture *f = *state;
    AUTO_FREE char *path = mem_print("%s/0000000a.json", f->snapshots);
    const mode_t old = umask(0);
    struct stat s;

    save("0000000a");
    umask(old);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0600);
    assert_int_equal(stat(f->snapshots, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0700);
}

static void test_snapshots__ids_are_new_every_time(void **state)
{
    char one[REF_SNAPSHOT_SIZE], other[REF_SNAPSHOT_SIZE];

    (void)state;
    snapshots_new_id(one);
    snapshots_new_id(other);
    assert_int_equal(strspn(one, "0123456789abcdef"), REF_SNAPSHOT_SIZE - 1);
    assert_string_not_equal(one, other);
}

#define WITH_ROOT(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_ROOT(test_snapshots__are_found_by_a_later_call),
        WITH_ROOT(test_snapshots__without_a_root_are_none_and_make_none),
        WITH_ROOT(test_snapshots__keep_the_newest),
        WITH_ROOT(test_snapshots__that_are_damaged_read_as_gone),
        WITH_ROOT(test_snapshots__are_readable_by_their_owner_only),
        cmocka_unit_test(test_snapshots__ids_are_new_every_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

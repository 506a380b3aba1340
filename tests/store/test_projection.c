/* sandbox.json says what the journal says, whatever was done to it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"
#include "store/projection.h"
#include "tests/store/lab.h"

#define FILE_PATH "sandboxes/demo/sandbox.json"
#define WANTED    "{\"name\":\"demo\",\"provider\":\"linux\",\"created\":\"2026-11-29T16:34:13Z\"}\n"

static void setup(struct scratch *s, struct root *root, struct journal_record *r)
{
    lab_root(s, root);
    assert_int_equal(mkdirat(s->dir, "sandboxes", 0700), 0);
    assert_int_equal(mkdirat(s->dir, "sandboxes/demo", 0700), 0);
    root->sandboxes = openat(s->dir, "sandboxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    journal_record_init(r, "demo");
    strcpy(r->provider, "linux");
    r->created_ms = 1795970053999;
}

static void check_restored(const struct scratch *s, const struct root *root, const struct journal_record *r)
{
    char found[512] = "";
    struct error e = { 0 };

    if (projection_restore(root, r, &e) < 0)
        fail_msg("%s", e.message);
    AUTO_CLOSE int fd = openat(s->dir, FILE_PATH, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    assert_true(read(fd, found, sizeof(found) - 1) > 0);
    assert_string_equal(found, WANTED);
    assert_int_equal(scratch_mode(s, FILE_PATH), 0600);
}

static void test_projection__puts_back_what_is_not_right(void **state)
{
    static const char *const wrong[] = {
        NULL, "", "{\"name\":", "[]", "{\"name\":\"other\"}\n", WANTED WANTED
    };
    struct scratch *s = *state;
    struct journal_record r;
    struct root root;

    setup(s, &root, &r);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        unlinkat(s->dir, FILE_PATH, 0);
        if (wrong[i] != NULL)
            scratch_write(s, FILE_PATH, wrong[i]);
        check_restored(s, &root, &r);
    }
    assert_int_equal(fchmodat(s->dir, FILE_PATH, 0, 0), 0);
    if (geteuid() != 0) /* root reads it all the same, and leaves it */
        check_restored(s, &root, &r);
    unlinkat(s->dir, FILE_PATH, 0);
    scratch_write(s, "elsewhere", WANTED);
    assert_int_equal(symlinkat("../../elsewhere", s->dir, FILE_PATH), 0);
    check_restored(s, &root, &r);
    close(root.sandboxes);
}

static void test_projection__leaves_a_right_file_alone(void **state)
{
    struct scratch *s = *state;
    struct stat before, after;
    struct journal_record r;
    struct root root;

    setup(s, &root, &r);
    check_restored(s, &root, &r);
    assert_int_equal(fstatat(s->dir, FILE_PATH, &before, 0), 0);
    check_restored(s, &root, &r);
    assert_int_equal(fstatat(s->dir, FILE_PATH, &after, 0), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    close(root.sandboxes);
}

static void test_projection__makes_no_directory(void **state)
{
    struct scratch *s = *state;
    struct error e = { 0 };
    struct journal_record r;
    struct root root;

    setup(s, &root, &r);
    strcpy(r.name, "other");
    assert_int_equal(projection_restore(&root, &r, &e), 0);
    assert_false(scratch_exists(s, "sandboxes/other"));
    close(root.sandboxes);
    root.sandboxes = -1;
    assert_int_equal(projection_restore(&root, &r, &e), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(test_projection__puts_back_what_is_not_right),
        TEST(test_projection__leaves_a_right_file_alone),
        TEST(test_projection__makes_no_directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

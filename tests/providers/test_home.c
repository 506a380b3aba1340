#include "providers/home.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/mem.h"
#include "tests/core/scratch.h"

#define TOKEN "0123456789abcdef"

struct world {
    struct scratch *scratch;
    struct root root;
    int fd; /* of sandboxes/demo */
};

static int setup(void **state)
{
    struct world *w = mem_alloc(sizeof(*w));
    struct error e = { 0 };

    w->fd = -1;
    *state = w;
    if (scratch_setup((void **)&w->scratch) != 0)
        return -1;
    AUTO_FREE char *path = mem_print("%s/root", w->scratch->path);

    setenv("AGENT_DESKTOP_HOME", path, 1);
    return root_open(ROOT_WRITE, &w->root, &e);
}

static int teardown(void **state)
{
    struct world *w = *state;
    void *scratch = w->scratch;

    util_close_fd(&w->fd);
    root_close(&w->root);
    free(w);
    return scratch_teardown(&scratch);
}

static bool exists(const struct world *w, const char *name)
{
    struct stat st;

    return fstatat(w->root.sandboxes, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void make(struct world *w)
{
    struct error e = { 0 };

    assert_int_equal(home_make(&w->root, "demo", false, &w->fd, &e), 0);
    AUTO_CLOSE int file = openat(w->fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(file >= 0);
}

/* Another process's, as far as flock(2) is concerned. */
static int hold(const struct world *w, const char *name)
{
    struct error e = { 0 };
    int fd = file_open_dir(w->root.sandboxes, name);

    assert_true(fd >= 0);
    assert_int_equal(home_lock(fd, &e), 0);
    return fd;
}

static void test_home__is_made_with_its_mode_whatever_the_umask(void **state)
{
    struct world *w = *state;
    mode_t before = umask(0277);
    struct error e = { 0 };
    struct stat st;
    int made = home_make(&w->root, "demo", false, &w->fd, &e);

    umask(before);
    assert_int_equal(made, 0);
    assert_int_equal(fstat(w->fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

static void test_home__what_somebody_put_there_is_not_filled(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    assert_int_equal(mkdirat(w->root.sandboxes, "demo", 0700), 0);
    assert_int_equal(home_make(&w->root, "demo", false, &w->fd, &e), -1);
    assert_int_equal(e.code, ERROR_SANDBOX_EXISTS);
    e = (struct error){ 0 };
    assert_int_equal(home_make(&w->root, "demo", true, &w->fd, &e), 0);
}

static void test_home__a_link_is_not_followed(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    assert_int_equal(mkdirat(w->root.dir, "elsewhere", 0700), 0);
    assert_int_equal(symlinkat("../elsewhere", w->root.sandboxes, "demo"), 0);
    assert_int_equal(home_open(&w->root, "demo", &w->fd, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    e = (struct error){ 0 };
    assert_int_equal(home_claim(&w->root, "demo", &w->fd, &e), 0);
    assert_false(exists(w, "demo"));
    assert_true(scratch_exists(w->scratch, "root/elsewhere"));
}

static void test_home__a_missing_one_is_found_to_be_missing(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    assert_int_equal(home_open(&w->root, "demo", &w->fd, &e), 0);
    assert_int_equal(home_claim(&w->root, "demo", &w->fd, &e), 0);
    assert_int_equal(home_set_aside(&w->root, "demo", TOKEN, &e), 0);
    assert_int_equal(home_delete(&w->root, TOKEN, file_remove_tree, &e), 0);
}

static void test_home__goes_in_two_steps(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    make(w);
    assert_int_equal(home_claim(&w->root, "demo", &w->fd, &e), 1);
    assert_int_equal(home_set_aside(&w->root, "demo", TOKEN, &e), 0);
    assert_false(exists(w, "demo"));
    assert_true(exists(w, HOME_GONE TOKEN));
    home_sweep(w->root.sandboxes, HOME_GONE, file_remove_tree); /* another command's */
    assert_true(exists(w, HOME_GONE TOKEN));
    assert_int_equal(home_delete(&w->root, TOKEN, file_remove_tree, &e), 0);
    assert_false(exists(w, HOME_GONE TOKEN));
}

static void test_home__what_another_works_on_is_not_claimed(void **state)
{
    struct world *w = *state;
    struct error e = { 0 };

    make(w);
    AUTO_CLOSE int held = hold(w, "demo");

    assert_int_equal(home_claim(&w->root, "demo", &w->fd, &e), -1);
    assert_int_equal(e.code, ERROR_SANDBOX_BUSY);
    assert_true(exists(w, "demo"));
}

/* An ordinary user: for root a mode forbids nothing. */
static int claim_closed(void *self)
{
    struct world *w = self;
    struct error e = { 0 };

    if (!scratch_become_ordinary(w->scratch))
        return SCRATCH_SKIP;
    AUTO_CLOSE int dir = file_open_dir(AT_FDCWD, w->scratch->path);
    struct root root = { .dir = dir, .sandboxes = dir, .locks = -1 };

    CHECK(mkdirat(dir, "demo", 0) == 0);
    CHECK(home_claim(&root, "demo", &w->fd, &e) == 1);
    CHECK(home_set_aside(&root, "demo", TOKEN, &e) == 0);
    CHECK(home_delete(&root, TOKEN, file_remove_tree, &e) == 0);
    CHECK(!scratch_exists(w->scratch, HOME_GONE TOKEN));
    return 0;
}

static void test_home__a_mode_keeps_nothing(void **state)
{
    scratch_run_as_test(claim_closed, *state);
}

static void test_home__a_sweep_takes_what_nobody_works_on(void **state)
{
    static const char *const names[] = { HOME_GONE "1", HOME_GONE "2", ".tmp-3", "demo" };
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_int_equal(mkdirat(w->root.sandboxes, names[i], 0700), 0);
    AUTO_CLOSE int held = hold(w, HOME_GONE "2");

    home_sweep(w->root.sandboxes, HOME_GONE, file_remove_tree);
    assert_false(exists(w, names[0]));
    for (size_t i = 1; i < ARRAY_LEN(names); i++)
        assert_true(exists(w, names[i]));
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_home__is_made_with_its_mode_whatever_the_umask),
        TEST(test_home__what_somebody_put_there_is_not_filled),
        TEST(test_home__a_link_is_not_followed),
        TEST(test_home__a_missing_one_is_found_to_be_missing),
        TEST(test_home__goes_in_two_steps),
        TEST(test_home__what_another_works_on_is_not_claimed),
        TEST(test_home__a_mode_keeps_nothing),
        TEST(test_home__a_sweep_takes_what_nobody_works_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "core/root.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
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

static void set_root(const struct scratch *s, const char *below)
{
    AUTO_FREE char *path = mem_print("%s%s", s->path, below);

    setenv("AGENT_DESKTOP_HOME", path, 1);
}

static void assert_refused(enum root_mode mode, enum error_code code, const char *word)
{
    struct error e = { 0 };
    struct root root = { .dir = -7 };

    assert_int_equal(root_open(mode, &root, &e), -1);
    print_message("%s\n", e.message);
    assert_int_equal(e.code, code);
    assert_non_null(strstr(e.message, word));
    assert_int_equal(root.dir, -7); /* untouched */
}

/* */
static void test_root__reading_a_missing_one_succeeds_and_creates_nothing(void **state)
{
    const struct scratch *s = *state;
    static const char *const below[] = { "/root", "/missing/root" };

    for (size_t i = 0; i < ARRAY_LEN(below); i++) {
        struct root root;
        struct error e = { 0 };

        set_root(s, below[i]);
        assert_int_equal(root_open(ROOT_READ, &root, &e), 0);
        assert_int_equal(root.dir, -1);
        assert_int_equal(root.sandboxes, -1);
        assert_int_equal(root.locks, -1);
        root_close(&root);
    }
    assert_false(scratch_exists(s, "root"));
    assert_false(scratch_exists(s, "missing"));
}

/* */
static void test_root__writing_makes_what_is_missing_with_the_exact_modes(void **state)
{
    const struct scratch *s = *state;
    static const char *const made[] = { "root", "root/sandboxes", "root/locks" };
    mode_t old = umask(0);
    struct error e = { 0 };
    struct root root;

    set_root(s, "/root");
    assert_int_equal(root_open(ROOT_WRITE, &root, &e), 0);
    umask(old);
    for (size_t i = 0; i < ARRAY_LEN(made); i++)
        assert_int_equal(scratch_mode(s, made[i]), 0700);
    assert_false(scratch_exists(s, "root/journal")); /* the store's */
    assert_true(root.dir >= 0 && root.sandboxes >= 0 && root.locks >= 0);
    assert_true(fcntl(root.locks, F_GETFD) & FD_CLOEXEC);
    assert_string_equal(root.path, getenv("AGENT_DESKTOP_HOME"));
    root_close(&root);
    assert_int_equal(root.dir, -1);
    assert_int_equal(root_open(ROOT_WRITE, &root, &e), 0); /* again, on what is there */
    root_close(&root);
}

static void test_root__reading_a_bare_one_creates_nothing(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    struct root root;

    assert_int_equal(mkdirat(s->dir, "root", 0700), 0);
    set_root(s, "/root");
    assert_int_equal(root_open(ROOT_READ, &root, &e), 0);
    assert_true(root.dir >= 0);
    assert_int_equal(root.sandboxes, -1);
    assert_int_equal(root.locks, -1);
    assert_false(scratch_exists(s, "root/locks"));
    root_close(&root);
}

static void test_root__is_below_the_home_directory_unless_set(void **state)
{
    const struct scratch *s = *state;
    const char *home = getenv("HOME");
    AUTO_FREE char *kept = mem_copy_text(home != NULL ? home : "");
    AUTO_FREE char *passwd_root = mem_print("%s/.agent-desktop", getpwuid(geteuid())->pw_dir);
    struct error e = { 0 };
    struct root root;

    unsetenv("AGENT_DESKTOP_HOME");
    setenv("HOME", s->path, 1);
    assert_int_equal(root_open(ROOT_WRITE, &root, &e), 0);
    assert_int_equal(scratch_mode(s, ".agent-desktop"), 0700);
    root_close(&root);
    unsetenv("HOME");
    assert_int_equal(root_open(ROOT_READ, &root, &e), 0);
    assert_string_equal(root.path, passwd_root);
    root_close(&root);
    setenv("HOME", "relative", 1);
    assert_refused(ROOT_READ, ERROR_INVALID_ARGS, "HOME");
    setenv("HOME", kept, 1);
}

/* before anything is done, reading or writing. */
static void test_root__refuses_a_value_that_is_no_place(void **state)
{
    static const struct {
        const char *value;
        const char *word;
    } cases[] = {
        { "", "empty" },         { "relative/path", "absolute" },
        { ".", "absolute" },     { "/", "name" },
        { "///", "name" },       { "/tmp/.", "name" },
        { "/tmp/x/..", "name" }, { "/tmp/x/../", "name" },
    };
    char longest[ROOT_PATH_MAX + 10];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        setenv("AGENT_DESKTOP_HOME", cases[i].value, 1);
        assert_refused(ROOT_READ, ERROR_INVALID_ARGS, cases[i].word);
        assert_refused(ROOT_WRITE, ERROR_INVALID_ARGS, cases[i].word);
    }
    memset(longest, '/', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    longest[sizeof(longest) - 2] = 'x';
    setenv("AGENT_DESKTOP_HOME", longest, 1);
    assert_refused(ROOT_WRITE, ERROR_INVALID_ARGS, "longer");
    memset(longest + 1, 'x', 1000);
    longest[1000] = '\0';
    setenv("AGENT_DESKTOP_HOME", longest, 1);
    assert_refused(ROOT_WRITE, ERROR_INVALID_ARGS, "too long");
}

/* */
static void test_root__refuses_what_may_not_be_trusted(void **state)
{
    const struct scratch *s = *state;
    static const struct {
        const char *below;
        const char *word;
    } cases[] = {
        { "/link", "symbolic link" },        { "/link/", "symbolic link" },
        { "/link//", "symbolic link" },      { "/dangling", "symbolic link" },
        { "/file", "not a directory" },      { "/group", "writable by others" },
        { "/others", "writable by others" },
    };

    assert_int_equal(mkdirat(s->dir, "real", 0700), 0);
    assert_int_equal(symlinkat("real", s->dir, "link"), 0);
    assert_int_equal(symlinkat("nowhere", s->dir, "dangling"), 0);
    scratch_write(s, "file", "");
    assert_int_equal(mkdirat(s->dir, "group", 0700), 0);
    assert_int_equal(fchmodat(s->dir, "group", 0770, 0), 0);
    assert_int_equal(mkdirat(s->dir, "others", 0700), 0);
    assert_int_equal(fchmodat(s->dir, "others", 01702, 0), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        set_root(s, cases[i].below);
        assert_refused(ROOT_READ, ERROR_INVALID_ARGS, cases[i].word);
        assert_refused(ROOT_WRITE, ERROR_INVALID_ARGS, cases[i].word);
    }
    assert_false(scratch_exists(s, "real/locks"));
    assert_false(scratch_exists(s, "nowhere"));
}

static void test_root__may_be_reached_through_links_and_end_with_slashes(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    struct root root;

    assert_int_equal(mkdirat(s->dir, "real", 0700), 0);
    assert_int_equal(symlinkat("real", s->dir, "link"), 0);
    set_root(s, "/link/root//");
    assert_int_equal(root_open(ROOT_WRITE, &root, &e), 0);
    assert_string_equal(root.path + strlen(s->path), "/link/root");
    assert_true(scratch_exists(s, "real/root/locks"));
    root_close(&root);
}

static void test_root__makes_only_the_last_component(void **state)
{
    const struct scratch *s = *state;

    set_root(s, "/missing/root");
    assert_refused(ROOT_WRITE, ERROR_INVALID_ARGS, "directory above");
    assert_false(scratch_exists(s, "missing"));
}

static void test_root__refuses_another_users(void **state)
{
    const struct scratch *s = *state;

    if (geteuid() != 0)
        skip();
    assert_int_equal(mkdirat(s->dir, "root", 0700), 0);
    assert_int_equal(fchownat(s->dir, "root", 65534, 65534, 0), 0);
    set_root(s, "/root");
    assert_refused(ROOT_READ, ERROR_INVALID_ARGS, "another user");
    assert_refused(ROOT_WRITE, ERROR_INVALID_ARGS, "another user");
}

/* As root everything opens; so as somebody else, whose view a 0700 directory of root's shuts. */
static int look_at_roots_own(void *arg)
{
    const struct scratch *s = arg;
    struct error e = { 0 };
    struct root root;

    CHECK(mkdirat(s->dir, "root", 0700) == 0 && scratch_become_ordinary(s));
    set_root(s, "/root");
    CHECK(root_open(ROOT_READ, &root, &e) == -1);
    CHECK(e.code == ERROR_INVALID_ARGS && strstr(e.message, "another user") != NULL);
    return 0;
}

static void test_root__refuses_another_users_even_when_it_cannot_be_opened(void **state)
{
    if (geteuid() != 0)
        skip();
    scratch_run_as_test(look_at_roots_own, *state);
}

static void test_root__does_not_go_through_links_below_it(void **state)
{
    const struct scratch *s = *state;

    assert_int_equal(mkdirat(s->dir, "root", 0700), 0);
    assert_int_equal(mkdirat(s->dir, "other", 0700), 0);
    assert_int_equal(symlinkat("../other", s->dir, "root/locks"), 0);
    set_root(s, "/root");
    assert_refused(ROOT_READ, ERROR_PERM_DENIED, "locks");
    assert_refused(ROOT_WRITE, ERROR_PERM_DENIED, "locks");
}

static int open_once(void *arg)
{
    struct error e = { 0 };
    struct root root;

    (void)arg;
    return root_open(ROOT_WRITE, &root, &e) < 0;
}

static void test_root__many_may_create_it_at_once(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };

    set_root(s, "/root");
    for (int round = 0; round < 10; round++) {
        pid_t pids[4];

        for (size_t i = 0; i < ARRAY_LEN(pids); i++)
            pids[i] = scratch_start(open_once, NULL);
        for (size_t i = 0; i < ARRAY_LEN(pids); i++)
            assert_int_equal(scratch_wait(pids[i]), 0);
        assert_int_equal(file_remove_tree(s->dir, "root", &e), 0);
    }
}

struct mounted {
    struct scratch *s;
    unsigned long flags;
    const char *options;
    enum error_code code;
};

static int create_on_mount(void *arg)
{
    const struct mounted *m = arg;
    struct error e = { 0 };
    struct root root;

    if (!scratch_isolate_mounts(m->s) || mount("tmpfs", m->s->path, "tmpfs", m->flags, m->options) < 0)
        return SCRATCH_SKIP;
    set_root(m->s, "/root");
    CHECK(root_open(ROOT_WRITE, &root, &e) == -1);
    CHECK(e.code == m->code);
    return 0;
}

static void test_root__on_a_read_only_file_system_is_perm_denied(void **state)
{
    struct mounted m = { .s = *state, .flags = MS_RDONLY, .options = "", .code = ERROR_PERM_DENIED };

    scratch_run_as_test(create_on_mount, &m);
}

static void test_root__on_a_full_file_system_is_store_full(void **state)
{
    struct mounted m = { .s = *state, .options = "nr_inodes=1", .code = ERROR_STORE_FULL };

    scratch_run_as_test(create_on_mount, &m);
}

static int open_with_few_files(void *arg)
{
    const enum root_mode *mode = arg;

    for (unsigned more = 0; more < 3; more++) { /* the root, sandboxes/, locks/ */
        struct error e = { 0 };
        struct root root;

        CHECK(scratch_limit_files(more));
        CHECK(root_open(*mode, &root, &e) == -1);
        CHECK(e.code == ERROR_LIMIT_REACHED);
    }
    return 0;
}

static void test_root__without_a_free_descriptor_is_a_limit(void **state)
{
    enum root_mode modes[] = { ROOT_READ, ROOT_WRITE };
    struct error e = { 0 };
    struct root root;

    set_root(*state, "/root");
    assert_int_equal(root_open(ROOT_WRITE, &root, &e), 0);
    root_close(&root);
    for (size_t i = 0; i < ARRAY_LEN(modes); i++)
        assert_int_equal(scratch_run(open_with_few_files, &modes[i]), 0);
}

/* */
static void test_root__names_are_1_to_32_of_few_characters(void **state)
{
    static const char *const good[] = { "a",  "0",          "a-b",
                                        "a-", "desktop-12", "abcdefghijklmnopqrstuvwxyz012345" };
    static const char *const bad[] = {
        "",  "-a",  "A",   "a_b", "a.b",      "..",
        ".", "a/b", "a b", "a\n", "\xC3\xA9", "abcdefghijklmnopqrstuvwxyz0123456",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct error e = { 0 };

        assert_int_equal(root_check_name(good[i], &e), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct error e = { 0 };

        assert_int_equal(root_check_name(bad[i], &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_ARGS);
    }
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_root__reading_a_missing_one_succeeds_and_creates_nothing),
        WITH_SCRATCH(test_root__writing_makes_what_is_missing_with_the_exact_modes),
        WITH_SCRATCH(test_root__reading_a_bare_one_creates_nothing),
        WITH_SCRATCH(test_root__is_below_the_home_directory_unless_set),
        cmocka_unit_test(test_root__refuses_a_value_that_is_no_place),
        WITH_SCRATCH(test_root__refuses_what_may_not_be_trusted),
        WITH_SCRATCH(test_root__may_be_reached_through_links_and_end_with_slashes),
        WITH_SCRATCH(test_root__makes_only_the_last_component),
        WITH_SCRATCH(test_root__refuses_another_users),
        WITH_SCRATCH(test_root__refuses_another_users_even_when_it_cannot_be_opened),
        WITH_SCRATCH(test_root__does_not_go_through_links_below_it),
        WITH_SCRATCH(test_root__many_may_create_it_at_once),
        WITH_SCRATCH(test_root__on_a_read_only_file_system_is_perm_denied),
        WITH_SCRATCH(test_root__on_a_full_file_system_is_store_full),
        WITH_SCRATCH(test_root__without_a_free_descriptor_is_a_limit),
        cmocka_unit_test(test_root__names_are_1_to_32_of_few_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

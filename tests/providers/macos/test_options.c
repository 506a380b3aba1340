#include <fcntl.h>
#include <pwd.h>
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

#include "core/mem.h"
#include "providers/macos/options.h"
#include "tests/core/scratch.h"

static int check(const struct provider_option *rows, const char *key, const char *value,
                 char out[FACT_VALUE_SIZE], struct error *e)
{
    while (strcmp(rows->key, key) != 0)
        rows++;
    return rows->check(value, out, e);
}

static void must_refuse(const char *key, const char *value, const char *word)
{
    const struct provider_option *rows =
        strcmp(key, "title") == 0 ? macos_start_options : macos_create_options;
    char out[FACT_VALUE_SIZE];
    struct error e = { 0 };

    if (check(rows, key, value, out, &e) == 0)
        fail_msg("%s=%s is taken", key, value);
    assert_int_equal(e.code, ERROR_INVALID_ARGS);
    if (strstr(e.message, word) == NULL)
        fail_msg("%s", e.message);
}

/* --- ipsw --------------------------------------------------------------------------------------------- */

/* used in place, resolved against the caller's directory; the framework follows no links. */
static void test_ipsw__is_an_absolute_path_without_links(void **state)
{
    const struct scratch *s = *state;
    char out[FACT_VALUE_SIZE], here[4096];
    struct error e = { 0 };
    AUTO_FREE char *expected = NULL;

    assert_non_null(getcwd(here, sizeof(here)));
    scratch_write(s, "Mac.ipsw", "x");
    assert_int_equal(symlinkat("Mac.ipsw", s->dir, "link.ipsw"), 0);
    assert_int_equal(fchdir(s->dir), 0);
    assert_int_equal(check(macos_create_options, "ipsw", "./link.ipsw", out, &e), 0);
    assert_int_equal(chdir(here), 0);
    expected = mem_print("%s/Mac.ipsw", s->path);
    assert_string_equal(out, expected);
}

static void test_ipsw__latest_is_the_word(void **state)
{
    char out[FACT_VALUE_SIZE];
    struct error e = { 0 };

    (void)state;
    assert_int_equal(check(macos_create_options, "ipsw", "latest", out, &e), 0);
    assert_string_equal(out, "latest");
}

static void test_ipsw__anything_else_must_be_a_readable_image(void **state)
{
    const struct scratch *s = *state;
    AUTO_FREE char *missing = mem_print("%s/missing.ipsw", s->path);
    AUTO_FREE char *folder = mem_print("%s/folder.ipsw", s->path);
    AUTO_FREE char *other = mem_print("%s/image.dmg", s->path);
    AUTO_FREE char *hidden = mem_print("%s/.ipsw", s->path);
    AUTO_FREE char *disguised = mem_print("%s/disguised.ipsw", s->path);

    assert_int_equal(mkdirat(s->dir, "folder.ipsw", 0755), 0);
    scratch_write(s, "image.dmg", "x");
    assert_int_equal(symlinkat("image.dmg", s->dir, "disguised.ipsw"), 0);
    must_refuse("ipsw", missing, "latest");
    must_refuse("ipsw", missing, "No such file");
    must_refuse("ipsw", "", "latest");
    must_refuse("ipsw", folder, "regular file");
    must_refuse("ipsw", other, ".ipsw");
    must_refuse("ipsw", disguised, "image.dmg"); /* the name that counts is the file's own */
    must_refuse("ipsw", hidden, "No such file");
}

static void test_ipsw__a_path_that_cannot_be_recorded_is_refused(void **state)
{
    const struct scratch *s = *state;
    char name[240];

    memset(name, 'a', sizeof(name));
    memcpy(name + 230, ".ipsw", 6);
    scratch_write(s, name, "x");
    AUTO_FREE char *path = mem_print("%s/%s", s->path, name);

    must_refuse("ipsw", path, "longer than");
}

static int cannot_read(void *self)
{
    const struct scratch *s = self;
    AUTO_FREE char *path = mem_print("%s/Mac.ipsw", s->path);
    char out[FACT_VALUE_SIZE];
    struct error e = { 0 };

    CHECK(scratch_become_ordinary(s));
    CHECK(check(macos_create_options, "ipsw", path, out, &e) == -1);
    CHECK(e.code == ERROR_INVALID_ARGS && strstr(e.message, "cannot read") != NULL);
    return 0;
}

static void test_ipsw__one_that_may_not_be_read_is_refused(void **state)
{
    struct scratch *s = *state;

    scratch_write(s, "Mac.ipsw", "x");
    assert_int_equal(fchmodat(s->dir, "Mac.ipsw", 0, 0), 0);
    scratch_run_as_test(cannot_read, s);
}

/* --- user, title -------------------------------------------------------------------------------------- */

static void test_user__is_an_accounts_name(void **state)
{
    static const char *const fine[] = { "a", "sarah", "Sarah.Smith", "_www", "a-b_c.d9", "501" };
    static const char *const odd[] = { "",    "-oProxyCommand=x", ".",  "..", "a b", "a/b", "a'b",
                                       "a@b", "\xc3\xa9",         "a\n" };
    char out[FACT_VALUE_SIZE], longest[66];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
        struct error e = { 0 };

        assert_int_equal(check(macos_create_options, "user", fine[i], out, &e), 0);
        assert_string_equal(out, fine[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(odd); i++)
        must_refuse("user", odd[i], "account");
    memset(longest, 'a', 65);
    longest[65] = '\0';
    must_refuse("user", longest, "64");
}

static void test_title__is_one_line(void **state)
{
    char out[FACT_VALUE_SIZE], longest[FACT_VALUE_SIZE + 1];
    struct error e = { 0 };

    (void)state;
    assert_int_equal(
        check(macos_start_options, "title", "Review build \xe2\x80\x93 \"x\" $HOME --window", out, &e), 0);
    assert_string_equal(out, "Review build \xe2\x80\x93 \"x\" $HOME --window");
    must_refuse("title", "two\nlines", "one line");
    must_refuse("title", "\xff", "UTF-8");
    memset(longest, 'a', FACT_VALUE_SIZE);
    longest[FACT_VALUE_SIZE] = '\0';
    must_refuse("title", longest, "at most");
}

/* --- as a whole --------------------------------------------------------------------------------------- */

static int check_whole(struct facts *facts, const char *ipsw, const char *from, const char *user,
                       struct error *e)
{
    facts->count = 0;
    if (ipsw != NULL)
        facts_set(facts, "set.ipsw", ipsw);
    if (from != NULL)
        facts_set(facts, "set.from", from);
    if (user != NULL)
        facts_set(facts, "set.user", user);
    return macos_check_create(NULL, facts, e);
}

/* */
static void test_create__takes_exactly_one_source(void **state)
{
    static const struct {
        const char *ipsw, *from, *user;
        int result;
    } cases[] = {
        { NULL, NULL, NULL, -1 },          { NULL, NULL, "sarah", -1 },     { "latest", "base", NULL, -1 },
        { "latest", "base", "sarah", -1 }, { NULL, "base", "sarah", -1 },   { NULL, "base", NULL, 0 },
        { "latest", NULL, NULL, 0 },       { "/x.ipsw", NULL, "sarah", 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts facts;
        struct error e = { 0 };
        int result = check_whole(&facts, cases[i].ipsw, cases[i].from, cases[i].user, &e);

        assert_int_equal(result, cases[i].result);
        assert_int_equal(e.code, result < 0 ? ERROR_INVALID_ARGS : ERROR_NONE);
    }
}

static void test_create__without_a_source_names_all_of_them(void **state)
{
    struct facts facts;
    struct error e = { 0 };

    (void)state;
    check_whole(&facts, NULL, NULL, NULL, &e);
    assert_non_null(strstr(e.message, "ipsw=latest"));
    assert_non_null(strstr(e.message, "ipsw=PATH"));
    assert_non_null(strstr(e.message, "from=SANDBOX"));
}

static void test_create__the_account_is_the_callers_unless_it_is_given(void **state)
{
    struct facts facts;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(check_whole(&facts, "latest", NULL, NULL, &e), 0);
    assert_string_equal(facts_get(&facts, "set.user"), getpwuid(geteuid())->pw_name);
    assert_int_equal(check_whole(&facts, "latest", NULL, "sarah", &e), 0);
    assert_string_equal(facts_get(&facts, "set.user"), "sarah");
    assert_int_equal(check_whole(&facts, NULL, "base", NULL, &e), 0);
    assert_null(facts_get(&facts, "set.user")); /* a clone has its source's */
}

int main(void)
{
#define ON_DISK(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        ON_DISK(test_ipsw__is_an_absolute_path_without_links),
        cmocka_unit_test(test_ipsw__latest_is_the_word),
        ON_DISK(test_ipsw__anything_else_must_be_a_readable_image),
        ON_DISK(test_ipsw__a_path_that_cannot_be_recorded_is_refused),
        ON_DISK(test_ipsw__one_that_may_not_be_read_is_refused),
        cmocka_unit_test(test_user__is_an_accounts_name),
        cmocka_unit_test(test_title__is_one_line),
        cmocka_unit_test(test_create__takes_exactly_one_source),
        cmocka_unit_test(test_create__without_a_source_names_all_of_them),
        cmocka_unit_test(test_create__the_account_is_the_callers_unless_it_is_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The command line that copies a file, run by the shells that are here; whole connections are in
 * test_exec.py. */
#include "providers/remote/sync.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/mem.h"
#include "core/spawn.h"
#include "tests/core/scratch.h"

#define SUM "a9993e364706816aba3e25717850c26c9cd0d89d" /* of "abc": FIPS 180-4 */

/* What SHELL says to it with CONTENT as its input and the scratch directory as the home. */
static void copy(const struct scratch *s, const char *shell, const char *content, struct text *said)
{
    AUTO_FREE char *home = mem_print("HOME=%s", s->path);
    const char *const environment[] = { home, NULL };
    struct text command = { 0 };
    struct error e = { 0 };
    int status = -1;

    sync_print_command(&command, "tool", SUM, "0123456789abcdef");
    char *argv[] = { (char *)(uintptr_t)shell, (char *)(uintptr_t) "-c", command.bytes, NULL };

    scratch_write(s, "input", content);
    AUTO_CLOSE int input = openat(s->dir, "input", O_RDONLY | O_CLOEXEC);
    const struct spawn how = {
        .argv = argv, .environment = environment, .directory = s->dir, .streams = { input, -1, -1 }
    };

    assert_int_equal(spawn_capture(&how, 20000, 65536, said, NULL, &status, &e), 0);
    text_done(&command);
}

static void test_sync__every_shell_puts_the_whole_file_in_its_place(void **state)
{
    static const char *const shells[] = { "/bin/sh",       "/bin/bash", "/bin/zsh",
                                          "/usr/bin/fish", "/bin/tcsh", "/bin/ksh" };
    const struct scratch *s = *state;
    struct stat st;

    for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
        struct text said = { 0 };

        if (access(shells[i], X_OK) < 0)
            continue;
        copy(s, shells[i], "abc", &said);
        assert_string_equal(text_get(&said), "\n0123456789abcdef done\n");
        assert_int_equal(fstatat(s->dir, ".local/bin/tool", &st, 0), 0);
        assert_int_equal(st.st_size, 3);
        assert_int_equal(st.st_mode & 07777, 0755);
        text_done(&said);
        assert_int_equal(unlinkat(s->dir, ".local/bin/tool", 0), 0);
        assert_int_equal(unlinkat(s->dir, ".local/bin", AT_REMOVEDIR), 0); /* nothing else is left */
    }
}

static void test_sync__a_file_that_arrives_otherwise_leaves_the_old_one(void **state)
{
    const struct scratch *s = *state;
    struct text said = { 0 };

    copy(s, "/bin/sh", "abc", &said);
    for (size_t i = 0; i < 2; i++) {
        said.size = 0;
        copy(s, "/bin/sh", i == 0 ? "ab" : "abcd", &said);
        assert_string_equal(text_get(&said), "\n0123456789abcdef the copy is damaged\n");
        assert_true(scratch_exists(s, ".local/bin/tool"));
        assert_false(scratch_exists(s, ".local/bin/tool.new-0123456789abcdef"));
    }
    text_done(&said);
}

static void test_sync__hashes_what_the_file_holds(void **state)
{
    const struct scratch *s = *state;
    AUTO_FREE char *path = mem_print("%s/file", s->path);
    struct remote_file file = { "file", path };
    uint8_t sum[HASH_SHA1_SIZE];
    struct error e = { 0 };

    scratch_write(s, "file", "abc");
    assert_int_equal(sync_hash(&file, sum, &e), 0);
    assert_memory_equal(
        sum, "\xa9\x99\x3e\x36\x47\x06\x81\x6a\xba\x3e\x25\x71\x78\x50\xc2\x6c\x9c\xd0\xd8\x9d", sizeof(sum));
    file.path = "/no/such/file";
    assert_int_equal(sync_hash(&file, sum, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_non_null(strstr(e.message, "/no/such/file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sync__every_shell_puts_the_whole_file_in_its_place,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_sync__a_file_that_arrives_otherwise_leaves_the_old_one,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_sync__hashes_what_the_file_holds, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

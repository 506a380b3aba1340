#include "providers/remote/keys.h"

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

#include "core/spawn.h"
#include "tests/core/scratch.h"

#define WORD(text) ((char *)(uintptr_t)(text)) /* execve(2) takes no const, and changes nothing */

/* What ssh-keygen(1) says of a file. */
static void ask_ssh_keygen(const struct scratch *s, const char *option, const char *file, struct text *out)
{
    char *const argv[] = { WORD("/usr/bin/ssh-keygen"), WORD(option), WORD("-f"), WORD(file), NULL };
    const struct spawn how = { .argv = argv, .directory = s->dir, .streams = { -1, -1, -1 } };
    struct error e = { 0 };
    int status = -1;

    if (access("/usr/bin/ssh-keygen", X_OK) < 0)
        skip();
    assert_int_equal(spawn_capture(&how, 10000, 4096, out, NULL, &status, &e), 0);
    assert_int_equal(status, 0);
}

static void write_private(const struct scratch *s, const struct keys_pair *pair)
{
    scratch_write(s, "id", pair->private_file);
    assert_int_equal(fchmodat(s->dir, "id", 0600, 0), 0);
}

/* Comments of each length: the padding goes with it. */
static void test_keys__are_what_ssh_keygen_reads(void **state)
{
    const struct scratch *s = *state;
    char comment[KEYS_COMMENT_MAX + 1] = "";

    for (size_t size = 0; size <= KEYS_COMMENT_MAX; size += size < 10 ? 1 : 9) {
        struct keys_pair pair;
        struct text said = { 0 };
        struct error e = { 0 };

        memset(comment, 'c', size);
        comment[size] = '\0';
        assert_int_equal(keys_generate(comment, &pair, &e), 0);
        write_private(s, &pair);
        ask_ssh_keygen(s, "-y", "id", &said);
        assert_string_equal(text_get(&said), pair.public_line);
        text_done(&said);
        keys_forget(&pair);
    }
}

static void test_keys__public_lines_have_a_fingerprint(void **state)
{
    const struct scratch *s = *state;
    struct text one = { 0 }, other = { 0 };
    struct keys_pair pair;
    struct error e = { 0 };

    assert_int_equal(keys_generate("a comment", &pair, &e), 0);
    write_private(s, &pair);
    ask_ssh_keygen(s, "-l", "id", &one);
    scratch_write(s, "id.pub", pair.public_line);
    ask_ssh_keygen(s, "-l", "id.pub", &other);
    assert_string_equal(text_get(&one), text_get(&other));
    assert_non_null(strstr(text_get(&one), "(ED25519)"));
    text_done(&one);
    text_done(&other);
}

static void test_keys__no_two_are_the_same(void **state)
{
    struct keys_pair one, other;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(keys_generate("", &one, &e), 0);
    assert_int_equal(keys_generate("", &other, &e), 0);
    assert_string_not_equal(one.blob, other.blob);
    assert_string_not_equal(one.private_file, other.private_file);
}

static void test_keys__nothing_is_left_of_a_forgotten_one(void **state)
{
    static const struct keys_pair nothing;
    struct keys_pair pair;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(keys_generate("comment", &pair, &e), 0);
    keys_forget(&pair);
    assert_memory_equal(&pair, &nothing, sizeof(pair));
}

#define BLOB "AAAAC3NzaC1lZDI1NTE5AAAAIHVdvnflgPfKjYMtC7kxbY7SQFCUz24Rtv6mFFkhQEsF"

static const struct {
    const char *line;
    bool is_key;
    const char *why;
} lines[] = {
    { "ssh-ed25519 " BLOB " comment\n", true, "as ssh-keygen writes it" },
    { "ssh-ed25519 " BLOB, true, "without a comment and a line end" },
    { "ssh-ed25519 " BLOB "\r\n", true, "a line end of another system" },
    { "ssh-ed25519 " BLOB "\tcomment", true, "a tab" },
    { "", false, "nothing" },
    { "ssh-ed25519", false, "no blob" },
    { "ssh-ed25519 ", false, "an empty blob" },
    { "ssh-rsa " BLOB, false, "another type" },
    { " ssh-ed25519 " BLOB, false, "a blank in front" },
    { "no-pty ssh-ed25519 " BLOB, false, "options in front" },
    { "ssh-ed25519  " BLOB, false, "two blanks" },
    { "ssh-ed25519 " BLOB "A", false, "too long" },
    { "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVdvnflgPfKjYMtC7kxbY7SQFCUz24Rtv6mFFkhQEs", false, "too short" },
    { "ssh-ed25519 " BLOB "=", false, "padding where none is" },
    { "ssh-ed25519 AAAAB3NzaC1yc2EAAAADAQABAAAAIHVdvnflgPfKjYMtC7kxbY7SQFCUz24Rtv6mFFkhQEsF", false,
      "another type inside" },
    { "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVdvnflgPfKjYMtC7kxbY7SQFCUz24Rtv6mFFkhQEs-", false,
      "no base64" },
};

static void test_keys__reads_lines_of_one_type_and_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        char blob[KEYS_BLOB_SIZE] = "untouched";

        if (keys_read_blob(lines[i].line, blob) != lines[i].is_key)
            fail_msg("%s: '%s'", lines[i].why, lines[i].line);
        assert_string_equal(blob, lines[i].is_key ? BLOB : "untouched");
    }
}

static void test_keys__prints_what_it_reads(void **state)
{
    struct keys_pair pair;
    char blob[KEYS_BLOB_SIZE];
    uint8_t raw[KEYS_RAW_SIZE] = { 0,   0,   0,   11,  's', 's', 'h', '-', 'e', 'd',
                                   '2', '5', '5', '1', '9', 0,   0,   0,   32 };
    struct error e = { 0 };

    (void)state;
    assert_int_equal(keys_generate("x", &pair, &e), 0);
    assert_true(keys_read_blob(pair.public_line, blob));
    assert_string_equal(blob, pair.blob);
    assert_true(keys_print_blob(raw, sizeof(raw), blob));
    assert_string_equal(blob, "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    assert_false(keys_print_blob(raw, sizeof(raw) - 1, blob));
    raw[18] = 31;
    assert_false(keys_print_blob(raw, sizeof(raw), blob));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys__are_what_ssh_keygen_reads, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_keys__public_lines_have_a_fingerprint, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_keys__no_two_are_the_same),
        cmocka_unit_test(test_keys__nothing_is_left_of_a_forgotten_one),
        cmocka_unit_test(test_keys__reads_lines_of_one_type_and_size),
        cmocka_unit_test(test_keys__prints_what_it_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

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
#include "core/mem.h"
#include "providers/macos/files.h"
#include "tests/providers/macos/scripts.h"

static void ensure(const struct scripts *s, char folder[ROOT_PATH_MAX])
{
    struct error e = { 0 };

    if (files_ensure(&s->root, folder, &e) < 0)
        fail_msg("%s", e.message);
}

/* Are all files whole, with the right modes, and is nothing else there? */
static void assert_whole(const struct scripts *s, const char *folder)
{
    for (enum macos_file i = 0; i < MACOS_FILE_COUNT; i++) {
        AUTO_FREE char *path = mem_print("%s/%s", folder, macos_files[i].name), *bytes = NULL;
        bool program = strstr(macos_files[i].name, ".sh") != NULL;
        struct error e = { 0 };
        struct stat st;
        size_t size;

        assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &bytes, &size, &e), 1);
        assert_int_equal(size, macos_files[i].size);
        assert_memory_equal(bytes, macos_files[i].bytes, size);
        assert_int_equal(lstat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, program ? 0700 : 0600); /* */
    }
    assert_int_equal(scripts_shell(s, "ls -A \"$ROOT/providers/macos\" | wc -l | grep -qx 1"), 0);
}

/* Runs shell in the directory of the files. */
static void damage(const struct scripts *s, const char *folder, const char *command)
{
    AUTO_FREE char *line = mem_print("cd '%s' && %s", folder, command);

    assert_int_equal(scripts_shell(s, line), 0);
}

static void test_files__the_program_carries_the_sources_as_they_are(void **state)
{
    (void)state;
    for (enum macos_file i = 0; i < MACOS_FILE_COUNT; i++) {
        AUTO_FREE char *path = mem_print("%s/%s", AD_SOURCES, macos_files[i].name), *bytes = NULL;
        struct error e = { 0 };
        size_t size;

        assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &bytes, &size, &e), 1);
        assert_int_equal(size, macos_files[i].size);
        assert_memory_equal(bytes, macos_files[i].bytes, size + 1); /* and the NUL behind */
    }
    assert_string_equal(macos_files[FILE_PROVIDER_SH].name, "provider.sh");
    assert_string_equal(macos_files[FILE_VMHOST_SWIFT].name, "vmhost.swift");
    assert_string_equal(macos_files[FILE_VMHOST_ENTITLEMENTS].name, "vmhost.entitlements");
    assert_string_equal(macos_files[FILE_GUEST_SETUP_SH].name, "guest-setup.sh");
    assert_string_equal(macos_files[FILE_HELPER_SWIFT].name, "agent-desktop-macos-helper.swift");
}

/* */
static void test_files__are_written_below_their_hash(void **state)
{
    const struct scripts *s = *state;
    char folder[ROOT_PATH_MAX], again[ROOT_PATH_MAX];
    AUTO_FREE char *parent = mem_print("%s/providers/macos/", s->root.path);

    ensure(s, folder);
    assert_memory_equal(folder, parent, strlen(parent));
    assert_int_equal(strspn(folder + strlen(parent), "0123456789abcdef"), 32);
    assert_int_equal(strlen(folder), strlen(parent) + 32);
    assert_whole(s, folder);
    assert_int_equal(
        scripts_shell(
            s,
            "[ \"$(stat -c %a \"$ROOT/providers\" \"$ROOT/providers/macos\" \"$ROOT\"/providers/macos/*)\" = "
            "\"$(printf '700\\n700\\n700')\" ]"),
        0);
    ensure(s, again);
    assert_string_equal(again, folder);
}

static void test_files__each_has_its_path(void **state)
{
    const struct scripts *s = *state;
    char folder[ROOT_PATH_MAX], path[ROOT_PATH_MAX];
    struct error e = { 0 };

    assert_int_equal(files_path(&s->root, FILE_GUEST_SETUP_SH, path, &e), 0);
    ensure(s, folder);
    AUTO_FREE char *expected = mem_print("%s/guest-setup.sh", folder);

    assert_string_equal(path, expected);
    assert_whole(s, folder);
}

/* whatever was done to one of them, by accident or not. */
static void test_files__damage_is_noticed_and_made_good(void **state)
{
    static const char *const damages[] = {
        "rm provider.sh",
        ": >provider.sh",
        "echo >>provider.sh",
        "printf x | dd of=vmhost.swift bs=1 seek=100 conv=notrunc 2>/dev/null",
        "chmod 644 vmhost.entitlements",
        "chmod 600 provider.sh",
        "chmod 000 provider.sh",
        "rm provider.sh && mkdir -p provider.sh/full && touch provider.sh/full/x",
        "rm provider.sh && ln -s vmhost.swift provider.sh",
        "rm provider.sh && mkfifo provider.sh",
        "rm ./*",
        "chmod 755 .",
        "chmod 000 .",
        "rm -r \"$PWD\"",
        "rm -r \"$PWD\" && : >\"$PWD\"",
        "mv \"$PWD\" \"$MAC/moved\" && ln -s \"$MAC/moved\" \"$PWD\"",
    };
    const struct scripts *s = *state;
    char folder[ROOT_PATH_MAX];

    ensure(s, folder);
    for (size_t i = 0; i < ARRAY_LEN(damages); i++) {
        damage(s, folder, damages[i]);
        ensure(s, folder);
        assert_whole(s, folder);
    }
}

/* Never changed in place: a shell reads its script while it runs it. */
static void test_files__who_reads_a_damaged_one_keeps_it(void **state)
{
    const struct scripts *s = *state;
    char folder[ROOT_PATH_MAX], path[ROOT_PATH_MAX], byte;
    struct error e = { 0 };

    assert_int_equal(files_path(&s->root, FILE_PROVIDER_SH, path, &e), 0);
    ensure(s, folder);
    damage(s, folder, "echo damaged >provider.sh");
    AUTO_CLOSE int old = open(path, O_RDONLY | O_CLOEXEC);

    ensure(s, folder);
    assert_int_equal(pread(old, &byte, 1, 0), 1);
    assert_int_equal(byte, 'd');
    assert_whole(s, folder);
}

static int ensure_in_child(void *arg)
{
    const struct scripts *s = arg;
    char folder[ROOT_PATH_MAX];
    struct error e = { 0 };

    CHECK(files_ensure(&s->root, folder, &e) == 0);
    return 0;
}

static void test_files__many_commands_may_write_them_at_once(void **state)
{
    struct scripts *s = *state;
    char folder[ROOT_PATH_MAX];
    pid_t children[8];

    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < ARRAY_LEN(children); i++)
            children[i] = scratch_start(ensure_in_child, s);
        for (size_t i = 0; i < ARRAY_LEN(children); i++)
            assert_int_equal(scratch_wait(children[i]), 0);
        ensure(s, folder);
        assert_whole(s, folder);
        damage(s, folder, "rm -r \"$PWD\"");
    }
}

/* ---- what is built ---- */

/* by the hash of its source, so that a new build with an unchanged source uses it on. */
static void test_files__what_is_built_has_a_place_of_its_own(void **state)
{
    const struct scripts *s = *state;
    char vmhost[ROOT_PATH_MAX], helper[ROOT_PATH_MAX];
    AUTO_FREE char *parent = mem_print("%s/providers/macos/", s->root.path);

    files_built_path(&s->root, BUILT_VMHOST, vmhost);
    files_built_path(&s->root, BUILT_HELPER, helper);
    assert_memory_equal(vmhost, parent, strlen(parent));
    assert_memory_equal(vmhost + strlen(parent), "vmhost-", strlen("vmhost-"));
    assert_string_equal(strrchr(vmhost, '/'), "/vmhost");
    assert_memory_equal(helper + strlen(parent), "helper-", strlen("helper-"));
    assert_string_equal(strrchr(helper, '/'), "/agent-desktop-macos-helper");
    assert_int_equal(scripts_shell(s, "[ ! -e \"$ROOT/providers\" ]"), 0);
}

static void test_files__only_a_program_of_ours_counts_as_built(void **state)
{
    static const struct {
        const char *command;
        bool built;
    } cases[] = {
        { "true", false },
        { "mkdir -p \"$D\"", false },
        { "echo x >\"$D/vmhost\" && chmod 700 \"$D/vmhost\"", true },
        { "chmod 600 \"$D/vmhost\"", false },
        { "chmod 777 \"$D/vmhost\"", false },
        { "rm \"$D/vmhost\" && ln -s /bin/true \"$D/vmhost\"", false },
        { "rm \"$D/vmhost\" && mkdir -m 700 \"$D/vmhost\"", false },
    };
    const struct scripts *s = *state;
    char path[ROOT_PATH_MAX];

    files_built_path(&s->root, BUILT_VMHOST, path);
    *strrchr(path, '/') = '\0';
    setenv("D", path, 1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(scripts_shell(s, cases[i].command), 0);
        if (files_is_built(&s->root, BUILT_VMHOST) != cases[i].built)
            fail_msg("%s", cases[i].command);
    }
}

/* a question on a root that does not exist makes nothing. */
static void test_files__without_a_root_nothing_is_built(void **state)
{
    const struct root missing = { .path = "/nonexistent/root", .dir = -1, .sandboxes = -1, .locks = -1 };

    (void)state;
    assert_false(files_is_built(&missing, BUILT_VMHOST));
    assert_false(files_is_built(&missing, BUILT_HELPER));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, scripts_setup, scripts_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_files__the_program_carries_the_sources_as_they_are),
        TEST(test_files__are_written_below_their_hash),
        TEST(test_files__each_has_its_path),
        TEST(test_files__damage_is_noticed_and_made_good),
        TEST(test_files__who_reads_a_damaged_one_keeps_it),
        TEST(test_files__many_commands_may_write_them_at_once),
        TEST(test_files__what_is_built_has_a_place_of_its_own),
        TEST(test_files__only_a_program_of_ours_counts_as_built),
        TEST(test_files__without_a_root_nothing_is_built),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

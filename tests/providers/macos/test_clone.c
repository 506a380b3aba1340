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

#include "core/mem.h"
#include "tests/providers/macos/fake_guest.h"
#include "tests/providers/macos/machine.h"

static struct sandbox open_clone(const struct machine *m, const char *name, const struct sandbox *source)
{
    struct sandbox s = machine_open(m, name, NULL);

    s.place.source = source->place.name;
    s.place.source_facts = &source->facts;
    facts_set(&s.facts, "set.from", source->place.name);
    return s;
}

static void must_be_equal(const struct sandbox *a, const struct sandbox *b, const char *file)
{
    AUTO_FREE char *one = machine_read(a, file);
    AUTO_FREE char *other = machine_read(b, file);

    assert_non_null(one);
    assert_non_null(other);
    assert_string_equal(one, other);
}

/* */
static void test_clone__has_the_disk_the_key_the_setup_and_the_account(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox source = machine_set_up(m, "base");
    AUTO_SANDBOX struct sandbox s = open_clone(m, "work", &source);
    AUTO_FREE char *compare = mem_print("cmp '%s/sandboxes/base/vm/disk.img' '%s/sandboxes/work/vm/disk.img'",
                                        m->root->path, m->root->path);

    /* less of a hole to compare; vmhost makes it large */
    AUTO_FREE char *disk = mem_print("%s/sandboxes/base/vm/disk.img", m->root->path);

    assert_int_equal(truncate(disk, 1 << 20), 0);
    machine_must_run(&s, OPERATION_CLONE);
    assert_int_equal(scripts_shell(m->scripts, compare), 0);
    must_be_equal(&source, &s, "id_ed25519");
    must_be_equal(&source, &s, "id_ed25519.pub");
    must_be_equal(&source, &s, "vm/aux.img");
    assert_int_equal(machine_mode(&s, "id_ed25519"), 0600);
    assert_int_equal(machine_mode(&s, "vm/disk.img"), 0600);
    assert_string_equal(facts_get(&s.facts, "user"), "somebody");
    assert_string_equal(facts_get(&s.facts, "image"), "26.1 (25B78)");
    assert_string_equal(facts_get(&s.facts, "setup"), "done");
    assert_false(machine_has(&s, "progress.json"));
}

/* a new machine, with a host key that is pinned before anybody has seen it. */
static void test_clone__is_a_new_machine(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox source = machine_set_up(m, "base");
    AUTO_FREE char *before = machine_read(&source, "vm/vm.json");
    AUTO_SANDBOX struct sandbox s = open_clone(m, "work", &source);

    machine_must_run(&s, OPERATION_CLONE);
    AUTO_FREE char *identity = machine_read(&s, "vm/vm.json");
    AUTO_FREE char *after = machine_read(&source, "vm/vm.json");
    AUTO_FREE char *known = machine_read(&s, "known_hosts");

    assert_string_not_equal(identity, before);
    assert_string_equal(after, before);
    assert_string_not_equal(facts_get(&s.facts, "mac"), facts_get(&source.facts, "mac"));
    assert_non_null(strstr(identity, facts_get(&s.facts, "mac")));
    assert_string_equal(facts_get(&s.facts, "hostkey"), fake_guest.disk_key);
    assert_string_not_equal(facts_get(&s.facts, "hostkey"), facts_get(&source.facts, "hostkey"));
    assert_non_null(strstr(fake_guest.disk_path, "/sandboxes/work/vm/disk.img"));
    assert_memory_equal(known, "work ssh-ed25519 AAAA", strlen("work ssh-ed25519 AAAA"));
    assert_non_null(strstr(known, fake_guest.disk_key));
}

/* refused with its state named. */
static void test_clone__of_a_guest_without_its_setup_is_refused(void **state)
{
    static const struct {
        const char *setup, *words;
    } cases[] = { { "", "never set up" }, { "lost", "lost its setup" } };
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox source = machine_create(m, "base");

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_SANDBOX struct sandbox s = open_clone(m, "work", &source);
        struct error e = { 0 }, again = { 0 };

        facts_set(&source.facts, "setup", cases[i].setup);
        assert_int_equal(macos_check_clone(machine_vm(&s), &e), -1);
        assert_int_equal(e.code, ERROR_INVALID_STATE);
        assert_non_null(strstr(e.message, "'base': it is stopped"));
        assert_non_null(strstr(e.message, cases[i].words));
        assert_int_equal(machine_run(&s, OPERATION_CLONE, &again), -1); /* whoever did not ask before */
        assert_int_equal(again.code, ERROR_INVALID_STATE);
        assert_false(machine_has(&s, "."));
    }
}

/* */
static void test_clone__of_a_disk_that_cannot_be_opened_fails(void **state)
{
    AUTO_SANDBOX struct sandbox source = machine_set_up(*state, "base");
    AUTO_SANDBOX struct sandbox s = open_clone(*state, "work", &source);
    struct error e = { 0 };

    fake_guest.disk_error = ERROR_ACTION_FAILED;
    assert_int_equal(machine_run(&s, OPERATION_CLONE, &e), -1);
    assert_non_null(strstr(e.message, "FileVault"));
    assert_null(facts_get(&s.facts, "hostkey"));
}

/* Its guest would make a key at the first connection, and whoever answers first would be believed. */
static void test_clone__of_a_guest_without_a_host_key_fails(void **state)
{
    AUTO_SANDBOX struct sandbox source = machine_set_up(*state, "base");
    AUTO_SANDBOX struct sandbox s = open_clone(*state, "work", &source);
    struct error e = { 0 };

    fake_guest.disk_has_key = false;
    assert_int_equal(machine_run(&s, OPERATION_CLONE, &e), -1);
    assert_non_null(strstr(e.message, "repeat the setup"));
    assert_null(facts_get(&s.facts, "setup"));
}

static void test_clone__without_a_file_of_its_source_fails(void **state)
{
    static const char *const files[] = { "id_ed25519", "vm/aux.img", "vm/disk.img", "vm/vm.json" };
    const struct machine *m = *state;

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        AUTO_FREE char *name = mem_print("base%zu", i);
        AUTO_FREE char *clone = mem_print("work%zu", i);
        AUTO_SANDBOX struct sandbox source = machine_set_up(m, name);
        AUTO_SANDBOX struct sandbox s = open_clone(m, clone, &source);
        AUTO_FREE char *command =
            mem_print("rm \"$ROOT/sandboxes/%s/%s\" && ln -s /etc/passwd \"$ROOT/sandboxes/%s/%s\"", name,
                      files[i], name, files[i]);
        struct error e = { 0 };

        assert_int_equal(scripts_shell(m->scripts, command), 0); /* a link is no file of the source's */
        assert_int_equal(machine_run(&s, OPERATION_CLONE, &e), -1);
        assert_false(machine_has(&s, files[i]));
        assert_false(machine_has(&s, "progress.json"));
    }
}

static void test_clone__of_a_guest_that_still_runs_is_refused(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox source = machine_start(m, "base");
    AUTO_SANDBOX struct sandbox s = open_clone(m, "work", &source);
    struct error e = { 0 };

    assert_int_equal(machine_run(&s, OPERATION_CLONE, &e), -1);
    assert_int_equal(e.code, ERROR_SANDBOX_BUSY);
    assert_false(machine_has(&s, "."));
}

static void test_clone__never_fills_what_somebody_put_there(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox source = machine_set_up(m, "base");
    AUTO_SANDBOX struct sandbox s = open_clone(m, "work", &source);
    struct error e = { 0 };

    assert_int_equal(scripts_shell(m->scripts, "mkdir -p \"$ROOT/sandboxes/work/vm\" && "
                                               "echo mine >\"$ROOT/sandboxes/work/vm/disk.img\""),
                     0);
    assert_int_equal(machine_run(&s, OPERATION_CLONE, &e), -1);
    assert_int_equal(e.code, ERROR_SANDBOX_EXISTS);
    AUTO_FREE char *disk = machine_read(&s, "vm/disk.img");

    assert_string_equal(disk, "mine\n");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_clone__has_the_disk_the_key_the_setup_and_the_account),
        TEST(test_clone__is_a_new_machine),
        TEST(test_clone__of_a_guest_without_its_setup_is_refused),
        TEST(test_clone__of_a_disk_that_cannot_be_opened_fails),
        TEST(test_clone__of_a_guest_without_a_host_key_fails),
        TEST(test_clone__without_a_file_of_its_source_fails),
        TEST(test_clone__of_a_guest_that_still_runs_is_refused),
        TEST(test_clone__never_fills_what_somebody_put_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

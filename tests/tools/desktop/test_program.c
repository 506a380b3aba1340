#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/util.h"
#include "tools/desktop/program.h"
#include "tools/desktop/spawn.h"

struct fixture {
    char dir[64];
};

static void write_file(const struct fixture *f, const char *name, mode_t mode, const char *bytes)
{
    AUTO_FREE char *path = mem_print("%s/%s", f->dir, name);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);

    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, bytes, strlen(bytes)), 0);
}

static void make_dir(const struct fixture *f, const char *name)
{
    AUTO_FREE char *path = mem_print("%s/%s", f->dir, name);

    assert_int_equal(mkdir(path, 0700), 0);
}

static int make_machine(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    AUTO_FREE char *path = NULL;

    strcpy(f->dir, "/tmp/test-program-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    make_dir(f, "bin");
    make_dir(f, "applications");
    make_dir(f, "bin/directory");
    write_file(f, "bin/adder", 0700, "#!/bin/sh\n/bin/sleep 30\n");
    write_file(f, "bin/broken", 0700, "#!/nonexistent/interpreter\n");
    write_file(f, "bin/data", 0600, "not a program");
    write_file(f, "applications/org.example.Adder.desktop", 0600,
               "[Desktop Entry]\nType=Application\nName=Adding Machine\nExec=adder --sum %U\n");
    write_file(f, "applications/removed.desktop", 0600,
               "[Desktop Entry]\nType=Application\nName=Removed\nExec=is-not-there\n");
    write_file(f, "applications/noise.txt", 0600,
               "[Desktop Entry]\nType=Application\nName=Noise\nExec=adder\n");
    path = mem_print("%s/bin", f->dir);
    setenv("PATH", path, 1);
    setenv("XDG_DATA_DIRS", f->dir, 1);
    setenv("HOME", f->dir, 1);
    *state = f;
    return 0;
}

static int remove_machine(void **state)
{
    struct fixture *f = *state;
    struct error e = { 0 };
    AUTO_CLOSE int tmp = open("/tmp", O_RDONLY | O_DIRECTORY);
    const int result = file_remove_tree(tmp, strrchr(f->dir, '/') + 1, &e);

    free(f);
    return result;
}

static void test_program__is_found_by_each_of_its_names(void **state)
{
    const struct fixture *f = *state;
    AUTO_FREE char *absolute = mem_print("%s/bin/adder", f->dir);
    const struct {
        const char *app, *name;
        size_t argc;
    } cases[] = {
        { "adder", "adder", 1 },
        { absolute, "adder", 1 },
        { "org.example.Adder", "Adding Machine", 2 },
        { "org.example.Adder.desktop", "Adding Machine", 2 },
        { "Adder", "Adding Machine", 2 }, /* not the file: names on PATH are exact */
        { "adding machine", "Adding Machine", 2 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct program program;

        assert_int_equal(program_find(cases[i].app, &program), 1);
        assert_string_equal(program.name, cases[i].name);
        assert_string_equal(program.argv[0], absolute);
        assert_int_equal(program.argc, cases[i].argc);
        if (program.argc == 2)
            assert_string_equal(program.argv[1], "--sum");
        program_done(&program);
    }
}

static void test_program__is_not_found_where_nothing_can_be_started(void **state)
{
    static const char *const apps[] = { "",      "nonesuch", "data",    "directory",  "removed",
                                        "noise", "/",        "./adder", "/etc/passwd" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(apps); i++) {
        struct program program;

        if (program_find(apps[i], &program) != 0)
            fail_msg("'%s' was found", apps[i]);
        assert_int_equal(program.argc, 0);
    }
}

static void test_program__names_the_nearest(void **state)
{
    AUTO_FREE char *near = program_find_near("addr"), *none = program_find_near("zzzzzzzzzz");

    (void)state;
    assert_string_equal(near, "adder");
    assert_null(none);
}

static void test_program__is_recognised_in_a_running_process(void **state)
{
    AUTO_CLOSE int null = open("/dev/null", O_WRONLY);
    struct error e = { 0 };
    struct program program;
    pid_t pid, session;

    (void)state;
    assert_int_equal(program_find("Adder", &program), 1);
    assert_int_equal(spawn_detached(program.argv, null, &pid, &session, &e), 0);
    /* The exec is known to have succeeded a moment before the process shows its new command line. */
    for (int turn = 0; turn < 1000 && !program_is_run_by(pid, "adder", NULL); turn++)
        usleep(5000);
    assert_true(program_is_run_by(pid, "adder", NULL)); /* a script: by the interpreter's argument */
    assert_true(program_is_run_by(pid, "Adding Machine", &program));
    assert_false(program_is_run_by(pid, "subtracter", NULL));
    assert_false(program_is_run_by(0, "adder", NULL));
    assert_int_equal(kill(-session, SIGKILL), 0);
    program_done(&program);
}

static void test_spawn__detaches_what_it_starts(void **state)
{
    const struct fixture *f = *state;
    const int inherited = open("/dev/null", O_RDONLY); /* not close-on-exec: must not arrive all the same */
    AUTO_FREE char *file = mem_print("%s/output", f->dir);
    AUTO_FREE char *script =
        mem_print("echo $$; [ -e /proc/$$/fd/%d ] && echo inherited; cat; echo end", inherited);
    AUTO_FREE char *expected = NULL;
    AUTO_CLOSE int output = open(file, O_RDWR | O_CREAT, 0600);
    const char *const argv[] = { "/bin/sh", "-c", script, NULL };
    struct error e = { 0 };
    char bytes[256] = "";
    pid_t pid, session;

    setenv("PATH", "/usr/bin:/bin", 1);
    assert_int_equal(spawn_detached((char *const *)argv, output, &pid, &session, &e), 0);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1); /* nobody's child */
    assert_int_not_equal(session, getsid(0));
    for (int turn = 0; turn < 1000 && strstr(bytes, "end\n") == NULL; turn++) {
        usleep(5000);
        bytes[pread(output, bytes, sizeof bytes - 1, 0)] = '\0';
    }
    expected = mem_print("%d\nend\n", (int)pid);
    assert_string_equal(bytes, expected);
    close(inherited);
}

static void test_spawn__tells_that_an_exec_failed(void **state)
{
    const struct fixture *f = *state;
    AUTO_FREE char *broken = mem_print("%s/bin/broken", f->dir);
    AUTO_CLOSE int null = open("/dev/null", O_WRONLY);
    pid_t pid = -7, session = -7;
    struct error e = { 0 };

    assert_int_equal(spawn_detached((char *[]){ broken, NULL }, null, &pid, &session, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_string_equal(error_delivery_name(&e), "not_delivered");
    assert_int_equal(pid, -7);
}

#define WITH_MACHINE(f) cmocka_unit_test_setup_teardown(f, make_machine, remove_machine)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_MACHINE(test_program__is_found_by_each_of_its_names),
        WITH_MACHINE(test_program__is_not_found_where_nothing_can_be_started),
        WITH_MACHINE(test_program__names_the_nearest),
        WITH_MACHINE(test_program__is_recognised_in_a_running_process),
        WITH_MACHINE(test_spawn__detaches_what_it_starts),
        WITH_MACHINE(test_spawn__tells_that_an_exec_failed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Families of processes of this test; their parent is this process and not PID 1, which makes no difference
 * but that orphans go elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/process.h"
#include "core/util.h"
#include "providers/linux/family.h"

static struct family family;

/* `sh -c SCRIPT` as the leader of a group; its first line is a pid, in *TOLD. */
static pid_t start_leader(const char *script, pid_t *told)
{
    int ends[2];
    char line[32] = "";
    pid_t pid;
    size_t have = 0;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        setsid();
        dup2(ends[1], 1);
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    while (have + 1 < sizeof(line) && read(ends[0], line + have, 1) == 1 && line[have] != '\n')
        have++;
    close(ends[0]);
    *told = (pid_t)strtol(line, NULL, 10);
    assert_true(*told > 0);
    return pid;
}

static bool is_gone(pid_t pid)
{
    struct process_id id;
    int64_t end_ms = clock_mono_ms() + 2000;

    while (process_read(pid, &id) == 0 && clock_mono_ms() < end_ms)
        clock_sleep_ms(1);
    return process_read(pid, &id) < 0;
}

static void reap_all(void)
{
    while (waitpid(-1, NULL, 0) > 0)
        ;
}

static void test_family__a_descendant_in_another_session_is_found(void **state)
{
    pid_t child, leader = start_leader("setsid sh -c 'echo $$; exec sleep 100' & wait", &child);

    (void)state;
    assert_true(family_lives(&family, leader));
    family_kill(&family, &leader, 1);
    reap_all();
    assert_true(is_gone(child));
    assert_false(family_lives(&family, leader));
}

static void test_family__who_was_remembered_is_found_without_its_parent(void **state)
{
    pid_t child, leader = start_leader("setsid sh -c 'echo $$; exec sleep 100' & wait", &child);

    (void)state;
    family_remember(&family, leader);
    kill(leader, SIGKILL);
    waitpid(leader, NULL, 0);
    assert_true(family_lives(&family, leader));
    family_kill(&family, &leader, 1);
    assert_true(is_gone(child));
    family_forget(&family, leader);
    assert_int_equal(family.kin_count, 0);
}

static void test_family__who_left_before_is_nobodys(void **state)
{
    pid_t child, leader = start_leader("setsid sh -c 'echo $$; exec sleep 100' & sleep 0.1", &child);

    (void)state;
    waitpid(leader, NULL, 0);
    assert_false(family_lives(&family, leader));
    family_kill(&family, &leader, 1);
    assert_false(kill(child, 0) < 0);
    kill(child, SIGKILL);
    reap_all();
}

/* What forks all the time and ignores what can be ignored does not get away. */
static void test_family__a_fork_storm_ends(void **state)
{
    pid_t child,
        leader = start_leader(
            "trap '' TERM INT HUP; f() { setsid sh -c 'while :; do sleep 0.001 & sleep 0.002; done' & }; "
            "f; f; f; f; echo $$; wait",
            &child);

    (void)state;
    clock_sleep_ms(100); /* some generations */
    family_kill(&family, &leader, 1);
    reap_all();
    assert_true(is_gone(leader));
    assert_false(family_lives(&family, leader));
}

static void test_family__stopped_ones_end_too(void **state)
{
    pid_t child, leader = start_leader("echo $$; kill -STOP $$; sleep 100", &child);

    (void)state;
    assert_int_equal(waitpid(leader, NULL, WUNTRACED), leader);
    family_kill(&family, &leader, 1);
    reap_all();
    assert_true(is_gone(leader));
}

static void test_family__names_with_brackets_and_blanks_are_read(void **state)
{
    pid_t child, leader = start_leader(
                     "cp /bin/sleep '/tmp/a) R 1 (b'; setsid '/tmp/a) R 1 (b' 100 & echo $!; wait", &child);

    (void)state;
    clock_sleep_ms(20);
    family_kill(&family, &leader, 1);
    reap_all();
    assert_true(is_gone(child));
    unlink("/tmp/a) R 1 (b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_family__a_descendant_in_another_session_is_found),
        cmocka_unit_test(test_family__who_was_remembered_is_found_without_its_parent),
        cmocka_unit_test(test_family__who_left_before_is_nobodys),
        cmocka_unit_test(test_family__a_fork_storm_ends),
        cmocka_unit_test(test_family__stopped_ones_end_too),
        cmocka_unit_test(test_family__names_with_brackets_and_blanks_are_read),
    };

    /* Orphans come to us, as to PID 1 of a sandbox. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

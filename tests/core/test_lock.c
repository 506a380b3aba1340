#include "core/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/clock.h"
#include "tests/core/scratch.h"

/* A child that holds the lock until it is killed or its pipe ends. */
struct holder {
    const struct scratch *s;
    enum lock_mode mode;
    int ready[2];
    int hold_ms; /* 0: until killed */
};

static int hold(void *arg)
{
    const struct holder *h = arg;
    struct error e = { 0 };
    int fd;

    if (lock_take(h->s->dir, "a.op", h->mode, 0, &fd, &e) != 1 || write(h->ready[1], "x", 1) != 1)
        return 1;
    if (h->hold_ms == 0)
        pause();
    clock_sleep_ms(h->hold_ms);
    return 0;
}

static pid_t start_holder(const struct scratch *s, enum lock_mode mode, int hold_ms)
{
    struct holder h = { .s = s, .mode = mode, .hold_ms = hold_ms };
    char byte;
    pid_t pid;

    assert_int_equal(pipe(h.ready), 0);
    pid = scratch_start(hold, &h);
    assert_int_equal(read(h.ready[0], &byte, 1), 1);
    close(h.ready[0]);
    close(h.ready[1]);
    return pid;
}

static void end_holder(pid_t pid)
{
    kill(pid, SIGKILL);
    scratch_wait(pid);
}

/* */
static void test_lock__makes_its_file_0600_and_close_on_exec_whatever_the_umask(void **state)
{
    const struct scratch *s = *state;
    mode_t old = umask(0);
    struct error e = { 0 };
    int wide = -1, tight = -1;

    assert_int_equal(lock_take(s->dir, "a.op", LOCK_EXCLUSIVE, 0, &wide, &e), 1);
    umask(0777);
    assert_int_equal(lock_take(s->dir, "b.op", LOCK_EXCLUSIVE, 0, &tight, &e), 1);
    umask(old);
    assert_int_equal(scratch_mode(s, "a.op"), 0600);
    assert_int_equal(scratch_mode(s, "b.op"), 0600);
    assert_true(fcntl(wide, F_GETFD) & FD_CLOEXEC);
    close(wide);
    close(tight);
}

static void test_lock__never_follows_a_link_or_takes_a_fifo(void **state)
{
    const struct scratch *s = *state;
    struct error link = { 0 }, fifo = { 0 };
    int fd = -7;

    assert_int_equal(symlinkat("target", s->dir, "a.op"), 0);
    assert_int_equal(lock_take(s->dir, "a.op", LOCK_EXCLUSIVE, 0, &fd, &link), -1);
    assert_false(scratch_exists(s, "target"));
    assert_int_equal(mkfifoat(s->dir, "f.op", 0600), 0);
    assert_int_equal(lock_take(s->dir, "f.op", LOCK_EXCLUSIVE, 0, &fd, &fifo), -1);
    assert_int_equal(fd, -7);
    assert_true(link.code != ERROR_NONE && fifo.code != ERROR_NONE);
}

static void test_lock__is_busy_while_somebody_has_it(void **state)
{
    const struct scratch *s = *state;
    pid_t holder = start_holder(s, LOCK_EXCLUSIVE, 0);
    int64_t begin = clock_mono_ms();
    struct error e = { 0 };
    int fd = -7;

    assert_int_equal(lock_take(s->dir, "a.op", LOCK_EXCLUSIVE, 0, &fd, &e), 0);
    assert_true(clock_mono_ms() - begin < 40);
    assert_int_equal(lock_take(s->dir, "a.op", LOCK_SHARED, 50, &fd, &e), 0);
    assert_true(clock_mono_ms() - begin >= 49);
    assert_int_equal(fd, -7);
    end_holder(holder);
    assert_int_equal(lock_take(s->dir, "a.op", LOCK_EXCLUSIVE, 0, &fd, &e), 1); /* the kernel freed it */
    close(fd);
}

static void test_lock__is_taken_as_soon_as_it_is_free(void **state)
{
    const struct scratch *s = *state;
    pid_t holder = start_holder(s, LOCK_EXCLUSIVE, 50);
    int64_t begin = clock_mono_ms();
    struct error e = { 0 };
    int fd = -1;

    assert_int_equal(lock_take(s->dir, "a.op", LOCK_EXCLUSIVE, 20000, &fd, &e), 1);
    assert_true(clock_mono_ms() - begin < 10000);
    close(fd);
    assert_int_equal(scratch_wait(holder), 0);
}

static int sleep_until_killed(void *arg)
{
    (void)arg;
    pause();
    return 0;
}

static void test_lock__lives_until_the_last_inherited_copy_is_closed(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    int fd = -1;
    pid_t heir;

    assert_int_equal(lock_take(s->dir, "a.op", LOCK_EXCLUSIVE, 0, &fd, &e), 1);
    heir = scratch_start(sleep_until_killed, NULL);
    close(fd);
    assert_int_equal(lock_is_held(s->dir, "a.op", &e), 1);
    end_holder(heir);
    assert_int_equal(lock_is_held(s->dir, "a.op", &e), 0);
}

static void test_lock__a_probe_takes_nothing_and_makes_nothing(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    pid_t holder;
    int fd = -1;

    assert_int_equal(lock_is_held(s->dir, "none.op", &e), 0);
    assert_false(scratch_exists(s, "none.op"));
    holder = start_holder(s, LOCK_SHARED, 0);
    assert_int_equal(lock_is_held(s->dir, "a.op", &e), 0); /* not exclusively */
    end_holder(holder);
    assert_int_equal(lock_is_held(s->dir, "a.op", &e), 0);
    assert_int_equal(lock_take(s->dir, "a.op", LOCK_EXCLUSIVE, 0, &fd, &e), 1);
    close(fd);
}

static void test_lock__says_why_when_it_cannot(void **state)
{
    struct error open = { 0 }, lock = { 0 }, probe = { 0 };
    int fd = -1;

    (void)state;
    assert_int_equal(lock_take(-1, "a.op", LOCK_EXCLUSIVE, 0, &fd, &open), -1);
    assert_int_equal(lock_take_fd(-1, LOCK_EXCLUSIVE, 0, &lock), -1);
    assert_int_equal(lock_is_held(-1, "a.op", &probe), -1);
    assert_int_equal(open.sys, EBADF);
    assert_int_equal(lock.sys, EBADF);
    assert_int_equal(probe.sys, EBADF);
}

struct mounted {
    struct scratch *s;
    unsigned long flags;
    const char *options;
    enum error_code code;
};

static int lock_on_mount(void *arg)
{
    const struct mounted *m = arg;
    struct error e = { 0 };
    int fd = -1;

    if (!scratch_isolate_mounts(m->s) || mount("tmpfs", m->s->path, "tmpfs", m->flags, m->options) < 0)
        return SCRATCH_SKIP;
    int dir = open(m->s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(lock_take(dir, "a.op", LOCK_EXCLUSIVE, 0, &fd, &e) == -1);
    CHECK(e.code == m->code);
    CHECK(lock_is_held(dir, "a.op", &(struct error){ 0 }) == 0);
    close(dir);
    return 0;
}

static void test_lock__on_a_read_only_file_system_is_perm_denied(void **state)
{
    struct mounted m = { .s = *state, .flags = MS_RDONLY, .options = "", .code = ERROR_PERM_DENIED };

    scratch_run_as_test(lock_on_mount, &m);
}

static void test_lock__on_a_full_file_system_is_store_full(void **state)
{
    struct mounted m = { .s = *state, .options = "nr_inodes=1", .code = ERROR_STORE_FULL };

    scratch_run_as_test(lock_on_mount, &m);
}

static int lock_without_files(void *arg)
{
    const struct scratch *s = arg;
    struct error take = { 0 }, probe = { 0 };
    int fd;

    scratch_write(s, "a.op", "");
    CHECK(scratch_limit_files(0));
    CHECK(lock_take(s->dir, "a.op", LOCK_EXCLUSIVE, 0, &fd, &take) == -1);
    CHECK(lock_is_held(s->dir, "a.op", &probe) == -1);
    CHECK(take.code == ERROR_LIMIT_REACHED && probe.code == ERROR_LIMIT_REACHED);
    return 0;
}

static void test_lock__without_a_free_descriptor_is_a_limit(void **state)
{
    scratch_run_as_test(lock_without_files, *state);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_lock__makes_its_file_0600_and_close_on_exec_whatever_the_umask),
        WITH_SCRATCH(test_lock__never_follows_a_link_or_takes_a_fifo),
        WITH_SCRATCH(test_lock__is_busy_while_somebody_has_it),
        WITH_SCRATCH(test_lock__is_taken_as_soon_as_it_is_free),
        WITH_SCRATCH(test_lock__lives_until_the_last_inherited_copy_is_closed),
        WITH_SCRATCH(test_lock__a_probe_takes_nothing_and_makes_nothing),
        WITH_SCRATCH(test_lock__says_why_when_it_cannot),
        WITH_SCRATCH(test_lock__on_a_read_only_file_system_is_perm_denied),
        WITH_SCRATCH(test_lock__on_a_full_file_system_is_store_full),
        WITH_SCRATCH(test_lock__without_a_free_descriptor_is_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

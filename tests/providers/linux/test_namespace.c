#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/file.h"
#include "providers/linux/namespace.h"
#include "providers/linux/obstacles.h"
#include "tests/providers/linux/files_support.h"

static int exit_status(pid_t pid)
{
    int status = 0;

    assert_int_equal(RETRY_EINTR(waitpid(pid, &status, 0)), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int spawn_and_wait(const struct namespace_request *request)
{
    struct error e = { 0 };
    pid_t pid;

    if (namespace_spawn(request, &pid, &e) < 0)
        fail_msg("%s", e.message);
    return exit_status(pid);
}

/* ---- what is inside ---- */

static bool loopback_is_up(void)
{
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq lo = { .ifr_name = "lo" };

    return fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &lo) == 0 && (lo.ifr_flags & IFF_UP) != 0;
}

static int count_interfaces(void)
{
    struct if_nameindex *all = if_nameindex();
    int count = 0;

    while (all != NULL && all[count].if_index != 0)
        count++;
    if_freenameindex(all);
    return count;
}

struct expected {
    uid_t uid;
    gid_t gid;
    bool own_network;
};

/* The exit status tells which expectation does not hold. */
static int check_inside(void *self)
{
    const struct expected *x = self;
    char name[65] = "";

    if (getpid() != 1)
        return 1;
    if (getuid() != x->uid || getgid() != x->gid || geteuid() != x->uid)
        return 2;
    if (gethostname(name, sizeof(name)) < 0 || strcmp(name, "inside-1") != 0)
        return 3;
    if (x->own_network && (!loopback_is_up() || count_interfaces() != 1))
        return 4;
    return 0;
}

static void check_spawn(bool own_network)
{
    struct expected x = { .uid = getuid(), .gid = getgid(), .own_network = own_network };
    char before[65] = "", after[65] = "";

    support_need_namespaces();
    gethostname(before, sizeof(before));
    assert_int_equal(
        spawn_and_wait(&(struct namespace_request){
            .hostname = "inside-1", .own_network = own_network, .run = check_inside, .self = &x }),
        0);
    gethostname(after, sizeof(after));
    assert_string_equal(before, after);
}

static void test_namespace_spawn__maps_the_user_to_itself_as_process_1(void **state)
{
    (void)state;
    check_spawn(false);
}

static void test_namespace_spawn__gives_a_loopback_of_its_own(void **state)
{
    (void)state;
    check_spawn(true);
}

/* Root: CLONE_NEWIPC comes before the mounts, or /dev/mqueue would be the host's. */
static int mount_mqueue(void *self, struct error *e)
{
    (void)self;
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 || mount("mqueue", "/tmp", "mqueue", 0, NULL) < 0)
        return error_set(e, ERROR_INTERNAL, errno, "mqueue");
    return 0;
}

static int sees_queue(void *self)
{
    return access(self, F_OK) == 0;
}

static void test_namespace_spawn__shows_no_queue_of_the_host(void **state)
{
    char name[64], path[80];
    long queue;

    (void)state;
    support_need_namespaces();
    snprintf(name, sizeof(name), "ad-test-%d", (int)getpid());
    snprintf(path, sizeof(path), "/tmp/%s", name);
    queue = syscall(SYS_mq_open, name, O_CREAT | O_RDWR | O_CLOEXEC, 0600, NULL);
    if (queue < 0)
        skip();
    assert_int_equal(
        spawn_and_wait(&(struct namespace_request){ .enter = mount_mqueue, .run = sees_queue, .self = path }),
        0);
    close((int)queue);
    syscall(SYS_mq_unlink, name);
}

/* ---- failures ---- */

static int refuse(void *self, struct error *e)
{
    (void)self;
    return error_set(e, ERROR_STORE_FULL, ENOSPC, "no room for %s", "this");
}

/* Not by a signal: a process 1 ignores its own. */
static int die(void *self, struct error *e)
{
    (void)self;
    (void)e;
    _exit(3);
}

static int succeed(void *self)
{
    (void)self;
    return 0;
}

static void test_namespace_spawn__passes_the_childs_error_and_leaves_no_process(void **state)
{
    const struct namespace_request request = { .enter = refuse, .run = succeed };
    struct error e = { 0 };
    pid_t pid = 0;

    (void)state;
    support_need_namespaces();
    assert_int_equal(namespace_spawn(&request, &pid, &e), -1);
    assert_int_equal(e.code, ERROR_STORE_FULL);
    assert_non_null(strstr(e.message, "no room for this"));
    assert_int_equal(waitpid(-1, NULL, 0), -1);
    assert_int_equal(errno, ECHILD);
}

static void test_namespace_spawn__notices_a_child_that_dies(void **state)
{
    const struct namespace_request request = { .enter = die, .run = succeed };
    struct error e = { 0 };
    pid_t pid = 0;

    (void)state;
    support_need_namespaces();
    assert_int_equal(namespace_spawn(&request, &pid, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_int_equal(waitpid(-1, NULL, 0), -1);
}

/* As a mount over a file system that does not answer. */
static int hang(void *self, struct error *e)
{
    (void)self;
    (void)e;
    while (pause() < 0)
        ;
    return 0;
}

static void test_namespace_spawn__a_set_up_that_hangs_is_ended_at_the_limit(void **state)
{
    const struct namespace_request request = { .limit_ms = 200, .enter = hang, .run = succeed };
    int64_t started_ms = clock_mono_ms();
    struct error e = { 0 };
    pid_t pid = 0;

    (void)state;
    support_need_namespaces();
    alarm(20); /* where there is no limit this would be for ever */
    assert_int_equal(namespace_spawn(&request, &pid, &e), -1);
    alarm(0);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_in_range(clock_mono_ms() - started_ms, 150, 5000);
    assert_int_equal(waitpid(-1, NULL, 0), -1);
}

static bool spawn_is_refused_as(const char *word)
{
    const struct namespace_request request = { .run = succeed };
    struct error e = { 0 };
    pid_t pid;

    if (namespace_spawn(&request, &pid, &e) == 0)
        return false;
    return e.code == ERROR_PROVIDER_UNAVAILABLE && obstacle_find(&e) != NULL &&
           strstr(e.message, word) != NULL;
}

/* In a user namespace of its own, whose limit can be changed without touching the host. */
static int exhaust_limit(void *self)
{
    AUTO_CLOSE int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);

    (void)self;
    if (fd < 0 || write(fd, "0", 1) != 1)
        return 77;
    return spawn_is_refused_as("limit") ? 0 : 1;
}

static void test_namespace_spawn__names_the_limit(void **state)
{
    int status;

    (void)state;
    if (namespace_is_privileged())
        skip(); /* root's order makes the user namespace after the others */
    support_need_namespaces();
    status = spawn_and_wait(&(struct namespace_request){ .files_only = true, .run = exhaust_limit });
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static bool bind_root(void *self)
{
    return mount("/", self, NULL, MS_BIND, NULL) == 0 && chroot(self) == 0 && chdir("/") == 0;
}

static bool is_refused(void *self)
{
    (void)self;
    return spawn_is_refused_as("");
}

static void test_namespace_spawn__explains_a_chroot(void **state)
{
    char dir[] = "/tmp/ad-test-XXXXXX";

    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can make one */
    support_need_namespaces();
    assert_non_null(mkdtemp(dir));
    assert_true(support_in_child(bind_root, is_refused, dir, 0));
    assert_true(support_in_child(bind_root, is_refused, dir, SUPPORT_NOBODY));
    rmdir(dir);
}

/* ---- file work ---- */

static int write_to(void *self, struct error *e)
{
    return write(*(int *)self, "x", 1) == 1 ? 0 : error_set(e, ERROR_INTERNAL, errno, "cannot write");
}

static void test_namespace_run_with_files__passes_result_and_error(void **state)
{
    struct error e = { 0 };
    int pipe_ends[2];
    char byte;

    (void)state;
    assert_int_equal(pipe2(pipe_ends, O_CLOEXEC), 0);
    assert_int_equal(namespace_run_with_files(write_to, &pipe_ends[1], &e), 0);
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
    assert_int_equal(namespace_run_with_files(refuse, NULL, &e), -1);
    assert_int_equal(e.code, ERROR_STORE_FULL);
    assert_int_equal(e.sys, ENOSPC);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static bool works_without_sigchld(void *self)
{
    struct error good = { 0 }, bad = { 0 };

    signal(SIGCHLD, SIG_IGN); /* some programs start others so */
    return namespace_run_with_files(write_to, self, &good) == 0 &&
           namespace_run_with_files(refuse, NULL, &bad) < 0 && bad.code == ERROR_STORE_FULL;
}

static void test_namespace_run_with_files__needs_no_sigchld(void **state)
{
    int pipe_ends[2];

    (void)state;
    support_need_namespaces();
    assert_int_equal(pipe2(pipe_ends, O_CLOEXEC), 0);
    assert_true(support_in_child(NULL, works_without_sigchld, &pipe_ends[1], geteuid()));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void test_namespace_run_with_files__reports_a_child_that_died(void **state)
{
    struct error e = { 0 };

    (void)state;
    if (geteuid() == 0)
        skip(); /* root does the work itself */
    support_need_namespaces();
    assert_int_equal(namespace_run_with_files(die, NULL, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
}

static int say_and_wait(void *self, struct error *e)
{
    alarm(30); /* should it outlive its parent after all */
    if (write_to(self, e) < 0)
        return -1;
    for (;;)
        pause();
}

/* The pipe ends when the last process that has it is gone: the child must not outlive its parent. */
static void test_namespace_run_with_files__child_dies_with_its_parent(void **state)
{
    struct pollfd end = { .events = POLLIN };
    struct error e = { 0 };
    int pipe_ends[2];
    pid_t parent;
    char byte;

    (void)state;
    support_need_namespaces();
    assert_int_equal(pipe2(pipe_ends, O_CLOEXEC), 0);
    parent = fork();
    if (parent == 0) {
        close(pipe_ends[0]);
        namespace_run_with_files(say_and_wait, &pipe_ends[1], &e);
        _exit(0);
    }
    close(pipe_ends[1]);
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1); /* the work is under way */
    kill(parent, SIGKILL);
    exit_status(parent);
    end.fd = pipe_ends[0];
    assert_int_equal(poll(&end, 1, 5000), 1);
    assert_int_equal(read(pipe_ends[0], &byte, 1), 0);
    close(pipe_ends[0]);
}

/* ... but the session process must. */
static int say_and_wait_for_end(void *self)
{
    const int *fds = self;
    char byte;

    return write(fds[1], "x", 1) == 1 && read(fds[2], &byte, 1) == 0 && write(fds[1], "y", 1) == 1 ? 0 : 1;
}

static void test_namespace_spawn__child_outlives_its_parent(void **state)
{
    int out[2], in[2], fds[3];
    char byte = 0;
    pid_t parent;

    (void)state;
    support_need_namespaces();
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    fds[1] = out[1];
    fds[2] = in[0];
    parent = fork();
    if (parent == 0) {
        const struct namespace_request request = { .run = say_and_wait_for_end, .self = fds };
        struct error e = { 0 };
        pid_t pid;

        close(in[1]);
        _exit(namespace_spawn(&request, &pid, &e) < 0);
    }
    close(out[1]);
    close(in[0]);
    assert_int_equal(exit_status(parent), 0);
    assert_int_equal(read(out[0], &byte, 1), 1);
    close(in[1]); /* only now it goes on */
    assert_int_equal(read(out[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    close(out[0]);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_namespace_spawn__maps_the_user_to_itself_as_process_1),
        cmocka_unit_test(test_namespace_spawn__gives_a_loopback_of_its_own),
        cmocka_unit_test(test_namespace_spawn__shows_no_queue_of_the_host),
        cmocka_unit_test(test_namespace_spawn__passes_the_childs_error_and_leaves_no_process),
        cmocka_unit_test(test_namespace_spawn__notices_a_child_that_dies),
        cmocka_unit_test(test_namespace_spawn__a_set_up_that_hangs_is_ended_at_the_limit),
        cmocka_unit_test(test_namespace_spawn__names_the_limit),
        cmocka_unit_test(test_namespace_spawn__explains_a_chroot),
        cmocka_unit_test(test_namespace_run_with_files__passes_result_and_error),
        cmocka_unit_test(test_namespace_run_with_files__needs_no_sigchld),
        cmocka_unit_test(test_namespace_run_with_files__reports_a_child_that_died),
        cmocka_unit_test(test_namespace_run_with_files__child_dies_with_its_parent),
        cmocka_unit_test(test_namespace_spawn__child_outlives_its_parent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return support_run_as_both(run);
}

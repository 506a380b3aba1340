#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "providers/linux/inspect.h"
#include "providers/linux/namespace.h"
#include "providers/linux/obstacles.h"
#include "tests/providers/linux/files_support.h"

static struct provider_host_report inspect(const struct root *root)
{
    struct provider_host_report report = { 0 };
    struct error e = { 0 };

    assert_int_equal(linux_inspect_host(root, &report, &e), 0);
    assert_true(report.message[0] != '\0');
    return report;
}

/* whatever this host is, the state fits the message, and nothing is left behind. */
static void test_inspect__changes_nothing(void **state)
{
    struct root root = support_root_make("/tmp");
    struct provider_host_report report = inspect(&root);
    AUTO_FREE char *command = mem_print("exit $(ls -A %s/sandboxes | wc -l)", root.path);

    (void)state;
    assert_true(report.state == PROVIDER_READY || report.state == PROVIDER_UNAVAILABLE);
    assert_int_equal(WEXITSTATUS(system(command)), 0);
    print_message("%s %s\n", report.message, report.fix);
    support_root_remove(&root);
}

static void test_inspect__needs_no_state_root(void **state)
{
    const struct root root = { .path = "/nonexistent/root", .dir = -1, .sandboxes = -1, .locks = -1 };

    (void)state;
    (void)inspect(&root);
    assert_int_not_equal(access(root.path, F_OK), 0);
}

static void test_inspect__is_quick(void **state)
{
    struct root root = support_root_make("/tmp");
    int64_t start = clock_mono_ms();

    (void)state;
    (void)inspect(&root);
    assert_true(clock_mono_ms() - start < 2000); /* the contract's bound; usual are some 5 ms */
    support_root_remove(&root);
}

/* ---- hosts that lack something; only root can make them ---- */

static const struct root no_root = { .dir = -1, .sandboxes = -1, .locks = -1 };

static bool write_os_release(const char *text)
{
    return mount("test", "/etc", "tmpfs", 0, "mode=755") == 0 &&
           support_write(AT_FDCWD, "/etc/os-release", text) &&
           support_write(AT_FDCWD, "/etc/passwd",
                         "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/sh\n");
}

/* No Xvfb, no openbox, no fonts, no service files: bare directories over the host's. */
static bool take_desktop_away(const char *os_release)
{
    return write_os_release(os_release) && mount("test", "/usr/share/fonts", "tmpfs", 0, NULL) == 0 &&
           mount("test", "/usr/share/dbus-1", "tmpfs", 0, NULL) == 0 &&
           mount("test", "/usr/bin", "tmpfs", 0, NULL) == 0;
}

static bool is_debian(void *self)
{
    (void)self;
    return take_desktop_away("NAME=\"Some Derivative\"\nID=some\nID_LIKE=\"ubuntu debian\"\n");
}

static bool is_fedora(void *self)
{
    (void)self;
    return take_desktop_away("ID=fedora\nVERSION_ID=43\n");
}

static bool is_arch(void *self)
{
    (void)self;
    return take_desktop_away("ID='arch'\n");
}

static bool is_unknown(void *self)
{
    (void)self;
    return take_desktop_away("ID=plan9\n");
}

struct expectation {
    bool (*prepare)(void *self);
    const char *fix; /* as an ordinary user */
};

static bool has_fix(void *self)
{
    const struct expectation *x = self;
    struct provider_host_report report = { 0 };
    struct error e = { 0 };
    const char *fix = geteuid() == 0 && x->fix[0] != '\0' ? x->fix + strlen("sudo ") : x->fix;

    if (linux_inspect_host(&no_root, &report, &e) < 0)
        return false;
    if (strcmp(report.fix, fix) != 0)
        print_error("%s\n%s\n", report.message, report.fix);
    return report.state == PROVIDER_UNAVAILABLE && strcmp(report.fix, fix) == 0 &&
           strstr(report.message, "Xvfb") != NULL && strstr(report.message, "font") != NULL &&
           strstr(report.message, "openbox") != NULL && strstr(report.message, "at-spi2-registryd") != NULL;
}

static void test_inspect__names_one_command_for_all_packages(void **state)
{
    static const struct expectation cases[] = {
        { is_debian, "sudo apt-get install --no-install-recommends xvfb dbus-daemon at-spi2-core openbox "
                     "fonts-dejavu-core" },
        { is_fedora,
          "sudo dnf install xorg-x11-server-Xvfb dbus-daemon at-spi2-core openbox dejavu-sans-fonts" },
        { is_arch, "sudo pacman -S --needed xorg-server-xvfb dbus at-spi2-core openbox ttf-dejavu" },
        { is_unknown, "" },
    };

    (void)state;
    if (geteuid() != 0)
        skip();
    support_need_namespaces();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct expectation x = cases[i];

        assert_true(support_in_child(x.prepare, has_fix, &x, 0));
        assert_true(support_in_child(x.prepare, has_fix, &x, SUPPORT_NOBODY));
    }
}

static bool has_no_passwd(void *self)
{
    (void)self;
    return write_os_release("ID=debian\n") &&
           support_write(AT_FDCWD, "/etc/passwd", "other:x:7:7::/:/bin/sh\n");
}

static bool misses_passwd_entry(void *self)
{
    struct provider_host_report report = { 0 };
    struct error e = { 0 };

    (void)self;
    return linux_inspect_host(&no_root, &report, &e) == 0 && report.state == PROVIDER_UNAVAILABLE &&
           strstr(report.message, "passwd") != NULL;
}

static void test_inspect__needs_a_passwd_entry(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    support_need_namespaces();
    assert_true(support_in_child(has_no_passwd, misses_passwd_entry, NULL, SUPPORT_NOBODY));
}

/* As in a container: something covers a part of the only /proc. */
static bool cover_proc(void *self)
{
    (void)self;
    return mount("test", "/proc/fs", "tmpfs", 0, NULL) == 0;
}

static bool is_told_about_proc(void *self)
{
    struct provider_host_report report = { 0 };
    struct error e = { 0 };

    (void)self;
    return linux_inspect_host(&no_root, &report, &e) == 0 && report.state == PROVIDER_UNAVAILABLE &&
           strstr(report.message, "unmask=/proc/*") != NULL;
}

static void test_inspect__explains_a_covered_proc(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    support_need_namespaces();
    assert_true(support_in_child(cover_proc, is_told_about_proc, NULL, SUPPORT_NOBODY));
}

static int exhaust_limit(void *self)
{
    AUTO_CLOSE int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
    struct provider_host_report report = { 0 };
    struct error e = { 0 };

    (void)self;
    if (fd < 0 || write(fd, "0", 1) != 1)
        return 77;
    if (linux_inspect_host(&no_root, &report, &e) < 0 || report.state != PROVIDER_UNAVAILABLE)
        return 1;
    return strcmp(report.fix, "sudo sysctl -w user.max_user_namespaces=15000") == 0 ? 0 : 2;
}

static void test_inspect__names_the_limit_and_its_fix(void **state)
{
    const struct namespace_request request = { .files_only = true, .run = exhaust_limit };
    struct error e = { 0 };
    int status = 0;
    pid_t pid;

    (void)state;
    if (namespace_is_privileged())
        skip();
    support_need_namespaces();
    assert_int_equal(namespace_spawn(&request, &pid, &e), 0);
    assert_int_equal(RETRY_EINTR(waitpid(pid, &status, 0)), pid);
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A state root on an overlay, as a container's own files are: still ready, and said. */
static bool put_root_on_overlay(void *self)
{
    const struct root *root = self;
    AUTO_FREE char *options = mem_print("lowerdir=%s,upperdir=/dev/shm/u,workdir=/dev/shm/w", root->path);

    return chown(root->path, SUPPORT_NOBODY, SUPPORT_NOBODY) == 0 &&
           mount("test", "/dev/shm", "tmpfs", 0, NULL) == 0 && mkdir("/dev/shm/u", 0755) == 0 &&
           chown("/dev/shm/u", SUPPORT_NOBODY, SUPPORT_NOBODY) == 0 && mkdir("/dev/shm/w", 0755) == 0 &&
           mount("overlay", root->path, "overlay", 0, options) == 0;
}

static bool is_told_about_overlay(void *self)
{
    struct root root = *(struct root *)self;
    struct provider_host_report report = { 0 };
    struct error e = { 0 };

    root.dir = open(root.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (mkdirat(root.dir, "sandboxes2", 0700) < 0)
        return false;
    root.sandboxes = file_open_dir(root.dir, "sandboxes2");
    return linux_inspect_host(&root, &report, &e) == 0 &&
           strstr(report.message, "AGENT_DESKTOP_HOME") != NULL;
}

static void test_inspect__says_when_directories_will_be_read_only(void **state)
{
    struct root root;

    (void)state;
    if (geteuid() != 0)
        skip();
    support_need_namespaces();
    root = support_root_make("/tmp");
    assert_true(support_in_child(put_root_on_overlay, is_told_about_overlay, &root, 0));
    assert_true(support_in_child(put_root_on_overlay, is_told_about_overlay, &root, SUPPORT_NOBODY));
    support_root_remove(&root);
}

/* ---- words ---- */

static void test_obstacles__unknown_failures_are_told_too(void **state)
{
    struct error known = { 0 }, unknown = { 0 }, passing = { 0 };

    (void)state;
    assert_int_equal(obstacle_set_error(OBSTACLE_CLONE, ENOSPC, &known), -1);
    assert_non_null(obstacle_find(&known)->fix);
    assert_int_equal(obstacle_set_error(OBSTACLE_MOUNT, ENODEV, &unknown), -1);
    assert_int_equal(unknown.code, ERROR_PROVIDER_UNAVAILABLE);
    assert_null(obstacle_find(&unknown));
    assert_non_null(strstr(unknown.message, strerror(ENODEV)));
    /* Says nothing about the host: another try may succeed. */
    assert_int_equal(obstacle_set_error(OBSTACLE_CLONE, EAGAIN, &passing), -1);
    assert_int_equal(passing.code, ERROR_ACTION_FAILED);
    assert_null(obstacle_find(&passing));
    assert_non_null(strstr(passing.message, strerror(EAGAIN)));
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inspect__changes_nothing),
        cmocka_unit_test(test_inspect__needs_no_state_root),
        cmocka_unit_test(test_inspect__is_quick),
        cmocka_unit_test(test_inspect__names_one_command_for_all_packages),
        cmocka_unit_test(test_inspect__needs_a_passwd_entry),
        cmocka_unit_test(test_inspect__explains_a_covered_proc),
        cmocka_unit_test(test_inspect__names_the_limit_and_its_fix),
        cmocka_unit_test(test_inspect__says_when_directories_will_be_read_only),
        cmocka_unit_test(test_obstacles__unknown_failures_are_told_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return support_run_as_both(run);
}

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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/mem.h"
#include "providers/linux/mounts.h"
#include "providers/linux/namespace.h"
#include "tests/providers/linux/files_support.h"

/* A state root with two created sandboxes, "demo" and "other", each with a ctl and a secret. */
struct fixture {
    const char *parent;
    struct root root;
};

static void create(const struct root *root, const char *name)
{
    struct provider_place place;
    struct linux_sandbox s = support_sandbox(&place, root, name, NULL);
    struct error e = { 0 };

    if (support_run_steps(linux_create_steps, &s, NULL, &e) < 0)
        fail_msg("%s", e.message);
    assert_true(support_write(s.dir, "ctl", "secret"));
    close(s.dir);
}

static int set_up_in(void **state, const char *parent)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->parent = parent;
    f->root = support_root_make(parent);
    create(&f->root, "demo");
    create(&f->root, "other");
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return set_up_in(state, "/tmp");
}

static int set_up_below_var(void **state)
{
    return set_up_in(state, "/var/tmp");
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    support_root_remove(&f->root);
    free(f);
    return 0;
}

/* What SCRIPT prints inside of demo. */
static char *inside(const struct fixture *f, const char *script, char *note)
{
    struct error e = { 0 };
    char *text = support_run_inside(&f->root, "demo", script, note, &e);

    if (text == NULL)
        print_error("%s\n", e.message);
    return text;
}

static void check_inside(const struct fixture *f, const char *script, const char *expected)
{
    char note[256];
    AUTO_FREE char *text = NULL;

    support_need_namespaces();
    text = inside(f, script, note);
    assert_non_null(text);
    assert_string_equal(text, expected);
}

static bool can_overlay(const struct fixture *f)
{
    char note[256] = "";
    AUTO_FREE char *text = NULL;

    support_need_namespaces();
    text = inside(f, "true", note);
    return text != NULL && note[0] == '\0';
}

/* ---- what must not be seen (R-602, facts section 9) ---- */

static void test_mounts__guest_sees_no_state_root(void **state)
{
    const struct fixture *f = *state;
    AUTO_FREE char *script =
        mem_print("ls -A %s 2>/dev/null; cat %s/sandboxes/demo/ctl %s/sandboxes/other/ctl "
                  "2>/dev/null; find / -xdev -name ctl -size -2 2>/dev/null | grep sandboxes; "
                  "echo end",
                  f->root.path, f->root.path, f->root.path);

    check_inside(f, script, "end\n");
}

static void test_mounts__guest_sees_nothing_else_of_the_host(void **state)
{
    /* only tester's home in /home, no /root but root's own, no socket in /run, nothing of the host in /tmp */
    check_inside(*state, "ls -A /home; ls -A /root 2>/dev/null; find /run -type s; ls -A /run; ls -A /tmp",
                 "tester\nagent-desktop\nlock\nuser\n.ICE-unix\n.X11-unix\n");
}

static void test_mounts__guest_sees_only_its_own_processes_and_name(void **state)
{
    check_inside(*state,
                 "hostname; ls -d /proc/1; for p in /proc/[0-9][0-9][0-9]*; do test -e $p && echo $p; done",
                 "demo\n/proc/1\n");
}

static void test_mounts__guest_has_no_way_back(void **state)
{
    const struct fixture *f = *state;
    AUTO_FREE char *script = mem_print("cd /proc/self/root/../../..; ls -d work root/root boot 2>/dev/null; "
                                       "ls /proc/self/cwd/%s 2>/dev/null; grep -c sandboxes/demo/root "
                                       "/proc/self/mountinfo",
                                       f->root.path);

    check_inside(f, script, "0\n");
}

static void test_mounts__root_cannot_change_the_host_through_proc(void **state)
{
    if (geteuid() != 0)
        skip();
    check_inside(
        *state,
        "echo 61 2>/dev/null >/proc/sys/vm/swappiness || echo sys; "
        "echo h 2>/dev/null >/proc/sysrq-trigger || echo sysrq; wc -c </proc/keys; wc -c </proc/kallsyms; "
        "mknod /tmp/disk b 8 0 2>/dev/null || echo mknod; mount -t tmpfs x /mnt 2>/dev/null || echo mount",
        "sys\nsysrq\n0\n0\nmknod\nmount\n");
}

/* ---- what must work ---- */

static void test_mounts__guest_writes_into_its_own_layer(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int dir = file_open_dir(f->root.sandboxes, "demo");
    AUTO_FREE char *content = NULL;

    if (!can_overlay(f))
        skip();
    check_inside(
        f,
        "echo a >/etc/ad-test && echo b >/usr/local/bin/ad-test && mkdir /var/lib/ad-test && "
        "echo c >/opt/ad-test && echo d >/var/tmp/ad-test && rm /usr/local/bin/ad-test && "
        "cat /etc/ad-test /opt/ad-test /var/tmp/ad-test; echo e >/home/tester/f; mv /etc/ad-test /etc/ad-2; "
        "ls /etc/ad-2",
        "a\nc\nd\n/etc/ad-2\n");
    assert_int_not_equal(access("/etc/ad-2", F_OK), 0); /* the host is untouched */
    assert_int_not_equal(access("/opt/ad-test", F_OK), 0);
    assert_true(support_exists(dir, "upper/etc/ad-2"));
    content = support_read(dir, "home/f");
    assert_string_equal(content, "e\n");
}

/* A second start finds the first one's files, and the first one's used work directory. */
static void test_mounts__what_was_written_is_there_at_the_next_start(void **state)
{
    struct fixture *f = *state;

    if (!can_overlay(f))
        skip();
    check_inside(f, "echo kept >/etc/ad-test; rm -f /etc/hosts; mkdir /etc/dir; rmdir /etc/dir", "");
    check_inside(f, "cat /etc/ad-test; ls /etc/hosts 2>/dev/null", "kept\n");
}

static void test_mounts__root_directory_and_sys_are_read_only(void **state)
{
    check_inside(*state,
                 "touch /x 2>/dev/null || echo root; mkdir /sys/x 2>/dev/null || echo sys; "
                 "mkdir /home/x 2>/dev/null || echo home",
                 "root\nsys\nhome\n");
}

static void test_mounts__devices_and_modes_are_as_programs_expect(void **state)
{
    AUTO_FREE char *expected = mem_print("ok\n1777\n1777\n1777\n700\n1777\n%s\n", "/dev/pts/ptmx");

    check_inside(*state,
                 "echo x >/dev/null && head -c1 /dev/zero >/dev/null && head -c1 </dev/urandom >/dev/null && "
                 "test -c /dev/tty -a -d /dev/pts -a -L /dev/fd && echo ok; "
                 "stat -c %a /dev/shm /tmp /tmp/.X11-unix /run/user/$(id -u) /var/tmp; readlink -f /dev/ptmx",
                 expected);
}

static void test_mounts__binary_is_in_the_path_and_read_only(void **state)
{
    AUTO_FREE char *expected = NULL;
    struct stat self;

    assert_int_equal(stat("/proc/self/exe", &self), 0);
    expected = mem_print("%lld\nprotected\n", (long long)self.st_size);
    check_inside(*state,
                 "stat -c %s $(command -v agent-desktop); "
                 "echo x 2>/dev/null >/run/agent-desktop/bin/agent-desktop || echo protected",
                 expected);
}

static void test_mounts__identity_is_the_sandboxes_own(void **state)
{
    char note[256];
    AUTO_FREE char *text = NULL;
    AUTO_FREE char *host = support_read(AT_FDCWD, "/etc/machine-id");

    support_need_namespaces();
    text =
        inside(*state, "cat /etc/hostname; grep -c '^127.0.1.1 demo$' /etc/hosts; cat /etc/machine-id", note);
    assert_non_null(text);
    assert_memory_equal(text, "demo\n1\n", 7);
    assert_int_equal(strlen(text), 7 + 33);
    assert_true(host == NULL || strcmp(text + 7, host) != 0);
}

/* ---- layers that are not as they were made ---- */

static void test_mounts__hides_what_the_guest_replaced(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int dir = file_open_dir(f->root.sandboxes, "demo");

    if (!can_overlay(f))
        skip();
    assert_int_equal(unlinkat(dir, "upper/opt", AT_REMOVEDIR), 0);
    if (mknodat(dir, "upper/opt", S_IFCHR, 0) < 0)
        skip();
    assert_int_equal(unlinkat(dir, "upper/srv", AT_REMOVEDIR), 0);
    assert_int_equal(symlinkat("/home", dir, "upper/srv"), 0);
    check_inside(f, "ls -A /opt /srv; test -d /etc && echo etc", "/opt:\n\n/srv:\netc\n");
}

static int enter_mounts(void *self, struct error *e)
{
    char note[256];

    return mounts_enter(self, note, sizeof(note), e);
}

static int succeed(void *self)
{
    (void)self;
    return 0;
}

/* The descriptor says which directory is meant; what the path leads to now must not be taken for it. */
static void test_mounts__refuses_a_directory_that_was_swapped(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int dir = file_open_dir(f->root.sandboxes, "demo");
    AUTO_FREE char *path = mem_print("%s/sandboxes/other", f->root.path);
    struct linux_user user = { .uid = geteuid(), .home = "/home/tester" };
    struct mounts_request mounts = {
        .sandbox_dir = dir, .sandbox_path = path, .root_path = f->root.path, .user = &user, .binary = dir
    };
    struct namespace_request request = { .enter = enter_mounts, .run = succeed, .self = &mounts };
    struct error e = { 0 };
    pid_t pid;

    support_need_namespaces();
    assert_int_equal(namespace_spawn(&request, &pid, &e), -1);
    assert_non_null(strstr(e.message, path));
}

/* The mount point is scratch: missing, it is made; what else lies there is named, and is no lack of the host.
 */
static void test_mounts__a_damaged_mount_point_is_made_or_named(void **state)
{
    const struct fixture *f = *state;
    AUTO_FREE char *root = mem_print("%s/sandboxes/demo/root", f->root.path);
    struct error e = { 0 };
    char note[256];

    check_inside(f, "echo fine", "fine\n");
    assert_int_equal(rmdir(root), 0);
    check_inside(f, "echo fine", "fine\n");
    assert_int_equal(rmdir(root), 0);
    assert_true(support_write(AT_FDCWD, root, "not ours"));
    assert_null(support_run_inside(&f->root, "demo", "true", note, &e));
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_non_null(strstr(e.message, root));
    assert_true(support_exists(AT_FDCWD, root));
}

/* ---- hosts with mounts of their own; only root can make them ---- */

static bool mount_below_var(void *self)
{
    (void)self;
    return mount("test", "/var/cache", "tmpfs", 0, "mode=755") == 0 && mkdir("/var/cache/mounted", 0755) == 0;
}

/* As a user /var is bound read-only and shows what is mounted; as root it is an overlay all the same. */
static bool copes_with_mount_below_var(void *self)
{
    char note[256] = "";
    AUTO_FREE char *text = inside(self,
                                  "touch /var/lib/x 2>/dev/null && echo writable; ls /var/cache; "
                                  "echo t >/var/tmp/t && cat /var/tmp/t; touch /etc/ad-test && echo etc",
                                  note);

    if (text == NULL)
        return false;
    if (geteuid() == 0)
        return strncmp(text, "writable\n", 9) == 0 && strstr(text, "mounted") == NULL && note[0] == '\0';
    return strcmp(text, "mounted\nt\netc\n") == 0 && strstr(note, "/var") != NULL &&
           strstr(note, "/etc") == NULL;
}

static bool give_away(const struct fixture *f)
{
    AUTO_FREE char *command = mem_print("chown -R %u:%u %s", SUPPORT_NOBODY, SUPPORT_NOBODY, f->root.path);

    return system(command) == 0;
}

static bool mount_below_var_for_nobody(void *self)
{
    return give_away(self) && mount_below_var(self);
}

static void test_mounts__takes_a_host_with_a_mount_below_var(void **state)
{
    struct fixture *f = *state;

    if (geteuid() != 0)
        skip();
    if (!can_overlay(f))
        skip();
    assert_true(support_in_child(mount_below_var, copes_with_mount_below_var, f, 0));
    assert_true(support_in_child(mount_below_var_for_nobody, copes_with_mount_below_var, f, SUPPORT_NOBODY));
}

/* The state root's parent is also bound at /srv, and sandboxes/ alone at /opt. */
static bool bind_elsewhere(void *self)
{
    const struct fixture *f = self;
    AUTO_FREE char *sandboxes = mem_print("%s/sandboxes", f->root.path);

    return mount("/var/tmp", "/srv", NULL, MS_BIND, NULL) == 0 &&
           mount(sandboxes, "/opt", NULL, MS_BIND, NULL) == 0;
}

static bool bind_elsewhere_for_nobody(void *self)
{
    return give_away(self) && bind_elsewhere(self);
}

static bool hides_every_way(void *self)
{
    const struct fixture *f = self;
    AUTO_FREE char *name = mem_print("%s", strrchr(f->root.path, '/') + 1);
    AUTO_FREE char *script = mem_print("ls -A /srv/%s /var/tmp/%s /opt 2>/dev/null | grep -v : ; "
                                       "cat /srv/%s/sandboxes/*/ctl /opt/*/ctl 2>/dev/null; echo end",
                                       name, name, name);
    char note[256];
    AUTO_FREE char *text = inside(f, script, note);

    return text != NULL && strstr(text, "secret") == NULL && strstr(text, "sandboxes") == NULL &&
           strstr(text, "demo") == NULL && strstr(text, "end\n") != NULL;
}

static void test_mounts__hides_the_state_root_on_every_way_to_it(void **state)
{
    struct fixture *f = *state;

    if (geteuid() != 0)
        skip();
    support_need_namespaces();
    assert_true(support_in_child(bind_elsewhere, hides_every_way, f, 0));
    assert_true(support_in_child(bind_elsewhere_for_nobody, hides_every_way, f, SUPPORT_NOBODY));
}

/* What the caller keeps in /var/tmp, other state roots among it, is as unreachable as what is in /tmp. */
static void test_mounts__hides_the_hosts_var_tmp(void **state)
{
    struct fixture *f = *state;
    char note[256];

    support_need_namespaces();
    AUTO_FREE char *text = inside(f, "ls -A /var/tmp | wc -l; echo t >/var/tmp/t && cat /var/tmp/t", note);

    assert_non_null(text);
    assert_string_equal(text, "0\nt\n");
}

/* systemd-resolved: /etc/resolv.conf -> ../run/systemd/resolve/stub-resolv.conf; a socket beside it. */
static bool make_resolver(void *self)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "/run/host.socket" };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)self;
    return mount("test", "/run", "tmpfs", 0, "mode=755") == 0 &&
           mount("test", "/etc", "tmpfs", 0, "mode=755") == 0 && mkdir("/run/resolve", 0755) == 0 &&
           support_write(AT_FDCWD, "/run/resolve/stub", "nameserver 1.2.3.4\n") &&
           symlink("../run/resolve/stub", "/etc/resolv.conf") == 0 &&
           bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

static bool resolver_is_inside(void *self)
{
    char note[256];
    AUTO_FREE char *text =
        inside(self, "cat /etc/resolv.conf; ls /run; echo x 2>/dev/null >/run/resolve/stub || echo ro", note);

    return text != NULL && strcmp(text, "nameserver 1.2.3.4\nagent-desktop\nlock\nresolve\nuser\nro\n") == 0;
}

static bool make_resolver_for_nobody(void *self)
{
    return give_away(self) && make_resolver(self);
}

static void test_mounts__binds_the_resolvers_directory(void **state)
{
    if (geteuid() != 0)
        skip();
    support_need_namespaces();
    assert_true(support_in_child(make_resolver, resolver_is_inside, *state, 0));
    assert_true(support_in_child(make_resolver_for_nobody, resolver_is_inside, *state, SUPPORT_NOBODY));
}

static int has_resolver(void *self)
{
    (void)self;
    return access("/run/resolve", F_OK) == 0;
}

/* systemd-resolved answers on a socket beside its file: --set net=none must not leave that way out. */
static bool no_resolver_without_network(void *self)
{
    const struct fixture *f = self;
    AUTO_CLOSE int dir = file_open_dir(f->root.sandboxes, "demo");
    AUTO_CLOSE int binary = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    AUTO_FREE char *path = mem_print("%s/sandboxes/demo", f->root.path);
    struct linux_user user = { .uid = geteuid(), .home = "/home/tester" };
    struct mounts_request mounts = { .sandbox_dir = dir,
                                     .sandbox_path = path,
                                     .root_path = f->root.path,
                                     .user = &user,
                                     .own_network = true,
                                     .binary = binary };
    struct namespace_request request = {
        .own_network = true, .enter = enter_mounts, .run = has_resolver, .self = &mounts
    };
    struct error e = { 0 };
    int status = -1;
    pid_t pid;

    return namespace_spawn(&request, &pid, &e) == 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void test_mounts__without_network_there_is_no_resolver(void **state)
{
    if (geteuid() != 0)
        skip();
    support_need_namespaces();
    assert_true(support_in_child(make_resolver, no_resolver_without_network, *state, 0));
    assert_true(
        support_in_child(make_resolver_for_nobody, no_resolver_without_network, *state, SUPPORT_NOBODY));
}

/* A state root where no upper layer can be: everything is read-only, vartmp and the identity are not. */
static bool mount_bad_upper(void *self)
{
    const struct fixture *f = self;
    AUTO_FREE char *options =
        mem_print("lowerdir=%s,upperdir=%s/u,workdir=%s/w", f->root.path, "/dev/shm/ad", "/dev/shm/ad");

    return mount("test", "/dev/shm", "tmpfs", 0, NULL) == 0 && mkdir("/dev/shm/ad", 0777) == 0 &&
           mkdir("/dev/shm/ad/u", 0777) == 0 && mkdir("/dev/shm/ad/w", 0777) == 0 &&
           mount("overlay", f->root.path, "overlay", 0, options) == 0;
}

static bool mount_bad_upper_for_nobody(void *self)
{
    return give_away(self) && mount_bad_upper(self);
}

static bool is_read_only_but_usable(void *self)
{
    struct fixture f = *(struct fixture *)self;
    char note[256] = "";
    AUTO_FREE char *text = NULL;

    f.root.dir = open(f.root.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* as it is mounted here */
    f.root.sandboxes = file_open_dir(f.root.dir, "sandboxes");
    text = inside(
        &f,
        "touch /etc/x 2>/dev/null || echo ro; echo t >/var/tmp/t && cat /var/tmp/t; cat /etc/hostname; "
        "touch /home/tester/h && echo home",
        note);
    return text != NULL && strcmp(text, "ro\nt\ndemo\nhome\n") == 0 &&
           strstr(note, "cannot hold an overlay") != NULL;
}

static void test_mounts__falls_back_to_read_only_directories(void **state)
{
    if (geteuid() != 0)
        skip();
    support_need_namespaces();
    assert_true(support_in_child(mount_bad_upper, is_read_only_but_usable, *state, 0));
    assert_true(
        support_in_child(mount_bad_upper_for_nobody, is_read_only_but_usable, *state, SUPPORT_NOBODY));
}

#define TEST(name)     cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_VAR(name) cmocka_unit_test_setup_teardown(name, set_up_below_var, tear_down)

static int run(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_mounts__guest_sees_no_state_root),
        TEST_VAR(test_mounts__guest_sees_no_state_root),
        TEST(test_mounts__guest_sees_nothing_else_of_the_host),
        TEST(test_mounts__guest_sees_only_its_own_processes_and_name),
        TEST(test_mounts__guest_has_no_way_back),
        TEST(test_mounts__root_cannot_change_the_host_through_proc),
        TEST(test_mounts__guest_writes_into_its_own_layer),
        TEST(test_mounts__what_was_written_is_there_at_the_next_start),
        TEST(test_mounts__root_directory_and_sys_are_read_only),
        TEST(test_mounts__devices_and_modes_are_as_programs_expect),
        TEST_VAR(test_mounts__devices_and_modes_are_as_programs_expect),
        TEST(test_mounts__binary_is_in_the_path_and_read_only),
        TEST(test_mounts__identity_is_the_sandboxes_own),
        TEST(test_mounts__hides_what_the_guest_replaced),
        TEST(test_mounts__refuses_a_directory_that_was_swapped),
        TEST(test_mounts__a_damaged_mount_point_is_made_or_named),
        TEST(test_mounts__takes_a_host_with_a_mount_below_var),
        TEST_VAR(test_mounts__hides_the_state_root_on_every_way_to_it),
        TEST_VAR(test_mounts__hides_the_hosts_var_tmp),
        TEST(test_mounts__binds_the_resolvers_directory),
        TEST(test_mounts__without_network_there_is_no_resolver),
        TEST(test_mounts__falls_back_to_read_only_directories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return support_run_as_both(run);
}

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/process.h"
#include "providers/linux/leftovers.h"
#include "tests/providers/linux/files_support.h"

struct fixture {
    struct root root;
    mode_t mask;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->root = support_root_make("/tmp");
    f->mask = umask(0077); /* modes are exact whatever the umask */
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    umask(f->mask);
    support_root_remove(&f->root);
    free(f);
    return 0;
}

static int run_steps(const struct fixture *f, const struct step *steps, const char *name, const char *source,
                     struct error *e)
{
    struct provider_place place;
    struct linux_sandbox s = support_sandbox(&place, &f->root, name, source);
    int result = support_run_steps(steps, &s, NULL, e);

    util_close_fd(&s.dir);
    return result;
}

static void must_run(const struct fixture *f, const struct step *steps, const char *name, const char *source)
{
    struct error e = { 0 };

    if (run_steps(f, steps, name, source, &e) < 0)
        fail_msg("%s", e.message);
}

static mode_t mode_of(int dir, const char *path)
{
    struct stat st;

    if (fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        fail_msg("%s: %s", path, strerror(errno));
    return st.st_mode & 07777;
}

static int count_entries(int dir)
{
    AUTO_FREE char *command = mem_print("exit $(ls -A /proc/%d/fd/%d/ | wc -l)", (int)getpid(), dir);

    return WEXITSTATUS(system(command));
}

static size_t count_begins(const struct step *steps)
{
    size_t begins = 0;

    for (const struct step *s = steps; s->name != NULL; s++)
        if (s == steps || !s->inside || !s[-1].inside)
            begins++;
    return begins;
}

/* ---- create ---- */

static void test_create__makes_directories_with_exact_modes(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int dir = -1;

    must_run(f, linux_create_steps, "demo", NULL);
    dir = file_open_dir(f->root.sandboxes, "demo");
    assert_int_equal(mode_of(dir, "."), 0700);
    assert_int_equal(mode_of(dir, "home"), 0700);
    assert_int_equal(mode_of(dir, "log"), 0700);
    assert_int_equal(mode_of(dir, "root"), 0700);
    assert_int_equal(mode_of(dir, "vartmp"), 01777);
    assert_int_equal(mode_of(dir, "upper/usr/local/bin"), 0755);
    assert_int_equal(mode_of(dir, "upper/etc/hostname"), 0644);
}

static void test_create__writes_who_the_sandbox_is(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int dir = -1;

    must_run(f, linux_create_steps, "demo", NULL);
    dir = file_open_dir(f->root.sandboxes, "demo");
    {
        AUTO_FREE char *hostname = support_read(dir, "upper/etc/hostname");
        AUTO_FREE char *hosts = support_read(dir, "upper/etc/hosts");
        AUTO_FREE char *id = support_read(dir, "upper/etc/machine-id");
        AUTO_FREE char *dbus_id = support_read(dir, "upper/var/lib/dbus/machine-id");

        assert_string_equal(hostname, "demo\n");
        assert_non_null(strstr(hosts, "127.0.1.1 demo\n"));
        assert_int_equal(strspn(id, "0123456789abcdef"), 32);
        assert_string_equal(id + 32, "\n");
        assert_string_equal(id, dbus_id);
    }
}

/* A step may run twice. */
static void test_create__can_run_again_in_its_operation(void **state)
{
    struct fixture *f = *state;
    struct provider_place place;
    struct linux_sandbox s = support_sandbox(&place, &f->root, "demo", NULL);
    struct error e = { 0 };

    assert_int_equal(support_run_steps(linux_create_steps, &s, NULL, &e), 0);
    assert_int_equal(support_run_steps(linux_create_steps, &s, NULL, &e), 0);
    close(s.dir);
}

/* Bug case 6: put there by hand, known to no journal. */
static void test_create__leaves_alone_what_it_did_not_make(void **state)
{
    struct fixture *f = *state;
    struct error dir = { 0 }, link = { 0 }, file = { 0 };

    assert_int_equal(mkdirat(f->root.sandboxes, "dir", 0755), 0);
    assert_int_equal(symlinkat("/tmp", f->root.sandboxes, "link"), 0);
    assert_true(support_write(f->root.sandboxes, "file", "mine"));
    assert_int_equal(run_steps(f, linux_create_steps, "dir", NULL, &dir), -1);
    assert_int_equal(run_steps(f, linux_create_steps, "link", NULL, &link), -1);
    assert_int_equal(run_steps(f, linux_create_steps, "file", NULL, &file), -1);
    assert_int_equal(dir.code, ERROR_SANDBOX_EXISTS);
    assert_int_equal(link.code, ERROR_SANDBOX_EXISTS);
    assert_int_equal(file.code, ERROR_SANDBOX_EXISTS);
    assert_false(support_exists(f->root.sandboxes, "dir/upper"));
    assert_int_not_equal(access("/tmp/upper", F_OK), 0);
}

/* The promise of the number of commits: one begin for all of create and clone, two for rm. */
static void test_steps__share_their_commits(void **state)
{
    (void)state;
    assert_int_equal(count_begins(linux_create_steps), 1);
    assert_int_equal(count_begins(linux_clone_steps), 1);
    assert_int_equal(count_begins(linux_remove_steps), 2);
}

/* ---- clone ---- */

static void test_clone__copies_the_layers_and_is_a_new_machine(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int from = -1;
    AUTO_CLOSE int to = -1;

    must_run(f, linux_create_steps, "base", NULL);
    from = file_open_dir(f->root.sandboxes, "base");
    assert_true(support_write(from, "upper/etc/mine", "m"));
    assert_true(support_write(from, "upper/etc/hosts", "10.0.0.1 printer\n127.0.1.1 base\n"));
    assert_true(support_write(from, "home/doc", "d"));
    assert_true(support_write(from, "vartmp/t", "t"));
    assert_true(support_write(from, "ctl", "c"));
    assert_true(support_write(from, "log/old.log", "l"));
    must_run(f, linux_clone_steps, "copy", "base");
    to = file_open_dir(f->root.sandboxes, "copy");
    assert_true(support_exists(to, "upper/etc/mine") && support_exists(to, "home/doc") &&
                support_exists(to, "vartmp/t"));
    assert_false(support_exists(to, "ctl") || support_exists(to, "log/old.log"));
    assert_int_equal(mode_of(to, "home"), 0700);
    assert_int_equal(mode_of(to, "root"), 0700);
    {
        AUTO_FREE char *hostname = support_read(to, "upper/etc/hostname");
        AUTO_FREE char *hosts = support_read(to, "upper/etc/hosts");
        AUTO_FREE char *old_id = support_read(from, "upper/etc/machine-id");
        AUTO_FREE char *id = support_read(to, "upper/etc/machine-id");

        assert_string_equal(hostname, "copy\n");
        assert_string_equal(hosts, "10.0.0.1 printer\n127.0.1.1 copy\n");
        assert_string_not_equal(id, old_id);
    }
    assert_int_equal(count_entries(f->root.sandboxes), 2);
}

static void test_clone__takes_files_the_user_may_not_read(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int from = -1;
    AUTO_CLOSE int to = -1;

    support_need_namespaces();
    must_run(f, linux_create_steps, "base", NULL);
    from = file_open_dir(f->root.sandboxes, "base");
    assert_true(support_write(from, "home/secret", "s"));
    assert_int_equal(fchmodat(from, "home/secret", 0, 0), 0);
    assert_int_equal(mkdirat(from, "home/locked", 0700), 0);
    assert_true(support_write(from, "home/locked/in", "i"));
    assert_int_equal(fchmodat(from, "home/locked", 0500, 0), 0);
    must_run(f, linux_clone_steps, "copy", "base");
    to = file_open_dir(f->root.sandboxes, "copy");
    assert_int_equal(mode_of(to, "home/secret"), 0);
    assert_int_equal(mode_of(to, "home/locked"), 0500);
    must_run(f, linux_remove_steps, "base", NULL);
    must_run(f, linux_remove_steps, "copy", NULL);
    assert_int_equal(count_entries(f->root.sandboxes), 0);
}

/* What a guest planted in its layers must not lead the host's writes elsewhere. */
static void test_clone__writes_through_no_link_of_the_guest(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int from = -1;
    AUTO_FREE char *victim = mem_print("%s/victim", f->root.path);

    must_run(f, linux_create_steps, "base", NULL);
    assert_int_equal(mkdirat(f->root.dir, "victim", 0755), 0);
    from = file_open_dir(f->root.sandboxes, "base");
    assert_int_equal(unlinkat(from, "upper/var/lib/dbus/machine-id", 0), 0);
    assert_int_equal(unlinkat(from, "upper/var/lib/dbus", AT_REMOVEDIR), 0);
    assert_int_equal(symlinkat(victim, from, "upper/var/lib/dbus"), 0);
    assert_int_equal(unlinkat(from, "upper/etc/hostname", 0), 0);
    assert_int_equal(symlinkat(victim, from, "upper/etc/hostname"), 0);
    assert_int_equal(unlinkat(from, "upper/etc/machine-id", 0), 0);
    assert_int_equal(mkdirat(from, "upper/etc/machine-id", 0755), 0);
    must_run(f, linux_clone_steps, "copy", "base");
    {
        AUTO_CLOSE int dir = file_open_dir(f->root.dir, "victim");
        AUTO_FREE char *hostname = support_read(f->root.sandboxes, "copy/upper/etc/hostname");

        assert_int_equal(count_entries(dir), 0);
        assert_string_equal(hostname, "copy\n");
    }
}

/* Bug case 6. */
static void test_clone__never_replaces_what_is_there(void **state)
{
    struct fixture *f = *state;
    struct error e = { 0 };

    must_run(f, linux_create_steps, "base", NULL);
    assert_int_equal(mkdirat(f->root.sandboxes, "work", 0755), 0);
    assert_true(support_write(f->root.sandboxes, "work/marker", "m"));
    assert_int_equal(run_steps(f, linux_clone_steps, "work", "base", &e), -1);
    assert_int_equal(e.code, ERROR_SANDBOX_EXISTS);
    assert_true(support_exists(f->root.sandboxes, "work/marker"));
    leftovers_sweep(f->root.sandboxes);
    assert_int_equal(count_entries(f->root.sandboxes), 2);
}

static void test_clone__fails_without_its_source(void **state)
{
    struct fixture *f = *state;
    struct error e = { 0 };

    assert_int_equal(run_steps(f, linux_clone_steps, "copy", "base", &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_int_equal(count_entries(f->root.sandboxes), 0);
}

static bool mount_small(void *self)
{
    const struct fixture *f = self;
    AUTO_FREE char *options = mem_print("size=24m,mode=700,uid=%u,gid=%u", SUPPORT_NOBODY, SUPPORT_NOBODY);

    return mount("small", f->root.path, "tmpfs", 0, options) == 0;
}

/* Bug case 3: the reason says how much; nothing is left; rm works with no free byte. */
static bool copes_with_full_disk(void *self)
{
    struct fixture f = *(struct fixture *)self;
    AUTO_FREE char *megabytes = mem_alloc((16 << 20) + 1);
    struct error e = { 0 };
    bool holds;

    f.root.dir = open(f.root.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    f.root.sandboxes = file_make_dir(f.root.dir, "sandboxes", 0700, &e);
    if (run_steps(&f, linux_create_steps, "base", NULL, &e) < 0)
        return false;
    memset(megabytes, 'x', 16 << 20);
    holds = support_write(f.root.sandboxes, "base/home/big", megabytes) &&
            run_steps(&f, linux_clone_steps, "copy", "base", &e) == -1 && e.code == ERROR_STORE_FULL &&
            strstr(e.message, "17 MB needed") != NULL && strstr(e.message, "8 MB free") != NULL &&
            count_entries(f.root.sandboxes) == 1;
    if (!holds)
        print_error("%s\n", e.message);
    while (support_write(f.root.sandboxes, "base/home/more", megabytes))
        megabytes[0] = '\0';
    e = (struct error){ 0 };
    return holds && run_steps(&f, linux_remove_steps, "base", NULL, &e) == 0 &&
           count_entries(f.root.sandboxes) == 0;
}

static void test_clone__says_how_much_space_is_missing(void **state)
{
    if (geteuid() != 0)
        skip(); /* only root can make the small disk */
    support_need_namespaces();
    assert_true(support_in_child(mount_small, copes_with_full_disk, *state, 0));
    assert_true(support_in_child(mount_small, copes_with_full_disk, *state, SUPPORT_NOBODY));
}

/* ---- remove ---- */

static void test_remove__leaves_nothing_and_can_run_again(void **state)
{
    struct fixture *f = *state;

    must_run(f, linux_create_steps, "demo", NULL);
    must_run(f, linux_remove_steps, "demo", NULL);
    assert_int_equal(count_entries(f->root.sandboxes), 0);
    must_run(f, linux_remove_steps, "demo", NULL);
}

static void test_remove__takes_a_directory_of_any_mode(void **state)
{
    struct fixture *f = *state;

    must_run(f, linux_create_steps, "demo", NULL);
    assert_int_equal(fchmodat(f->root.sandboxes, "demo/home", 0500, 0), 0);
    assert_int_equal(fchmodat(f->root.sandboxes, "demo", 0000, 0), 0);
    must_run(f, linux_remove_steps, "demo", NULL);
    assert_int_equal(count_entries(f->root.sandboxes), 0);
}

/* Bug case 18. */
static void test_remove__never_follows_a_link_out(void **state)
{
    struct fixture *f = *state;
    AUTO_FREE char *victim = mem_print("%s/victim", f->root.path);

    assert_int_equal(mkdirat(f->root.dir, "victim", 0755), 0);
    assert_true(support_write(f->root.dir, "victim/precious", "p"));
    assert_int_equal(symlinkat(victim, f->root.sandboxes, "demo"), 0);
    must_run(f, linux_remove_steps, "demo", NULL);
    assert_false(support_exists(f->root.sandboxes, "demo"));
    must_run(f, linux_create_steps, "demo", NULL);
    assert_int_equal(symlinkat(victim, f->root.sandboxes, "demo/home/link"), 0);
    must_run(f, linux_remove_steps, "demo", NULL);
    assert_true(support_exists(f->root.dir, "victim/precious"));
    assert_true(support_write(f->root.sandboxes, "file", "f"));
    must_run(f, linux_remove_steps, "file", NULL);
    assert_int_equal(count_entries(f->root.sandboxes), 0);
}

/* The directory is swapped for a link between the two steps and before the first. */
static void test_remove__is_safe_against_a_swap(void **state)
{
    struct fixture *f = *state;
    struct provider_place place;
    struct linux_sandbox s = support_sandbox(&place, &f->root, "demo", NULL);
    struct facts none = { 0 };
    struct step_context c = { .facts = &none, .token = "0123456789abcdef", .attempt = 1 };
    AUTO_FREE char *victim = mem_print("%s/victim", f->root.path);
    struct error e = { 0 };

    assert_int_equal(mkdirat(f->root.dir, "victim", 0755), 0);
    assert_true(support_write(f->root.dir, "victim/precious", "p"));
    must_run(f, linux_create_steps, "demo", NULL);
    assert_int_equal(linux_remove_steps[0].run(&s, &c, &e), STEP_DONE);
    assert_int_equal(renameat(f->root.sandboxes, ".gone-0123456789abcdef", f->root.dir, "moved"), 0);
    assert_int_equal(symlinkat(victim, f->root.sandboxes, ".gone-0123456789abcdef"), 0);
    assert_int_equal(linux_remove_steps[1].run(&s, &c, &e), STEP_DONE);
    assert_true(support_exists(f->root.dir, "victim/precious"));
    assert_int_equal(count_entries(f->root.sandboxes), 0);
    close(s.dir);
}

/* an interrupted rm is finished by the next, under another token. */
static void test_remove__finishes_an_interrupted_one(void **state)
{
    struct fixture *f = *state;
    struct provider_place place;
    struct linux_sandbox s = support_sandbox(&place, &f->root, "demo", NULL);
    struct facts none = { 0 };
    struct step_context c = { .facts = &none, .token = "0123456789abcdef", .attempt = 1 };
    struct error e = { 0 };

    must_run(f, linux_create_steps, "demo", NULL);
    assert_int_equal(linux_remove_steps[0].run(&s, &c, &e), STEP_DONE);
    assert_true(support_exists(f->root.sandboxes, ".gone-0123456789abcdef"));
    close(s.dir); /* as the kernel does for a killed process */
    must_run(f, linux_remove_steps, "demo", NULL);
    assert_int_equal(count_entries(f->root.sandboxes), 0);
}

/* Removes demo, recorded as run by process ID. */
static void remove_as_run_by(const struct fixture *f, const struct process_id *id)
{
    struct provider_place place;
    struct linux_sandbox s = support_sandbox(&place, &f->root, "demo", NULL);
    struct facts facts = { 0 };
    struct error e = { 0 };

    must_run(f, linux_create_steps, "demo", NULL);
    facts_set_int(&facts, "pid", id->pid);
    facts_set_int(&facts, "start", (int64_t)id->start);
    facts_set(&facts, "boot", id->boot);
    if (support_run_steps(linux_remove_steps, &s, &facts, &e) < 0)
        fail_msg("%s", e.message);
    close(s.dir);
}

/* A process that let go of the run lock may still be there, and its children write until it is gone. */
static void test_remove__waits_for_the_recorded_process(void **state)
{
    const struct timespec a_while = { .tv_nsec = 200000000 };
    struct process_id child;
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        nanosleep(&a_while, NULL);
        _exit(0);
    }
    assert_int_equal(process_read(pid, &child), 0);
    remove_as_run_by(*state, &child);
    assert_int_equal(waitpid(pid, &status, WNOHANG), pid);
}

/* Bug case 5: the number belongs to a stranger now (here: to this process), or to another boot. */
static void test_remove__waits_for_no_stranger(void **state)
{
    struct process_id other_start, other_boot;

    process_read_self(&other_start);
    other_boot = other_start;
    other_start.start++;
    other_boot.boot[0] = other_boot.boot[0] == '0' ? '1' : '0';
    remove_as_run_by(*state, &other_start);
    remove_as_run_by(*state, &other_boot);
}

/* ---- leftovers ---- */

static void test_leftovers__sweep_takes_only_what_nobody_works_on(void **state)
{
    struct fixture *f = *state;
    struct error e = { 0 };
    AUTO_CLOSE int live = leftover_make(f->root.sandboxes, ".tmp-live", &e);

    assert_true(live >= 0);
    assert_int_equal(mkdirat(f->root.sandboxes, ".tmp-dead", 0700), 0);
    assert_int_equal(mkdirat(f->root.sandboxes, ".gone-dead", 0700), 0);
    assert_true(support_write(f->root.sandboxes, ".gone-dead/file", "x"));
    assert_int_equal(fchmodat(f->root.sandboxes, ".gone-dead", 0000, 0), 0);
    assert_int_equal(symlinkat("/tmp", f->root.sandboxes, ".gone-link"), 0);
    must_run(f, linux_create_steps, "demo", NULL);
    assert_true(support_exists(f->root.sandboxes, ".tmp-live"));
    assert_int_equal(count_entries(f->root.sandboxes), 2);
    close(steal_fd(&live));
    leftovers_sweep(f->root.sandboxes);
    assert_int_equal(count_entries(f->root.sandboxes), 1);
}

static bool sweep_often(void *self)
{
    for (int i = 0; i < 3000; i++)
        leftovers_sweep(*(int *)self);
    return true;
}

/* A sweep can take a new directory before its maker has locked it, never after. */
static void test_leftovers__a_made_one_is_never_swept(void **state)
{
    struct fixture *f = *state;
    pid_t sweeper = fork();

    if (sweeper == 0)
        _exit(sweep_often(&f->root.sandboxes) ? 0 : 1);
    for (int i = 0; i < 300; i++) {
        struct error e = { 0 };
        AUTO_CLOSE int fd = leftover_make(f->root.sandboxes, ".tmp-1", &e);

        if (fd < 0)
            fail_msg("%s", e.message);
        assert_true(support_exists(f->root.sandboxes, ".tmp-1"));
        assert_int_equal(mkdirat(fd, "inside", 0700), 0);
    }
    assert_int_equal(RETRY_EINTR(waitpid(sweeper, NULL, 0)), sweeper);
}

static int run(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_create__makes_directories_with_exact_modes),
        TEST(test_create__writes_who_the_sandbox_is),
        TEST(test_create__can_run_again_in_its_operation),
        TEST(test_create__leaves_alone_what_it_did_not_make),
        TEST(test_steps__share_their_commits),
        TEST(test_clone__copies_the_layers_and_is_a_new_machine),
        TEST(test_clone__takes_files_the_user_may_not_read),
        TEST(test_clone__writes_through_no_link_of_the_guest),
        TEST(test_clone__never_replaces_what_is_there),
        TEST(test_clone__fails_without_its_source),
        TEST(test_clone__says_how_much_space_is_missing),
        TEST(test_remove__leaves_nothing_and_can_run_again),
        TEST(test_remove__takes_a_directory_of_any_mode),
        TEST(test_remove__never_follows_a_link_out),
        TEST(test_remove__is_safe_against_a_swap),
        TEST(test_remove__finishes_an_interrupted_one),
        TEST(test_remove__waits_for_the_recorded_process),
        TEST(test_remove__waits_for_no_stranger),
        TEST(test_leftovers__sweep_takes_only_what_nobody_works_on),
        TEST(test_leftovers__a_made_one_is_never_swept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return support_run_as_both(run);
}

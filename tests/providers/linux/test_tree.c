#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/text.h"
#include "providers/linux/namespace.h"
#include "providers/linux/tree.h"
#include "tests/providers/linux/files_support.h"

/* The copy of root/from/tree is root/to/tree. */
struct fixture {
    struct root root;
    int from, to; /* root/from, root/to */
    int source;   /* root/from/tree */
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct error e = { 0 };

    f->root = support_root_make("/tmp");
    f->from = file_make_dir(f->root.dir, "from", 0700, &e);
    f->to = file_make_dir(f->root.dir, "to", 0700, &e);
    f->source = file_make_dir(f->from, "tree", 0755, &e);
    *state = f;
    return f->source < 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    support_root_remove(&f->root);
    close(f->from);
    close(f->to);
    close(f->source);
    free(f);
    return 0;
}

static int copy(void *self, struct error *e)
{
    const struct fixture *f = self;

    return tree_copy(f->from, f->to, "tree", e);
}

/* Opens the copy. */
static int copied(struct fixture *f)
{
    struct error e = { 0 };

    if (namespace_run_with_files(copy, f, &e) < 0)
        fail_msg("%s", e.message);
    return file_open_dir(f->to, "tree");
}

static struct stat status(int dir, const char *name)
{
    struct stat st = { 0 };

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        fail_msg("%s: %s", name, strerror(errno));
    return st;
}

static void test_tree_copy__keeps_content_modes_and_times(void **state)
{
    struct fixture *f = *state;
    const struct timespec times[] = { { 1000, 1 }, { 1234567890, 123456789 } };
    int copy_dir;

    assert_true(support_write(f->source, "a", "content"));
    assert_true(support_write(f->source, "empty", ""));
    assert_int_equal(mkdirat(f->source, "sub", 0755), 0);
    assert_true(support_write(f->source, "sub/b", "below"));
    assert_int_equal(fchmodat(f->source, "a", 04751, 0), 0);
    assert_int_equal(fchmodat(f->source, "sub", 01777, 0), 0);
    assert_int_equal(utimensat(f->source, "a", times, 0), 0);
    assert_int_equal(utimensat(f->source, "sub", times, 0), 0);
    copy_dir = copied(f);
    assert_int_equal(status(copy_dir, "a").st_mode & 07777, 04751);
    assert_int_equal(status(copy_dir, "a").st_mtim.tv_sec, 1234567890);
    assert_int_equal(status(copy_dir, "a").st_mtim.tv_nsec, 123456789);
    assert_int_equal(status(copy_dir, "sub").st_mode & 07777, 01777);
    assert_int_equal(status(copy_dir, "sub").st_mtim.tv_sec, 1234567890);
    assert_int_equal(status(copy_dir, "empty").st_size, 0);
    {
        AUTO_FREE char *a = support_read(copy_dir, "a");
        AUTO_FREE char *b = support_read(copy_dir, "sub/b");

        assert_string_equal(a, "content");
        assert_string_equal(b, "below");
    }
    close(copy_dir);
}

static void test_tree_copy__copies_what_its_owner_may_not_read(void **state)
{
    struct fixture *f = *state;
    int copy_dir;

    support_need_namespaces();
    assert_true(support_write(f->source, "secret", "x"));
    assert_int_equal(fchmodat(f->source, "secret", 0000, 0), 0);
    assert_int_equal(mkdirat(f->source, "locked", 0755), 0);
    assert_true(support_write(f->source, "locked/in", "y"));
    assert_int_equal(fchmodat(f->source, "locked", 0500, 0), 0);
    assert_int_equal(mkdirat(f->source, "closed", 0755), 0);
    assert_true(support_write(f->source, "closed/in", "z"));
    assert_int_equal(fchmodat(f->source, "closed", 0000, 0), 0);
    copy_dir = copied(f);
    assert_int_equal(status(copy_dir, "secret").st_mode & 07777, 0);
    assert_int_equal(status(copy_dir, "secret").st_size, 1);
    assert_int_equal(status(copy_dir, "locked").st_mode & 07777, 0500);
    assert_int_equal(status(copy_dir, "locked/in").st_size, 1);
    assert_int_equal(status(copy_dir, "closed").st_mode & 07777, 0);
    assert_int_equal(fchmodat(copy_dir, "closed", 0700, 0), 0);
    assert_int_equal(status(copy_dir, "closed/in").st_size, 1);
    close(copy_dir);
}

static void test_tree_copy__keeps_what_overlayfs_needs(void **state)
{
    struct fixture *f = *state;
    const char *const opaque = geteuid() == 0 ? "trusted.overlay.opaque" : "user.overlay.opaque";
    const char *const origin = geteuid() == 0 ? "trusted.overlay.origin" : "user.overlay.origin";
    AUTO_CLOSE int dir = -1;
    AUTO_CLOSE int copy_dir = -1;
    AUTO_CLOSE int inner = -1;
    char value[16];

    if (mknodat(f->source, "gone", S_IFCHR, 0) < 0)
        skip(); /* before Linux 5.8, or a filter */
    assert_int_equal(mkdirat(f->source, "opaque", 0755), 0);
    dir = file_open_dir(f->source, "opaque");
    if (fsetxattr(dir, opaque, "y", 1, 0) < 0 || fsetxattr(dir, origin, "o", 1, 0) < 0)
        skip(); /* a file system without these attributes */
    assert_int_equal(fsetxattr(dir, "user.mine", "m", 1, 0), 0);
    copy_dir = copied(f);
    inner = file_open_dir(copy_dir, "opaque");
    assert_true(S_ISCHR(status(copy_dir, "gone").st_mode));
    assert_int_equal(status(copy_dir, "gone").st_rdev, 0);
    assert_int_equal(fgetxattr(inner, opaque, value, sizeof(value)), 1);
    assert_int_equal(fgetxattr(inner, "user.mine", value, sizeof(value)), 1);
    assert_int_equal(fgetxattr(inner, origin, value, sizeof(value)), -1);
}

static void test_tree_copy__keeps_hard_links(void **state)
{
    struct fixture *f = *state;
    int copy_dir;

    assert_true(support_write(f->source, "a", "linked"));
    assert_int_equal(mkdirat(f->source, "sub", 0755), 0);
    assert_int_equal(linkat(f->source, "a", f->source, "sub/b", 0), 0);
    assert_int_equal(linkat(f->source, "a", f->source, "c", 0), 0);
    copy_dir = copied(f);
    assert_int_equal(status(copy_dir, "a").st_nlink, 3);
    assert_int_equal(status(copy_dir, "a").st_ino, status(copy_dir, "sub/b").st_ino);
    assert_int_equal(status(copy_dir, "a").st_ino, status(copy_dir, "c").st_ino);
    close(copy_dir);
}

static void test_tree_copy__keeps_holes(void **state)
{
    const off_t size = 64 << 20, at = 32 << 20;
    struct fixture *f = *state;
    AUTO_CLOSE int fd = openat(f->source, "sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    AUTO_CLOSE int in = -1;
    char value[8] = "";
    int copy_dir;

    assert_int_equal(pwrite(fd, "middle", 6, at), 6);
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(fsync(fd), 0);
    copy_dir = copied(f);
    in = openat(copy_dir, "sparse", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fsync(in), 0);
    assert_int_equal(status(copy_dir, "sparse").st_size, size);
    assert_true(status(copy_dir, "sparse").st_blocks * 512 < 1 << 20);
    assert_int_equal(pread(in, value, 6, at), 6);
    assert_string_equal(value, "middle");
    close(copy_dir);
}

static void test_tree_copy__never_follows_links(void **state)
{
    struct fixture *f = *state;
    char target[64] = "";
    int copy_dir;

    assert_int_equal(symlinkat("/etc", f->source, "dir"), 0);
    assert_int_equal(symlinkat("/nowhere/at all", f->source, "dangling"), 0);
    copy_dir = copied(f);
    assert_true(S_ISLNK(status(copy_dir, "dir").st_mode));
    assert_true(readlinkat(copy_dir, "dangling", target, sizeof(target) - 1) > 0);
    assert_string_equal(target, "/nowhere/at all");
    close(copy_dir);
}

static void test_tree_copy__keeps_fifos_and_skips_sockets(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int copy_dir;

    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket", f->source);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(mkfifoat(f->source, "fifo", 0640), 0);
    assert_int_equal(fchmodat(f->source, "fifo", 0620, 0), 0);
    copy_dir = copied(f);
    assert_true(S_ISFIFO(status(copy_dir, "fifo").st_mode));
    assert_int_equal(status(copy_dir, "fifo").st_mode & 07777, 0620);
    assert_false(support_exists(copy_dir, "socket"));
    close(copy_dir);
}

static void test_tree_copy__takes_names_of_any_bytes(void **state)
{
    static const char *const names[] = { "\xff\xfe", "a\nb", " ", "-rf", "\xc3\x28", "*" };
    struct fixture *f = *state;
    int copy_dir;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_true(support_write(f->source, names[i], names[i]));
    copy_dir = copied(f);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO_FREE char *content = support_read(copy_dir, names[i]);

        assert_string_equal(content, names[i]);
    }
    close(copy_dir);
}

/* Deeper than descriptors and PATH_MAX go; hard links across it. */
static void test_tree_copy__takes_any_depth(void **state)
{
    const int depth = 3000;
    struct fixture *f = *state;
    AUTO_CLOSE int source = dup(f->source);
    AUTO_CLOSE int at = -1;

    for (int i = 0; i < depth; i++) {
        int next;

        assert_int_equal(mkdirat(source, "d", 0755), 0);
        next = file_open_dir(source, "d");
        assert_true(next >= 0);
        close(source);
        source = next;
    }
    assert_true(support_write(source, "deep", "end"));
    assert_int_equal(linkat(source, "deep", source, "deep too", 0), 0);
    assert_true(support_write(f->source, "after", "x"));
    at = copied(f);
    assert_true(support_exists(at, "after"));
    for (int i = 0; i < depth; i++) {
        int next = file_open_dir(at, "d");

        assert_true(next >= 0);
        close(at);
        at = next;
    }
    assert_true(support_exists(at, "deep"));
    assert_true(support_exists(at, "deep too"));
}

static void test_tree_copy__refuses_an_existing_target(void **state)
{
    struct fixture *f = *state;
    struct error e = { 0 };

    assert_int_equal(mkdirat(f->to, "tree", 0755), 0);
    assert_int_equal(namespace_run_with_files(copy, f, &e), -1);
    assert_int_not_equal(e.code, ERROR_NONE);
}

static void test_tree_measure__counts_a_hard_link_once(void **state)
{
    struct fixture *f = *state;
    AUTO_FREE char *megabyte = calloc(1, (1 << 20) + 1);
    struct error e = { 0 };
    int64_t bytes = 0;

    memset(megabyte, 'x', 1 << 20);
    assert_true(support_write(f->source, "a", megabyte));
    assert_int_equal(linkat(f->source, "a", f->source, "b", 0), 0);
    assert_int_equal(syncfs(f->source), 0); /* blocks are counted when they are allocated */
    assert_int_equal(tree_measure(f->from, "tree", &bytes, &e), 0);
    assert_true(bytes >= 1 << 20 && bytes < 2 << 20);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tree_copy__keeps_content_modes_and_times, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tree_copy__copies_what_its_owner_may_not_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_tree_copy__keeps_what_overlayfs_needs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tree_copy__keeps_hard_links, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tree_copy__keeps_holes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tree_copy__never_follows_links, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tree_copy__keeps_fifos_and_skips_sockets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tree_copy__takes_names_of_any_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tree_copy__takes_any_depth, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tree_copy__refuses_an_existing_target, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tree_measure__counts_a_hard_link_once, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return support_run_as_both(run);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/text.h"
#include "providers/linux/mountinfo.h"

static const char sample[] = "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
                             "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
                             "40 27 254:1 / /var rw - ext4 /dev/vdb rw\n"
                             "41 27 254:0 /home/u /srv/a\\040b rw master:1 - ext4 /dev/vda rw\n"
                             "42 27 254:0 /home/u/.ad/sandboxes /opt/x\\134y rw - ext4 /dev/vda rw\n"
                             "43 40 0:50 / /var/lib/docker\\011t rw - tmpfs none rw\n"
                             "44 27 254:0 /elsewhere /mnt rw - ext4 /dev/vda rw\n";

static void test_mountinfo__decodes_octal_escapes(void **state)
{
    struct mountinfo m = { 0 };

    (void)state;
    mountinfo_parse(&m, sample);
    assert_int_equal(m.count, 7);
    assert_string_equal(m.items[3].point, "/srv/a b");
    assert_string_equal(m.items[3].root, "/home/u");
    assert_string_equal(m.items[4].point, "/opt/x\\y");
    assert_string_equal(m.items[5].point, "/var/lib/docker\tt");
    assert_int_equal(m.items[5].minor, 50);
    mountinfo_done(&m);
}

static void test_mountinfo__skips_lines_of_another_shape(void **state)
{
    static const char *const texts[] = { "",  "\n\n", "1 2 3\n", "1 2 x:y / /a rw - t d rw\n", "1 2 8:1 /\n",
                                         "\\" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct mountinfo m = { 0 };

        mountinfo_parse(&m, texts[i]);
        assert_int_equal(m.count, 0);
        mountinfo_done(&m);
    }
}

static void test_mountinfo__contains_by_whole_components(void **state)
{
    static const struct {
        const char *dir, *path;
        bool contains;
    } cases[] = {
        { "/", "/", true },     { "/", "/a", true },
        { "/a", "/a", true },   { "/a", "/a/b", true },
        { "/a", "/ab", false }, { "/a/b", "/a", false },
        { "/a", "/b", false },  { "/var", "/variant/x", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(mountinfo_contains(cases[i].dir, cases[i].path), cases[i].contains);
}

static void test_mountinfo__sees_mounts_strictly_below(void **state)
{
    struct mountinfo m = { 0 };

    (void)state;
    mountinfo_parse(&m, sample);
    assert_true(mountinfo_has_below(&m, "/var"));
    assert_true(mountinfo_has_below(&m, "/opt"));
    assert_true(mountinfo_has_below(&m, "/"));
    assert_false(mountinfo_has_below(&m, "/proc")); /* is a mount point, has none below */
    assert_false(mountinfo_has_below(&m, "/usr"));
    mountinfo_done(&m);
}

static int add_alias(void *self, const char *alias, struct error *e)
{
    (void)e;
    text_print(self, "%s;", alias);
    return 0;
}

static void check_aliases(const char *text, const char *path, const char *expected)
{
    struct mountinfo m = { 0 };
    struct text aliases = { 0 };
    struct error e = { 0 };

    mountinfo_parse(&m, text);
    assert_int_equal(mountinfo_each_alias(&m, path, add_alias, &aliases, &e), 0);
    assert_string_equal(text_get(&aliases), expected);
    text_done(&aliases);
    mountinfo_done(&m);
}

static void test_mountinfo__finds_every_way_to_a_directory(void **state)
{
    (void)state;
    check_aliases(sample, "/home/u/.ad", "/home/u/.ad;/srv/a b/.ad;/opt/x\\y;");
    check_aliases(sample, "/var/lib/ad", "/var/lib/ad;");
    check_aliases(sample, "/home/u/other", "/home/u/other;/srv/a b/other;");
    /* a btrfs with its home in a subvolume, and the whole file system mounted elsewhere */
    check_aliases("1 0 0:30 /@ / rw - btrfs d rw\n2 1 0:30 /@home /home rw - btrfs d rw\n"
                  "3 1 0:30 / /srv/all rw - btrfs d rw\n",
                  "/home/u/.ad", "/home/u/.ad;/srv/all/@home/u/.ad;");
    check_aliases("", "/home/u/.ad", "/home/u/.ad;"); /* a chroot hides the mount of its root */
}

static void test_mountinfo__reads_this_process(void **state)
{
    struct mountinfo m = { 0 };
    struct error e = { 0 };

    (void)state;
    assert_int_equal(mountinfo_read(&m, &e), 0);
    assert_true(m.count > 0);
    mountinfo_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mountinfo__decodes_octal_escapes),
        cmocka_unit_test(test_mountinfo__skips_lines_of_another_shape),
        cmocka_unit_test(test_mountinfo__contains_by_whole_components),
        cmocka_unit_test(test_mountinfo__sees_mounts_strictly_below),
        cmocka_unit_test(test_mountinfo__finds_every_way_to_a_directory),
        cmocka_unit_test(test_mountinfo__reads_this_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

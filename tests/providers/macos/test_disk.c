#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/mem.h"
#include "providers/macos/disk.h"
#include "tests/providers/macos/scripts.h"

/* Disk images, one at a time: IMAGE.data is the tree on its Data volume, and is moved to where it is mounted,
 * so that it can be written there only. $MAC/attached has the image's path, $MAC/mounted the mount point,
 * $MAC/elsewhere one that somebody else has chosen. The host's own Data volume, disk3s5, is $MAC/host.data.
 */
static const char hdiutil[] =
    "head='<?xml version=\"1.0\"?><plist version=\"1.0\"><dict>'\n"
    "entities() {\n"
    "  echo "
    "'<key>system-entities</key><array><dict><key>content-hint</key><string>GUID_partition_scheme</string>'\n"
    "  echo '<key>dev-entry</key><string>/dev/disk4</string></dict><dict><key>content-hint</key>'\n"
    "  echo "
    "'<string>41504653-0000-11AA-AA11-00306543ECAC</string><key>dev-entry</key><string>/dev/disk5s5</"
    "string>'\n"
    "  for at in mounted elsewhere; do\n"
    "    [ ! -e \"$MAC/$at\" ] || echo \"<key>mount-point</key><string>$(cat \"$MAC/$at\")</string>\"\n"
    "  done\n"
    "  echo '</dict></array>'\n"
    "}\n"
    "for image; do :; done\n"
    "case $1 in\n"
    "attach)\n"
    "  if [ -s \"$MAC/busy\" ]; then\n"
    "    sed -i '$d' \"$MAC/busy\"\n"
    "    echo 'hdiutil: attach failed - Resource temporarily unavailable' >&2\n"
    "    exit 1\n"
    "  fi\n"
    "  [ ! -e \"$MAC/attached\" ] || echo \"$image beside $(cat \"$MAC/attached\")\" >>\"$MAC/overlap\"\n"
    "  echo \"$image\" >\"$MAC/attached\"\n"
    "  [ ! -e \"$MAC/odd\" ] || { echo \"$head</dict></plist>\"; exit; }\n"
    "  echo \"$head\"; entities; echo '</dict></plist>' ;;\n"
    "info)\n"
    "  echo \"$head<key>images</key><array>\"\n"
    "  if [ -e \"$MAC/attached\" ]; then\n"
    "    echo \"<dict><key>image-path</key><string>$(cat \"$MAC/attached\")</string>\"; entities; echo "
    "'</dict>'\n"
    "  fi\n"
    "  echo '</array></dict></plist>' ;;\n"
    "detach)\n"
    "  [ ! -e \"$MAC/mounted\" ] || { echo 'hdiutil: detach failed - Resource busy' >&2; exit 16; }\n"
    "  rm \"$MAC/attached\" ;;\n"
    "esac";
static const char diskutil[] = "cat \"$MAC/apfs-list.plist\"";
static const char mount[] =
    "for at; do device=$dir; dir=$at; done\n"
    "case $device in /dev/disk5s5) data=$(cat \"$MAC/attached\").data ;;\n"
    "/dev/disk3s5) data=$MAC/host.data ;; *) exit 1 ;; esac\n"
    "[ \"$(stat -c %a \"$dir\")\" = 700 ] || { echo 'mount: not private' >&2; exit 1; }\n"
    "rmdir \"$dir\" && mv \"$data\" \"$dir\" && printf %s \"$dir\" >\"$MAC/mounted\"";
static const char umount[] =
    "for dir; do :; done\n"
    "mv \"$dir\" \"$(cat \"$MAC/attached\").data\" && mkdir \"$dir\" && rm \"$MAC/mounted\"";

static const struct keys_pair key = { .private_file = "-----BEGIN OPENSSH PRIVATE KEY-----\nnew\n",
                                      .public_line = "ssh-ed25519 AAAAnew\n",
                                      .blob = "AAAAnew" };

/* $D is the disk of demo, $E its guest's private/etc. */
static int disk_setup(void **state)
{
    struct scripts *s;

    if (scripts_setup(state) < 0)
        return -1;
    s = *state;
    scripts_set(s, "hdiutil", hdiutil);
    scripts_set(s, "diskutil", diskutil);
    scripts_set(s, "mount", mount);
    scripts_set(s, "umount", umount);
    AUTO_FREE char *disk = mem_print("%s/sandboxes/demo/vm/disk.img", s->root.path);
    AUTO_FREE char *etc = mem_print("%s.data/private/etc", disk);

    setenv("D", disk, 1);
    setenv("E", etc, 1);
    return scripts_shell(
        s, "cp '" AD_SAMPLES
           "/apfs-list.plist' . && mkdir -p \"$(dirname \"$D\")\" host.data/private/etc && : >\"$D\" && "
           "mkdir -p \"$E/ssh\" host.data/private/etc/ssh && cd \"$E/ssh\" && echo config >sshd_config && "
           "for k in rsa ecdsa ed25519; do echo \"old key, longer than the new one, so that cutting it "
           "matters, $k\" "
           ">ssh_host_${k}_key; echo old >ssh_host_${k}_key.pub; done && chmod 600 ssh_host_*_key && "
           "cp -r . \"$MAC/host.data/private/etc/ssh\" && cd \"$MAC\" && find host.data -type f -exec cksum "
           "{} + >host.sums");
}

static int disk_teardown(void **state)
{
    return scripts_teardown(state);
}

static int write_key(const struct scripts *s, bool *written, struct error *e)
{
    return disk_write_host_key(&s->root, -1, getenv("D"), &key, written, e);
}

static void write_key_well(const struct scripts *s, bool expected)
{
    bool written = !expected;
    struct error e = { 0 };

    if (write_key(s, &written, &e) < 0)
        fail_msg("%s", e.message);
    assert_int_equal(written, expected);
}

/* Whatever happened: nothing is mounted or attached, the host's own volume is as it was. */
static void assert_closed(const struct scripts *s)
{
    assert_false(scripts_has(s, "attached"));
    assert_false(scripts_has(s, "mounted"));
    assert_int_equal(scripts_shell(s, "[ ! -e \"$ROOT/providers/macos/mount\" ]"), 0);
    assert_int_equal(scripts_shell(s, "find host.data -type f -exec cksum {} + | cmp - host.sums"), 0);
}

static void assert_fails(const struct scripts *s, enum error_code code, const char *says)
{
    struct error e = { 0 };
    bool written;

    assert_int_equal(write_key(s, &written, &e), -1);
    if (e.code != code || strstr(e.message, says) == NULL)
        fail_msg("%d: %s", (int)e.code, e.message);
}

/* ---- writing ---- */

/* */
static void test_disk__both_halves_of_the_key_are_rewritten_in_place(void **state)
{
    const struct scripts *s = *state;

    assert_int_equal(
        scripts_shell(
            s, "cd \"$E/ssh\" && stat -c %i ssh_host_ed25519_key ssh_host_ed25519_key.pub >\"$MAC/before\""),
        0);
    write_key_well(s, true);
    assert_int_equal(scripts_shell(s, "cd \"$E/ssh\" && printf -- '-----BEGIN OPENSSH PRIVATE "
                                      "KEY-----\\nnew\\n' | cmp - ssh_host_ed25519_key"),
                     0);
    assert_int_equal(
        scripts_shell(s, "cd \"$E/ssh\" && echo 'ssh-ed25519 AAAAnew' | cmp - ssh_host_ed25519_key.pub"), 0);
    assert_int_equal(scripts_shell(s, "cd \"$E/ssh\" && [ \"$(stat -c %a ssh_host_ed25519_key "
                                      "ssh_host_ed25519_key.pub | tr '\\n' ' ')\" = '600 644 ' ]"),
                     0);
    /* the recorded owner, root, stays with the file */
    assert_int_equal(scripts_shell(s, "cd \"$E/ssh\" && stat -c %i ssh_host_ed25519_key "
                                      "ssh_host_ed25519_key.pub | cmp - \"$MAC/before\""),
                     0);
    assert_closed(s);
}

/* a clone would otherwise share its source's. */
static void test_disk__the_other_keys_are_removed_and_nothing_else(void **state)
{
    const struct scripts *s = *state;

    write_key_well(s, true);
    assert_int_equal(scripts_shell(s, "cd \"$E/ssh\" && [ \"$(ls -A | tr '\\n' ' ')\" = "
                                      "'ssh_host_ed25519_key ssh_host_ed25519_key.pub sshd_config ' ]"),
                     0);
}

static void test_disk__a_guest_without_remote_login_is_left_alone(void **state)
{
    static const char *const guests[] = { "rm \"$E\"/ssh/ssh_host_ed25519_key*", "rm -r \"$E/ssh\"" };
    const struct scripts *s = *state;

    for (size_t i = 0; i < ARRAY_LEN(guests); i++) {
        assert_int_equal(scripts_shell(s, guests[i]), 0);
        assert_int_equal(scripts_shell(s, "find \"$E\" | sort >before"), 0);
        write_key_well(s, false);
        assert_int_equal(scripts_shell(s, "find \"$E\" | sort | cmp - before"), 0);
        assert_closed(s);
    }
}

static void test_disk__keys_that_are_read_only_or_torn_are_rewritten(void **state)
{
    static const char *const guests[] = { "chmod 400 \"$E\"/ssh/ssh_host_ed25519_key*",
                                          ": >\"$E\"/ssh/ssh_host_ed25519_key",
                                          "rm \"$E\"/ssh/ssh_host_ed25519_key.pub" };
    const struct scripts *s = *state;

    for (size_t i = 0; i < ARRAY_LEN(guests); i++) {
        assert_int_equal(scripts_shell(s, guests[i]), 0);
        write_key_well(s, true);
        assert_int_equal(scripts_shell(s, "cd \"$E/ssh\" && grep -qx new ssh_host_ed25519_key && grep -q "
                                          "AAAAnew ssh_host_ed25519_key.pub"),
                         0);
        assert_closed(s);
    }
}

/* Bug case 18's kind: the guest may put links anywhere on its volume, and they would lead into the host. */
static void test_disk__links_of_the_guest_are_not_followed(void **state)
{
    static const char *const links[] = {
        "rm -r \"$E/ssh\" && ln -s \"$MAC/victim\" \"$E/ssh\"",
        "mv \"$E\" \"$E.old\" && ln -s \"$E.old\" \"$E\"",
        "mv \"${E%/etc}\" \"${E%/etc}.old\" && ln -s \"$MAC/victim\" \"${E%/etc}\"",
        "ln -sf \"$MAC/victim/ssh_host_ed25519_key\" \"$E/ssh/ssh_host_ed25519_key\"",
        "ln -sf \"$MAC/victim/ssh_host_ed25519_key.pub\" \"$E/ssh/ssh_host_ed25519_key.pub\"",
        "rm \"$E/ssh/ssh_host_ed25519_key\" && mkfifo \"$E/ssh/ssh_host_ed25519_key\"",
        "rm \"$E/ssh/ssh_host_ed25519_key\" && mkdir \"$E/ssh/ssh_host_ed25519_key\"",
    };

    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        struct error e = { 0 };
        struct scripts *s;
        bool written;

        assert_int_equal(disk_setup((void **)&s), 0);
        assert_int_equal(
            scripts_shell(s,
                          "mkdir -p victim/etc && cp -r \"$E/ssh\" victim/etc && cp \"$E\"/ssh/* victim && "
                          "find victim -type f -exec cksum {} + >victim.sums"),
            0);
        assert_int_equal(scripts_shell(s, links[i]), 0);
        if (write_key(s, &written, &e) == 0)
            fail_msg("%s", links[i]);
        assert_int_equal(scripts_shell(s, "find victim -type f -exec cksum {} + | cmp - victim.sums"), 0);
        assert_closed(s);
        disk_teardown((void **)&s);
    }
    (void)state;
}

/* ---- what can go wrong ---- */

static void test_disk__filevault_is_named(void **state)
{
    const struct scripts *s = *state;

    /* the last three <false/> before disk5s5's end are Encryption, FileVault, Locked of its Data volume */
    assert_int_equal(scripts_shell(s, "tac apfs-list.plist | awk '/<false\\/>/ && !n++ { sub(/false/, "
                                      "\"true\") } 1' | tac >x && mv x apfs-list.plist"),
                     0);
    assert_fails(s, ERROR_PERM_DENIED, "FileVault");
    assert_closed(s);
}

/* a disk that cannot be opened fails, and whatever fails, everything is closed again. */
static void test_disk__every_tool_may_fail(void **state)
{
    static const struct {
        const char *tool, *body, *says;
        enum error_code code;
    } cases[] = {
        { "hdiutil",
          "case $1 in info) echo '<plist><dict/></plist>' ;; *) echo 'hdiutil: attach failed - image not "
          "recognized' >&2; exit 1 ;; esac",
          "image not recognized", ERROR_ACTION_FAILED },
        { "hdiutil", "exit 1", "cannot list the attached disk images", ERROR_ACTION_FAILED },
        { "diskutil", "echo 'Could not start up' >&2; exit 1", "Could not start up", ERROR_ACTION_FAILED },
        { "diskutil", "echo not a list", "is not a property list", ERROR_ACTION_FAILED },
        { "mount", "echo 'mount: volume is damaged' >&2; exit 66", "volume is damaged", ERROR_ACTION_FAILED },
        { "mount", "echo 'mount_apfs: volume could not be mounted: Operation not permitted' >&2; exit 77",
          "not permitted", ERROR_PERM_DENIED },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct scripts *s;

        assert_int_equal(disk_setup((void **)&s), 0);
        scripts_set(s, cases[i].tool, cases[i].body);
        assert_fails(s, cases[i].code, cases[i].says);
        scripts_set(s, cases[i].tool, strcmp(cases[i].tool, "hdiutil") == 0 ? hdiutil : cases[i].body);
        assert_closed(s);
        disk_teardown((void **)&s);
    }
    (void)state;
}

static void test_disk__an_answer_that_names_no_device_is_detached_all_the_same(void **state)
{
    const struct scripts *s = *state;

    scripts_write(s, "odd", "");
    assert_fails(s, ERROR_ACTION_FAILED, "no partition table");
    assert_closed(s);
}

static void test_disk__a_volume_without_macos_is_told(void **state)
{
    const struct scripts *s = *state;

    assert_int_equal(scripts_shell(s, "rm -r \"${E%/private/etc}\"/*"), 0);
    assert_fails(s, ERROR_ACTION_FAILED, "cannot open 'private'");
    assert_closed(s);
}

/* A VM that was just stopped: its lock lingers. */
static void test_disk__a_busy_disk_is_tried_again(void **state)
{
    const struct scripts *s = *state;

    scripts_write(s, "busy", "1\n2\n3\n");
    write_key_well(s, true);
    assert_closed(s);
}

static void test_disk__a_disk_that_stays_busy_is_told_after_five_seconds(void **state)
{
    struct scripts *s = *state;
    int64_t start = clock_mono_ms();

    scripts_set(s, "hdiutil",
                "case $1 in info) echo '<plist><dict/></plist>' ;; *) echo 'hdiutil: attach failed - "
                "Resource temporarily unavailable' >&2; exit 35 ;; esac");
    assert_fails(s, ERROR_SANDBOX_BUSY, "temporarily unavailable");
    assert_in_range(clock_mono_ms() - start, 5000, 20000);
    scripts_set(s, "hdiutil", hdiutil);
    assert_closed(s);
}

/* Spotlight reads a volume as soon as it is written to. */
static void test_disk__unmounting_is_tried_again_and_then_forced(void **state)
{
    struct scripts *s = *state;
    AUTO_FREE char *body =
        mem_print("[ \"$1\" = -f ] || { echo 'umount: Resource busy' >&2; exit 1; }\n%s", umount);

    scripts_set(s, "umount", body);
    write_key_well(s, true);
    assert_closed(s);
}

/* ---- leftovers, and others ---- */

static int write_in_child(void *arg)
{
    struct error e = { 0 };
    bool written;

    return write_key(arg, &written, &e) == 0 ? 0 : 1;
}

/* Starts writing and kills it, alone, once the volume is mounted. */
static void kill_in_the_middle(struct scripts *s)
{
    AUTO_FREE char *body = mem_print("%s\necho >\"$MAC/pipe\"; exec head -n 1 \"$MAC/never\"", mount);
    pid_t child;

    assert_int_equal(scripts_shell(s, "mkfifo pipe never"), 0);
    scripts_set(s, "mount", body);
    child = scratch_start(write_in_child, s);
    assert_int_equal(scripts_shell(s, "head -n 1 pipe >drained"), 0);
    kill(child, SIGKILL);
    assert_int_equal(scratch_wait(child), 128 + SIGKILL);
    assert_true(scripts_has(s, "mounted"));
    assert_int_equal(scripts_shell(s, "echo >never"), 0); /* and its tools end */
    scripts_set(s, "mount", mount);
}

static void test_disk__what_a_killed_command_left_is_released(void **state)
{
    struct scripts *s = *state;
    struct error e = { 0 };

    kill_in_the_middle(s);
    if (disk_release(&s->root, -1, getenv("D"), &e) < 0)
        fail_msg("%s", e.message);
    assert_closed(s);
    assert_int_equal(scripts_shell(s, "[ -d \"$E/ssh\" ]"), 0);
}

static void test_disk__the_next_start_works_after_a_killed_one(void **state)
{
    struct scripts *s = *state;

    kill_in_the_middle(s);
    write_key_well(s, true);
    assert_false(scripts_has(s, "overlap"));
    assert_closed(s);
}

static void test_disk__releasing_nothing_is_fine(void **state)
{
    struct scripts *s = *state;
    struct error e = { 0 };

    assert_int_equal(disk_release(&s->root, -1, getenv("D"), &e), 0);
    assert_int_equal(scripts_shell(s, "rm \"$D\""), 0);
    assert_int_equal(disk_release(&s->root, -1, getenv("D"), &e), 0);
    assert_closed(s);
}

/* Mounted where people mount: it is not taken from them. */
static void test_disk__a_disk_that_somebody_has_mounted_is_busy(void **state)
{
    struct scripts *s = *state;
    struct error e = { 0 };

    scripts_write(s, "attached", getenv("D"));
    scripts_write(s, "elsewhere", "/Volumes/Data");
    assert_fails(s, ERROR_SANDBOX_BUSY, "/Volumes/Data");
    assert_int_equal(disk_release(&s->root, -1, getenv("D"), &e), -1);
    assert_int_equal(e.code, ERROR_SANDBOX_BUSY);
    assert_true(scripts_has(s, "attached"));
}

/* Clones carry equal UUIDs: another sandbox's leftover goes first. Images of others are not ours to detach.
 */
static void test_disk__only_disks_of_this_root_are_detached(void **state)
{
    struct scripts *s = *state;
    AUTO_FREE char *other = mem_print("%s/sandboxes/other/vm/disk.img", s->root.path);

    scripts_write(s, "attached", other);
    write_key_well(s, true);
    assert_false(scripts_has(s, "overlap"));
    assert_closed(s);
    scripts_write(s, "attached", "/Users/me/Downloads/some.dmg");
    struct error e = { 0 };

    assert_int_equal(disk_release(&s->root, -1, getenv("D"), &e), 0);
    assert_true(scripts_has(s, "attached"));
}

static void test_disk__one_disk_is_open_at_a_time(void **state)
{
    struct scripts *s = *state;
    pid_t children[3];

    for (size_t i = 0; i < ARRAY_LEN(children); i++)
        children[i] = scratch_start(write_in_child, s);
    for (size_t i = 0; i < ARRAY_LEN(children); i++)
        assert_int_equal(scratch_wait(children[i]), 0);
    assert_false(scripts_has(s, "overlap"));
    assert_closed(s);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, disk_setup, disk_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_disk__both_halves_of_the_key_are_rewritten_in_place),
        TEST(test_disk__the_other_keys_are_removed_and_nothing_else),
        TEST(test_disk__a_guest_without_remote_login_is_left_alone),
        TEST(test_disk__keys_that_are_read_only_or_torn_are_rewritten),
        cmocka_unit_test(test_disk__links_of_the_guest_are_not_followed),
        TEST(test_disk__filevault_is_named),
        cmocka_unit_test(test_disk__every_tool_may_fail),
        TEST(test_disk__an_answer_that_names_no_device_is_detached_all_the_same),
        TEST(test_disk__a_volume_without_macos_is_told),
        TEST(test_disk__a_busy_disk_is_tried_again),
        TEST(test_disk__a_disk_that_stays_busy_is_told_after_five_seconds),
        TEST(test_disk__unmounting_is_tried_again_and_then_forced),
        TEST(test_disk__what_a_killed_command_left_is_released),
        TEST(test_disk__the_next_start_works_after_a_killed_one),
        TEST(test_disk__releasing_nothing_is_fine),
        TEST(test_disk__a_disk_that_somebody_has_mounted_is_busy),
        TEST(test_disk__only_disks_of_this_root_are_detached),
        TEST(test_disk__one_disk_is_open_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

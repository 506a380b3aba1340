#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/mem.h"
#include "providers/macos/volumes.h"

#define PLIST(content) "<?xml version=\"1.0\"?>\n<plist version=\"1.0\">" content "</plist>\n"

static struct plist *open_text(const char *text)
{
    struct error e = { 0 };
    struct plist *p = NULL;

    if (plist_open(text, strlen(text), "the answer", &p, &e) < 0)
        fail_msg("%s", e.message);
    return p;
}

static struct plist *open_sample(const char *name)
{
    AUTO_FREE char *path = mem_print("%s/%s", AD_SAMPLES, name), *text = NULL;
    struct error e = { 0 };
    size_t size;

    assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &text, &size, &e), 1);
    return open_text(text);
}

/* ---- the disk ---- */

static void assert_disk(const char *text, const char *expected)
{
    struct plist *p = open_text(text);
    char disk[VOLUMES_NAME_SIZE];
    bool found = volumes_find_disk(plist_root(p), disk);

    assert_int_equal(found, expected != NULL);
    if (found)
        assert_string_equal(disk, expected);
    plist_close(p);
}

#define ENTITY(device, hint)                                                                                 \
    "<dict><key>content-hint</key><string>" hint "</string><key>dev-entry</key><string>" device              \
    "</string></dict>"
#define ENTITIES(content) PLIST("<array>" content "</array>")

static void test_volumes__find_the_disk_in_the_sample(void **state)
{
    struct plist *p = open_sample("attach.plist");
    char disk[VOLUMES_NAME_SIZE];

    (void)state;
    assert_true(volumes_find_disk(plist_find(plist_root(p), "system-entities"), disk));
    assert_string_equal(disk, "disk4");
    plist_close(p);
}

static void test_volumes__find_the_disk_among_synthesized_rows(void **state)
{
    (void)state;
    assert_disk(ENTITIES(ENTITY("/dev/disk5", "EF57347C-0000-11AA-AA11-00306543ECAC")
                             ENTITY("/dev/disk5s1", "41504653-0000-11AA-AA11-00306543ECAC")
                                 ENTITY("/dev/disk12s2", "Apple_APFS")
                                     ENTITY("/dev/disk12", "GUID_partition_scheme")),
                "disk12");
    /* by the slice, should the row of the whole disk be missing */
    assert_disk(ENTITIES(ENTITY("/dev/disk5", "EF57347C-0000-11AA-AA11-00306543ECAC")
                             ENTITY("/dev/disk12s2", "Apple_APFS")),
                "disk12");
    assert_disk(ENTITIES(ENTITY("/dev/disk5", "EF57347C-0000-11AA-AA11-00306543ECAC")), NULL);
    assert_disk(ENTITIES(ENTITY("disk", "GUID_partition_scheme") ENTITY("/dev/sda", "GUID_partition_scheme")
                             ENTITY("/dev/disk99999999999999999999999999999999999", "GUID_partition_scheme")),
                NULL);
    assert_disk(ENTITIES("<string>x</string><dict/>"), NULL);
    assert_disk(PLIST("<dict/>"), NULL);
}

/* ---- the volume ---- */

/* 0 with NAME, else the error's code. */
static int find_data(struct plist *p, const char *disk, char name[VOLUMES_NAME_SIZE], struct error *e)
{
    *e = (struct error){ 0 };
    return volumes_find_data(plist_root(p), disk, name, e) == 0 ? 0 : (int)e->code;
}

/* The host's own container is in the list as well, with a Data volume of the same name and role. */
static void test_volumes__choose_data_on_exactly_the_attached_disk(void **state)
{
    struct plist *p = open_sample("apfs-list.plist");
    char name[VOLUMES_NAME_SIZE];
    struct error e;

    (void)state;
    assert_int_equal(find_data(p, "disk4", name, &e), 0);
    assert_string_equal(name, "disk5s5");
    /* not by a name that is alike, nor by that of the container itself */
    assert_int_equal(find_data(p, "disk40", name, &e), ERROR_ACTION_FAILED);
    assert_int_equal(find_data(p, "disk", name, &e), ERROR_ACTION_FAILED);
    assert_int_equal(find_data(p, "disk5", name, &e), ERROR_ACTION_FAILED);
    plist_close(p);
}

#define CONTAINER(store, volumes)                                                                            \
    "<dict><key>PhysicalStores</key><array><dict><key>DeviceIdentifier</key><string>" store                  \
    "</string></dict></array><key>Volumes</key><array>" volumes "</array></dict>"
#define VOLUME(name, role, more)                                                                             \
    "<dict><key>DeviceIdentifier</key><string>" name "</string><key>Roles</key><array><string>" role         \
    "</string></array>" more "</dict>"
#define CONTAINERS(content) PLIST("<dict><key>Containers</key><array>" content "</array></dict>")

static const struct {
    const char *comment, *list;
    const char *name; /* NULL: fails */
    const char *says;
} lists[] = {
    { "three containers on one disk, as macOS installs them",
      CONTAINERS(CONTAINER("disk4s1", VOLUME("disk6s1", "Preboot", ""))
                     CONTAINER("disk4s2", VOLUME("disk5s1", "System", "") VOLUME("disk5s5", "Data", ""))
                         CONTAINER("disk4s3", VOLUME("disk7s1", "Recovery", ""))),
      "disk5s5", NULL },
    { "more digits",
      CONTAINERS(CONTAINER("disk40s2", VOLUME("disk41s5", "Data", ""))
                     CONTAINER("disk4s12", VOLUME("disk15s15", "Data", ""))),
      "disk15s15", NULL },
    { "the designated store only",
      CONTAINERS(
          "<dict><key>DesignatedPhysicalStore</key><string>disk4s2</string><key>Volumes</key><array>" VOLUME(
              "disk5s5", "Data", "") "</array></dict>"),
      "disk5s5", NULL },
    { "locked",
      CONTAINERS(CONTAINER("disk4s2",
                           VOLUME("disk5s5", "Data", "<key>FileVault</key><true/><key>Locked</key><true/>"))),
      NULL, "FileVault" },
    { "encrypted and open",
      CONTAINERS(CONTAINER(
          "disk4s2", VOLUME("disk5s5", "Data", "<key>FileVault</key><true/><key>Locked</key><false/>"))),
      "disk5s5", NULL },
    { "two Data volumes",
      CONTAINERS(CONTAINER("disk4s2", VOLUME("disk5s5", "Data", "") VOLUME("disk5s6", "Data", ""))), NULL,
      "2 Data volumes" },
    { "no Data volume", CONTAINERS(CONTAINER("disk4s2", VOLUME("disk5s1", "System", ""))), NULL,
      "no Data volume" },
    { "Data on another disk only", CONTAINERS(CONTAINER("disk0s2", VOLUME("disk3s5", "Data", ""))), NULL,
      "no Data volume" },
    { "a name that is none", CONTAINERS(CONTAINER("disk4s2", VOLUME("../etc", "Data", ""))), NULL,
      "does not name" },
    { "no containers", PLIST("<dict/>"), NULL, "no Data volume" },
    { "something else", PLIST("<array><string>x</string></array>"), NULL, "no Data volume" },
};

static void test_volumes__choose_one_or_say_why_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        struct plist *p = open_text(lists[i].list);
        char name[VOLUMES_NAME_SIZE] = "";
        struct error e;
        int code = find_data(p, "disk4", name, &e);

        if ((code == 0) != (lists[i].name != NULL) || (code == 0 && strcmp(name, lists[i].name) != 0) ||
            (code != 0 && strstr(e.message, lists[i].says) == NULL))
            fail_msg("%s: '%s' '%s'", lists[i].comment, name, e.message);
        plist_close(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_volumes__find_the_disk_in_the_sample),
        cmocka_unit_test(test_volumes__find_the_disk_among_synthesized_rows),
        cmocka_unit_test(test_volumes__choose_data_on_exactly_the_attached_disk),
        cmocka_unit_test(test_volumes__choose_one_or_say_why_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

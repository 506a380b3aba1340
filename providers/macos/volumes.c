#include "providers/macos/volumes.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char dev[] = "/dev/";

/* "disk4" of "/dev/disk4" or "disk4"; NULL for anything else. */
static const char *disk_name(const char *device)
{
    if (device != NULL && strncmp(device, dev, strlen(dev)) == 0)
        device += strlen(dev);
    return device != NULL && strncmp(device, "disk", strlen("disk")) == 0 ? device : NULL;
}

static size_t count_digits(const char *text)
{
    size_t n = 0;

    while (isdigit((unsigned char)text[n]))
        n++;
    return n;
}

/* The length of "disk4" in "disk4s2", 0 when it is no such name. */
static size_t whole_length(const char *name)
{
    size_t prefix = strlen("disk"), digits = count_digits(name + prefix);

    return digits > 0 && prefix + digits < VOLUMES_NAME_SIZE ? prefix + digits : 0;
}

static bool has_text(struct plist_value dict, const char *key, const char *expected)
{
    const char *text = plist_text(plist_find(dict, key));

    return text != NULL && strcmp(text, expected) == 0;
}

/* ---- the disk ---- */

/* Cut behind the whole disk's name. */
static bool find_by_hint(struct plist_value entities, const char *hint, bool whole,
                         char out[VOLUMES_NAME_SIZE])
{
    for (size_t i = 0; i < plist_count(entities); i++) {
        struct plist_value entity = plist_item(entities, i);
        const char *name = disk_name(plist_text(plist_find(entity, "dev-entry")));
        size_t length = name == NULL ? 0 : whole_length(name);

        if (length == 0 || (name[length] == '\0') != whole || !has_text(entity, "content-hint", hint))
            continue;
        snprintf(out, VOLUMES_NAME_SIZE, "%.*s", (int)length, name);
        return true;
    }
    return false;
}

/* The volumes of a container have other hints than the slice that it is on. */
bool volumes_find_disk(struct plist_value entities, char out[VOLUMES_NAME_SIZE])
{
    return find_by_hint(entities, "GUID_partition_scheme", true, out) ||
           find_by_hint(entities, "Apple_APFS", false, out);
}

bool volumes_find_device(struct plist_value entities, char out[VOLUMES_NAME_SIZE])
{
    for (size_t i = 0; i < plist_count(entities); i++) {
        const char *name = disk_name(plist_text(plist_find(plist_item(entities, i), "dev-entry")));

        if (name == NULL || strlen(name) >= VOLUMES_NAME_SIZE)
            continue;
        snprintf(out, VOLUMES_NAME_SIZE, "%s", name);
        return true;
    }
    return false;
}

/* ---- the volume ---- */

/* Is it a slice of DISK? "disk4s2" is one of "disk4", "disk40s2" is not. */
static bool is_slice_of(const char *device, const char *disk)
{
    const char *name = disk_name(device);
    size_t length = strlen(disk);

    return name != NULL && strncmp(name, disk, length) == 0 && name[length] == 's' &&
           count_digits(name + length + 1) > 0;
}

static bool is_on(struct plist_value container, const char *disk)
{
    struct plist_value stores = plist_find(container, "PhysicalStores");

    for (size_t i = 0; i < plist_count(stores); i++)
        if (is_slice_of(plist_text(plist_find(plist_item(stores, i), "DeviceIdentifier")), disk))
            return true;
    return is_slice_of(plist_text(plist_find(container, "DesignatedPhysicalStore")), disk);
}

static bool has_role(struct plist_value volume, const char *role)
{
    struct plist_value roles = plist_find(volume, "Roles");

    for (size_t i = 0; i < plist_count(roles); i++) {
        const char *text = plist_text(plist_item(roles, i));

        if (text != NULL && strcmp(text, role) == 0)
            return true;
    }
    return false;
}

/* How many there are; *OUT is the last. */
static size_t find_data_in(struct plist_value container, struct plist_value *out)
{
    struct plist_value volumes = plist_find(container, "Volumes");
    size_t found = 0;

    for (size_t i = 0; i < plist_count(volumes); i++) {
        struct plist_value volume = plist_item(volumes, i);

        if (!has_role(volume, "Data"))
            continue;
        *out = volume;
        found++;
    }
    return found;
}

int volumes_find_data(struct plist_value list, const char *disk, char out[VOLUMES_NAME_SIZE], struct error *e)
{
    struct plist_value containers = plist_find(list, "Containers"), volume = { .of = list.of };
    size_t found = 0;
    const char *name;

    for (size_t i = 0; i < plist_count(containers); i++)
        if (is_on(plist_item(containers, i), disk))
            found += find_data_in(plist_item(containers, i), &volume);
    if (found == 0)
        return error_set(e, ERROR_ACTION_FAILED, 0,
                         "the guest's disk has no Data volume: is macOS installed on it?");
    if (found > 1)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the guest's disk has %zu Data volumes, not one", found);
    if (plist_is_true(plist_find(volume, "Locked"))) {
        error_set(e, ERROR_PERM_DENIED, 0,
                  "the guest's disk is locked by FileVault, so no host key can be written into it");
        e->suggestion = "Remove this sandbox and set up another one without FileVault.";
        return -1;
    }
    name = disk_name(plist_text(plist_find(volume, "DeviceIdentifier")));
    if (name == NULL || whole_length(name) == 0 || strlen(name) >= VOLUMES_NAME_SIZE)
        return error_set(e, ERROR_ACTION_FAILED, 0, "diskutil does not name the guest's Data volume");
    snprintf(out, VOLUMES_NAME_SIZE, "%s", name);
    return 0;
}

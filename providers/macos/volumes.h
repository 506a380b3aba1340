/* providers/macos/volumes.h - which device is what, in the property lists of hdiutil(1) and diskutil(8).
 *
 * The host has a Data volume of its own, and every clone's looks like its source's: a volume is chosen by the
 * disk that it is on, never by its name or role alone. */
#ifndef PROVIDERS_MACOS_VOLUMES_H
#define PROVIDERS_MACOS_VOLUMES_H

#include "core/error.h"
#include "providers/macos/plist.h"

#define VOLUMES_NAME_SIZE 32 /* "disk4s2" */

/* The whole disk of one attached image ("disk4"), from its `system-entities`: the one with the partition
 * table, among the synthesized ones beside it. false when there is none. */
bool volumes_find_disk(struct plist_value entities, char out[VOLUMES_NAME_SIZE]);

/* Any device of an image, good enough for detaching all of it. */
bool volumes_find_device(struct plist_value entities, char out[VOLUMES_NAME_SIZE]);

/* The Data volume in the APFS containers that lie on DISK, from `diskutil apfs list -plist`. ACTION_FAILED
 * when there is none, more than one, or when it is locked (FileVault). */
int volumes_find_data(struct plist_value list, const char *disk, char out[VOLUMES_NAME_SIZE],
                      struct error *e);

#endif

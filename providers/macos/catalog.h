/* providers/macos/catalog.h - Apple's catalog of restore images: which one is the newest that this Mac can
 * install. Hides libplist. */
#ifndef PROVIDERS_MACOS_CATALOG_H
#define PROVIDERS_MACOS_CATALOG_H

#include <stddef.h>

#include "core/error.h"

#define CATALOG_URL   "https://mesu.apple.com/assets/macos/com_apple_macOSIPSW/com_apple_macOSIPSW.xml"
#define CATALOG_MODEL "VirtualMac2,1"

struct catalog_image {
    char version[32]; /* "26.1" */
    char build[32];   /* "25B78" */
    char url[1024];   /* https */
    char sha1[41];    /* lower case */
};

/* The newest image for CATALOG_MODEL that has an address and a checksum and is not above HOST_VERSION: the
 * installer refuses newer ones. 1 with *out; 0 when there is none, *out then the newest there is above it
 * (version "" when there is nothing at all); -1 when BYTES are no catalog. */
int catalog_choose(const char *bytes, size_t size, const char *host_version, struct catalog_image *out,
                   struct error *e);

/* Compares versions field by field, as numbers: < 0, 0, > 0. "15.10" is above "15.9"; "26" equals "26.0". */
int catalog_compare_versions(const char *a, const char *b);

#endif

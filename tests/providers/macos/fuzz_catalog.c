/* The choice of an image against libFuzzer: build with clang and -DAD_FUZZ=ON, run on corpus/catalog with
 * -rss_limit_mb=512. What it chooses must be what it promises, too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "providers/macos/catalog.h"

#define HOST "26.0"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth)
{
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct catalog_image image;
    struct error e = { 0 };
    int found = catalog_choose((const char *)data, size, HOST, &image, &e);

    check((found < 0) == (e.code != ERROR_NONE));
    if (found < 0 || (found == 0 && image.version[0] == '\0'))
        return 0;
    check((catalog_compare_versions(image.version, HOST) <= 0) == (found == 1));
    check(strlen(image.sha1) == 40 && strspn(image.sha1, "0123456789abcdef") == 40);
    check(strncmp(image.url, "http", 4) == 0 && image.build[0] != '\0');
    return 0;
}

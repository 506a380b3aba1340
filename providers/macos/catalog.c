#include "providers/macos/catalog.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/util.h"
#include "providers/macos/plist.h"

/* The catalog has some hundred dictionaries. libplist frees by recursion and looks for a key of the same name
 * at each one it reads: without these bounds a document of the allowed size could overflow the stack, or take
 * minutes. */
#define CONTAINERS_MAX 20000
#define TAGS_MAX       200000

#define BYTES_MAX  ((size_t)16 * 1024 * 1024)
#define FIELDS_MAX 4 /* of a version: "15.6.1" has three */

/* ---- versions ---- */

/* Digits at *AT without leading zeros; moves behind them and the dot that follows. A field that is not there
 * is like "0". Returns their number. */
static size_t next_field(const char **at, const char **digits)
{
    size_t count;

    *at += strspn(*at, "0");
    *digits = *at;
    count = strspn(*at, "0123456789");
    *at += count;
    if (**at == '.')
        *at += 1;
    return count;
}

int catalog_compare_versions(const char *a, const char *b)
{
    int order = 0;

    while (order == 0 && (isdigit((unsigned char)*a) || isdigit((unsigned char)*b))) {
        const char *a_digits, *b_digits;
        size_t a_count = next_field(&a, &a_digits), b_count = next_field(&b, &b_digits);

        if (a_count != b_count) /* of numbers without leading zeros the longer one is larger */
            order = a_count < b_count ? -1 : 1;
        else
            order = strncmp(a_digits, b_digits, a_count);
    }
    return order;
}

/* "24H10" is after "24H9". Only for two builds of one version. */
static int compare_builds(const char *a, const char *b)
{
    size_t a_size = strlen(a), b_size = strlen(b);

    return a_size == b_size ? strcmp(a, b) : (a_size < b_size ? -1 : 1);
}

static int compare_images(const struct catalog_image *a, const struct catalog_image *b)
{
    int order = catalog_compare_versions(a->version, b->version);

    return order != 0 ? order : compare_builds(a->build, b->build);
}

/* ---- one entry ---- */

/* "26", "15.6.1": one to four fields of one to four digits. */
static bool is_version(const char *text)
{
    for (int fields = 1; fields <= FIELDS_MAX; fields++) {
        size_t digits = strspn(text, "0123456789");

        if (digits < 1 || digits > 4)
            return false;
        text += digits;
        if (*text == '\0')
            return true;
        if (*text++ != '.')
            return false;
    }
    return false;
}

static bool is_build(const char *text)
{
    static const char allowed[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

    return *text != '\0' && text[strspn(text, allowed)] == '\0';
}

static bool is_sha1(const char *text)
{
    return strspn(text, "0123456789abcdefABCDEF") == 40 && text[40] == '\0';
}

/* What http.h would go to, of printable ASCII: not "protected://". */
static bool is_address(const char *text)
{
    static const char *const begins[] = { "https://",
                                          "http://127.0.0.1:", "http://localhost:", "http://[::1]:" };
    bool begun = false;

    for (const char *c = text; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    for (size_t i = 0; i < ARRAY_LEN(begins); i++)
        begun = begun || strncmp(text, begins[i], strlen(begins[i])) == 0;
    return begun;
}

/* False when it is not there, not valid, or too long. */
static bool take_text(struct plist_value dict, const char *key, bool (*is_valid)(const char *text), char *out,
                      size_t room)
{
    const char *text = plist_text(plist_find(dict, key));

    if (text == NULL || strlen(text) >= room || !is_valid(text))
        return false;
    snprintf(out, room, "%s", text);
    return true;
}

static bool take_image(struct plist_value restore, struct catalog_image *out)
{
    if (!take_text(restore, "ProductVersion", is_version, out->version, sizeof(out->version)) ||
        !take_text(restore, "BuildVersion", is_build, out->build, sizeof(out->build)) ||
        !take_text(restore, "FirmwareURL", is_address, out->url, sizeof(out->url)) ||
        !take_text(restore, "FirmwareSHA1", is_sha1, out->sha1, sizeof(out->sha1)))
        return false;
    for (char *c = out->sha1; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    return true;
}

/* ---- all of them ---- */

struct search {
    const char *host_version;
    struct catalog_image best, above; /* version "": none yet */
};

static void offer(struct search *s, const struct catalog_image *image)
{
    bool fits = catalog_compare_versions(image->version, s->host_version) <= 0;
    struct catalog_image *place = fits ? &s->best : &s->above;

    if (place->version[0] == '\0' || compare_images(image, place) > 0)
        *place = *image;
}

/* An entry of a model: a build with its "Restore", or with "SameAs" instead; or "Unknown", which has one
 * level more and repeats what stands beside it. */
static bool visit_build(void *self, const char *key, struct plist_value build)
{
    struct catalog_image image = { 0 };

    (void)key;
    if (take_image(plist_find(build, "Restore"), &image))
        offer(self, &image);
    return true;
}

/* "1" is the only key that has been seen here. */
static bool visit_format(void *self, const char *key, struct plist_value format)
{
    (void)key;
    plist_each(plist_find(plist_find(format, "MobileDeviceSoftwareVersions"), CATALOG_MODEL), visit_build,
               self);
    return true;
}

/* By their first characters: more than there are, at the most. */
static bool is_within_bounds(const char *bytes, size_t size)
{
    static const char *const containers[] = { "<dict", "<array" };
    size_t tags = 0, found = 0;

    if (size > BYTES_MAX)
        return false;
    for (const char *at = bytes, *end = bytes + size; (at = memchr(at, '<', (size_t)(end - at))) != NULL;
         at++) {
        tags++;
        for (size_t i = 0; i < ARRAY_LEN(containers); i++)
            found += (size_t)(end - at) > strlen(containers[i]) &&
                     memcmp(at, containers[i], strlen(containers[i])) == 0;
    }
    return tags <= TAGS_MAX && found <= CONTAINERS_MAX;
}

int catalog_choose(const char *bytes, size_t size, const char *host_version, struct catalog_image *out,
                   struct error *e)
{
    struct search search = { .host_version = host_version };
    struct plist *catalog = NULL;
    struct plist_value formats;

    if (size == 0 || !is_within_bounds(bytes, size))
        return error_set(e, ERROR_ACTION_FAILED, 0, "Apple's catalog is empty or too large: %zu bytes", size);
    if (plist_open(bytes, size, "Apple's catalog", &catalog, e) < 0)
        return -1;
    formats = plist_find(plist_root(catalog), "MobileDeviceSoftwareVersionsByVersion");
    plist_each(formats, visit_format, &search);
    plist_close(catalog);
    if (formats.node == NULL)
        return error_set(e, ERROR_ACTION_FAILED, 0, "Apple's catalog does not have the form that is known");
    *out = search.best.version[0] != '\0' ? search.best : search.above;
    return search.best.version[0] != '\0' ? 1 : 0;
}

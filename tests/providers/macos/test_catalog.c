#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/text.h"
#include "providers/macos/catalog.h"

#define SHA1  "0123456789abcdef0123456789abcdef01234567"
#define OTHER "ffffffffffffffffffffffffffffffffffffffff"
#define URL   "https://updates.example.invalid/UniversalMac_Restore.ipsw"

/* ---- making catalogs ---- */

static void add_entry(struct text *t, const char *key, const char *value)
{
    if (value != NULL)
        text_print(t, "<key>%s</key><string>%s</string>", key, value);
}

struct entry {
    const char *comment, *version, *build, *url, *sha1;
};

static void add_build(struct text *t, const struct entry *entry)
{
    text_print(t, "<key>%s</key><dict><key>Restore</key><dict>", entry->build == NULL ? "x" : entry->build);
    add_entry(t, "ProductVersion", entry->version);
    add_entry(t, "BuildVersion", entry->build);
    add_entry(t, "FirmwareURL", entry->url);
    add_entry(t, "FirmwareSHA1", entry->sha1);
    text_add_string(t, "</dict></dict>");
}

#define HEAD                                                                                                 \
    "<plist version=\"1.0\"><dict><key>MobileDeviceSoftwareVersionsByVersion</key><dict><key>1</key><dict>"  \
    "<key>MobileDeviceSoftwareVersions</key><dict><key>VirtualMac2,1</key><dict>"
#define TAIL "</dict></dict></dict></dict></dict></plist>"

/* What is chosen of HEAD, the builds in BODY, TAIL. */
static int choose(const char *body, const char *host_version, struct catalog_image *out)
{
    struct text t = { 0 };
    struct error e = { 0 };
    int result;

    text_add_string(&t, HEAD);
    text_add_string(&t, body);
    text_add_string(&t, TAIL);
    result = catalog_choose(t.bytes, t.size, host_version, out, &e);
    text_done(&t);
    return result;
}

static char *read_sample(size_t *size)
{
    FILE *file = fopen(AD_SAMPLES "/catalog.plist", "r");
    char *bytes = malloc(65536);

    assert_non_null(file);
    *size = fread(bytes, 1, 65536, file);
    assert_true(*size > 0 && *size < 65536);
    fclose(file);
    return bytes;
}

/* ---- the choice ---- */

static void test_catalog__chooses_the_newest_image_that_is_not_above_the_host(void **state)
{
    static const struct {
        const char *host, *build, *version;
        int found;
    } cases[] = {
        { "99.9", "25B2", "26.1", 1 },    { "26.1", "25B2", "26.1", 1 },     { "26.1.1", "25B2", "26.1", 1 },
        { "26.0", "24H10", "15.10", 1 },  { "26.0.9", "24H10", "15.10", 1 }, { "26", "24H10", "15.10", 1 },
        { "15.10", "24H10", "15.10", 1 }, { "15.9", "24G90", "15.9", 1 },    { "15.9.7", "24G90", "15.9", 1 },
        { "15.8", "25B2", "26.1", 0 },    { "13.0", "25B2", "26.1", 0 },     { "", "25B2", "26.1", 0 },
    };
    size_t size;
    char *bytes = read_sample(&size);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct catalog_image image;
        struct error e = { 0 };

        assert_int_equal(catalog_choose(bytes, size, cases[i].host, &image, &e), cases[i].found);
        assert_string_equal(image.build, cases[i].build);
        assert_string_equal(image.version, cases[i].version);
    }
    free(bytes);
}

static void test_catalog__gives_the_checksum_in_lower_case(void **state)
{
    struct catalog_image image;
    struct error e = { 0 };
    size_t size;
    char *bytes = read_sample(&size);

    (void)state;
    assert_int_equal(catalog_choose(bytes, size, "15.10", &image, &e), 1);
    assert_string_equal(image.sha1, "abcdefabcdefabcdefabcdefabcdefabcdefabcd");
    assert_string_equal(image.url, "https://cdn.example.invalid/fullrestores/001-22222/"
                                   "UniversalMac_15.10_24H10_Restore.ipsw");
    free(bytes);
}

static void test_catalog__passes_over_what_it_cannot_use(void **state)
{
    static const struct entry cases[] = {
        { "no version", NULL, "25A1", URL, SHA1 },
        { "no build", "26.0", NULL, URL, SHA1 },
        { "no address", "26.0", "25A1", NULL, SHA1 },
        { "no checksum", "26.0", "25A1", URL, NULL },
        { "empty version", "", "25A1", URL, SHA1 },
        { "letters in the version", "26.0b1", "25A1", URL, SHA1 },
        { "dots", "26..0", "25A1", URL, SHA1 },
        { "dot at the end", "26.", "25A1", URL, SHA1 },
        { "five fields", "26.0.0.0.0", "25A1", URL, SHA1 },
        { "large field", "26.99999", "25A1", URL, SHA1 },
        { "sign", "-26.0", "25A1", URL, SHA1 },
        { "build with a slash", "26.0", "../25A1", URL, SHA1 },
        { "long build", "26.0", "25A1111111111111111111111111111111111111", URL, SHA1 },
        { "protected", "26.0", "25A1", "protected://updates.example.invalid/x.ipsw", SHA1 },
        { "not encrypted", "26.0", "25A1", "http://updates.example.invalid/x.ipsw", SHA1 },
        { "file", "26.0", "25A1", "file:///etc/passwd", SHA1 },
        { "blank in the address", "26.0", "25A1", URL " x", SHA1 },
        { "not ASCII", "26.0", "25A1", URL "\xc3\xa9", SHA1 },
        { "short checksum", "26.0", "25A1", URL, "0123456789abcdef" },
        { "long checksum", "26.0", "25A1", URL, SHA1 "0" },
        { "not hexadecimal", "26.0", "25A1", URL, "g123456789abcdef0123456789abcdef01234567" },
    };
    static const struct entry good = { "", "15.0", "24A1", URL, OTHER };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct catalog_image image;
        struct text body = { 0 };

        add_build(&body, &cases[i]);
        add_build(&body, &good);
        if (choose(text_get(&body), "26.0", &image) != 1 || strcmp(image.build, "24A1") != 0)
            fail_msg("%s: '%s' was chosen", cases[i].comment, image.build);
        text_done(&body);
    }
}

static void test_catalog__passes_over_an_address_that_is_too_long(void **state)
{
    struct catalog_image image;
    struct text body = { 0 };
    char url[2048] = "https://";

    (void)state;
    memset(url + strlen(url), 'a', 1016);
    add_build(&body, &(struct entry){ "", "26.0", "25A1", url, SHA1 });
    assert_int_equal(choose(text_get(&body), "26.0", &image), 0); /* 1024 bytes */
    assert_string_equal(image.version, "");
    text_done(&body);
    url[1023] = '\0';
    add_build(&body, &(struct entry){ "", "26.0", "25A1", url, SHA1 });
    assert_int_equal(choose(text_get(&body), "26.0", &image), 1);
    assert_string_equal(image.url, url);
    text_done(&body);
}

static void test_catalog__passes_over_values_of_another_kind(void **state)
{
    static const char *const bodies[] = {
        "<key>25A1</key><string>Restore</string>",
        "<key>25A1</key><array/>",
        "<key>25A1</key><dict><key>SameAs</key><string>24A1</string></dict>",
        "<key>25A1</key><dict><key>Restore</key><true/></dict>",
        "<key>25A1</key><dict><key>Restore</key><dict><key>ProductVersion</key><integer>26</integer>"
        "<key>BuildVersion</key><string>25A1</string><key>FirmwareURL</key><string>" URL "</string>"
        "<key>FirmwareSHA1</key><string>" SHA1 "</string></dict></dict>",
        "<key>25A1</key><dict><key>Restore</key><dict><key>ProductVersion</key><string>26.0</string>"
        "<key>BuildVersion</key><string>25A1</string><key>FirmwareURL</key><string>" URL "</string>"
        "<key>FirmwareSHA1</key><data>ASNFZ4mrze8BI0VniavN7wEjRWc=</data></dict></dict>",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct catalog_image image;

        assert_int_equal(choose(bodies[i], "26.0", &image), 0);
        assert_string_equal(image.version, "");
    }
}

/* What the tests of whole commands serve. */
static void test_catalog__takes_an_address_of_this_machine(void **state)
{
    static const char *const urls[] = { "http://127.0.0.1:80/x.ipsw", "http://localhost:80/x.ipsw",
                                        "http://[::1]:80/x.ipsw" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        struct catalog_image image;
        struct text body = { 0 };

        add_build(&body, &(struct entry){ "", "26.0", "25A1", urls[i], SHA1 });
        assert_int_equal(choose(text_get(&body), "26.0", &image), 1);
        text_done(&body);
    }
}

static void test_catalog__takes_the_later_of_two_builds_of_a_version(void **state)
{
    static const struct entry builds[] = { { "", "26.0", "25A9", URL, SHA1 },
                                           { "", "26.0", "25A10", URL, SHA1 },
                                           { "", "26.0", "25A8", URL, SHA1 } };
    struct catalog_image image;
    struct text body = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(builds); i++)
        add_build(&body, &builds[i]);
    assert_int_equal(choose(text_get(&body), "26.0", &image), 1);
    assert_string_equal(image.build, "25A10");
    text_done(&body);
}

static void test_catalog__that_has_nothing_for_the_model_has_no_image(void **state)
{
    static const char *const documents[] = {
        "<plist><dict><key>MobileDeviceSoftwareVersionsByVersion</key><dict/></dict></plist>",
        "<plist><dict><key>MobileDeviceSoftwareVersionsByVersion</key><dict><key>1</key><dict>"
        "<key>MobileDeviceSoftwareVersions</key><dict><key>Mac14,2</key><dict/></dict></dict></dict></dict></"
        "plist>",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
        struct catalog_image image;
        struct error e = { 0 };

        assert_int_equal(catalog_choose(documents[i], strlen(documents[i]), "26.0", &image, &e), 0);
        assert_string_equal(image.version, "");
    }
}

/* ---- what is no catalog ---- */

static void test_catalog__says_so_when_it_is_none(void **state)
{
    static const char *const documents[] = {
        "",
        "not found",
        "<html><body>Sign in to this network</body></html>",
        "<plist><array/></plist>",
        "<plist><string>x</string></plist>",
        "<plist><dict><key>x</key><string>y</string></dict></plist>",
        "bplist00",
        "\x1f\x8b\x08",
        "<plist><dict><key>MobileDeviceSoftwareVersionsByVersion</key>",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
        struct catalog_image image;
        struct error e = { 0 };

        assert_int_equal(catalog_choose(documents[i], strlen(documents[i]), "26.0", &image, &e), -1);
        assert_int_equal(e.code, ERROR_ACTION_FAILED);
        assert_non_null(strstr(e.message, "Apple's catalog"));
    }
}

static void test_catalog__cut_anywhere_gives_a_whole_image_or_none(void **state)
{
    size_t size;
    char *bytes = read_sample(&size);

    (void)state;
    for (size_t cut = 0; cut < size; cut++) {
        char *part = malloc(cut + 1); /* for valgrind to see a step too far */
        struct catalog_image image = { 0 };
        struct error e = { 0 };

        memcpy(part, bytes, cut);
        if (catalog_choose(part, cut, "99.0", &image, &e) == 1)
            assert_int_equal(strlen(image.sha1), 40);
        free(part);
    }
    free(bytes);
}

static void test_catalog__of_a_hostile_form_costs_neither_the_stack_nor_minutes(void **state)
{
    static const struct {
        const char *comment, *unit;
        size_t count;
    } cases[] = {
        { "deep", "<array>", 2000000 },
        { "as deep as it may be", "<array>", 19000 },
        { "as wide as it may be", "<key>abc</key><true/>", 66000 },
        { "deep, with keys", "<dict><key>a</key>", 500000 },
        { "wide", "<key>abc</key><true/>", 700000 },
        { "too large", "x", 17 * 1024 * 1024 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct catalog_image image;
        struct text t = { 0 };
        struct error e = { 0 };
        int64_t begun;

        text_add_string(&t, "<plist><dict>");
        for (size_t n = 0; n < cases[i].count; n++)
            text_add_string(&t, cases[i].unit);
        begun = clock_mono_ms();
        assert_int_equal(catalog_choose(t.bytes, t.size, "26.0", &image, &e), -1);
        assert_true(clock_mono_ms() - begun < 5000);
        text_done(&t);
    }
}

/* ---- versions ---- */

static void test_catalog__compares_versions_as_numbers(void **state)
{
    static const struct {
        const char *a, *b;
        int order;
    } cases[] = {
        { "15.10", "15.9", 1 },    { "26", "26.0", 0 },
        { "26", "26.0.1", -1 },    { "9.9.9", "10.0", -1 },
        { "26.1", "26.1", 0 },     { "026.01", "26.1", 0 },
        { "26.1.0.0", "26.1", 0 }, { "", "0", 0 },
        { "", "0.1", -1 },         { "99999999999999999999", "100000000000000000000", -1 },
        { "26.x", "26.0", 0 }, /* what is no number is not compared */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int there = catalog_compare_versions(cases[i].a, cases[i].b);
        int back = catalog_compare_versions(cases[i].b, cases[i].a);

        assert_int_equal((there > 0) - (there < 0), cases[i].order);
        assert_int_equal((back > 0) - (back < 0), -cases[i].order);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalog__chooses_the_newest_image_that_is_not_above_the_host),
        cmocka_unit_test(test_catalog__gives_the_checksum_in_lower_case),
        cmocka_unit_test(test_catalog__passes_over_what_it_cannot_use),
        cmocka_unit_test(test_catalog__passes_over_an_address_that_is_too_long),
        cmocka_unit_test(test_catalog__passes_over_values_of_another_kind),
        cmocka_unit_test(test_catalog__takes_an_address_of_this_machine),
        cmocka_unit_test(test_catalog__takes_the_later_of_two_builds_of_a_version),
        cmocka_unit_test(test_catalog__that_has_nothing_for_the_model_has_no_image),
        cmocka_unit_test(test_catalog__says_so_when_it_is_none),
        cmocka_unit_test(test_catalog__cut_anywhere_gives_a_whole_image_or_none),
        cmocka_unit_test(test_catalog__of_a_hostile_form_costs_neither_the_stack_nor_minutes),
        cmocka_unit_test(test_catalog__compares_versions_as_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "core/hash.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"

/* FIPS 180-4 and its examples (csrc.nist.gov). */
static const struct {
    enum hash_kind kind;
    const char *input;
    size_t times;
    const char *sum;
} cases[] = {
    { HASH_SHA1, "", 1, "da39a3ee5e6b4b0d3255bfef95601890afd80709" },
    { HASH_SHA1, "abc", 1, "a9993e364706816aba3e25717850c26c9cd0d89d" },
    { HASH_SHA1, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
      "84983e441c3bd26ebaae4aa1f95129e5e54670f1" },
    { HASH_SHA1, "aaaaaaaaaa", 100000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f" },
    { HASH_SHA256, "", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { HASH_SHA256, "abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { HASH_SHA256, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    { HASH_SHA256, "aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0" },
};

static void test_hash__gives_the_published_sums_of_any_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct hash h;
        char sum[HASH_HEX_MAX];

        hash_init(&h, cases[i].kind);
        for (size_t n = 0; n < cases[i].times; n++)
            hash_add(&h, cases[i].input, strlen(cases[i].input));
        hash_end_hex(&h, sum);
        assert_string_equal(sum, cases[i].sum);
    }
}

/* What a download that goes on later relies on. */
static void test_hash__of_a_copy_goes_its_own_way(void **state)
{
    struct hash h, copy;
    uint8_t sum[HASH_SIZE_MAX];
    char hex[HASH_HEX_MAX];

    (void)state;
    hash_init(&h, HASH_SHA1);
    hash_add(&h, "a", 1);
    copy = h;
    hash_add(&h, "x", 1);
    assert_int_equal(hash_end(&h, sum), HASH_SHA1_SIZE);
    hash_add(&copy, "bc", 2);
    hash_end_hex(&copy, hex);
    assert_string_equal(hex, cases[1].sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash__gives_the_published_sums_of_any_pieces),
        cmocka_unit_test(test_hash__of_a_copy_goes_its_own_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

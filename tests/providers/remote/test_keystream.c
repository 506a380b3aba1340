/* The cipher by pieces of all sizes against OpenSSL's own, and against NIST SP 800-38A F.5.1. */
#include "providers/remote/keystream.h"

#include <openssl/evp.h>
#include <openssl/provider.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"

#define SIZE 20000

static const uint8_t key[16] = { 0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6,
                                 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c };
static const uint8_t iv[16] = { 0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7,
                                0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff };

/* As libssh2 does: no cipher of a provider, but the one that finds its provider by itself. */
static EVP_CIPHER_CTX *begin(int encrypt)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

    assert_int_equal(EVP_CipherInit(context, EVP_aes_128_ctr(), key, iv, encrypt), 1);
    return context;
}

static const char *provider_of(const EVP_CIPHER_CTX *context)
{
    return OSSL_PROVIDER_get0_name(EVP_CIPHER_get0_provider(EVP_CIPHER_CTX_get0_cipher(context)));
}

static void encrypt_by_openssl(uint8_t out[SIZE], const uint8_t in[SIZE])
{
    EVP_CIPHER *own = EVP_CIPHER_fetch(NULL, "AES-128-CTR", "provider=default");
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int size = 0;

    assert_int_equal(EVP_EncryptInit_ex(context, own, NULL, key, iv), 1);
    assert_int_equal(EVP_EncryptUpdate(context, out, &size, in, SIZE), 1);
    assert_int_equal(size, SIZE);
    EVP_CIPHER_CTX_free(context);
    EVP_CIPHER_free(own);
}

static void test_keystream__is_chosen_by_who_asks_as_libssh2_does(void **state)
{
    EVP_CIPHER_CTX *context = begin(1);

    (void)state;
    assert_string_equal(provider_of(context), "agent-desktop");
    EVP_CIPHER_CTX_free(context);
}

static void test_keystream__gives_what_the_standard_says(void **state)
{
    static const uint8_t plain[16] = { 0x6b, 0xc1, 0xbe, 0xe2, 0x2e, 0x40, 0x9f, 0x96,
                                       0xe9, 0x3d, 0x7e, 0x11, 0x73, 0x93, 0x17, 0x2a };
    static const uint8_t wanted[16] = { 0x87, 0x4d, 0x61, 0x91, 0xb6, 0x20, 0xe3, 0x26,
                                        0x1b, 0xef, 0x68, 0x64, 0x99, 0x0d, 0xb6, 0xce };
    EVP_CIPHER_CTX *context = begin(1);
    uint8_t out[16];

    (void)state;
    assert_int_equal(EVP_Cipher(context, out, plain, sizeof(plain)), 16);
    assert_memory_equal(out, wanted, sizeof(wanted));
    EVP_CIPHER_CTX_free(context);
}

static void test_keystream__is_openssls_by_pieces_of_any_size(void **state)
{
    static const size_t pieces[] = { 16, 1, 15, 17, 32, 4095, 4096, 4097, 9999, SIZE };
    static uint8_t plain[SIZE], wanted[SIZE], out[SIZE];

    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        plain[i] = (uint8_t)(i * i >> 3);
    encrypt_by_openssl(wanted, plain);
    for (size_t p = 0; p < ARRAY_LEN(pieces); p++) {
        EVP_CIPHER_CTX *context = begin((int)(p % 2)); /* both directions are the same */

        for (size_t at = 0; at < SIZE; at += pieces[p]) {
            size_t size = pieces[p] < SIZE - at ? pieces[p] : SIZE - at;

            assert_int_equal(EVP_Cipher(context, out + at, plain + at, (unsigned)size), (int)size);
        }
        assert_memory_equal(out, wanted, SIZE);
        EVP_CIPHER_CTX_free(context);
    }
}

static void test_keystream__begins_anew_with_a_new_key_or_vector(void **state)
{
    static const uint8_t nothing[64];
    EVP_CIPHER_CTX *context = begin(1);
    uint8_t first[64], again[64];

    (void)state;
    assert_int_equal(EVP_Cipher(context, first, nothing, sizeof(nothing)), 64);
    assert_int_equal(EVP_CipherInit_ex(context, NULL, NULL, NULL, iv, 1), 1);
    assert_int_equal(EVP_Cipher(context, again, nothing, sizeof(nothing)), 64);
    assert_memory_equal(first, again, sizeof(first));
    assert_int_equal(EVP_CipherInit_ex(context, NULL, NULL, iv, iv, 1), 1);
    assert_int_equal(EVP_Cipher(context, again, nothing, sizeof(nothing)), 64);
    assert_memory_not_equal(first, again, sizeof(first));
    EVP_CIPHER_CTX_free(context);
}

static void test_keystream__copied_in_the_middle_goes_on_as_the_original(void **state)
{
    static const uint8_t nothing[5000];
    EVP_CIPHER_CTX *context = begin(1), *copy = EVP_CIPHER_CTX_new();
    uint8_t first[5000], second[5000];

    (void)state;
    assert_int_equal(EVP_CIPHER_CTX_set_padding(context, 0), 1);
    assert_int_equal(EVP_Cipher(context, first, nothing, 21), 21);
    assert_int_equal(EVP_CIPHER_CTX_copy(copy, context), 1);
    assert_int_equal(EVP_Cipher(context, first, nothing, sizeof(nothing)), sizeof(nothing));
    EVP_CIPHER_CTX_free(context);
    assert_int_equal(EVP_Cipher(copy, second, nothing, sizeof(nothing)), sizeof(nothing));
    assert_memory_equal(first, second, sizeof(first));
    EVP_CIPHER_CTX_free(copy);
}

static void test_keystream__leaves_other_ciphers_alone(void **state)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

    (void)state;
    keystream_install(); /* a second time changes nothing */
    assert_int_equal(EVP_CipherInit(context, EVP_aes_256_gcm(), key, NULL, 1), 1);
    assert_string_equal(provider_of(context), "default");
    EVP_CIPHER_CTX_free(context);
}

static int install(void **state)
{
    (void)state;
    keystream_install();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keystream__is_chosen_by_who_asks_as_libssh2_does),
        cmocka_unit_test(test_keystream__gives_what_the_standard_says),
        cmocka_unit_test(test_keystream__is_openssls_by_pieces_of_any_size),
        cmocka_unit_test(test_keystream__begins_anew_with_a_new_key_or_vector),
        cmocka_unit_test(test_keystream__copied_in_the_middle_goes_on_as_the_original),
        cmocka_unit_test(test_keystream__leaves_other_ciphers_alone),
    };

    return cmocka_run_group_tests(tests, install, NULL);
}

#include "store/chain.h"

#include "core/hash.h"

_Static_assert(CHAIN_HASH_SIZE == HASH_SIZE_MAX, "SHA-256 is the longest");

void chain_hash(uint8_t out[CHAIN_HASH_SIZE], const void *bytes, size_t size)
{
    struct hash h;

    hash_init(&h, HASH_SHA256);
    hash_add(&h, bytes, size);
    hash_end(&h, out);
}

void chain_print_hash(char out[CHAIN_HASH_HEX_SIZE], const uint8_t hash[CHAIN_HASH_SIZE])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < CHAIN_HASH_SIZE; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[2 * CHAIN_HASH_SIZE] = '\0';
}

uint64_t chain_check(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < size; i++)
        sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    return sum;
}

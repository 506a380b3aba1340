#include "core/hash.h"

#include <string.h>

#include "core/hash_system.h"

void hash_init(struct hash *h, enum hash_kind kind)
{
    *h = (struct hash){ .kind = kind };
    hash_functions[kind].init(h->state);
}

void hash_add(struct hash *h, const void *bytes, size_t size)
{
    hash_functions[h->kind].add(h->state, bytes, size);
}

size_t hash_end(struct hash *h, uint8_t out[HASH_SIZE_MAX])
{
    hash_functions[h->kind].end(h->state, out);
    return hash_functions[h->kind].size;
}

void hash_end_hex(struct hash *h, char out[HASH_HEX_MAX])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t sum[HASH_SIZE_MAX];
    size_t size = hash_end(h, sum);

    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digits[sum[i] >> 4];
        out[2 * i + 1] = digits[sum[i] & 15];
    }
    out[2 * size] = '\0';
}

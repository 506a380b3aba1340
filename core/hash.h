/* core/hash.h - SHA-256 and SHA-1, of pieces; hides libmd, and CommonCrypto on macOS.
 *
 * SHA-1 is for sums that others publish or that only tell whether two files are the same; it proves nothing
 * against an attacker. */
#ifndef CORE_HASH_H
#define CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum hash_kind { HASH_SHA1, HASH_SHA256, HASH_KIND_COUNT };

#define HASH_SHA1_SIZE   20
#define HASH_SHA256_SIZE 32
#define HASH_SIZE_MAX    HASH_SHA256_SIZE
#define HASH_HEX_MAX     (2 * HASH_SIZE_MAX + 1)

struct hash { /* may be copied, and forgotten without an end */
    enum hash_kind kind;
    uint64_t state[32]; /* the library's; as large as the largest of them */
};

void hash_init(struct hash *h, enum hash_kind kind);
void hash_add(struct hash *h, const void *bytes, size_t size);

/* Returns the size of what is in OUT. H is then as before hash_init(). */
size_t hash_end(struct hash *h, uint8_t out[HASH_SIZE_MAX]);

/* The same as lower case hexadecimal digits. */
void hash_end_hex(struct hash *h, char out[HASH_HEX_MAX]);

#endif

#include "core/hash_system.h"

#include <CommonCrypto/CommonDigest.h>

#include "core/hash.h"

_Static_assert(sizeof(((struct hash *)0)->state) >= sizeof(CC_SHA256_CTX), "room for CommonCrypto's state");
_Static_assert(sizeof(((struct hash *)0)->state) >= sizeof(CC_SHA1_CTX), "room for CommonCrypto's state");
_Static_assert(HASH_SHA256_SIZE == CC_SHA256_DIGEST_LENGTH, "SHA-256");
_Static_assert(HASH_SHA1_SIZE == CC_SHA1_DIGEST_LENGTH, "SHA-1");

/* CC_LONG, in which it counts bytes, has 32 bits. */
#define PIECE_MAX ((size_t)1 << 30)

typedef int update_fn(void *state, const void *bytes, CC_LONG size);

static void add_pieces(update_fn *update, void *state, const void *bytes, size_t size)
{
    for (const char *at = bytes; size > 0;) {
        size_t piece = size < PIECE_MAX ? size : PIECE_MAX;

        update(state, at, (CC_LONG)piece);
        at += piece;
        size -= piece;
    }
}

static int sha1_update(void *state, const void *bytes, CC_LONG size)
{
    return CC_SHA1_Update(state, bytes, size);
}

static void sha1_init(void *state)
{
    CC_SHA1_Init(state);
}

static void sha1_add(void *state, const void *bytes, size_t size)
{
    add_pieces(sha1_update, state, bytes, size);
}

static void sha1_end(void *state, uint8_t *out)
{
    CC_SHA1_Final(out, state);
}

static int sha256_update(void *state, const void *bytes, CC_LONG size)
{
    return CC_SHA256_Update(state, bytes, size);
}

static void sha256_init(void *state)
{
    CC_SHA256_Init(state);
}

static void sha256_add(void *state, const void *bytes, size_t size)
{
    add_pieces(sha256_update, state, bytes, size);
}

static void sha256_end(void *state, uint8_t *out)
{
    CC_SHA256_Final(out, state);
}

const struct hash_functions hash_functions[HASH_KIND_COUNT] = {
    [HASH_SHA1] = { HASH_SHA1_SIZE, sha1_init, sha1_add, sha1_end },
    [HASH_SHA256] = { HASH_SHA256_SIZE, sha256_init, sha256_add, sha256_end },
};

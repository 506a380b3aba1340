#include "core/hash_system.h"

#include <sha1.h>
#include <sha2.h>

#include "core/hash.h"

_Static_assert(sizeof(((struct hash *)0)->state) >= sizeof(SHA2_CTX), "room for libmd's state");
_Static_assert(sizeof(((struct hash *)0)->state) >= sizeof(SHA1_CTX), "room for libmd's state");
_Static_assert(HASH_SHA256_SIZE == SHA256_DIGEST_LENGTH, "SHA-256");
_Static_assert(HASH_SHA1_SIZE == SHA1_DIGEST_LENGTH, "SHA-1");

static void sha1_init(void *state)
{
    SHA1Init(state);
}

static void sha1_add(void *state, const void *bytes, size_t size)
{
    SHA1Update(state, bytes, size);
}

static void sha1_end(void *state, uint8_t *out)
{
    SHA1Final(out, state);
}

static void sha256_init(void *state)
{
    SHA256Init(state);
}

static void sha256_add(void *state, const void *bytes, size_t size)
{
    SHA256Update(state, bytes, size);
}

static void sha256_end(void *state, uint8_t *out)
{
    SHA256Final(out, state);
}

const struct hash_functions hash_functions[HASH_KIND_COUNT] = {
    [HASH_SHA1] = { HASH_SHA1_SIZE, sha1_init, sha1_add, sha1_end },
    [HASH_SHA256] = { HASH_SHA256_SIZE, sha256_init, sha256_add, sha256_end },
};

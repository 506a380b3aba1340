/* core/hash_system.h - what the system's library has for each kind of hash.h: hash_linux.c, hash_darwin.c.
 * For hash.c only. */
#ifndef CORE_HASH_SYSTEM_H
#define CORE_HASH_SYSTEM_H

#include "core/hash.h"

struct hash_functions {
    size_t size; /* of the result */
    void (*init)(void *state);
    void (*add)(void *state, const void *bytes, size_t size);
    void (*end)(void *state, uint8_t *out);
};

extern const struct hash_functions hash_functions[HASH_KIND_COUNT];

#endif

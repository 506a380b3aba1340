/* store/chain.h - the two sums over stored bytes: SHA-256 for the chain, FNV-1a for single values.
 *
 * The chain links every entry to the stored bytes of the one before, so that a later change shows. The
 * check in front of each value is against accidents only (LMDB has none): it finds every change of one
 * byte and costs a fifth of a hash, which a listing of 10,000 sandboxes notices. */
#ifndef STORE_CHAIN_H
#define STORE_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#define CHAIN_HASH_SIZE     32
#define CHAIN_HASH_HEX_SIZE 65

void chain_hash(uint8_t out[CHAIN_HASH_SIZE], const void *bytes, size_t size);
void chain_print_hash(char out[CHAIN_HASH_HEX_SIZE], const uint8_t hash[CHAIN_HASH_SIZE]);

/* 64-bit FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/). */
uint64_t chain_check(const void *bytes, size_t size);

#endif

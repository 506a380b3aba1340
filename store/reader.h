/* store/reader.h - reads msgpack token by token, without allocating.
 *
 * msgpack-c's unpacker allocates what a header claims: five damaged bytes ask for gigabytes. This one
 * never looks behind the end, allocates nothing and copies nothing, so a record costs a few hundred
 * nanoseconds. Format: https://github.com/msgpack/msgpack/blob/master/spec.md */
#ifndef STORE_READER_H
#define STORE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reader {
    const uint8_t *at;
    const uint8_t *end;
};

enum token_type {
    TOKEN_NONE = 0, /* the byte that the format leaves unused */
    TOKEN_NIL,
    TOKEN_BOOL,
    TOKEN_UINT,
    TOKEN_NEGATIVE,
    TOKEN_FLOAT,
    TOKEN_TEXT,
    TOKEN_BYTES,
    TOKEN_EXTENSION,
    TOKEN_ARRAY,
    TOKEN_MAP
};

struct token {
    enum token_type type;
    uint64_t number;      /* value (two's complement when negative), length, or count */
    const uint8_t *bytes; /* of text, bytes, float and extension: lent by the input */
};

/* false at the end, at a token that is cut off, and at the unused byte. */
bool reader_take(struct reader *r, struct token *out);

/* Skips one value with all that is in it. */
bool reader_skip(struct reader *r);

#endif

/* store/record.h - what the journal stores, as bytes: msgpack maps described by one table each.
 *
 * A table row names a member: its key, its type, where it stands in the C struct. The same rows pack,
 * unpack, and let whoever prints an entry walk its members without a second list. A stored value is an
 * 8-byte check (chain_check(), big-endian) and the map. Unpacking is strict: the check, no more and no
 * fewer bytes, each known key once and of its type, nothing too long, nothing required missing; keys that
 * this build does not know are skipped, as specs/journal.md promises to newer ones. */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/journal.h"
#include "core/text.h"
#include "store/chain.h"

#define RECORD_VERSION     1 /* the major version this build writes, and the newest it may extend */
#define RECORD_NUMBER_SIZE 8
#define RECORD_CHECK_SIZE  RECORD_NUMBER_SIZE

/* How a member stands in its struct. What equals the "left out" value is not stored. */
enum record_type {
    RECORD_VERSION_MARK, /* in the bytes only: RECORD_VERSION */
    RECORD_UINT,         /* uint64_t; 0 is left out unless required */
    RECORD_INT,          /* int64_t; the same */
    RECORD_STATUS,       /* int64_t; -1 is left out */
    RECORD_PID,          /* pid_t; 0 is left out */
    RECORD_BOOL,         /* bool; false is left out */
    RECORD_TEXT,         /* const char *; NULL and "" are left out */
    RECORD_CHARS,        /* char[size]; "" is left out */
    RECORD_KIND,         /* enum journal_kind, as its name */
    RECORD_HASH,         /* uint8_t[CHAIN_HASH_SIZE] */
    RECORD_FACTS,        /* struct facts; an empty one is left out */
    RECORD_FACTS_LENT,   /* const struct facts *; NULL and an empty one are left out */
    RECORD_GROUP,        /* a map of its own; its members stand in the same struct */
    RECORD_TYPE_COUNT
};

struct record_member {
    const char *key;
    enum record_type type;
    size_t offset;
    size_t size; /* of RECORD_CHARS */
    bool required;
    const struct record_member *group; /* of RECORD_GROUP */
    size_t group_count;
};

/* Every member of a struct journal_entry, in the order of printing. */
extern const struct record_member *const record_entry_members;
extern const size_t record_entry_member_count;

/* Does the struct at BASE have nothing to say in this member? */
bool record_is_left_out(const struct record_member *m, const void *base);

struct record_entry {           /* an entry with what only the journal sees of it */
    struct journal_entry entry; /* first: the table's offsets serve both */
    uint64_t version;
    uint8_t prev[CHAIN_HASH_SIZE]; /* hash of the entry before, as stored */
    struct facts facts;            /* of an unpacked entry ... */
    char text[JOURNAL_ENTRY_MAX];  /* ... and its strings */
};

struct record_head { /* the one row of the table meta */
    uint64_t version;
    uint64_t seq;                  /* of the last entry ... */
    uint8_t hash[CHAIN_HASH_SIZE]; /* ... and the hash of its stored bytes; zeros at the start */
    uint64_t transaction;          /* LMDB's number of the transaction that stored this head */
    uint64_t sandbox_count;        /* rows of the table sandboxes ... */
    uint64_t sandbox_seqs;         /* ... and the sum of their seqs, modulo 2^64 */
    int64_t created_ms;
};

/* A number outside of the maps (a check, a seq in a key): 8 bytes, big-endian. */
void record_print_number(uint8_t out[RECORD_NUMBER_SIZE], uint64_t number);
uint64_t record_parse_number(const void *bytes);

/* OUT gets the stored bytes. Only an entry can be too large (INVALID_ARGS): its text is the caller's. */
int record_pack_entry(const struct record_entry *entry, struct text *out, struct error *e);
void record_pack_fold(const struct journal_record *record, struct text *out);
void record_pack_head(const struct record_head *head, struct text *out);

/* false: damaged, or not such a record. */
bool record_unpack_entry(const void *stored, size_t size, struct record_entry *out);
bool record_unpack_fold(const void *stored, size_t size, struct journal_record *out);
bool record_unpack_head(const void *stored, size_t size, struct record_head *out);

#endif

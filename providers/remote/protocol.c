#include "providers/remote/protocol.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

static const uint8_t magic[8] = { 'a', 'd', '-', 'r', 'u', 'n', '\n', 0 };
_Static_assert(sizeof(magic) + 2 + PROTOCOL_NONCE_SIZE + 4 == PROTOCOL_HEAD_SIZE, "what every version has");
_Static_assert(PROTOCOL_NONCE_SIZE < 256, "a shift is one byte");

/* --- writing -------------------------------------------------------------------------------------------- */

static void put(struct text *out, uint64_t value, int size)
{
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8)
        text_add(out, &(char){ (char)(value >> shift) }, 1);
}

static void put_bytes(struct text *out, const void *bytes, size_t size)
{
    text_add(out, bytes, size);
}

static void pack_rest(const struct protocol_request *r, struct text *out)
{
    put(out, r->rendezvous, 8);
    put(out, r->timeout_ms, 4);
    put(out, r->own_binary, 1);
    put(out, r->file_count, 1);
    for (size_t i = 0; i < r->file_count; i++) {
        put(out, strlen(r->files[i].name), 1);
        put_bytes(out, r->files[i].name, strlen(r->files[i].name));
        put_bytes(out, r->files[i].sha1, HASH_SHA1_SIZE);
    }
    put(out, r->word_count, 4);
    put_bytes(out, r->words, r->words_size);
}

void protocol_pack(const struct protocol_request *r, struct text *out)
{
    struct text rest = { 0 };

    assert(r->file_count <= PROTOCOL_FILES_MAX && r->words_size <= PROTOCOL_WORDS_MAX);
    pack_rest(r, &rest);
    put_bytes(out, magic, sizeof(magic));
    put(out, PROTOCOL_VERSION, 2);
    put_bytes(out, r->nonce, sizeof(r->nonce));
    put(out, rest.size, 4);
    put_bytes(out, rest.bytes, rest.size);
    text_done(&rest);
}

void protocol_print_mark(uint8_t out[PROTOCOL_MARK_SIZE], const uint8_t nonce[PROTOCOL_NONCE_SIZE],
                         struct mark m)
{
    uint8_t *at = out + PROTOCOL_NONCE_SIZE;

    memcpy(out, nonce, PROTOCOL_NONCE_SIZE);
    *at++ = (uint8_t)m.kind;
    for (int shift = 24; shift >= 0; shift -= 8)
        *at++ = (uint8_t)(m.value >> shift);
}

void protocol_print_path(char out[PROTOCOL_PATH_SIZE], uint64_t rendezvous)
{
    snprintf(out, PROTOCOL_PATH_SIZE, "/tmp/agent-desktop-%016" PRIx64, rendezvous);
}

uint32_t protocol_status(int exit_status, int signal)
{
    return (uint32_t)signal << 8 | (uint32_t)exit_status;
}

int protocol_exit_status(uint32_t value)
{
    return (int)(value & 0xff);
}

int protocol_signal(uint32_t value)
{
    return (int)(value >> 8 & 0xff);
}

/* --- reading -------------------------------------------------------------------------------------------- */

struct reader { /* what is asked for beyond the end is 0 or NULL, and the end is past */
    const uint8_t *at;
    size_t left;
    bool past;
};

static const uint8_t *take_bytes(struct reader *r, size_t size)
{
    const uint8_t *bytes = r->at;

    if (r->past || size > r->left) {
        r->past = true;
        return NULL;
    }
    r->at += size;
    r->left -= size;
    return bytes;
}

static uint64_t take(struct reader *r, size_t size)
{
    const uint8_t *bytes = take_bytes(r, size);
    uint64_t value = 0;

    for (size_t i = 0; bytes != NULL && i < size; i++)
        value = value << 8 | bytes[i];
    return value;
}

bool protocol_unpack_head(const uint8_t head[PROTOCOL_HEAD_SIZE], struct protocol_request *out,
                          unsigned *version, size_t *rest)
{
    struct reader r = { .at = head, .left = PROTOCOL_HEAD_SIZE };

    *out = (struct protocol_request){ .file_count = 0 };
    if (memcmp(take_bytes(&r, sizeof(magic)), magic, sizeof(magic)) != 0)
        return false;
    *version = (unsigned)take(&r, 2);
    memcpy(out->nonce, take_bytes(&r, sizeof(out->nonce)), sizeof(out->nonce));
    *rest = (size_t)take(&r, 4);
    return true;
}

/* A name that stays in its directory and needs no quoting. */
static bool is_name(const char *name)
{
    static const char usual[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";

    return name[0] != '\0' && name[0] != '.' && name[0] != '-' && name[strspn(name, usual)] == '\0';
}

static bool take_file(struct reader *r, struct protocol_file *out)
{
    size_t size = (size_t)take(r, 1);
    const uint8_t *name = take_bytes(r, size);
    const uint8_t *sum = take_bytes(r, HASH_SHA1_SIZE);

    if (name == NULL || sum == NULL || size >= sizeof(out->name))
        return false;
    memcpy(out->name, name, size);
    out->name[size] = '\0';
    memcpy(out->sha1, sum, HASH_SHA1_SIZE);
    return strlen(out->name) == size && is_name(out->name);
}

static bool take_files(struct reader *r, struct protocol_request *out)
{
    out->file_count = (size_t)take(r, 1);
    if (out->file_count == 0 || out->file_count > PROTOCOL_FILES_MAX)
        return false;
    for (size_t i = 0; i < out->file_count; i++)
        if (!take_file(r, &out->files[i]))
            return false;
    return true;
}

/* All that is left: as many NULs as there are words, and one at the end. */
static bool take_words(struct reader *r, struct protocol_request *out)
{
    size_t nuls = 0;

    out->word_count = (uint32_t)take(r, 4);
    out->words_size = r->left;
    if (r->past || out->word_count == 0 || r->left == 0 || r->left > PROTOCOL_WORDS_MAX ||
        r->at[r->left - 1] != '\0')
        return false;
    for (size_t i = 0; i < r->left; i++)
        nuls += r->at[i] == '\0';
    if (nuls != out->word_count)
        return false;
    out->words = mem_alloc(r->left);
    memcpy(out->words, r->at, r->left);
    return true;
}

bool protocol_unpack_rest(const uint8_t *rest, size_t size, struct protocol_request *out)
{
    struct reader r = { .at = rest, .left = size };

    out->rendezvous = take(&r, 8);
    out->timeout_ms = (uint32_t)take(&r, 4);
    out->own_binary = take(&r, 1) != 0;
    return take_files(&r, out) && take_words(&r, out);
}

void protocol_done(struct protocol_request *r)
{
    free(r->words);
    r->words = NULL;
}

/* --- the scanner ---------------------------------------------------------------------------------------- */

void mark_scanner_init(struct mark_scanner *s, const uint8_t nonce[PROTOCOL_NONCE_SIZE])
{
    memcpy(s->nonce, nonce, PROTOCOL_NONCE_SIZE);
    memset(s->shift, PROTOCOL_NONCE_SIZE, sizeof(s->shift));
    for (int i = 0; i < PROTOCOL_NONCE_SIZE - 1; i++)
        s->shift[nonce[i]] = (uint8_t)(PROTOCOL_NONCE_SIZE - 1 - i);
}

/* Where the nonce begins, SIZE when it is not there. Horspool's way looks at one byte in 64, which matters in
 * a stream of gigabytes; nothing in a stream can make it slow without knowing the nonce. */
static size_t find_nonce(const struct mark_scanner *s, const uint8_t *bytes, size_t size)
{
    const size_t last = PROTOCOL_NONCE_SIZE - 1;

    for (size_t at = 0; at + last < size; at += s->shift[bytes[at + last]])
        if (bytes[at + last] == s->nonce[last] && memcmp(bytes + at, s->nonce, last) == 0)
            return at;
    return size;
}

/* Where a beginning of the nonce begins with which the bytes end, SIZE when they do not. */
static size_t find_beginning(const struct mark_scanner *s, const uint8_t *bytes, size_t size)
{
    size_t at = size < PROTOCOL_NONCE_SIZE ? 0 : size - (PROTOCOL_NONCE_SIZE - 1);

    while (at < size && memcmp(bytes + at, s->nonce, size - at) != 0)
        at++;
    return at;
}

size_t mark_scanner_look(const struct mark_scanner *s, const uint8_t *bytes, size_t size, struct mark *found)
{
    size_t at = find_nonce(s, bytes, size);

    *found = (struct mark){ .kind = MARK_NONE };
    if (at == size)
        return find_beginning(s, bytes, size);
    if (size - at < PROTOCOL_MARK_SIZE)
        return at;
    struct reader r = { .at = bytes + at + PROTOCOL_NONCE_SIZE,
                        .left = PROTOCOL_MARK_SIZE - PROTOCOL_NONCE_SIZE };
    uint64_t kind = take(&r, 1);

    found->kind = kind > MARK_NONE && kind < MARK_KIND_COUNT ? (enum mark_kind)kind : MARK_KIND_COUNT;
    found->value = (uint32_t)take(&r, 4);
    return at;
}

#include "providers/remote/keys.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/library.h"
#include "core/util.h"

#define RAW_KEY_SIZE 32 /* of either half: RFC 8032 */
#define LINE_WIDTH   70 /* of the base64 in a private key's file: sshkey.c of openssh-portable */
#define BLOCK_SIZE   8  /* what the private part is padded to when it is not encrypted */
#define KEY_TYPE     "ssh-ed25519"

static const char file_begin[] = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
static const char file_end[] = "-----END OPENSSH PRIVATE KEY-----\n";

/* --- OpenSSL -------------------------------------------------------------------------------------------- */

struct crypto {
    __typeof__(EVP_PKEY_CTX_new_id) *EVP_PKEY_CTX_new_id;
    __typeof__(EVP_PKEY_CTX_free) *EVP_PKEY_CTX_free;
    __typeof__(EVP_PKEY_keygen_init) *EVP_PKEY_keygen_init;
    __typeof__(EVP_PKEY_keygen) *EVP_PKEY_keygen;
    __typeof__(EVP_PKEY_get_raw_private_key) *EVP_PKEY_get_raw_private_key;
    __typeof__(EVP_PKEY_get_raw_public_key) *EVP_PKEY_get_raw_public_key;
    __typeof__(EVP_PKEY_free) *EVP_PKEY_free;
};

static const struct library_symbol symbols[] = {
    LIBRARY_SYMBOL(crypto, EVP_PKEY_CTX_new_id),
    LIBRARY_SYMBOL(crypto, EVP_PKEY_CTX_free),
    LIBRARY_SYMBOL(crypto, EVP_PKEY_keygen_init),
    LIBRARY_SYMBOL(crypto, EVP_PKEY_keygen),
    LIBRARY_SYMBOL(crypto, EVP_PKEY_get_raw_private_key),
    LIBRARY_SYMBOL(crypto, EVP_PKEY_get_raw_public_key),
    LIBRARY_SYMBOL(crypto, EVP_PKEY_free),
};

struct raw_pair {
    uint8_t seed[RAW_KEY_SIZE]; /* a secret */
    uint8_t public[RAW_KEY_SIZE];
};

static bool take_halves(const struct crypto *c, const EVP_PKEY *key, struct raw_pair *out)
{
    size_t seed_size = sizeof(out->seed), public_size = sizeof(out->public);

    return c->EVP_PKEY_get_raw_private_key(key, out->seed, &seed_size) == 1 &&
           c->EVP_PKEY_get_raw_public_key(key, out->public, &public_size) == 1 &&
           seed_size == sizeof(out->seed) && public_size == sizeof(out->public);
}

static int generate_raw(struct raw_pair *out, struct error *e)
{
    struct crypto c;
    EVP_PKEY *key = NULL;

    if (library_open("libcrypto.so.3", "libssl3", symbols, ARRAY_LEN(symbols), &c, e) < 0)
        return -1;
    EVP_PKEY_CTX *context = c.EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
    bool done = context != NULL && c.EVP_PKEY_keygen_init(context) == 1 &&
                c.EVP_PKEY_keygen(context, &key) == 1 && take_halves(&c, key, out);

    c.EVP_PKEY_free(key);
    c.EVP_PKEY_CTX_free(context);
    return done ? 0 : error_set(e, ERROR_INTERNAL, 0, "OpenSSL could not make an Ed25519 key");
}

/* --- base64 --------------------------------------------------------------------------------------------- */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Writes 4 characters for each 3 bytes begun; returns how many. No NUL. */
static size_t encode(const uint8_t *bytes, size_t size, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t group = (uint32_t)bytes[i] << 16;

        if (left > 1)
            group |= (uint32_t)bytes[i + 1] << 8;
        if (left > 2)
            group |= bytes[i + 2];
        for (int digit = 0; digit < 4; digit++)
            out[n++] = alphabet[group >> (18 - 6 * digit) & 63];
        if (left < 3)
            out[n - 1] = '=';
        if (left < 2)
            out[n - 2] = '=';
    }
    return n;
}

/* --- the formats ---------------------------------------------------------------------------------------- */

struct writer {
    uint8_t bytes[KEYS_PRIVATE_SIZE];
    size_t size;
};

static void put(struct writer *w, const void *bytes, size_t size)
{
    assert(size <= sizeof(w->bytes) - w->size);
    memcpy(w->bytes + w->size, bytes, size);
    w->size += size;
}

static void put_number(struct writer *w, uint32_t value)
{
    const uint8_t bytes[] = { (uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                              (uint8_t)value };

    put(w, bytes, sizeof(bytes));
}

static void put_string(struct writer *w, const void *bytes, size_t size)
{
    put_number(w, (uint32_t)size);
    put(w, bytes, size);
}

static void put_text(struct writer *w, const char *text)
{
    put_string(w, text, strlen(text));
}

static void put_public(struct writer *w, const struct raw_pair *pair)
{
    put_text(w, KEY_TYPE);
    put_string(w, pair->public, sizeof(pair->public));
}

/* The part that would be encrypted if there were a passphrase. */
static void put_private(struct writer *w, const struct raw_pair *pair, uint32_t check, const char *comment)
{
    uint8_t both[2 * RAW_KEY_SIZE]; /* what OpenSSH calls the private key */

    memcpy(both, pair->seed, RAW_KEY_SIZE);
    memcpy(both + RAW_KEY_SIZE, pair->public, RAW_KEY_SIZE);
    put_number(w, check); /* twice: who decrypts sees whether the passphrase was right */
    put_number(w, check);
    put_public(w, pair);
    put_string(w, both, sizeof(both));
    put_text(w, comment);
    for (uint8_t i = 1; w->size % BLOCK_SIZE != 0; i++)
        put(w, &i, 1);
    keys_wipe(both, sizeof(both));
}

static void put_file(struct writer *w, const struct raw_pair *pair, uint32_t check, const char *comment)
{
    struct writer part = { .size = 0 };

    put(w, "openssh-key-v1", sizeof("openssh-key-v1")); /* with its NUL */
    put_text(w, "none");                                /* cipher */
    put_text(w, "none");                                /* how its key is made of a passphrase */
    put_text(w, "");
    put_number(w, 1); /* how many keys */
    put_public(&part, pair);
    put_string(w, part.bytes, part.size);
    part.size = 0;
    put_private(&part, pair, check, comment);
    put_string(w, part.bytes, part.size);
    keys_wipe(&part, sizeof(part));
}

/* The base64 lines between the two that name it. */
static void print_private(const struct raw_pair *pair, uint32_t check, const char *comment,
                          char out[KEYS_PRIVATE_SIZE])
{
    struct writer file = { .size = 0 };
    char digits[4 * KEYS_PRIVATE_SIZE / 3 + 4];
    size_t n = 0;

    put_file(&file, pair, check, comment);
    size_t size = encode(file.bytes, file.size, digits);

    n += (size_t)snprintf(out, KEYS_PRIVATE_SIZE, "%s", file_begin);
    for (size_t i = 0; i < size; i += LINE_WIDTH)
        n += (size_t)snprintf(out + n, KEYS_PRIVATE_SIZE - n, "%.*s\n",
                              (int)(size - i < LINE_WIDTH ? size - i : LINE_WIDTH), digits + i);
    n += (size_t)snprintf(out + n, KEYS_PRIVATE_SIZE - n, "%s", file_end);
    assert(n < KEYS_PRIVATE_SIZE);
    keys_wipe(&file, sizeof(file));
    keys_wipe(digits, sizeof(digits));
}

/* --- the module ----------------------------------------------------------------------------------------- */

static bool is_comment(const char *text)
{
    size_t size = strlen(text);

    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    return size <= KEYS_COMMENT_MAX;
}

int keys_generate(const char *comment, struct keys_pair *out, struct error *e)
{
    struct raw_pair pair;
    struct writer public = { .size = 0 };
    uint32_t check;

    assert(is_comment(comment));
    if (getentropy(&check, sizeof(check)) < 0)
        return error_set(e, ERROR_INTERNAL, 0, "the system gives no random numbers");
    if (generate_raw(&pair, e) < 0)
        return -1;
    put_public(&public, &pair);
    bool printed = keys_print_blob(public.bytes, public.size, out->blob);

    assert(printed);
    (void)printed;
    snprintf(out->public_line, sizeof(out->public_line), "%s %s%s%s\n", KEY_TYPE, out->blob,
             comment[0] != '\0' ? " " : "", comment);
    print_private(&pair, check, comment, out->private_file);
    keys_wipe(&pair, sizeof(pair));
    return 0;
}

void keys_wipe(void *secret, size_t size)
{
    util_wipe(secret, size);
}

void keys_forget(struct keys_pair *pair)
{
    keys_wipe(pair, sizeof(*pair));
}

/* The lengths, the type and the lengths again: the same in all of these keys. */
static const uint8_t raw_begin[] = { 0,   0,   0,   11,  's', 's', 'h', '-', 'e',         'd',
                                     '2', '5', '5', '1', '9', 0,   0,   0,   RAW_KEY_SIZE };
_Static_assert(sizeof(raw_begin) + RAW_KEY_SIZE == KEYS_RAW_SIZE, "the type and the key");

bool keys_print_blob(const uint8_t *raw, size_t size, char out[KEYS_BLOB_SIZE])
{
    if (size != KEYS_RAW_SIZE || memcmp(raw, raw_begin, sizeof(raw_begin)) != 0)
        return false;
    out[encode(raw, size, out)] = '\0';
    return true;
}

bool keys_read_blob(const char *line, char out[KEYS_BLOB_SIZE])
{
    static const char type[] = KEY_TYPE " ";
    char begin[4 * sizeof(raw_begin) / 3 + 4];
    const char *blob = line + sizeof(type) - 1;
    size_t size;

    if (strncmp(line, type, sizeof(type) - 1) != 0)
        return false;
    size = strspn(blob, alphabet);
    /* 19 bytes are 25 whole characters; the rest of the next one is the key's. */
    encode(raw_begin, sizeof(raw_begin), begin);
    if (size != 4 * KEYS_RAW_SIZE / 3 || strchr(" \t\r\n", blob[size]) == NULL ||
        strncmp(blob, begin, 8 * sizeof(raw_begin) / 6) != 0)
        return false;
    memcpy(out, blob, size);
    out[size] = '\0';
    return true;
}

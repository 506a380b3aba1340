#include "providers/remote/keystream.h"

#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/library.h"
#include "core/util.h"
#include "providers/remote/keys.h"

#define BLOCK_SIZE  16
#define KEY_SIZE    16
#define STREAM_SIZE 4096

#define PROVIDER_NAME "agent-desktop"
/* Only this cipher: OpenSSL's own random numbers are made with AES-256-CTR, and stay as they are. */
#define CIPHER_NAME "AES-128-CTR"

struct crypto {
    __typeof__(OSSL_PROVIDER_add_builtin) *OSSL_PROVIDER_add_builtin;
    __typeof__(OSSL_PROVIDER_load) *OSSL_PROVIDER_load;
    __typeof__(OSSL_PARAM_locate) *OSSL_PARAM_locate;
    __typeof__(OSSL_PARAM_set_size_t) *OSSL_PARAM_set_size_t;
    __typeof__(OSSL_PARAM_set_uint) *OSSL_PARAM_set_uint;
    __typeof__(EVP_set_default_properties) *EVP_set_default_properties;
    __typeof__(EVP_CIPHER_fetch) *EVP_CIPHER_fetch;
    __typeof__(EVP_CIPHER_CTX_new) *EVP_CIPHER_CTX_new;
    __typeof__(EVP_CIPHER_CTX_free) *EVP_CIPHER_CTX_free;
    __typeof__(EVP_CIPHER_CTX_copy) *EVP_CIPHER_CTX_copy;
    __typeof__(EVP_EncryptInit_ex) *EVP_EncryptInit_ex;
    __typeof__(EVP_EncryptUpdate) *EVP_EncryptUpdate;
};

static const struct library_symbol symbols[] = {
    LIBRARY_SYMBOL(crypto, OSSL_PROVIDER_add_builtin), LIBRARY_SYMBOL(crypto, OSSL_PROVIDER_load),
    LIBRARY_SYMBOL(crypto, OSSL_PARAM_locate),         LIBRARY_SYMBOL(crypto, OSSL_PARAM_set_size_t),
    LIBRARY_SYMBOL(crypto, OSSL_PARAM_set_uint),       LIBRARY_SYMBOL(crypto, EVP_set_default_properties),
    LIBRARY_SYMBOL(crypto, EVP_CIPHER_fetch),          LIBRARY_SYMBOL(crypto, EVP_CIPHER_CTX_new),
    LIBRARY_SYMBOL(crypto, EVP_CIPHER_CTX_free),       LIBRARY_SYMBOL(crypto, EVP_EncryptInit_ex),
    LIBRARY_SYMBOL(crypto, EVP_CIPHER_CTX_copy),       LIBRARY_SYMBOL(crypto, EVP_EncryptUpdate),
};

/* A provider is handed nothing of ours, so what it needs has to be here. Written once, by
 * keystream_install(). */
static struct {
    struct crypto lib;
    EVP_CIPHER *cipher;                /* OpenSSL's own */
    OSSL_PROVIDER *openssl, *provider; /* loaded as long as the process lives */
} global;

struct stream {
    EVP_CIPHER_CTX *context;
    size_t at; /* what is in front was handed out */
    uint8_t bytes[STREAM_SIZE];
};

/* --- the cipher ----------------------------------------------------------------------------------------- */

static void free_stream(void *self)
{
    struct stream *s = self;

    global.lib.EVP_CIPHER_CTX_free(s->context);
    keys_wipe(s->bytes, sizeof(s->bytes));
    free(s);
}

static void *new_stream(void *provider)
{
    struct stream *s = calloc(1, sizeof(*s));

    (void)provider;
    if (s == NULL)
        return NULL;
    s->at = STREAM_SIZE;
    s->context = global.lib.EVP_CIPHER_CTX_new();
    if (s->context == NULL ||
        global.lib.EVP_EncryptInit_ex(s->context, global.cipher, NULL, NULL, NULL) != 1) {
        free_stream(s);
        return NULL;
    }
    return s;
}

static void *copy_stream(void *self)
{
    const struct stream *from = self;
    struct stream *s = new_stream(NULL);

    if (s == NULL || global.lib.EVP_CIPHER_CTX_copy(s->context, from->context) != 1) {
        if (s != NULL)
            free_stream(s);
        return NULL;
    }
    s->at = from->at;
    memcpy(s->bytes, from->bytes, sizeof(s->bytes));
    return s;
}

/* Both directions are the same in this mode. */
static int begin(void *self, const unsigned char *key, size_t key_size, const unsigned char *iv,
                 size_t iv_size, const OSSL_PARAM params[])
{
    struct stream *s = self;

    (void)params;
    if ((key != NULL && key_size != KEY_SIZE) || (iv != NULL && iv_size != BLOCK_SIZE))
        return 0;
    s->at = STREAM_SIZE;
    return global.lib.EVP_EncryptInit_ex(s->context, NULL, NULL, key, iv);
}

static bool refill(struct stream *s)
{
    static const uint8_t zeros[STREAM_SIZE];
    int size = 0;

    s->at = 0;
    return global.lib.EVP_EncryptUpdate(s->context, s->bytes, &size, zeros, STREAM_SIZE) == 1 &&
           size == STREAM_SIZE;
}

/* By words: a byte at a time takes as long as the cipher. */
static void combine_block(uint8_t *out, const uint8_t *in, const uint8_t *stream)
{
    uint64_t a[BLOCK_SIZE / 8], b[BLOCK_SIZE / 8];

    memcpy(a, in, BLOCK_SIZE);
    memcpy(b, stream, BLOCK_SIZE);
    a[0] ^= b[0];
    a[1] ^= b[1];
    memcpy(out, a, BLOCK_SIZE);
}

static bool next_byte(struct stream *s, uint8_t *out)
{
    if (s->at == STREAM_SIZE && !refill(s))
        return false;
    *out = s->bytes[s->at++];
    return true;
}

static int apply(void *self, unsigned char *out, size_t *out_size, size_t room, const unsigned char *in,
                 size_t size)
{
    struct stream *s = self;
    uint8_t key = 0;

    if (room < size)
        return 0;
    *out_size = size;
    for (; size >= BLOCK_SIZE && s->at % BLOCK_SIZE == 0; size -= BLOCK_SIZE) {
        if (s->at == STREAM_SIZE && !refill(s))
            return 0;
        combine_block(out, in, s->bytes + s->at);
        s->at += BLOCK_SIZE, out += BLOCK_SIZE, in += BLOCK_SIZE;
    }
    for (; size > 0; size--) {
        if (!next_byte(s, &key))
            return 0;
        *out++ = *in++ ^ key;
    }
    return 1;
}

static int end(void *self, unsigned char *out, size_t *out_size, size_t room)
{
    (void)self;
    (void)out;
    (void)room;
    *out_size = 0;
    return 1;
}

static int describe(OSSL_PARAM params[])
{
    static const struct {
        const char *name;
        size_t value;
    } sizes[] = { { OSSL_CIPHER_PARAM_BLOCK_SIZE, 1 },
                  { OSSL_CIPHER_PARAM_IVLEN, BLOCK_SIZE },
                  { OSSL_CIPHER_PARAM_KEYLEN, KEY_SIZE } };
    OSSL_PARAM *mode = global.lib.OSSL_PARAM_locate(params, OSSL_CIPHER_PARAM_MODE);

    if (mode != NULL && !global.lib.OSSL_PARAM_set_uint(mode, EVP_CIPH_CTR_MODE))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        OSSL_PARAM *size = global.lib.OSSL_PARAM_locate(params, sizes[i].name);

        if (size != NULL && !global.lib.OSSL_PARAM_set_size_t(size, sizes[i].value))
            return 0;
    }
    return 1;
}

static int describe_stream(void *self, OSSL_PARAM params[])
{
    (void)self;
    return describe(params);
}

/* Padding may be set, and means nothing in this mode; so OpenSSL's own has it. */
static int adjust_stream(void *self, const OSSL_PARAM params[])
{
    (void)self;
    (void)params;
    return 1;
}

static const OSSL_PARAM *list_adjustable(void *self, void *provider)
{
    static const OSSL_PARAM adjustable[] = { OSSL_PARAM_uint(OSSL_CIPHER_PARAM_PADDING, NULL),
                                             OSSL_PARAM_END };

    (void)self;
    (void)provider;
    return adjustable;
}

/* --- the provider --------------------------------------------------------------------------------------- */

#define FUNCTION(number, f)                                                                                  \
    {                                                                                                        \
        number, (void (*)(void))(f)                                                                          \
    }

static const OSSL_DISPATCH cipher_functions[] = {
    FUNCTION(OSSL_FUNC_CIPHER_NEWCTX, new_stream),
    FUNCTION(OSSL_FUNC_CIPHER_FREECTX, free_stream),
    FUNCTION(OSSL_FUNC_CIPHER_DUPCTX, copy_stream),
    FUNCTION(OSSL_FUNC_CIPHER_ENCRYPT_INIT, begin),
    FUNCTION(OSSL_FUNC_CIPHER_DECRYPT_INIT, begin),
    FUNCTION(OSSL_FUNC_CIPHER_UPDATE, apply),
    FUNCTION(OSSL_FUNC_CIPHER_CIPHER, apply),
    FUNCTION(OSSL_FUNC_CIPHER_FINAL, end),
    FUNCTION(OSSL_FUNC_CIPHER_GET_PARAMS, describe),
    FUNCTION(OSSL_FUNC_CIPHER_GET_CTX_PARAMS, describe_stream),
    FUNCTION(OSSL_FUNC_CIPHER_SET_CTX_PARAMS, adjust_stream),
    FUNCTION(OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, list_adjustable),
    { 0, NULL },
};

static const OSSL_ALGORITHM *list_algorithms(void *provider, int operation, int *no_cache)
{
    static const OSSL_ALGORITHM ciphers[] = {
        { CIPHER_NAME, "provider=" PROVIDER_NAME, cipher_functions, NULL }, { NULL, NULL, NULL, NULL }
    };

    (void)provider;
    *no_cache = 0;
    return operation == OSSL_OP_CIPHER ? ciphers : NULL;
}

static int begin_provider(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in, const OSSL_DISPATCH **out,
                          void **context)
{
    static const OSSL_DISPATCH functions[] = {
        FUNCTION(OSSL_FUNC_PROVIDER_QUERY_OPERATION, list_algorithms),
        { 0, NULL },
    };

    (void)in;
    *out = functions;
    *context = (void *)(uintptr_t)handle;
    return 1;
}

/* OpenSSL's own is loaded by itself only as long as no other one is. */
static void install(void)
{
    struct error ignored = { 0 };

    if (library_open("libcrypto.so.3", "libssl3", symbols, ARRAY_LEN(symbols), &global.lib, &ignored) < 0)
        return;
    global.openssl = global.lib.OSSL_PROVIDER_load(NULL, "default");
    global.cipher = global.lib.EVP_CIPHER_fetch(NULL, CIPHER_NAME, "provider=default");
    if (global.cipher == NULL ||
        global.lib.OSSL_PROVIDER_add_builtin(NULL, PROVIDER_NAME, begin_provider) != 1)
        return;
    global.provider = global.lib.OSSL_PROVIDER_load(NULL, PROVIDER_NAME);
    if (global.provider != NULL)
        (void)global.lib.EVP_set_default_properties(NULL, "?provider=" PROVIDER_NAME);
}

void keystream_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, install);
}

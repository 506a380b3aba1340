#include "providers/remote/http_sink.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "core/file.h"
#include "core/library.h"
#include "core/mem.h"

#define BLOCK_SIZE  ((size_t)128 * 1024) /* all blocks together fit into the second level cache */
#define BLOCK_COUNT 8

/* So much is handed to the disk while more comes. Left to the end, it would take as long as half the
 * download. */
#define SYNC_SIZE ((int64_t)8 * 1024 * 1024)

struct libcrypto {
    __typeof__(EVP_MD_CTX_new) *EVP_MD_CTX_new;
    __typeof__(EVP_MD_CTX_free) *EVP_MD_CTX_free;
    __typeof__(EVP_sha1) *EVP_sha1;
    __typeof__(EVP_DigestInit_ex) *EVP_DigestInit_ex;
    __typeof__(EVP_DigestUpdate) *EVP_DigestUpdate;
    __typeof__(EVP_DigestFinal_ex) *EVP_DigestFinal_ex;
};

static const struct library_symbol symbols[] = {
    LIBRARY_SYMBOL(libcrypto, EVP_MD_CTX_new),   LIBRARY_SYMBOL(libcrypto, EVP_MD_CTX_free),
    LIBRARY_SYMBOL(libcrypto, EVP_sha1),         LIBRARY_SYMBOL(libcrypto, EVP_DigestInit_ex),
    LIBRARY_SYMBOL(libcrypto, EVP_DigestUpdate), LIBRARY_SYMBOL(libcrypto, EVP_DigestFinal_ex),
};

/* A ring: the caller fills the block FILLED % BLOCK_COUNT, the thread hashes from HASHED on. */
struct http_sink {
    struct libcrypto lib;
    int file;
    int64_t size;
    size_t used; /* of the block that is being filled */
    bool failed; /* the hash: never seen, but OpenSSL may say so */

    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t changed;
    uint64_t filled, hashed; /* blocks, ever */
    size_t sizes[BLOCK_COUNT];
    bool closing;

    /* the thread's while filled > hashed, else the caller's */
    EVP_MD_CTX *hash;
    int64_t hashed_size, synced_size; /* of the file, from its start */

    char blocks[BLOCK_COUNT][BLOCK_SIZE];
};

/* ---- the thread ---- */

static void hash_block(struct http_sink *s, uint64_t number)
{
    size_t at = number % BLOCK_COUNT;

    if (s->lib.EVP_DigestUpdate(s->hash, s->blocks[at], s->sizes[at]) != 1)
        s->failed = true;
    s->hashed_size += (int64_t)s->sizes[at];
    if (s->hashed_size - s->synced_size >= SYNC_SIZE) {
        file_sync_early(s->file, s->synced_size, s->hashed_size - s->synced_size);
        s->synced_size = s->hashed_size;
    }
}

static void *hash_blocks(void *self)
{
    struct http_sink *s = self;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->hashed == s->filled && !s->closing)
            pthread_cond_wait(&s->changed, &s->lock);
        if (s->closing)
            break;
        pthread_mutex_unlock(&s->lock);
        hash_block(s, s->hashed); /* only this thread changes it */
        pthread_mutex_lock(&s->lock);
        s->hashed++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Signals are for the thread that knows what to do about them. */
static int start_thread(struct http_sink *s, struct error *e)
{
    sigset_t all, before;
    int failure;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(&s->thread, NULL, hash_blocks, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, failure, "cannot start a thread");
    s->thread_runs = true;
    return 0;
}

/* Until no more than PENDING blocks are left to hash. */
static void wait_for_thread(struct http_sink *s, uint64_t pending)
{
    pthread_mutex_lock(&s->lock);
    while (s->filled - s->hashed > pending)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Gives the block that is being filled to the thread, and waits until the next one is free. */
static void pass_block(struct http_sink *s)
{
    if (s->used == 0)
        return;
    pthread_mutex_lock(&s->lock);
    s->sizes[s->filled % BLOCK_COUNT] = s->used;
    s->filled++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    s->used = 0;
    wait_for_thread(s, BLOCK_COUNT - 1);
}

/* ---- the file ---- */

static char *next_block(struct http_sink *s)
{
    return s->blocks[s->filled % BLOCK_COUNT];
}

int http_sink_flush(struct http_sink *s, struct error *e)
{
    if (file_write_all(s->file, next_block(s), s->used) < 0) {
        s->size -= (int64_t)s->used;
        s->used = 0;
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot write to the download's file");
    }
    pass_block(s);
    return 0;
}

int http_sink_add(struct http_sink *s, const void *bytes, size_t size, struct error *e)
{
    for (const char *at = bytes; size > 0;) {
        size_t room = BLOCK_SIZE - s->used, part = size < room ? size : room;

        memcpy(next_block(s) + s->used, at, part);
        s->used += part;
        s->size += (int64_t)part;
        at += part;
        size -= part;
        if (s->used == BLOCK_SIZE && http_sink_flush(s, e) < 0)
            return -1;
    }
    return 0;
}

static int begin_hash(struct http_sink *s, struct error *e)
{
    wait_for_thread(s, 0);
    s->hashed_size = s->synced_size = 0;
    if (s->lib.EVP_DigestInit_ex(s->hash, s->lib.EVP_sha1(), NULL) != 1)
        return error_set(e, ERROR_INTERNAL, 0, "libcrypto has no SHA-1");
    return 0;
}

int http_sink_restart(struct http_sink *s, struct error *e)
{
    if (RETRY_EINTR(ftruncate(s->file, 0)) < 0 || lseek(s->file, 0, SEEK_SET) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot empty the download's file");
    s->used = 0;
    s->size = 0;
    return begin_hash(s, e);
}

/* Hashes what the file holds, and leaves its offset at the end. */
static int read_beginning(struct http_sink *s, struct error *e)
{
    if (lseek(s->file, 0, SEEK_SET) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot read the download's file");
    for (;;) {
        ssize_t got = RETRY_EINTR(read(s->file, next_block(s), BLOCK_SIZE));

        if (got < 0)
            return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot read the download's file");
        if (got == 0)
            return 0;
        s->used = (size_t)got;
        s->size += got;
        pass_block(s);
    }
}

int64_t http_sink_size(const struct http_sink *s)
{
    return s->size;
}

int http_sink_sum(struct http_sink *s, char out[HTTP_SHA1_SIZE], struct error *e)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned int size = 0;

    if (http_sink_flush(s, e) < 0)
        return -1;
    wait_for_thread(s, 0);
    if (s->failed || s->lib.EVP_DigestFinal_ex(s->hash, sum, &size) != 1 || 2 * size + 1 != HTTP_SHA1_SIZE)
        return error_set(e, ERROR_INTERNAL, 0, "libcrypto cannot compute a SHA-1");
    for (unsigned int i = 0; i < size; i++)
        snprintf(out + (size_t)2 * i, 3, "%02x", sum[i]);
    return 0;
}

/* ---- from open to close ---- */

int http_sink_open(int file, struct http_sink **out, struct error *e)
{
    struct http_sink *s = mem_alloc(sizeof(*s));

    s->file = file;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (library_open("libcrypto.so.3", "libssl3", symbols, ARRAY_LEN(symbols), &s->lib, e) < 0)
        goto failed;
    s->hash = s->lib.EVP_MD_CTX_new();
    if (s->hash == NULL)
        mem_exhausted();
    if (begin_hash(s, e) < 0 || start_thread(s, e) < 0 || read_beginning(s, e) < 0)
        goto failed;
    *out = s;
    return 0;

failed:
    http_sink_close(s);
    return -1;
}

static void end_thread(struct http_sink *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

void http_sink_close(struct http_sink *s)
{
    if (s == NULL)
        return;
    if (s->thread_runs)
        end_thread(s);
    if (s->hash != NULL)
        s->lib.EVP_MD_CTX_free(s->hash);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

#include "providers/remote/pump.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/util.h"

#define BLOCKS 4

struct block {
    size_t from, size;
    uint8_t bytes[PUMP_BLOCK_SIZE];
};

struct pump {
    int fd, wake;
    enum pump_direction direction;
    pthread_t thread;
    bool running;
    atomic_uint_least64_t bytes;
    atomic_int_least64_t moved_ms;

    /* Below LOCK. The full blocks are COUNT from FIRST on, in a ring; the one that is being filled is behind
     * them, and belongs to who fills it. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned first, count;
    bool ended; /* no more will be read, or written */
    bool
        awaited; /* the owner found nothing, no room, or not all done, and is to be woken when that changes */
    bool stopping;
    int error;

    struct block blocks[BLOCKS];
};

/* Full is as good as written. */
static void wake_owner(const struct pump *p)
{
    (void)!write(p->wake, "", 1);
}

/* --- the thread ----------------------------------------------------------------------------------------- */

/* The only places where the thread can be ended from outside, so that it never holds the lock then. */
static ssize_t move_some(const struct pump *p, uint8_t *bytes, size_t size)
{
    ssize_t n;

    do {
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        n = p->direction == PUMP_IN ? read(p->fd, bytes, size) : write(p->fd, bytes, size);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    } while (n < 0 && errno == EINTR);
    return n;
}

static void count_bytes(struct pump *p, ssize_t n)
{
    atomic_fetch_add(&p->bytes, (uint64_t)n);
    atomic_store(&p->moved_ms, clock_mono_ms());
}

/* The next block to work on: for a reader a free one, for a writer a full one. NULL: there will be none. */
static struct block *wait_for_block(struct pump *p)
{
    struct block *block = NULL;

    pthread_mutex_lock(&p->lock);
    while (!p->stopping && (p->direction == PUMP_IN ? p->count == BLOCKS : p->count == 0))
        pthread_cond_wait(&p->changed, &p->lock);
    if (!p->stopping)
        block = &p->blocks[(p->first + (p->direction == PUMP_IN ? p->count : 0)) % BLOCKS];
    pthread_mutex_unlock(&p->lock);
    return block;
}

/* The block was filled or emptied; or the stream has ended. */
static void hand_over(struct pump *p, bool ended, int error)
{
    pthread_mutex_lock(&p->lock);
    if (ended) {
        p->ended = true;
        p->error = error;
        if (p->direction == PUMP_OUT)
            p->count = 0; /* of no use any more */
    } else if (p->direction == PUMP_IN) {
        p->count++;
    } else {
        p->first = (p->first + 1) % BLOCKS;
        p->count--;
    }
    bool wake = p->awaited || p->ended;

    p->awaited = false;
    pthread_mutex_unlock(&p->lock);
    if (wake)
        wake_owner(p);
}

/* 1, 0 at the end of the stream, -1 with errno. */
static int fill_block(struct pump *p, struct block *b)
{
    ssize_t n = move_some(p, b->bytes, sizeof(b->bytes));

    b->from = 0;
    b->size = n > 0 ? (size_t)n : 0;
    if (n > 0)
        count_bytes(p, n);
    return n > 0 ? 1 : (int)n;
}

static int empty_block(struct pump *p, struct block *b)
{
    while (b->size > 0) {
        ssize_t n = move_some(p, b->bytes + b->from, b->size);

        if (n < 0)
            return -1;
        count_bytes(p, n);
        b->from += (size_t)n;
        b->size -= (size_t)n;
    }
    return 1;
}

static void *run(void *self)
{
    struct pump *p = self;
    struct block *b;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    while ((b = wait_for_block(p)) != NULL) {
        int r = p->direction == PUMP_IN ? fill_block(p, b) : empty_block(p, b);

        hand_over(p, r <= 0, r < 0 ? errno : 0);
        if (r <= 0)
            break;
    }
    return NULL;
}

/* --- the owner ------------------------------------------------------------------------------------------ */

int pump_start(int fd, enum pump_direction direction, int wake, struct pump **out, struct error *e)
{
    struct pump *p = mem_alloc(sizeof(*p));
    sigset_t all, before;

    p->fd = fd;
    p->wake = wake;
    p->direction = direction;
    atomic_store(&p->moved_ms, clock_mono_ms());
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    /* Signals are the main thread's; SIGPIPE stays pending in this one, and is gone with it. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&p->thread, NULL, run, p);

    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        pump_free(p);
        return error_set(e, ERROR_LIMIT_REACHED, error, "cannot start a thread");
    }
    p->running = true;
    *out = p;
    return 0;
}

const uint8_t *pump_peek(struct pump *p, size_t *size)
{
    const uint8_t *bytes = NULL;

    assert(p->direction == PUMP_IN);
    pthread_mutex_lock(&p->lock);
    if (p->count > 0) {
        const struct block *b = &p->blocks[p->first];

        bytes = b->bytes + b->from;
        *size = b->size;
    }
    p->awaited = p->awaited || bytes == NULL;
    pthread_mutex_unlock(&p->lock);
    return bytes;
}

void pump_take(struct pump *p, size_t size)
{
    pthread_mutex_lock(&p->lock);
    struct block *b = &p->blocks[p->first];

    assert(p->direction == PUMP_IN && p->count > 0 && size <= b->size);
    b->from += size;
    b->size -= size;
    if (b->size == 0) {
        p->first = (p->first + 1) % BLOCKS;
        p->count--;
        pthread_cond_signal(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
}

uint8_t *pump_block(struct pump *p)
{
    uint8_t *bytes = NULL;

    assert(p->direction == PUMP_OUT);
    pthread_mutex_lock(&p->lock);
    if (p->count < BLOCKS)
        bytes = p->blocks[(p->first + p->count) % BLOCKS].bytes;
    p->awaited = p->awaited || bytes == NULL;
    pthread_mutex_unlock(&p->lock);
    return bytes;
}

void pump_give(struct pump *p, size_t from, size_t size)
{
    pthread_mutex_lock(&p->lock);
    struct block *b = &p->blocks[(p->first + p->count) % BLOCKS];

    assert(p->direction == PUMP_OUT && p->count < BLOCKS && from + size <= sizeof(b->bytes));
    if (size > 0 && !p->ended) {
        b->from = from;
        b->size = size;
        p->count++;
        pthread_cond_signal(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
}

bool pump_is_done(struct pump *p)
{
    pthread_mutex_lock(&p->lock);
    bool done = p->count == 0 && (p->direction == PUMP_OUT || p->ended);

    p->awaited = p->awaited || !done;
    pthread_mutex_unlock(&p->lock);
    return done;
}

int pump_error(struct pump *p)
{
    pthread_mutex_lock(&p->lock);
    int error = p->error;

    pthread_mutex_unlock(&p->lock);
    return error;
}

uint64_t pump_bytes(const struct pump *p)
{
    return atomic_load(&p->bytes);
}

int64_t pump_moved_ms(const struct pump *p)
{
    return atomic_load(&p->moved_ms);
}

void pump_stop(struct pump *p)
{
    if (p == NULL || !p->running)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_cancel(p->thread);
    pthread_join(p->thread, NULL);
    p->running = false;
}

void pump_free(struct pump *p)
{
    if (p == NULL)
        return;
    pump_stop(p);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

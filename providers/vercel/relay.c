#include "providers/vercel/relay.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/remote/pump.h"
#include "providers/vercel/spool.h"

static bool are_one(int a, int b)
{
    struct stat first, second;

    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

void relay_init(struct relay *r, int stdout_fd, int stderr_fd, int wake)
{
    *r = (struct relay){ .sinks = { { .fd = stdout_fd }, { .fd = stderr_fd } },
                         .is_joined = are_one(stdout_fd, stderr_fd),
                         .wake = wake };
}

static struct relay_sink *find_sink(struct relay *r, enum relay_stream stream)
{
    return &r->sinks[r->is_joined ? RELAY_OUT : stream];
}

void relay_stop(struct relay *r)
{
    for (int i = 0; i < RELAY_STREAMS; i++)
        pump_stop(r->sinks[i].pump);
}

static void drop_spool(struct relay_sink *s)
{
    spool_close(s->spool);
    s->spool = NULL;
}

void relay_done(struct relay *r)
{
    for (int i = 0; i < RELAY_STREAMS; i++) {
        pump_free(r->sinks[i].pump);
        r->sinks[i].pump = NULL;
        drop_spool(&r->sinks[i]);
    }
}

static int find_error(struct relay_sink *s)
{
    int error = s->pump == NULL ? 0 : pump_error(s->pump);

    return error != 0 ? error : s->spool_error;
}

static bool is_open(struct relay_sink *s)
{
    return s->fd >= 0 && find_error(s) == 0;
}

/* --- on the disk ---------------------------------------------------------------------------------------- */

void relay_spool(struct relay *r, enum relay_stream stream)
{
    struct relay_sink *s = find_sink(r, stream);

    if (s->spool == NULL)
        s->spool = spool_open();
}

static void empty_spool(struct relay_sink *s)
{
    uint8_t *block;

    while (is_open(s) && spool_size(s->spool) > 0 && (block = pump_block(s->pump)) != NULL) {
        long n = spool_take(s->spool, block, PUMP_BLOCK_SIZE);

        if (n > 0)
            pump_give(s->pump, 0, (size_t)n);
        else
            s->spool_error = errno;
    }
    if (!is_open(s) || spool_size(s->spool) == 0)
        drop_spool(s);
}

void relay_advance(struct relay *r)
{
    for (int i = 0; i < RELAY_STREAMS; i++)
        if (spool_size(r->sinks[i].spool) > 0)
            empty_spool(&r->sinks[i]);
}

/* --- passing on ----------------------------------------------------------------------------------------- */

static size_t least(uint64_t a, size_t b)
{
    return a < b ? (size_t)a : b;
}

/* The bytes at the front that are passed on, or need not be. 0 with none: they come next. */
static size_t skip(struct relay *r, const struct relay_position *at, enum relay_stream stream, size_t size)
{
    uint64_t given = r->given[stream], seen = at->seen[stream];

    if (given > seen)
        return least(given - seen, size);
    return is_open(find_sink(r, stream)) ? 0 : size;
}

static size_t give_to_pump(struct pump *pump, const char *bytes, size_t size)
{
    uint8_t *block = pump_block(pump);
    size_t part = least(PUMP_BLOCK_SIZE, size);

    if (block == NULL)
        return 0;
    memcpy(block, bytes, part);
    pump_give(pump, 0, part);
    return part;
}

/* Behind what waits already. */
static size_t give(struct relay_sink *s, const char *bytes, size_t size)
{
    size_t n = spool_size(s->spool) == 0 ? give_to_pump(s->pump, bytes, size) : 0;

    return n == 0 && s->spool != NULL ? spool_add(s->spool, bytes, size) : n;
}

int relay_pass(struct relay *r, struct relay_position *at, enum relay_stream stream, const char *bytes,
               size_t size, size_t *taken, struct error *e)
{
    struct relay_sink *s = find_sink(r, stream);
    size_t n = skip(r, at, stream, size);

    if (n == 0) {
        if (s->pump == NULL && pump_start(s->fd, PUMP_OUT, r->wake, &s->pump, e) < 0)
            return -1;
        n = give(s, bytes, size);
    }
    *taken = n;
    at->seen[stream] += n;
    if (r->given[stream] < at->seen[stream])
        r->given[stream] = at->seen[stream];
    return 0;
}

bool relay_has_room(struct relay *r, enum relay_stream stream)
{
    struct relay_sink *s = find_sink(r, stream);

    if (s->pump == NULL || !is_open(s))
        return true;
    return (spool_size(s->spool) == 0 && pump_block(s->pump) != NULL) ||
           (s->spool != NULL && spool_has_room(s->spool));
}

/* --- how far it is -------------------------------------------------------------------------------------- */

bool relay_is_done(struct relay *r)
{
    bool done = true;

    for (int i = 0; i < RELAY_STREAMS; i++) {
        const struct relay_sink *s = &r->sinks[i];

        done = (s->pump == NULL || pump_is_done(s->pump)) && spool_size(s->spool) == 0 && done;
    }
    return done;
}

uint64_t relay_given(const struct relay *r)
{
    return r->given[RELAY_OUT] + r->given[RELAY_ERR];
}

bool relay_is_whole(const struct relay *r, const struct relay_position *at)
{
    return at->seen[RELAY_OUT] == r->given[RELAY_OUT] && at->seen[RELAY_ERR] == r->given[RELAY_ERR];
}

int relay_broken(struct relay *r, enum relay_stream stream)
{
    return find_error(find_sink(r, stream));
}

int64_t relay_moved_ms(const struct relay *r)
{
    int64_t moved_ms = 0;

    for (int i = 0; i < RELAY_STREAMS; i++)
        if (r->sinks[i].pump != NULL && pump_moved_ms(r->sinks[i].pump) > moved_ms)
            moved_ms = pump_moved_ms(r->sinks[i].pump);
    return moved_ms;
}

bool relay_has_written(const struct relay *r, enum relay_stream stream)
{
    return r->sinks[stream].pump != NULL && pump_bytes(r->sinks[stream].pump) > 0;
}

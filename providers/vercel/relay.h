/* providers/vercel/relay.h - passes a command's output on to the caller's streams: every byte once and in
 * order, however often the service tells it.
 *
 * Bytes are only counted: what was passed on of a stream is not passed on again when it is told anew from its
 * beginning. In between stand some blocks of memory for each stream (providers/remote/pump.h). When they are
 * full, nothing more is taken until the reader has read; unless the other stream has to get past, then what
 * comes waits on the disk. Nothing here waits for a reader. */
#ifndef PROVIDERS_VERCEL_RELAY_H
#define PROVIDERS_VERCEL_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum relay_stream { RELAY_OUT, RELAY_ERR, RELAY_STREAMS };

struct relay_sink {
    int fd;              /* -1: to nowhere */
    struct pump *pump;   /* NULL until there is something */
    struct spool *spool; /* what comes behind; NULL: nothing does */
    int spool_error;     /* errno: it cannot be read */
};

struct relay { /* relay_init(), relay_done() */
    struct relay_sink sinks[RELAY_STREAMS];
    bool is_joined;                /* both streams go to the first, so that they stay in order */
    uint64_t given[RELAY_STREAMS]; /* bytes of the command that need not come again */
    int wake;
};

/* How far one telling of the output has come, from its beginning on. */
struct relay_position {
    uint64_t seen[RELAY_STREAMS];
};

/* The descriptors are lent, and may be one pipe or file; -1: what comes is dropped. A byte is written to
 * WAKE, which does not block, when a reader has made room, or is gone, after relay_pass() took nothing or
 * relay_has_room() or relay_is_done() said no. */
void relay_init(struct relay *r, int stdout_fd, int stderr_fd, int wake);
void relay_stop(struct relay *r); /* ends its threads; what is not written by then never is */
void relay_done(struct relay *r);

/* To be called on every wake: passes on what waits on the disk, as far as there is room. */
void relay_advance(struct relay *r);

/* Takes at least one of the SIZE > 0 bytes that stand at AT, unless there is no room: *taken is 0 then. -1:
 * LIMIT_REACHED, there can be no thread. */
int relay_pass(struct relay *r, struct relay_position *at, enum relay_stream stream, const char *bytes,
               size_t size, size_t *taken, struct error *e);
bool relay_has_room(struct relay *r, enum relay_stream stream);

/* Makes room on the disk, until the reader has caught up. Where that cannot be, there is none. */
void relay_spool(struct relay *r, enum relay_stream stream);

bool relay_is_done(struct relay *r);         /* all that was taken is written, or never is */
uint64_t relay_given(const struct relay *r); /* bytes that were taken, of both streams */

/* Does a telling that has come to AT hold all that was taken? */
bool relay_is_whole(const struct relay *r, const struct relay_position *at);

int relay_broken(struct relay *r, enum relay_stream stream); /* the errno of what has failed, else 0 */
int64_t relay_moved_ms(const struct relay *r);               /* when the last byte was written; 0: none */
bool relay_has_written(const struct relay *r, enum relay_stream stream); /* exact after relay_stop() */

#endif

/* providers/remote/pump.h - one of the caller's streams, moved by a thread of its own that may block in
 * read(2) or write(2), while its owner never does.
 *
 * The descriptor may be shared with other processes (a shell, the other end of `2>&1`), so that it cannot be
 * made non-blocking: its state is theirs, too. In between stand a few blocks of memory; what does not fit
 * holds its source back. A byte is written to the pipe WAKE, which is non-blocking, when the stream has
 * ended, and when something has changed after the owner was told "nothing", "no room" or "not all". */
#ifndef PROVIDERS_REMOTE_PUMP_H
#define PROVIDERS_REMOTE_PUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

#define PUMP_BLOCK_SIZE (128 * 1024)

struct pump; /* opaque; for one owner */

enum pump_direction { PUMP_IN, PUMP_OUT };

/* FD is lent until pump_stop(). LIMIT_REACHED when there can be no thread. */
int pump_start(int fd, enum pump_direction direction, int wake, struct pump **out, struct error *e);

/* PUMP_IN: what was read and not taken yet; NULL when there is nothing. It stays until pump_take(). */
const uint8_t *pump_peek(struct pump *p, size_t *size);
void pump_take(struct pump *p, size_t size);

/* PUMP_OUT: an empty block of PUMP_BLOCK_SIZE bytes to be filled, NULL while all are full; the same one until
 * pump_give() says which part of it is to be written. */
uint8_t *pump_block(struct pump *p);
void pump_give(struct pump *p, size_t from, size_t size);

/* PUMP_IN: the stream has ended and all was taken. PUMP_OUT: all that was given is written, or never is. */
bool pump_is_done(struct pump *p);

int pump_error(struct pump *p); /* the errno that ended it, 0 when none did; what is given then is dropped */
uint64_t pump_bytes(
    const struct pump *p); /* that went through the descriptor; exact when it is done or stopped */
int64_t pump_moved_ms(const struct pump *p); /* when the last did, or when it began */

/* Ends the thread, also out of a read or write that would never end. NULL is fine. pump_free() afterwards. */
void pump_stop(struct pump *p);
void pump_free(struct pump *p); /* stops it first; NULL is fine */

#endif

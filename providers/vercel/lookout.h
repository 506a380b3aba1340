/* providers/vercel/lookout.h - watches what else may happen while a transfer, which can wait for one
 * descriptor only, is under way: a signal, input on stdin, a time. A thread of its own; it takes away what
 * wakes it from the signals' descriptor, but nothing from stdin. */
#ifndef PROVIDERS_VERCEL_LOOKOUT_H
#define PROVIDERS_VERCEL_LOOKOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

struct lookout; /* opaque; for one owner */

/* Both descriptors are lent until lookout_close(), and may be -1. LIMIT_REACHED when there can be no thread.
 */
int lookout_open(int signal_fd, int stdin_fd, struct lookout **out, struct error *e);
void lookout_close(struct lookout *l); /* NULL is fine */

int lookout_fd(const struct lookout *l);      /* readable when there is news */
int lookout_wake_fd(const struct lookout *l); /* who writes a byte here makes it so; non-blocking */

/* There is news again at WHEN_MS (clock_mono_ms()), instead of the time that was set before; 0: at none. */
void lookout_set_alarm(struct lookout *l, int64_t when_ms);

enum { LOOKOUT_SIGNAL = 1, LOOKOUT_INPUT = 2 };

/* What has happened since the last call, and makes lookout_fd() quiet. LOOKOUT_INPUT comes once. */
unsigned lookout_take(struct lookout *l);

/* Waits for news, at most MS, -1: for ever. True when there is some. */
bool lookout_wait(const struct lookout *l, int ms);

#endif

/* providers/remote/http_pause.h - what may pass by itself, and how long to wait for that. For http*.c only.
 */
#ifndef PROVIDERS_REMOTE_HTTP_PAUSE_H
#define PROVIDERS_REMOTE_HTTP_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/remote/http.h"

/* 408, 425, 429 and 5xx. */
bool http_pause_helps(int status);

/* Milliseconds before the next attempt, after TRIES that failed in a row: 250 and doubling up to 8000, times
 * a random factor of 1 to 2, so that clients do not come back all at once; or what Retry-After of the last
 * answer says (RFC 9110 10.2.3: seconds, or a date, compared with the answer's own Date), when that is
 * longer; at most a day. */
int64_t http_pause_ms(const struct http *h, const struct http_answer *a, int tries);

#endif

/* providers/remote/http_sink.h - a file that is written from its start to its end, and its SHA-1. For
 * http_download.c only.
 *
 * A second thread computes the hash, so that it costs a download nothing; it reads the bytes from memory, not
 * from the file again. Hides OpenSSL, which is opened on first use: its SHA-1 uses the CPU's instructions for
 * it, and is two to three times as fast as one that does not. Takes 2 MiB. */
#ifndef PROVIDERS_REMOTE_HTTP_SINK_H
#define PROVIDERS_REMOTE_HTTP_SINK_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "providers/remote/http.h"

struct http_sink;

/* What the descriptor FILE holds already is the beginning, and is hashed. FILE stays the caller's, and must
 * live. */
int http_sink_open(int file, struct http_sink **out, struct error *e);
void http_sink_close(struct http_sink *s); /* NULL is fine; bytes that were not flushed are lost */

int64_t http_sink_size(const struct http_sink *s); /* bytes that were added, or there before */

/* Errors of these are what the file system says: STORE_FULL, ACTION_FAILED ... */
int http_sink_add(struct http_sink *s, const void *bytes, size_t size, struct error *e);
int http_sink_flush(struct http_sink *s, struct error *e);   /* all that was added is in the file */
int http_sink_restart(struct http_sink *s, struct error *e); /* empties the file */

/* The sum of all that was added, which is in the file. May be asked again after a restart, not after more
 * bytes. */
int http_sink_sum(struct http_sink *s, char out[HTTP_SHA1_SIZE], struct error *e);

#endif

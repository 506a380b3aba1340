/* providers/vercel/spool.h - bytes that wait on the disk, in a file without a name: it is gone with the
 * process. */
#ifndef PROVIDERS_VERCEL_SPOOL_H
#define PROVIDERS_VERCEL_SPOOL_H

#include <stdbool.h>
#include <stddef.h>

#define SPOOL_MAX (128 << 20) /* bytes that one takes before it is emptied */

struct spool; /* opaque */

struct spool *spool_open(void);    /* NULL when there can be none */
void spool_close(struct spool *s); /* NULL is fine; what is in it is gone */

size_t spool_size(const struct spool *s); /* bytes in it; of NULL: 0 */
bool spool_has_room(const struct spool *s);

/* Adds as many of the bytes as it takes; 0: it is full, or the disk is. */
size_t spool_add(struct spool *s, const void *bytes, size_t size);

/* Takes up to SIZE bytes away from the front; their number, -1 with errno when they cannot be read. */
long spool_take(struct spool *s, void *bytes, size_t size);

#endif

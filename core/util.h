/* core/util.h - small things the language lacks: array length, scope cleanup, giving away ownership. */
#ifndef CORE_UTIL_H
#define CORE_UTIL_H

#include <stddef.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define PRINTF_LIKE(format_at, first_at) __attribute__((format(printf, format_at, first_at)))

/* Cleanup attributes: the variable must be initialised where it is declared. */
#define AUTO_FREE  __attribute__((cleanup(util_free_pointer)))
#define AUTO_CLOSE __attribute__((cleanup(util_close_fd)))
#define AUTO_WIPE  __attribute__((cleanup(util_wipe_text))) /* char *: AUTO_FREE of a secret */

/* free(*(void **)p); for AUTO_FREE. */
void util_free_pointer(void *p);

/* Closes *fd unless it is negative, keeping errno; for AUTO_CLOSE. */
void util_close_fd(int *fd);

/* Returns *p (a pointer variable's address) and leaves NULL there. */
void *util_take_pointer(void *p);
#define steal(p) ((__typeof__(*(p)))util_take_pointer(p))

/* Returns *fd and leaves -1 there. */
int steal_fd(int *fd);

/* Overwrites a secret; no compiler leaves it out. */
void util_wipe(void *secret, size_t size);

/* Overwrites the text *SECRET up to its NUL, frees it and leaves NULL there; NULL is fine. */
void util_wipe_text(char **secret);

/* 64 random bits in hex, from the kernel: temporary names, ids, tokens. */
void util_random_id(char out[17]);

#endif

/* core/text.h - text: a growing buffer, UTF-8, quoting for a shell, times, the nearest word. */
#ifndef CORE_TEXT_H
#define CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/util.h"

struct text {    /* { 0 } is an empty one; text_done() frees */
    char *bytes; /* NUL-terminated once anything was added, else NULL */
    size_t size; /* without the NUL */
    size_t room;
};

void text_done(struct text *t);
void text_add(struct text *t, const char *bytes, size_t size);
void text_add_string(struct text *t, const char *string);
void text_print(struct text *t, const char *format, ...) PRINTF_LIKE(2, 3);
const char *text_get(const struct text *t); /* never NULL; lent until the next change */

/* Copies SIZE bytes into OUT (ROOM bytes with the NUL), each byte that is not part of valid UTF-8
 * (RFC 3629: no surrogates, no overlong forms) and each control character replaced by U+FFFD, cut at a
 * character when it does not fit. Returns the length without the NUL. */
size_t text_clean(char *out, size_t room, const char *bytes, size_t size);
bool text_is_utf8(const char *bytes, size_t size);

/* Bytes of the valid UTF-8 character that BYTES starts with: 1 to 4, 0 when there is none. */
size_t text_char_size(const char *bytes, size_t size);

/* A word as a POSIX shell must be given it: as it is when only [A-Za-z0-9_./:=@%+,-], else in single
 * quotes. */
void text_add_shell_word(struct text *t, const char *word);

/* RFC 3339, UTC, whole seconds ("2026-11-29T16:34:13Z") or with milliseconds. OUT has 32 bytes. */
void text_format_time(char out[32], int64_t wall_ms, bool with_ms);

/* The inverse, and also "30s", "15m", "2h", "7d" before NOW_MS. Returns 0 or -1 with INVALID_ARGS. */
int text_parse_time(const char *text, int64_t now_ms, int64_t *out_ms, struct error *e);

/* Decimal seconds such as "2", "0.25": 0 < value <= max_s, else INVALID_ARGS naming WHAT. */
int text_parse_seconds(const char *text, const char *what, int max_s, int *out_ms, struct error *e);

/* A decimal integer in [min, max] and nothing else, else INVALID_ARGS naming WHAT. */
int text_parse_int(const char *text, const char *what, int64_t min, int64_t max, int64_t *out,
                   struct error *e);

/* The one of COUNT words with the smallest edit distance to WORD, NULL when none is near (more than a
 * third of the letters differ). */
const char *text_find_nearest(const char *word, const char *const *words, size_t count);

#endif

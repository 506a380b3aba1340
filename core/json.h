/* core/json.h - JSON values, in and out; hides jansson.
 *
 * Putters copy strings and replace bytes that are not UTF-8 by U+FFFD, so that output is always valid.
 * A putter given NULL leaves the member out. Values are reference-free: what is put belongs to the
 * container, what is got is lent. */
#ifndef CORE_JSON_H
#define CORE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

struct json; /* opaque */

struct json *json_new_object(void);
struct json *json_new_array(void);
struct json *json_clone(const struct json *j); /* all the way down; NULL of NULL */
void json_free(struct json *j);                /* NULL is fine */
void json_free_pointer(struct json **j);
#define AUTO_JSON __attribute__((cleanup(json_free_pointer)))

void json_put_string(struct json *object, const char *key, const char *value);
void json_put_int(struct json *object, const char *key, int64_t value);
void json_put_bool(struct json *object, const char *key, bool value);
void json_put(struct json *object, const char *key, struct json *value); /* takes VALUE */
void json_add_string(struct json *array, const char *value);
void json_add(struct json *array, struct json *value); /* takes VALUE */
struct json *json_new_strings(const char *const *strings, size_t count);

enum json_kind {
    JSON_KIND_ABSENT = 0,
    JSON_KIND_NULL,
    JSON_KIND_BOOL,
    JSON_KIND_INTEGER,
    JSON_KIND_REAL,
    JSON_KIND_STRING,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT
};

/* NULL, or the fallback, when absent or of another type. */
struct json *json_get(const struct json *object, const char *key);
const char *json_get_string(const struct json *object, const char *key); /* NULL also with a NUL inside */
enum json_kind json_get_kind(const struct json *object, const char *key);
const char *json_get_bytes(const struct json *object, const char *key,
                           size_t *size); /* may have NULs inside */
int64_t json_get_int(const struct json *object, const char *key, int64_t fallback);
double json_get_real(const struct json *object, const char *key, double fallback); /* an integer too */
bool json_get_bool(const struct json *object, const char *key, bool fallback);
size_t json_count(const struct json *array); /* 0 when not an array */
size_t json_count_members(const struct json *object);
struct json *json_at(const struct json *array, size_t index);

/* Strict: one value, no duplicate keys, nothing behind it. Fails with CODE, naming WHAT. */
int json_parse(const char *bytes, size_t size, const char *what, enum error_code code, struct json **out,
               struct error *e);

/* Likewise for what a peer has sent: strings may have U+0000 inside (for json_get_bytes() alone), the last of
 * duplicate keys counts, and nothing of BYTES gets into the message. */
int json_parse_foreign(const char *bytes, size_t size, const char *what, enum error_code code,
                       struct json **out, struct error *e);

/* One line without the newline, members in the order they were put; free() it. */
char *json_print(const struct json *j);

#endif

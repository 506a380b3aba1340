#include "core/json.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "core/mem.h"
#include "core/text.h"

/* A struct json is a json_t: the name alone hides the library. */
static json_t *inner(const struct json *j)
{
    return (json_t *)(uintptr_t)j;
}

static struct json *outer(json_t *j)
{
    return (struct json *)j;
}

/* What jansson gives on valid input is NULL only when memory is out. */
static json_t *need(json_t *made)
{
    if (made == NULL)
        mem_exhausted();
    return made;
}

static void need_done(int result)
{
    if (result < 0)
        mem_exhausted();
}

/* The bytes with each one that is not part of UTF-8 replaced. Control characters stay: JSON has escapes
 * for them. */
static void add_valid(struct text *t, const char *bytes, size_t size)
{
    for (size_t at = 0, step; at < size; at += step) {
        step = text_char_size(bytes + at, size - at);
        if (step > 0) {
            text_add(t, bytes + at, step);
        } else {
            text_add_string(t, "\xEF\xBF\xBD");
            step = 1;
        }
    }
}

static json_t *new_string(const char *value)
{
    size_t size = strlen(value);
    struct text valid = { 0 };
    json_t *string;

    if (text_is_utf8(value, size))
        return need(json_stringn_nocheck(value, size));
    add_valid(&valid, value, size);
    string = need(json_stringn_nocheck(valid.bytes, valid.size));
    text_done(&valid);
    return string;
}

static void put_new(struct json *object, const char *key, json_t *value)
{
    struct text valid = { 0 };

    assert(json_is_object(inner(object)));
    if (text_is_utf8(key, strlen(key))) {
        need_done(json_object_set_new_nocheck(inner(object), key, value));
        return;
    }
    add_valid(&valid, key, strlen(key));
    need_done(json_object_set_new_nocheck(inner(object), valid.bytes, value));
    text_done(&valid);
}

static void add_new(struct json *array, json_t *value)
{
    assert(json_is_array(inner(array)));
    need_done(json_array_append_new(inner(array), value));
}

struct json *json_new_object(void)
{
    return outer(need(json_object()));
}

struct json *json_new_array(void)
{
    return outer(need(json_array()));
}

struct json *json_clone(const struct json *j)
{
    return j == NULL ? NULL : outer(need(json_deep_copy(inner(j))));
}

void json_free(struct json *j)
{
    json_decref(inner(j));
}

void json_free_pointer(struct json **j)
{
    json_free(*j);
    *j = NULL;
}

void json_put_string(struct json *object, const char *key, const char *value)
{
    if (value != NULL)
        put_new(object, key, new_string(value));
}

void json_put_int(struct json *object, const char *key, int64_t value)
{
    put_new(object, key, need(json_integer(value)));
}

void json_put_bool(struct json *object, const char *key, bool value)
{
    put_new(object, key, json_boolean(value));
}

void json_put(struct json *object, const char *key, struct json *value)
{
    if (value != NULL)
        put_new(object, key, inner(value));
}

void json_add_string(struct json *array, const char *value)
{
    if (value != NULL)
        add_new(array, new_string(value));
}

void json_add(struct json *array, struct json *value)
{
    if (value != NULL)
        add_new(array, inner(value));
}

struct json *json_new_strings(const char *const *strings, size_t count)
{
    struct json *array = json_new_array();

    for (size_t i = 0; i < count; i++)
        json_add_string(array, strings[i]);
    return array;
}

struct json *json_get(const struct json *object, const char *key)
{
    return outer(json_object_get(inner(object), key));
}

const char *json_get_string(const struct json *object, const char *key)
{
    size_t size;
    const char *string = json_get_bytes(object, key, &size);

    return string != NULL && strlen(string) == size ? string : NULL;
}

enum json_kind json_get_kind(const struct json *object, const char *key)
{
    static const enum json_kind kinds[] = {
        [JSON_NULL] = JSON_KIND_NULL,   [JSON_FALSE] = JSON_KIND_BOOL,
        [JSON_TRUE] = JSON_KIND_BOOL,   [JSON_INTEGER] = JSON_KIND_INTEGER,
        [JSON_REAL] = JSON_KIND_REAL,   [JSON_STRING] = JSON_KIND_STRING,
        [JSON_ARRAY] = JSON_KIND_ARRAY, [JSON_OBJECT] = JSON_KIND_OBJECT,
    };
    const json_t *value = inner(json_get(object, key));

    return value != NULL ? kinds[json_typeof(value)] : JSON_KIND_ABSENT;
}

const char *json_get_bytes(const struct json *object, const char *key, size_t *size)
{
    const json_t *value = inner(json_get(object, key));

    *size = json_string_length(value);
    return json_string_value(value);
}

int64_t json_get_int(const struct json *object, const char *key, int64_t fallback)
{
    const json_t *value = inner(json_get(object, key));

    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

double json_get_real(const struct json *object, const char *key, double fallback)
{
    const json_t *value = inner(json_get(object, key));

    return json_is_number(value) ? json_number_value(value) : fallback;
}

bool json_get_bool(const struct json *object, const char *key, bool fallback)
{
    const json_t *value = inner(json_get(object, key));

    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

size_t json_count(const struct json *array)
{
    return json_array_size(inner(array));
}

size_t json_count_members(const struct json *object)
{
    return json_object_size(inner(object));
}

struct json *json_at(const struct json *array, size_t index)
{
    return outer(json_array_get(inner(array), index));
}

/* NULL with *FAULT. */
static json_t *parse(const char *bytes, size_t size, size_t flags, json_error_t *fault)
{
    json_t *parsed = json_loadb(bytes, size, JSON_DECODE_ANY | flags, fault);

    if (parsed == NULL && json_error_code(fault) == json_error_out_of_memory)
        mem_exhausted();
    return parsed;
}

int json_parse(const char *bytes, size_t size, const char *what, enum error_code code, struct json **out,
               struct error *e)
{
    json_error_t fault;
    json_t *parsed = parse(bytes, size, JSON_REJECT_DUPLICATES, &fault);

    if (parsed == NULL)
        return error_set(e, code, 0, "%s is not valid JSON: line %d: %s", what, fault.line, fault.text);
    *out = outer(parsed);
    return 0;
}

int json_parse_foreign(const char *bytes, size_t size, const char *what, enum error_code code,
                       struct json **out, struct error *e)
{
    json_error_t fault;
    json_t *parsed = parse(bytes, size, JSON_ALLOW_NUL, &fault);

    if (parsed == NULL)
        return error_set(e, code, 0, "%s is not valid JSON", what);
    *out = outer(parsed);
    return 0;
}

char *json_print(const struct json *j)
{
    char *line = json_dumps(inner(j), JSON_COMPACT | JSON_ENCODE_ANY);

    if (line == NULL)
        mem_exhausted();
    return line;
}

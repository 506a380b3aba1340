#include "core/facts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/text.h"

static struct fact *find_fact(struct facts *f, const char *key)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->items[i].key, key) == 0)
            return &f->items[i];
    return NULL;
}

static struct fact *add_fact(struct facts *f, const char *key)
{
    struct fact *fact;

    if (f->count == FACTS_MAX)
        return NULL;
    fact = &f->items[f->count++];
    memset(fact, 0, sizeof(*fact)); /* no leftovers behind the texts: records compare as bytes */
    memcpy(fact->key, key, strlen(key));
    return fact;
}

static void remove_fact(struct facts *f, const char *key)
{
    struct fact *fact = find_fact(f, key);
    size_t behind;

    if (fact == NULL)
        return;
    behind = (size_t)(&f->items[f->count] - fact) - 1;
    memmove(fact, fact + 1, behind * sizeof(*fact)); /* keeps the order */
    f->count--;
}

bool facts_set(struct facts *f, const char *key, const char *value)
{
    size_t key_size = strlen(key), value_size = strlen(value);
    struct fact *fact;

    if (key_size == 0 || key_size >= FACT_KEY_SIZE || value_size >= FACT_VALUE_SIZE)
        return false;
    fact = find_fact(f, key);
    if (fact == NULL)
        fact = add_fact(f, key);
    if (fact == NULL)
        return false;
    memset(fact->value, 0, sizeof(fact->value));
    memmove(fact->value, value, value_size);
    return true;
}

bool facts_set_int(struct facts *f, const char *key, int64_t value)
{
    char digits[24];

    snprintf(digits, sizeof(digits), "%" PRId64, value);
    return facts_set(f, key, digits);
}

const char *facts_get(const struct facts *f, const char *key)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->items[i].key, key) == 0)
            return f->items[i].value;
    return NULL;
}

int64_t facts_get_int(const struct facts *f, const char *key, int64_t fallback)
{
    const char *value = facts_get(f, key);
    struct error ignored = { 0 };
    int64_t number;

    if (value == NULL || text_parse_int(value, key, INT64_MIN, INT64_MAX, &number, &ignored) < 0)
        return fallback;
    return number;
}

bool facts_merge(struct facts *f, const struct facts *change)
{
    struct facts merged = *f; /* all or nothing */

    assert(f != change);
    for (size_t i = 0; i < change->count; i++) /* first what makes room */
        if (change->items[i].value[0] == '\0')
            remove_fact(&merged, change->items[i].key);
    for (size_t i = 0; i < change->count; i++)
        if (change->items[i].value[0] != '\0' &&
            !facts_set(&merged, change->items[i].key, change->items[i].value))
            return false;
    *f = merged;
    return true;
}

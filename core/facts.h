/* core/facts.h - the small map a provider keeps about one sandbox: addresses, ids, a setup record.
 *
 * Facts travel in the journal: never a secret. Keys and values are text; a longer value is refused when
 * it is set, so what is read back is what was given. */
#ifndef CORE_FACTS_H
#define CORE_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FACTS_MAX       24
#define FACT_KEY_SIZE   24
#define FACT_VALUE_SIZE 232

struct fact {
    char key[FACT_KEY_SIZE];
    char value[FACT_VALUE_SIZE];
};

struct facts { /* only count needs to be 0 at the start */
    size_t count;
    struct fact items[FACTS_MAX];
};

/* false when there is no room or a text is too long; an empty value removes the key when merged. */
bool facts_set(struct facts *f, const char *key, const char *value);
bool facts_set_int(struct facts *f, const char *key, int64_t value);
const char *facts_get(const struct facts *f, const char *key); /* NULL when absent */
int64_t facts_get_int(const struct facts *f, const char *key, int64_t fallback);

/* Every fact of CHANGE over those of F. */
bool facts_merge(struct facts *f, const struct facts *change);

#endif

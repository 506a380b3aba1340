/* providers/macos/plist.h - reads property lists: Apple's catalog, what its tools answer. Hides libplist,
 * which is opened on first use.
 *
 * A value is lent by its document. What is asked of a value of another kind, or of one that is not there, is
 * not there either, so that a path of keys needs one look at its end. XML only: nobody here gets anything
 * else. */
#ifndef PROVIDERS_MACOS_PLIST_H
#define PROVIDERS_MACOS_PLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

struct plist; /* a document */

struct plist_value {        /* by value; lives as long as its document */
    const struct plist *of; /* never NULL */
    void *node;             /* NULL: not there */
};

/* ACTION_FAILED, naming WHAT ("Apple's catalog"), when BYTES are no property list; PLATFORM_NOT_SUPPORTED,
 * naming the package, without libplist. */
int plist_open(const char *bytes, size_t size, const char *what, struct plist **out, struct error *e);
void plist_close(struct plist *p); /* NULL is fine */

struct plist_value plist_root(const struct plist *p);
struct plist_value plist_find(struct plist_value dict, const char *key);
size_t plist_count(struct plist_value array); /* 0 for what is no array */
struct plist_value plist_item(struct plist_value array, size_t index);

const char *plist_text(struct plist_value v); /* NULL: no text */
bool plist_is_true(struct plist_value v);     /* the boolean true */
bool plist_number(struct plist_value v, uint64_t *out);

/* Calls FN for every entry of a dictionary, in no order that means anything, until it answers false. */
typedef bool plist_entry_fn(void *self, const char *key, struct plist_value value);
void plist_each(struct plist_value dict, plist_entry_fn *fn, void *self);

#endif

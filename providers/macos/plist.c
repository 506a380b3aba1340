#include "providers/macos/plist.h"

#include <stdlib.h>

#include <plist/plist.h>

#include "core/library.h"
#include "core/mem.h"

struct libplist {
    __typeof__(plist_from_xml) *plist_from_xml;
    __typeof__(plist_free) *plist_free;
    __typeof__(plist_get_node_type) *plist_get_node_type;
    __typeof__(plist_dict_get_item) *plist_dict_get_item;
    __typeof__(plist_dict_new_iter) *plist_dict_new_iter;
    __typeof__(plist_dict_next_item) *plist_dict_next_item;
    __typeof__(plist_array_get_size) *plist_array_get_size;
    __typeof__(plist_array_get_item) *plist_array_get_item;
    __typeof__(plist_get_string_ptr) *plist_get_string_ptr;
    __typeof__(plist_get_bool_val) *plist_get_bool_val;
    __typeof__(plist_get_uint_val) *plist_get_uint_val;
};

static const struct library_symbol symbols[] = {
    LIBRARY_SYMBOL(libplist, plist_from_xml),       LIBRARY_SYMBOL(libplist, plist_free),
    LIBRARY_SYMBOL(libplist, plist_get_node_type),  LIBRARY_SYMBOL(libplist, plist_dict_get_item),
    LIBRARY_SYMBOL(libplist, plist_dict_new_iter),  LIBRARY_SYMBOL(libplist, plist_dict_next_item),
    LIBRARY_SYMBOL(libplist, plist_array_get_size), LIBRARY_SYMBOL(libplist, plist_array_get_item),
    LIBRARY_SYMBOL(libplist, plist_get_string_ptr), LIBRARY_SYMBOL(libplist, plist_get_bool_val),
    LIBRARY_SYMBOL(libplist, plist_get_uint_val),
};

/* Debian 12's name and that of newer ones; the functions above are the same in both. */
static const char *const names[] = { "libplist-2.0.so.3", "libplist-2.0.so.4" };

struct plist {
    struct libplist lib;
    plist_t top;
};

/* ---- a document ---- */

static int open_library(struct libplist *lib, struct error *e)
{
    struct error newer = { 0 };

    if (library_open(names[0], "libplist3", symbols, ARRAY_LEN(symbols), lib, e) == 0)
        return 0;
    if (library_open(names[1], "libplist-2.0-4", symbols, ARRAY_LEN(symbols), lib, &newer) < 0)
        return -1; /* in the words for the older one */
    *e = (struct error){ 0 };
    return 0;
}

int plist_open(const char *bytes, size_t size, const char *what, struct plist **out, struct error *e)
{
    AUTO_FREE struct plist *p = mem_alloc(sizeof(*p));

    if (open_library(&p->lib, e) < 0)
        return -1;
    if (size <= UINT32_MAX)
        p->lib.plist_from_xml(bytes, (uint32_t)size, &p->top);
    if (p->top == NULL)
        return error_set(e, ERROR_ACTION_FAILED, 0, "%s is not a property list", what);
    *out = steal(&p);
    return 0;
}

void plist_close(struct plist *p)
{
    if (p == NULL)
        return;
    p->lib.plist_free(p->top);
    free(p);
}

/* ---- its values ---- */

static struct plist_value value_of(const struct plist *p, plist_t node)
{
    return (struct plist_value){ .of = p, .node = node };
}

static bool is_a(struct plist_value v, plist_type type)
{
    return v.node != NULL && v.of->lib.plist_get_node_type(v.node) == type;
}

struct plist_value plist_root(const struct plist *p)
{
    return value_of(p, p->top);
}

struct plist_value plist_find(struct plist_value dict, const char *key)
{
    return value_of(dict.of,
                    is_a(dict, PLIST_DICT) ? dict.of->lib.plist_dict_get_item(dict.node, key) : NULL);
}

size_t plist_count(struct plist_value array)
{
    return is_a(array, PLIST_ARRAY) ? array.of->lib.plist_array_get_size(array.node) : 0;
}

struct plist_value plist_item(struct plist_value array, size_t index)
{
    if (index >= plist_count(array))
        return value_of(array.of, NULL);
    return value_of(array.of, array.of->lib.plist_array_get_item(array.node, (uint32_t)index));
}

const char *plist_text(struct plist_value v)
{
    return is_a(v, PLIST_STRING) ? v.of->lib.plist_get_string_ptr(v.node, NULL) : NULL;
}

bool plist_is_true(struct plist_value v)
{
    uint8_t value = 0;

    if (is_a(v, PLIST_BOOLEAN))
        v.of->lib.plist_get_bool_val(v.node, &value);
    return value != 0;
}

bool plist_number(struct plist_value v, uint64_t *out)
{
    if (!is_a(v, PLIST_UINT)) /* so libplist calls every integer */
        return false;
    v.of->lib.plist_get_uint_val(v.node, out);
    return true;
}

void plist_each(struct plist_value dict, plist_entry_fn *fn, void *self)
{
    AUTO_FREE plist_dict_iter cursor = NULL;

    if (!is_a(dict, PLIST_DICT))
        return;
    dict.of->lib.plist_dict_new_iter(dict.node, &cursor);
    for (bool more = cursor != NULL; more;) {
        AUTO_FREE char *key = NULL;
        plist_t node = NULL;

        dict.of->lib.plist_dict_next_item(dict.node, cursor, &key, &node);
        more = key != NULL && fn(self, key, value_of(dict.of, node));
    }
}

#include "core/library.h"

#include <assert.h>
#include <string.h>

int library_open(const char *soname, const char *package, const struct library_symbol *symbols, size_t count,
                 void *table, struct error *e)
{
    (void)soname, (void)package, (void)e;
    for (size_t i = 0; i < count; i++) {
        assert(symbols[i].linked != NULL); /* a table that was compiled for the other kind of build */
        memcpy((char *)table + symbols[i].offset, &symbols[i].linked, sizeof(symbols[i].linked));
    }
    return 0;
}

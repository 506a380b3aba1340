/* tools/desktop/library.h - shared libraries that only the desktop commands use, opened on first use.
 *
 * Linked, they would be mapped by every command; opened here they cost nothing elsewhere, and a machine
 * without them gets an error that names the package instead of a loader's message. */
#ifndef TOOLS_DESKTOP_LIBRARY_H
#define TOOLS_DESKTOP_LIBRARY_H

#include <stddef.h>

#include "core/error.h"

struct library_symbol {
    const char *name;
    size_t offset; /* of its pointer in the table to fill */
};

/* A row for member F of struct TABLE, declared as `__typeof__(F) *F`. */
#define LIBRARY_SYMBOL(table, f)                                                                             \
    {                                                                                                        \
#f, offsetof(struct table, f)                                                                        \
    }

/* Opens SONAME for the rest of the process (GLib cannot be unloaded) and fills TABLE, also from what
 * SONAME itself depends on. PLATFORM_NOT_SUPPORTED naming PACKAGE (Debian's) when it or a symbol is missing.
 */
int library_open(const char *soname, const char *package, const struct library_symbol *symbols, size_t count,
                 void *table, struct error *e);

#endif

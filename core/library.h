/* core/library.h - libraries that only some commands need, opened when one of them runs.
 *
 * Linked, they would be mapped by every command; opened here they cost nothing elsewhere, and a machine
 * without them gets an error that names the package instead of a loader's message. A build with
 * AD_STATIC_LIBS (that for macOS) links them after all, and the same tables are filled with what the linker
 * found. Which of the two a target gets is ad_open_libraries() in its CMakeLists.txt. */
#ifndef CORE_LIBRARY_H
#define CORE_LIBRARY_H

#include <stddef.h>

#include "core/error.h"

typedef void library_function(void); /* whatever its type is */

struct library_symbol {
    const char *name;
    size_t offset;            /* of its pointer in the table to fill */
    library_function *linked; /* where it is when it is linked, else NULL */
};

#ifdef AD_STATIC_LIBS
#define LIBRARY_LINKED(f) ((library_function *)(f))
#else
#define LIBRARY_LINKED(f) NULL
#endif

/* A row for member F of struct TABLE, declared as `__typeof__(F) *F`. */
#define LIBRARY_SYMBOL(table, f)                                                                             \
    {                                                                                                        \
#f, offsetof(struct table, f), LIBRARY_LINKED(f)                                                     \
    }

/* Opens SONAME for the rest of the process (GLib, for one, cannot be unloaded) and fills TABLE, also from
 * what SONAME itself depends on. PLATFORM_NOT_SUPPORTED naming PACKAGE (Debian's) when it or a symbol is
 * missing. */
int library_open(const char *soname, const char *package, const struct library_symbol *symbols, size_t count,
                 void *table, struct error *e);

#endif

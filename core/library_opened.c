#include "core/library.h"

#include <dlfcn.h>
#include <string.h>

int library_open(const char *soname, const char *package, const struct library_symbol *symbols, size_t count,
                 void *table, struct error *e)
{
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0, "this needs %s: install the package %s", soname,
                         package);
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, symbols[i].name);

        if (address == NULL)
            return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0, "%s has no %s: install a newer package %s",
                             soname, symbols[i].name, package);
        /* ISO C has no conversion from an object pointer to a function pointer; POSIX has equal sizes. */
        memcpy((char *)table + symbols[i].offset, &address, sizeof address);
    }
    return 0;
}

/* core/copy_system.h - copies that the system itself makes: copy_linux.c, copy_darwin.c. For copy.c only. */
#ifndef CORE_COPY_SYSTEM_H
#define CORE_COPY_SYSTEM_H

#include <sys/types.h>

/* All -1 with errno. */
int copy_clone(int from, int to_dir, const char *to); /* makes TO, which must not exist, sharing all blocks */
int copy_share(int from, int to);                     /* the same for a file that is there, and empty */
ssize_t copy_range(int from, int to, off_t at, size_t size);

#endif

/* providers/linux/tree.h - copies a directory tree as an overlay layer needs it: whiteouts, opaque marks,
 * hard links, holes, times, modes, xattrs; reflinked where the file system can. */
#ifndef PROVIDERS_LINUX_TREE_H
#define PROVIDERS_LINUX_TREE_H

#include <stdint.h>

#include "core/error.h"

/* Copies directory FROM/NAME to TO/NAME, which must not exist. Skips sockets and devices other than
 * whiteouts; never follows a link; what is mounted inside becomes an empty directory. Run it through
 * namespace_run_with_files(). Data is not synced: the caller calls syncfs() once. */
int tree_copy(int from, int to, const char *name, struct error *e);

/* Adds to *BYTES what FROM/NAME occupies on disk. */
int tree_measure(int from, const char *name, int64_t *bytes, struct error *e);

#endif

/* core/copy.h - copies of files that share their blocks where the file system can.
 *
 * clonefile(2) on APFS, FICLONE on Linux (ioctl_ficlone(2)); elsewhere the data is copied, by the kernel
 * itself where it can (copy_file_range(2)), and holes stay holes, so that a sparse disk image takes no more
 * than it did. */
#ifndef CORE_COPY_H
#define CORE_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"

/* Copies FROM to TO, which must not exist; mode 0600, owner the caller, durable when it returns. A link is
 * not followed. ON_BYTES (may be NULL) hears every 64 MiB or so how much of a real copy is done; holes are
 * not counted. *shared tells whether blocks are shared (may be NULL). On failure TO is what it was.
 * ACTION_FAILED; STORE_FULL when there is no room. */
int copy_file(int from_dir, const char *from, int to_dir, const char *to,
              void (*on_bytes)(void *self, int64_t done, int64_t total), void *self, bool *shared,
              struct error *e);

enum copy_way { COPY_SHARE, COPY_RANGE, COPY_BUFFER };

struct copy {          /* of the data of one file after the other; { 0 } at the start */
    enum copy_way way; /* the best that these file systems have not refused yet */
    char *buffer;
    int64_t done;                              /* bytes that were really copied */
    void (*on_done)(void *self, int64_t done); /* may be NULL */
    void *self;
};

/* Fills the empty file TO with the SIZE bytes of FROM. Not synced. -1 with errno. */
int copy_data(struct copy *c, int from, int to, off_t size);
void copy_done(struct copy *c);

#endif

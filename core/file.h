/* core/file.h - files that survive crashes, and trees that are removed without following links.
 *
 * All paths are relative to a directory descriptor, so that a swapped parent cannot redirect them.
 * Modes are set exactly, whatever the umask: directories 0700, files 0600, executables 0700.
 * EINTR is retried everywhere but in close(2); short reads and writes are continued. */
#ifndef CORE_FILE_H
#define CORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "core/error.h"

int file_write_all(int fd, const void *bytes, size_t size); /* -1 with errno; 0 progress is EIO */

/* The whole file as NUL-terminated bytes; more than MAX bytes is an error. A missing file is 0 with
 * *out NULL; 1 when read. free(*out). Does not follow a link in the last component. */
int file_read(int dir, const char *path, size_t max, char **out, size_t *size, struct error *e);

/* Replaces NAME by these bytes: temporary name beside it (".tmp-<random>"), fsync, rename, fsync of the
 * directory. When it returns 0 the content is durable; on failure the old content stands, or the new one when
 * only the last fsync failed. */
int file_replace(int dir, const char *name, const void *bytes, size_t size, mode_t mode, struct error *e);

/* Opens DIR/NAME as a directory, never through a link. -1 with errno. */
int file_open_dir(int dir, const char *name);

/* Makes the directory if missing (mode exact, parent fsynced) and opens it; an existing one must be a
 * real directory, else PERM_DENIED. Returns the descriptor. */
int file_make_dir(int dir, const char *name, mode_t mode, struct error *e);

int file_sync_dir(int dir, struct error *e);

/* On the medium when it returns 0: fsync(2), and on macOS, where that ends at the drive, F_FULLFSYNC
 * (fcntl(2)) as far as the file system knows it. */
int file_sync_full(int fd, struct error *e);

/* What somebody else's fsync(2) has left in the drive's cache: nothing on Linux. -1 with errno. */
int file_sync_drive(int fd);

/* Has the system begin to write out a part of the file, without waiting for that, so that the
 * file_sync_full() at the end finds less to do. Nothing on macOS. */
void file_sync_early(int fd, off_t offset, off_t size);

/* Keeps SIZE bytes of the disk behind the end of the file, whose length stays. -1 with errno. */
int file_reserve(int fd, off_t size);

struct timespec file_modified(const struct stat *st); /* st_mtim, st_mtimespec */

/* Is something mounted at the directory FD, be it of the same file system? False where that cannot be told.
 */
bool file_is_mount_root(int fd);

/* Removes NAME and all below it, by descriptors only: never follows a link, never leaves the file
 * system NAME is on, makes unreadable directories of ours readable first. A name that is a link or a
 * file is unlinked itself. A missing one is success. Not durable until the parent is synced. */
int file_remove_tree(int dir, const char *name, struct error *e);

/* The name of the file system DIR is on when locks or shared maps cannot be trusted there (NFS, SMB,
 * 9p, virtiofs, FUSE and the like; by statfs(2)), else NULL. */
const char *file_network_filesystem(int dir);

/* Runs CALL (an expression that gives -1 and errno) again while it is interrupted. */
#define RETRY_EINTR(call)                                                                                    \
    (__extension__({                                                                                         \
        __typeof__(call) result_;                                                                            \
        do                                                                                                   \
            result_ = (call);                                                                                \
        while (result_ == -1 && errno == EINTR);                                                             \
        result_;                                                                                             \
    }))

#endif

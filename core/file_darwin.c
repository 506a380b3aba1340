#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/param.h>
#include <unistd.h>

/* Not every file system knows it; then fsync(2), which came before, is all there is. */
int file_sync_drive(int fd)
{
    if (RETRY_EINTR(fcntl(fd, F_FULLFSYNC)) == 0)
        return 0;
    return RETRY_EINTR(fsync(fd));
}

void file_sync_early(int fd, off_t offset, off_t size)
{
    (void)fd, (void)offset, (void)size; /* there is no such call */
}

/* F_ALLOCATEPERSIST: without it close(2) gives the blocks back (fcntl(2)). */
int file_reserve(int fd, off_t size)
{
    fstore_t behind = { .fst_flags = F_ALLOCATEALL | F_ALLOCATEPERSIST,
                        .fst_posmode = F_PEOFPOSMODE,
                        .fst_length = size };

    return RETRY_EINTR(fcntl(fd, F_PREALLOCATE, &behind));
}

struct timespec file_modified(const struct stat *st)
{
    return st->st_mtimespec;
}

bool file_is_mount_root(int fd)
{
    (void)fd; /* there are no bind mounts: st_dev tells */
    return false;
}

const char *file_network_filesystem(int dir)
{
    /* f_fstypename of file systems that may call themselves local */
    static const struct {
        const char *type;
        const char *name;
    } rows[] = {
        { "nfs", "NFS" },
        { "smbfs", "SMB" },
        { "afpfs", "AFP" },
        { "webdav", "WebDAV" },
        { "macfuse", "FUSE" },
        { "osxfuse", "FUSE" },
        { "AppleVirtIOFS", "virtiofs" },
        { "virtiofs", "virtiofs" },
        { "9p", "9p" },
        { "acfs", "Xsan" },
        { "vmhgfs", "vmhgfs" },
        { "prl_fs", "a Parallels share" },
    };
    struct statfs fs;

    if (RETRY_EINTR(fstatfs(dir, &fs)) < 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].type, fs.f_fstypename) == 0)
            return rows[i].name;
    return (fs.f_flags & MNT_LOCAL) == 0 ? "a network file system" : NULL;
}

#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/vfs.h>

int file_sync_drive(int fd)
{
    (void)fd; /* fsync(2) has flushed it */
    return 0;
}

void file_sync_early(int fd, off_t offset, off_t size)
{
    (void)sync_file_range(fd, offset, size, SYNC_FILE_RANGE_WRITE);
}

int file_reserve(int fd, off_t size)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -1;
    return RETRY_EINTR(fallocate(fd, FALLOC_FL_KEEP_SIZE, st.st_size, size));
}

struct timespec file_modified(const struct stat *st)
{
    return st->st_mtim;
}

/* A bind mount of the same file system has the same st_dev: only statx(2) tells (Linux 5.8). */
bool file_is_mount_root(int fd)
{
#ifdef STATX_ATTR_MOUNT_ROOT
    struct statx stx;

    return statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &stx) == 0 &&
           (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
#else
    (void)fd;
    return false;
#endif
}

const char *file_network_filesystem(int dir)
{
    /* statfs(2), linux/magic.h and the file systems' own sources */
    static const struct {
        unsigned int magic;
        const char *name;
    } rows[] = {
        { 0x6969, "NFS" },        { 0x517B, "SMB" },          { 0xFF534D42, "CIFS" },
        { 0xFE534D42, "SMB2" },   { 0x01021997, "9p" },       { 0x65735546, "FUSE or virtiofs" },
        { 0x5346414F, "AFS" },    { 0x6B414653, "AFS" },      { 0x73757245, "Coda" },
        { 0x00C36400, "Ceph" },   { 0x0BD00BD0, "Lustre" },   { 0x01161970, "GFS2" },
        { 0x7461636F, "OCFS2" },  { 0x47504653, "GPFS" },     { 0x786F4256, "vboxsf" },
        { 0xBACBACBC, "vmhgfs" }, { 0x20030528, "OrangeFS" }, { 0x00C0FFEE, "hostfs" },
        { 0x19830326, "BeeGFS" },
    };
    struct statfs fs;

    if (RETRY_EINTR(fstatfs(dir, &fs)) < 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].magic == (unsigned int)fs.f_type)
            return rows[i].name;
    return NULL;
}

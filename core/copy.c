#include "core/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/copy_system.h"
#include "core/file.h"
#include "core/mem.h"

#define BUFFER_SIZE (256u << 10)
#define PIECE_SIZE  ((off_t)64 << 20) /* between two reports */

/* ---- data ---- */

/* Says that this way does not go between these two, not that copying fails. */
static bool is_refusal(int sys)
{
    return sys == ENOTSUP || sys == EOPNOTSUPP || sys == EXDEV || sys == EINVAL || sys == ENOTTY ||
           sys == ENOSYS;
}

static void count(struct copy *c, off_t size)
{
    c->done += size;
    if (c->on_done != NULL)
        c->on_done(c->self, c->done);
}

/* Gives how much was copied, 0 at the end of FROM; -1 with errno. */
static ssize_t copy_some(struct copy *c, int from, int to, off_t at, off_t size)
{
    ssize_t got;

    if (c->way == COPY_RANGE) {
        got = RETRY_EINTR(copy_range(from, to, at, (size_t)size));
        if (got >= 0 || !is_refusal(errno))
            return got;
        c->way = COPY_BUFFER;
    }
    if (c->buffer == NULL)
        c->buffer = mem_alloc(BUFFER_SIZE);
    got = RETRY_EINTR(pread(from, c->buffer, size < (off_t)BUFFER_SIZE ? (size_t)size : BUFFER_SIZE, at));
    if (got > 0 && (lseek(to, at, SEEK_SET) < 0 || file_write_all(to, c->buffer, (size_t)got) < 0))
        return -1;
    return got;
}

static int copy_extent(struct copy *c, int from, int to, off_t at, off_t end)
{
    off_t reported = at;

    while (at < end) {
        off_t size = end - at < PIECE_SIZE ? end - at : PIECE_SIZE;
        ssize_t got = copy_some(c, from, to, at, size);

        if (got < 0)
            return -1;
        if (got == 0) /* shorter than it was: the rest reads as zeroes */
            break;
        at += got;
        if (at - reported >= PIECE_SIZE) {
            count(c, at - reported);
            reported = at;
        }
    }
    if (at > reported)
        count(c, at - reported);
    return 0;
}

static int copy_extents(struct copy *c, int from, int to, off_t size)
{
    for (off_t at = 0; at < size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        off_t hole;

        if (data < 0 && errno == ENXIO)
            return 0; /* a hole to the end */
        if (data < 0)
            return errno == EINVAL || errno == ENOTSUP || errno == ENOTTY ? copy_extent(c, from, to, at, size)
                                                                          : -1;
        hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0 || hole > size)
            hole = size;
        if (copy_extent(c, from, to, data, hole) < 0)
            return -1;
        at = hole;
    }
    return 0;
}

int copy_data(struct copy *c, int from, int to, off_t size)
{
    if (size == 0)
        return 0;
    if (c->way == COPY_SHARE) {
        if (copy_share(from, to) == 0)
            return 0;
        if (!is_refusal(errno))
            return -1;
        c->way = COPY_RANGE;
    }
    return ftruncate(to, size) < 0 ? -1 : copy_extents(c, from, to, size);
}

void copy_done(struct copy *c)
{
    free(c->buffer);
    c->buffer = NULL;
}

/* ---- one whole file ---- */

struct listener {
    void (*on_bytes)(void *self, int64_t done, int64_t total);
    void *self;
    int64_t total;
};

static void tell(void *self, int64_t done)
{
    const struct listener *l = self;

    l->on_bytes(l->self, done < l->total ? done : l->total, l->total);
}

/* How much there is to copy. */
static int64_t measure(const struct stat *st)
{
    int64_t allocated = (int64_t)st->st_blocks * 512;

    return allocated < st->st_size ? allocated : st->st_size;
}

/* The data of FROM into TO, made anew. -1 with errno. */
static int fill(int from, int to, const struct stat *st, struct listener *l, bool *shared)
{
    struct copy c = { .on_done = l->on_bytes == NULL ? NULL : tell, .self = l };
    int result;

    l->total = measure(st);
    result = copy_data(&c, from, to, st->st_size);
    *shared = c.way == COPY_SHARE;
    copy_done(&c);
    return result;
}

/* A clone by name, where the system has that. -1 with errno, and then there is none. */
static int open_clone(int from, int to_dir, const char *to)
{
    if (copy_clone(from, to_dir, to) < 0)
        return -1;
    int fd = RETRY_EINTR(openat(to_dir, to, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));

    if (fd < 0) {
        int saved = errno;

        unlinkat(to_dir, to, 0);
        errno = saved;
    }
    return fd;
}

/* What makes a copy whole, once its data is there. */
static int finish(int fd, int to_dir, struct error *e)
{
    if (fchmod(fd, 0600) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot set the mode of a copy");
    return file_sync_full(fd, e) < 0 ? -1 : file_sync_dir(to_dir, e);
}

int copy_file(int from_dir, const char *from, int to_dir, const char *to,
              void (*on_bytes)(void *self, int64_t done, int64_t total), void *self, bool *shared,
              struct error *e)
{
    AUTO_CLOSE int in = RETRY_EINTR(openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    AUTO_CLOSE int out = -1;
    struct listener l = { .on_bytes = on_bytes, .self = self };
    bool shares = true;
    struct stat st;

    if (in < 0 || fstat(in, &st) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open '%s'", from);
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERROR_ACTION_FAILED, 0, "'%s' is not a regular file", from);
    out = open_clone(in, to_dir, to);
    if (out < 0 && is_refusal(errno)) {
        out = RETRY_EINTR(openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
        if (out >= 0 && fill(in, out, &st, &l, &shares) < 0) {
            error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot copy '%s' to '%s'", from, to);
            unlinkat(to_dir, to, 0);
            return -1;
        }
    }
    if (out < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot copy '%s' to '%s'", from, to);
    if (finish(out, to_dir, e) < 0) {
        unlinkat(to_dir, to, 0);
        return -1;
    }
    if (shared != NULL)
        *shared = shares;
    return 0;
}

#include "providers/vercel/spool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"

struct spool {
    FILE *file;
    off_t begin, end; /* what was not taken yet */
    bool failed;      /* the disk takes no more */
};

struct spool *spool_open(void)
{
    FILE *file = tmpfile();

    if (file == NULL)
        return NULL;
    struct spool *s = mem_alloc(sizeof(*s));

    s->file = file;
    return s;
}

void spool_close(struct spool *s)
{
    if (s == NULL)
        return;
    fclose(s->file);
    free(s);
}

size_t spool_size(const struct spool *s)
{
    return s == NULL ? 0 : (size_t)(s->end - s->begin);
}

bool spool_has_room(const struct spool *s)
{
    return !s->failed && (s->end < SPOOL_MAX || s->begin == s->end);
}

size_t spool_add(struct spool *s, const void *bytes, size_t size)
{
    if (s->begin == s->end)
        s->begin = s->end = 0;
    size_t room = (size_t)(SPOOL_MAX - s->end);

    if (s->failed || room == 0)
        return 0;
    ssize_t n = RETRY_EINTR(pwrite(fileno(s->file), bytes, size < room ? size : room, s->end));

    s->failed = n <= 0;
    s->end += s->failed ? 0 : n;
    return s->failed ? 0 : (size_t)n;
}

long spool_take(struct spool *s, void *bytes, size_t size)
{
    size_t left = spool_size(s);
    ssize_t n = RETRY_EINTR(pread(fileno(s->file), bytes, size < left ? size : left, s->begin));

    if (n == 0 && size > 0 && left > 0) { /* somebody has cut it */
        errno = EIO;
        return -1;
    }
    s->begin += n > 0 ? n : 0;
    return n;
}

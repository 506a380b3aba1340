#include "providers/vercel/input.h"

#include <poll.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Its size is not asked for: those of /proc have none. */
static enum input look_at_file(int fd)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    char byte;

    return at >= 0 && pread(fd, &byte, 1, at) <= 0 ? INPUT_NONE : INPUT_THERE;
}

static bool is_null(const struct stat *st)
{
    struct stat null;

    return S_ISCHR(st->st_mode) && stat("/dev/null", &null) == 0 && null.st_rdev == st->st_rdev;
}

/* The end of a pipe or a socket is readable, too. */
static bool is_at_end(int fd, const struct stat *st)
{
    int waiting = 0;

    return (S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode)) && ioctl(fd, FIONREAD, &waiting) == 0 &&
           waiting == 0;
}

static enum input look_at_stream(int fd, const struct stat *st)
{
    struct pollfd polled = { .fd = fd, .events = POLLIN };

    if (poll(&polled, 1, 0) <= 0)
        return INPUT_LATER;
    return (polled.revents & POLLIN) == 0 || is_at_end(fd, st) ? INPUT_NONE : INPUT_THERE;
}

enum input input_look(int fd)
{
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || isatty(fd) || is_null(&st))
        return INPUT_NONE;
    return S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) ? look_at_file(fd) : look_at_stream(fd, &st);
}

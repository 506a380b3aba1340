#include "core/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "core/clock.h"
#include "core/file.h"

#define POLL_FIRST_NS   100000 /* 0.1 ms */
#define POLL_LONGEST_NS 10000000
#define NS_PER_MS       1000000

/* Makes the mode what it must be, whatever the umask did when the file was made. */
static int check_file(int fd, const char *name, struct error *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot look at the lock file '%s'", name);
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERROR_PERM_DENIED, 0, "the lock file '%s' is not a regular file", name);
    if ((st.st_mode & 07777) != 0600 && fchmod(fd, 0600) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot set the mode of the lock file '%s'", name);
    return 0;
}

int lock_take(int dir, const char *name, enum lock_mode mode, int wait_ms, int *fd, struct error *e)
{
    AUTO_CLOSE int file =
        RETRY_EINTR(openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    int taken;

    if (file < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot open the lock file '%s'", name);
    if (check_file(file, name, e) < 0)
        return -1;
    taken = lock_take_fd(file, mode, wait_ms, e);
    if (taken == 1)
        *fd = steal_fd(&file);
    return taken;
}

int lock_take_fd(int fd, enum lock_mode mode, int wait_ms, struct error *e)
{
    int operation = (mode == LOCK_SHARED ? LOCK_SH : LOCK_EX) | LOCK_NB;
    int64_t end_ms = clock_mono_ms() + wait_ms;
    long pause_ns = POLL_FIRST_NS;

    /* Polled: flock(2) has no time limit, and an alarm would be everybody's. */
    while (RETRY_EINTR(flock(fd, operation)) < 0) {
        int64_t left_ms = end_ms - clock_mono_ms();

        if (errno != EWOULDBLOCK)
            return error_set_errno(e, ERROR_INTERNAL, errno, "cannot lock a file");
        if (left_ms <= 0)
            return 0;
        if (pause_ns > left_ms * NS_PER_MS)
            pause_ns = (long)left_ms * NS_PER_MS;
        nanosleep(&(struct timespec){ .tv_nsec = pause_ns }, NULL);
        pause_ns = pause_ns * 2 > POLL_LONGEST_NS ? POLL_LONGEST_NS : pause_ns * 2;
    }
    return 1;
}

int lock_is_held(int dir, const char *name, struct error *e)
{
    AUTO_CLOSE int fd = RETRY_EINTR(openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot open the lock file '%s'", name);
    /* A shared lock: probes do not see each other. It ends with the descriptor. */
    if (RETRY_EINTR(flock(fd, LOCK_SH | LOCK_NB)) == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return 1;
    return error_set_errno(e, ERROR_INTERNAL, errno, "cannot probe the lock file '%s'", name);
}

/* tests/faults/shim.c - LD_PRELOAD library: something goes wrong at the n-th state-changing call.
 *
 * It counts the calls that change the world (files, names, processes, mounts, sockets) in all processes that
 * carry it, in one shared counter, and at number N does what the plan says. The plan is a small file, mapped
 * shared, named by AD_FAULT_PLAN; tests/faults/plan.py writes it and reads back what was hit. With
 * AD_FAULT_PROGRAMS only processes of these names (":" between them) count, with AD_FAULT_SPARED no writes to
 * files below that directory: they are the test's own. Programs inside a sandbox do not
 * carry it: their environment starts empty. */
#undef _FILE_OFFSET_BITS /* both names of each call are wanted, not one for the other */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault_mode {
    FAULT_COUNT = 0,    /* only count */
    FAULT_KILL_BEFORE,  /* the process dies instead of the call */
    FAULT_KILL_AFTER,   /* ... or right after it */
    FAULT_ERRNO_ONCE,   /* the call fails with the plan's errno */
    FAULT_ERRNO_STICKY, /* and so does each later one of the same kind */
    FAULT_TORN,         /* a write does half of its work, then the process dies */
    FAULT_STOP,         /* the process stops (SIGSTOP) before the call */
};

struct fault_plan { /* plan.py packs it: little-endian, no gaps */
    _Atomic uint32_t calls;
    uint32_t at;
    uint32_t mode;
    int32_t error;
    uint32_t times; /* how often in a row an errno fault fires */
    _Atomic uint32_t hits;
    _Atomic int32_t pid; /* who was hit, in its own pid namespace */
    char name[32];       /* the call that was hit */
    char program[16];    /* ... in this program */
};

static struct fault_plan *plan;
static const char *spared;

/* Is this process one of those meant by PROGRAMS? NULL: all are. */
static bool is_meant(const char *programs)
{
    size_t length = strlen(program_invocation_short_name);

    for (const char *p = programs; p != NULL; p = strchr(p, ':')) {
        p += *p == ':';
        if (strncmp(p, program_invocation_short_name, length) == 0 && (p[length] == ':' || p[length] == '\0'))
            return true;
    }
    return programs == NULL;
}

__attribute__((constructor)) static void map_plan(void)
{
    const char *path = getenv("AD_FAULT_PLAN");

    if (path == NULL || !is_meant(getenv("AD_FAULT_PROGRAMS")))
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return;
    spared = getenv("AD_FAULT_SPARED");
    void *p = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p != MAP_FAILED)
        plan = p;
}

static bool is_spared(const char *path)
{
    return spared != NULL && strncmp(path, spared, strlen(spared)) == 0;
}

static bool is_spared_file(int fd)
{
    char entry[32], file[PATH_MAX];

    if (spared == NULL)
        return false;
    snprintf(entry, sizeof(entry), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(entry, file, sizeof(file) - 1);
    file[size > 0 ? size : 0] = '\0';
    return is_spared(file);
}

/* A namespace's PID 1 cannot kill itself: the kernel drops the signal; leaving at once is the same for all
 * others. */
static void die(void)
{
    syscall(SYS_kill, (pid_t)syscall(SYS_getpid), SIGKILL);
    syscall(SYS_exit_group, 137);
}

static bool fires(const char *name)
{
    uint32_t n = atomic_fetch_add(&plan->calls, 1) + 1;

    if (plan->mode == FAULT_ERRNO_STICKY)
        return n == plan->at || (n > plan->at && strncmp(plan->name, name, sizeof(plan->name)) == 0);
    return n >= plan->at && n < plan->at + plan->times;
}

enum verdict { GO_ON, FAIL, DIE_AFTER, TEAR };

static enum verdict judge(const char *name)
{
    if (plan == NULL || plan->mode == FAULT_COUNT) {
        if (plan != NULL)
            atomic_fetch_add(&plan->calls, 1);
        return GO_ON;
    }
    if (!fires(name))
        return GO_ON;
    if (atomic_fetch_add(&plan->hits, 1) == 0) {
        snprintf(plan->name, sizeof(plan->name), "%s", name);
        snprintf(plan->program, sizeof(plan->program), "%s", program_invocation_short_name);
        atomic_store(&plan->pid, (int32_t)syscall(SYS_getpid));
    }
    switch ((enum fault_mode)plan->mode) {
    case FAULT_KILL_BEFORE:
        die();
        return FAIL;
    case FAULT_KILL_AFTER:
        return DIE_AFTER;
    case FAULT_TORN:
        return TEAR;
    case FAULT_STOP:
        syscall(SYS_kill, (pid_t)syscall(SYS_getpid), SIGSTOP);
        return GO_ON;
    case FAULT_ERRNO_ONCE:
    case FAULT_ERRNO_STICKY:
        errno = plan->error;
        return FAIL;
    case FAULT_COUNT:
        break;
    }
    return GO_ON;
}

/* Wraps NAME: PARAMETERS as declared, ARGUMENTS as passed on. The real one is looked up on each call that is
 * not in the way of anything fast. */
#define WRAP(type, name, parameters, arguments)                                                              \
    type name parameters;                                                                                    \
    type name parameters                                                                                     \
    {                                                                                                        \
        static type(*real) parameters;                                                                       \
                                                                                                             \
        if (real == NULL)                                                                                    \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                       \
        enum verdict v = judge(#name);                                                                       \
        if (v == FAIL)                                                                                       \
            return (type)-1;                                                                                 \
        type result = real arguments;                                                                        \
        int saved = errno;                                                                                   \
        if (v != GO_ON)                                                                                      \
            die();                                                                                           \
        errno = saved;                                                                                       \
        return result;                                                                                       \
    }

/* The same for calls that write SIZE bytes: a torn one writes half of them. */
#define WRAP_WRITE(name, parameters, whole, half)                                                            \
    ssize_t name parameters;                                                                                 \
    ssize_t name parameters                                                                                  \
    {                                                                                                        \
        static ssize_t(*real) parameters;                                                                    \
                                                                                                             \
        if (real == NULL)                                                                                    \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                       \
        enum verdict v = is_spared_file(fd) ? GO_ON : judge(#name);                                          \
        if (v == FAIL)                                                                                       \
            return -1;                                                                                       \
        ssize_t result = v == TEAR ? real half : real whole;                                                 \
        int saved = errno;                                                                                   \
        if (v != GO_ON)                                                                                      \
            die();                                                                                           \
        errno = saved;                                                                                       \
        return result;                                                                                       \
    }

WRAP_WRITE(write, (int fd, const void *bytes, size_t size), (fd, bytes, size), (fd, bytes, size / 2))
WRAP_WRITE(pwrite, (int fd, const void *bytes, size_t size, off_t at), (fd, bytes, size, at),
           (fd, bytes, size / 2, at))
WRAP_WRITE(pwrite64, (int fd, const void *bytes, size_t size, off64_t at), (fd, bytes, size, at),
           (fd, bytes, size / 2, at))
WRAP(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
WRAP(ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at))
WRAP(ssize_t, pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at))
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
WRAP(ssize_t, send, (int fd, const void *bytes, size_t size, int flags), (fd, bytes, size, flags))
WRAP(ssize_t, copy_file_range,
     (int in, off64_t *in_at, int out, off64_t *out_at, size_t size, unsigned flags),
     (in, in_at, out, out_at, size, flags))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, fdatasync, (int fd), (fd))
WRAP(int, syncfs, (int fd), (fd))
WRAP(int, ftruncate, (int fd, off_t size), (fd, size))
WRAP(int, ftruncate64, (int fd, off64_t size), (fd, size))
WRAP(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
WRAP(int, fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size))
WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, renameat, (int from_dir, const char *from, int to_dir, const char *to),
     (from_dir, from, to_dir, to))
WRAP(int, renameat2, (int from_dir, const char *from, int to_dir, const char *to, unsigned flags),
     (from_dir, from, to_dir, to, flags))
WRAP(int, unlink, (const char *path), (path))
WRAP(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
WRAP(int, rmdir, (const char *path), (path))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode))
WRAP(int, mknodat, (int dir, const char *path, mode_t mode, dev_t dev), (dir, path, mode, dev))
WRAP(int, symlinkat, (const char *target, int dir, const char *path), (target, dir, path))
WRAP(int, linkat, (int from_dir, const char *from, int to_dir, const char *to, int flags),
     (from_dir, from, to_dir, to, flags))
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(int, fchmodat, (int dir, const char *path, mode_t mode, int flags), (dir, path, mode, flags))
WRAP(int, fchownat, (int dir, const char *path, uid_t uid, gid_t gid, int flags),
     (dir, path, uid, gid, flags))
WRAP(int, utimensat, (int dir, const char *path, const struct timespec times[2], int flags),
     (dir, path, times, flags))
WRAP(int, mount, (const char *from, const char *to, const char *type, unsigned long flags, const void *data),
     (from, to, type, flags, data))
WRAP(int, umount2, (const char *path, int flags), (path, flags))
WRAP(int, bind, (int fd, __CONST_SOCKADDR_ARG address, socklen_t size), (fd, address, size))
WRAP(int, listen, (int fd, int backlog), (fd, backlog))
WRAP(int, sethostname, (const char *name, size_t size), (name, size))
WRAP(int, pipe2, (int fds[2], int flags), (fds, flags))
WRAP(pid_t, fork, (void), ())
WRAP(int, kill, (pid_t pid, int number), (pid, number))

/* These give the error instead of -1. */
#define WRAP_SPAWN(name)                                                                                     \
    int name(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,                        \
             const posix_spawnattr_t *attributes, char *const argv[], char *const environment[])             \
    {                                                                                                        \
        static __typeof__(name) *real;                                                                       \
                                                                                                             \
        if (real == NULL)                                                                                    \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                       \
        enum verdict v = judge(#name);                                                                       \
        if (v == FAIL)                                                                                       \
            return plan->error;                                                                              \
        int result = real(pid, path, actions, attributes, argv, environment);                                \
        if (v != GO_ON)                                                                                      \
            die();                                                                                           \
        return result;                                                                                       \
    }

WRAP_SPAWN(posix_spawn)
WRAP_SPAWN(posix_spawnp)

/* ioctl counts where it shares the blocks of one file with another. */
int ioctl(int fd, unsigned long request, ...)
{
    static int (*real)(int, unsigned long, ...);
    va_list list;

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "ioctl");
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    enum verdict v = request == FICLONE ? judge("ioctl") : GO_ON;
    if (v == FAIL)
        return -1;
    int result = real(fd, request, argument);
    int saved = errno;
    if (v != GO_ON)
        die();
    errno = saved;
    return result;
}

/* open and openat count where they may make or empty a file. Shells open /dev/null in that way. */
static bool makes(const char *path, int flags)
{
    return (flags & (O_CREAT | O_TRUNC)) != 0 && strncmp(path, "/dev/", strlen("/dev/")) != 0 &&
           !is_spared(path);
}

#define WRAP_OPEN(name, parameters, arguments, last)                                                         \
    int name parameters;                                                                                     \
    int name parameters                                                                                      \
    {                                                                                                        \
        static int(*real) parameters;                                                                        \
        mode_t mode = 0;                                                                                     \
                                                                                                             \
        if (real == NULL)                                                                                    \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                       \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                               \
            va_list list;                                                                                    \
            va_start(list, last);                                                                            \
            mode = va_arg(list, mode_t);                                                                     \
            va_end(list);                                                                                    \
        }                                                                                                    \
        enum verdict v = makes(path, flags) ? judge(#name) : GO_ON;                                          \
        if (v == FAIL)                                                                                       \
            return -1;                                                                                       \
        int result = real arguments;                                                                         \
        int saved = errno;                                                                                   \
        if (v != GO_ON)                                                                                      \
            die();                                                                                           \
        errno = saved;                                                                                       \
        return result;                                                                                       \
    }

WRAP_OPEN(open, (const char *path, int flags, ...), (path, flags, mode), flags)
WRAP_OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), flags)
WRAP_OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), flags)
WRAP_OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), flags)

/* The system calls without a wrapper in this C library that change something. */
static const char *changing(long number)
{
    static const struct {
        long number;
        const char *name;
    } calls[] = {
        { SYS_clone, "clone" },
        { SYS_clone3, "clone3" },
        { SYS_pivot_root, "pivot_root" },
        { SYS_pidfd_send_signal, "pidfd_send_signal" },
        { SYS_move_mount, "move_mount" },
        { SYS_mount_setattr, "mount_setattr" },
        { SYS_open_tree, "open_tree" },
        { SYS_unshare, "unshare" },
        { SYS_fsmount, "fsmount" },
        { SYS_renameat2, "renameat2" },
        { SYS_memfd_create, "memfd_create" },
    };

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (calls[i].number == number)
            return calls[i].name;
    return NULL;
}

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    va_list list;
    long a[6];

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    const char *name = plan != NULL ? changing(number) : NULL;
    enum verdict v = name != NULL ? judge(name) : GO_ON;
    if (v == FAIL)
        return -1;
    long result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    int saved = errno;
    if (v != GO_ON)
        die();
    errno = saved;
    return result;
}

#include "tests/core/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/mem.h"

#define ORDINARY_ID 65534 /* nobody */

static int setup_below(const char *parent, void **state)
{
    struct scratch *s = mem_alloc(sizeof(*s));

    *state = s;
    snprintf(s->path, sizeof(s->path), "%s/ad-core-XXXXXX", parent);
    if (mkdtemp(s->path) == NULL)
        return -1;
    s->dir = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->dir < 0 ? -1 : 0;
}

int scratch_setup(void **state)
{
    return setup_below("/tmp", state);
}

int scratch_setup_in_memory(void **state)
{
    return setup_below(access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp", state);
}

/* By the system's own tool: not by what is being tested. */
int scratch_teardown(void **state)
{
    struct scratch *s = *state;
    char command[192];
    int result;

    close(s->dir);
    snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf %s", s->path, s->path);
    result = system(command); /* NOLINT(cert-env33-c): a name of our own making */
    free(s);
    return result;
}

pid_t scratch_start(scratch_child_fn *fn, void *arg)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
        _exit(fn(arg));
    }
    return pid;
}

int scratch_wait(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int scratch_run(scratch_child_fn *fn, void *arg)
{
    return scratch_wait(scratch_start(fn, arg));
}

void scratch_need_pidfd(void)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    if (fd < 0)
        skip();
    close(fd);
}

void scratch_run_as_test(scratch_child_fn *fn, void *arg)
{
    int status = scratch_run(fn, arg);

    if (status == SCRATCH_SKIP)
        skip();
    assert_int_equal(status, 0);
}

bool scratch_become_ordinary(const struct scratch *s)
{
    if (geteuid() != 0)
        return true;
    return fchown(s->dir, ORDINARY_ID, ORDINARY_ID) == 0 && setgid(ORDINARY_ID) == 0 &&
           setuid(ORDINARY_ID) == 0;
}

bool scratch_isolate_mounts(struct scratch *s)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0)
        return false;
    /* the old descriptor still looks into the old namespace */
    close(s->dir);
    s->dir = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->dir >= 0;
}

bool scratch_mount_small(struct scratch *s, const char *options)
{
    if (!scratch_isolate_mounts(s) || mount("tmpfs", s->path, "tmpfs", 0, options) < 0)
        return false;
    close(s->dir);
    s->dir = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->dir >= 0;
}

void scratch_fill(const struct scratch *s)
{
    static const char block[4096];
    int fd = openat(s->dir, "filler", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    while (write(fd, block, sizeof(block)) > 0)
        ;
    close(fd);
}

bool scratch_limit_files(unsigned more)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return false;
    limit.rlim_cur = limit.rlim_max; /* of the call before */
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return false;
    int lowest = dup(STDIN_FILENO); /* they are given out from below */

    if (lowest < 0 || close(lowest) < 0)
        return false;
    limit.rlim_cur = (rlim_t)lowest + more;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void scratch_write(const struct scratch *s, const char *name, const char *content)
{
    int fd = openat(s->dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, content, strlen(content)) != (ssize_t)strlen(content))
        abort();
    close(fd);
}

bool scratch_exists(const struct scratch *s, const char *name)
{
    struct stat st;

    return fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

mode_t scratch_mode(const struct scratch *s, const char *name)
{
    struct stat st;

    return fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_mode & 07777 : (mode_t)-1;
}

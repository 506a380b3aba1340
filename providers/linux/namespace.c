#include "providers/linux/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "providers/linux/obstacles.h"

/* What the child says while it is set up, on a SOCK_SEQPACKET pair: a message is whole or absent, and a
 * dead peer is an error code instead of a SIGPIPE. The parent answers CHILD_NEEDS_MAPS with one byte. */
enum child_state { CHILD_NEEDS_MAPS = 1, CHILD_FAILED, CHILD_READY };

struct child_report {
    enum child_state state;
    struct error error; /* its suggestion points to static text, valid on both sides of a fork */
};

static bool has_capability(unsigned capability)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

    if (syscall(SYS_capget, &header, data) < 0)
        return false;
    return (data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability)) != 0;
}

static bool has_all_ids(void)
{
    unsigned inside = 1, outside = 1, count = 0;
    FILE *map = fopen("/proc/self/uid_map", "re");
    int fields = map == NULL ? 0 : fscanf(map, "%u %u %u", &inside, &outside, &count);

    if (map != NULL)
        fclose(map);
    return fields == 3 && inside == 0 && outside == 0 && count == 4294967295u;
}

bool namespace_is_privileged(void)
{
    return geteuid() == 0 && has_capability(CAP_SYS_ADMIN) && has_all_ids();
}

/* CLONE_NEWIPC before the mounts even as root: a mqueue mount shows the ipc namespace of its making. */
static unsigned long clone_flags(const struct namespace_request *r, bool privileged)
{
    unsigned long flags = CLONE_NEWNS | SIGCHLD;

    if (!privileged)
        flags |= CLONE_NEWUSER;
    if (r->files_only)
        return flags;
    flags |= CLONE_NEWPID | CLONE_NEWIPC;
    if (!privileged)
        flags |= CLONE_NEWUTS | (r->own_network ? CLONE_NEWNET : 0u);
    return flags;
}

/* As fork(2), in new namespaces: without a stack of its own the child goes on with a copy of ours. */
static pid_t clone_process(unsigned long flags)
{
    return (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, 0L);
}

/* ---- the child ---- */

static int child_wait_for_maps(int channel, struct error *e)
{
    struct child_report report = { .state = CHILD_NEEDS_MAPS };
    char byte;

    if (send(channel, &report, sizeof(report), MSG_NOSIGNAL) < 0 ||
        RETRY_EINTR(recv(channel, &byte, 1, 0)) != 1)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the starting process is gone");
    return 0;
}

static int child_raise_loopback(struct error *e)
{
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq lo = { .ifr_name = "lo" };

    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &lo) < 0)
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, errno, "cannot find the loopback interface");
    lo.ifr_flags = (short)(lo.ifr_flags | IFF_UP | IFF_RUNNING);
    if (ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, errno, "cannot raise the loopback interface");
    return 0;
}

/* Root: the mounts were made as the host's root, whom overlayfs lets take directories with mounts below
 * them; from here on this is the root of a user namespace only. */
static int child_leave_host_root(const struct namespace_request *r, int channel, struct error *e)
{
    int flags = CLONE_NEWUSER | CLONE_NEWUTS | (r->own_network ? CLONE_NEWNET : 0);

    if (unshare(flags) < 0)
        return obstacle_set_error(OBSTACLE_CLONE, errno, e);
    return child_wait_for_maps(channel, e);
}

static int child_set_up(const struct namespace_request *r, bool privileged, int channel, struct error *e)
{
    if (!privileged && child_wait_for_maps(channel, e) < 0)
        return -1;
    if (r->enter != NULL && r->enter(r->self, e) < 0)
        return -1;
    if (r->files_only)
        return 0;
    if (privileged && child_leave_host_root(r, channel, e) < 0)
        return -1;
    if (r->hostname != NULL && sethostname(r->hostname, strlen(r->hostname)) < 0)
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, errno, "cannot set the host name");
    return r->own_network ? child_raise_loopback(e) : 0;
}

static int child_main(const struct namespace_request *r, bool privileged, int channel)
{
    struct child_report report = { .state = CHILD_READY };

    if (child_set_up(r, privileged, channel, &report.error) < 0)
        report.state = CHILD_FAILED;
    if (send(channel, &report, sizeof(report), MSG_NOSIGNAL) < 0 || report.state == CHILD_FAILED)
        return 1;
    close(channel);
    return r->run(r->self);
}

/* ---- the parent ---- */

static int write_proc(pid_t pid, const char *name, const char *text)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd < 0 || RETRY_EINTR(write(fd, text, strlen(text))) < 0 ? -1 : 0;
}

/* The parent writes the maps: the child cannot, it has no capability over the parent's namespace. The user
 * is mapped to itself, so that ids, passwd entries and D-Bus credentials mean the same on both sides. */
static int write_maps(pid_t pid, bool privileged, struct error *e)
{
    char uids[64] = "0 0 4294967295", gids[64] = "0 0 4294967295";

    if (!privileged) {
        snprintf(uids, sizeof(uids), "%u %u 1", geteuid(), geteuid());
        snprintf(gids, sizeof(gids), "%u %u 1", getegid(), getegid());
        if (write_proc(pid, "setgroups", "deny") < 0) /* else gid_map is refused, user_namespaces(7) */
            return obstacle_set_error(OBSTACLE_MAP, errno, e);
    }
    if (write_proc(pid, "uid_map", uids) < 0 || write_proc(pid, "gid_map", gids) < 0)
        return obstacle_set_error(OBSTACLE_MAP, errno, e);
    return 0;
}

static int receive_report(int channel, int64_t end_ms, struct child_report *out, struct error *e)
{
    struct pollfd p = { .fd = channel, .events = POLLIN };
    int64_t left = end_ms - clock_mono_ms();

    if (RETRY_EINTR(poll(&p, 1, left > 0 ? (int)left : 0)) == 0)
        return error_set(
            e, ERROR_TIMEOUT, 0,
            "the sandbox's file system could not be set up in time: is one of the host's stuck?");
    if (RETRY_EINTR(recv(channel, out, sizeof(*out), 0)) != (ssize_t)sizeof(*out))
        return error_set(e, ERROR_ACTION_FAILED, 0, "the process inside ended while it was set up");
    return 0;
}

/* 1 when the child runs, 0 when more is to come, -1. */
static int answer_child(pid_t pid, bool privileged, int channel, int64_t end_ms, struct error *e)
{
    struct child_report report = { 0 };

    if (receive_report(channel, end_ms, &report, e) < 0)
        return -1;
    switch (report.state) {
    case CHILD_READY:
        return 1;
    case CHILD_NEEDS_MAPS:
        if (write_maps(pid, privileged, e) < 0)
            return -1;
        return send(channel, "", 1, MSG_NOSIGNAL) < 0
                   ? error_set(e, ERROR_ACTION_FAILED, 0, "the process inside ended while it was set up")
                   : 0;
    case CHILD_FAILED:
        break;
    }
    *e = report.error;
    return -1;
}

static void reap(pid_t pid)
{
    (void)RETRY_EINTR(waitpid(pid, NULL, 0));
}

static int set_up_child(pid_t pid, bool privileged, int channel, int limit_ms, struct error *e)
{
    struct error failure = { 0 }; /* *e may be filled by an earlier cause; a report replaces all of it */
    int64_t end_ms = clock_mono_ms() + (limit_ms > 0 ? limit_ms : NAMESPACE_LIMIT_MS);
    int state;

    do
        state = answer_child(pid, privileged, channel, end_ms, &failure);
    while (state == 0);
    if (state > 0)
        return 0;
    kill(pid, SIGKILL); /* ours and not reaped yet: the number cannot be another's */
    reap(pid);
    if (e->code == ERROR_NONE)
        *e = failure;
    return -1;
}

int namespace_spawn(const struct namespace_request *request, pid_t *pid, struct error *e)
{
    AUTO_CLOSE int ours = -1;
    AUTO_CLOSE int theirs = -1;
    bool privileged = namespace_is_privileged();
    int pair[2];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot make a socket pair");
    ours = pair[0];
    theirs = pair[1];
    child = clone_process(clone_flags(request, privileged));
    if (child < 0)
        return obstacle_set_error(OBSTACLE_CLONE, errno, e);
    if (child == 0) {
        close(ours);
        _exit(child_main(request, privileged, theirs)); /* _exit: stdio's buffers are the parent's */
    }
    close(steal_fd(&theirs)); /* else the end of the child would not show */
    if (set_up_child(child, privileged, ours, request->limit_ms, e) < 0)
        return -1;
    *pid = child;
    return 0;
}

/* ---- file work ---- */

struct file_work {
    int (*fn)(void *self, struct error *e);
    void *self;
    pid_t parent;
    int report; /* pipe: FN's error, ERROR_NONE when it succeeded */
};

static int file_work_run(void *self)
{
    struct file_work *w = self;
    struct error e = { 0 };

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != w->parent) /* died before the line above */
        return 1;
    (void)w->fn(w->self, &e);
    return file_write_all(w->report, &e, sizeof(e)) < 0;
}

/* Told by the pipe, not by the exit status: whoever called us may have left SIGCHLD ignored, and then the
 * kernel keeps none. */
static int file_work_result(pid_t pid, int report, struct error *e)
{
    struct error result = { 0 };
    ssize_t size = RETRY_EINTR(read(report, &result, sizeof(result)));

    reap(pid);
    if (size != (ssize_t)sizeof(result))
        return error_set(e, ERROR_ACTION_FAILED, 0, "the process that worked on the files was ended");
    if (result.code == ERROR_NONE)
        return 0;
    if (e->code == ERROR_NONE)
        *e = result;
    return -1;
}

int namespace_run_with_files(int (*fn)(void *self, struct error *e), void *self, struct error *e)
{
    AUTO_CLOSE int report = -1;
    AUTO_CLOSE int theirs = -1;
    struct file_work work = { .fn = fn, .self = self, .parent = getpid() };
    struct namespace_request request = { .files_only = true, .run = file_work_run, .self = &work };
    struct error refused = { 0 };
    int ends[2];
    pid_t pid = 0;

    if (geteuid() == 0)
        return fn(self, e);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot make a pipe");
    report = ends[0];
    theirs = work.report = ends[1];
    if (namespace_spawn(&request, &pid, &refused) < 0)
        return fn(self, e); /* a host that forbids namespaces today must still be able to remove */
    close(steal_fd(&theirs));
    return file_work_result(pid, report, e);
}

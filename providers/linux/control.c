#include "providers/linux/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/util.h"

#define SOCKET_NAME  "ctl"
#define BACKLOG      256
#define SEND_WAIT_MS 2000

/* A path in sandboxes/ may be longer than sun_path: the way over the open directory never is. */
static struct sockaddr_un socket_address(int dir)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" SOCKET_NAME, dir);
    return address;
}

int control_bind(int dir, struct error *e)
{
    struct sockaddr_un address = socket_address(dir);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot make the control socket");
    if (unlinkat(dir, SOCKET_NAME, 0) < 0 && errno != ENOENT)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot remove the old control socket");
    /* fchmod() before bind(): the file has these modes from its first moment on. */
    if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot bind the control socket");
    return steal_fd(&fd);
}

int control_listen(int fd, struct error *e)
{
    /* listen(2) records the caller as the one whom SO_PEERCRED names. */
    if (listen(fd, BACKLOG) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot listen on the control socket");
    return 0;
}

static int check_peer(int fd, struct error *e)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot tell who owns the control socket");
    if (peer.uid != geteuid() && peer.uid != 0)
        return error_set(e, ERROR_PERM_DENIED, 0, "the control socket belongs to user %u",
                         (unsigned)peer.uid);
    return 0;
}

int control_connect(int dir, int deadline_ms, int *fd, struct error *e)
{
    struct sockaddr_un address = socket_address(dir);
    struct timeval limit = { .tv_sec = deadline_ms / 1000, .tv_usec = deadline_ms % 1000 * 1000 + 1 };
    AUTO_CLOSE int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    /* SO_SNDTIMEO bounds the wait for a place in the backlog, which a stopped supervisor never empties,
     * and every later send. */
    if (s < 0 || setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot make a socket");
    if (RETRY_EINTR(connect(s, (struct sockaddr *)&address, sizeof(address))) < 0) {
        if (errno == ENOENT || errno == ECONNREFUSED)
            return 0;
        if (errno == EAGAIN)
            return error_set(e, ERROR_TIMEOUT, 0, "the supervisor does not take connections");
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot connect to the supervisor");
    }
    if (check_peer(s, e) < 0)
        return -1;
    *fd = steal_fd(&s);
    return 1;
}

pid_t control_peer(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ? 0 : peer.pid;
}

/* Descriptors under way count against the sender's limit, those of all its processes together (unix(7)): many
 * clients at once have to wait until the supervisor has taken some. */
static int send_patiently(int fd, const struct msghdr *message)
{
    int64_t end_ms = clock_mono_ms() + SEND_WAIT_MS;

    while (RETRY_EINTR(sendmsg(fd, message, MSG_NOSIGNAL)) < 0) {
        if (errno != ETOOMANYREFS || clock_mono_ms() > end_ms)
            return -1;
        clock_sleep_ms(1);
    }
    return 0;
}

int control_send(int fd, const struct control_request *request, const int *fds, int count, struct error *e)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * CONTROL_FDS_MAX)];
    } control;
    struct iovec part = { .iov_base = (void *)(uintptr_t)request, .iov_len = sizeof(*request) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (count > 0) {
        size_t size = sizeof(int) * (size_t)count;

        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(size);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(size);
        memcpy(CMSG_DATA(&control.header), fds, size);
    }
    if (send_patiently(fd, &message) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot send to the supervisor");
    return 0;
}

/* Waits until FD is readable or hung up. 1, or 0 when MS (from now; negative: for ever) are over. */
static int wait_readable(int fd, int ms)
{
    int64_t end = clock_mono_ms() + ms;
    struct pollfd p = { .fd = fd, .events = POLLIN };

    for (;;) {
        int64_t left = ms < 0 ? -1 : end - clock_mono_ms();
        int n = poll(&p, 1, ms < 0 ? -1 : left > 0 ? (int)left : 0);

        if (n > 0)
            return 1;
        if (n == 0 || errno != EINTR)
            return 0;
    }
}

int control_receive(int fd, int deadline_ms, struct control_reply *out, struct error *e)
{
    struct control_reply reply;
    ssize_t n;

    if (!wait_readable(fd, deadline_ms))
        return 0;
    n = RETRY_EINTR(recv(fd, &reply, sizeof(reply), 0));
    if (n != (ssize_t)sizeof(reply))
        return error_set(e, ERROR_ACTION_FAILED, n < 0 ? errno : 0, "the supervisor hung up");
    *out = reply;
    return 1;
}

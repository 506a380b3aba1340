#include "core/descriptor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/util.h"

static int prepare(int fd, bool nonblocking)
{
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return -1;
    return nonblocking ? descriptor_set_nonblocking(fd, true) : 0;
}

int descriptor_pipe(int ends[2], bool nonblocking)
{
    int made[2];

    if (pipe(made) < 0)
        return -1;
    if (prepare(made[0], nonblocking) < 0 || prepare(made[1], nonblocking) < 0) {
        util_close_fd(&made[0]);
        util_close_fd(&made[1]);
        return -1;
    }
    ends[0] = made[0];
    ends[1] = made[1];
    return 0;
}

int descriptor_socket(int domain, int type, int protocol, bool nonblocking)
{
    AUTO_CLOSE int fd = socket(domain, type, protocol);
    const int on = 1;

    /* MSG_NOSIGNAL is not known to be honoured by every macOS this runs on, nor set by every library */
    if (fd < 0 || prepare(fd, nonblocking) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on)) < 0)
        return -1;
    return steal_fd(&fd);
}

void descriptor_acknowledge(int socket)
{
    (void)socket;
}

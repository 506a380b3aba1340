#include "core/descriptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

int descriptor_pipe(int ends[2], bool nonblocking)
{
    return pipe2(ends, O_CLOEXEC | (nonblocking ? O_NONBLOCK : 0));
}

int descriptor_socket(int domain, int type, int protocol, bool nonblocking)
{
    return socket(domain, type | SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0), protocol);
}

void descriptor_acknowledge(int socket)
{
    (void)setsockopt(socket, IPPROTO_TCP, TCP_QUICKACK, &(int){ 1 }, sizeof(int));
}

#include "core/descriptor.h"

#include <fcntl.h>

int descriptor_set_nonblocking(int fd, bool nonblocking)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0)
        return -1;
    return fcntl(fd, F_SETFL, nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

/* core/descriptor.h - pipes and sockets that no program started from here inherits.
 *
 * Atomic where the system can (Linux); on macOS in two calls, which is enough as long as no other thread
 * forks. */
#ifndef CORE_DESCRIPTOR_H
#define CORE_DESCRIPTOR_H

#include <stdbool.h>

/* All -1 with errno. */
int descriptor_pipe(int ends[2], bool nonblocking);
int descriptor_socket(int domain, int type, int protocol, bool nonblocking); /* never SIGPIPE on macOS */
int descriptor_set_nonblocking(int fd, bool nonblocking);

/* The peer of a TCP socket hears at once of what has arrived, instead of up to 40 ms later. Once: the system
 * forgets it. Nothing where it cannot be told so (macOS). */
void descriptor_acknowledge(int socket);

#endif

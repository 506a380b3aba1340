/* providers/linux/control.h - the supervisor's socket: messages between a client on the host and PID 1.
 *
 * AF_UNIX SOCK_SEQPACKET at sandboxes/<name>/ctl, bound and connected through /proc/self/fd/<dir>/ctl
 * (sun_path holds 108 bytes). Any number of pings and then one other request a connection; an exec, which
 * pings first, keeps its connection until the end:
 *   client: struct control_request, with descriptors (exec: 0, 1, 2, a sealed memfd with the NUL-separated
 *           argv and environment additions, the working binary or none) in SCM_RIGHTS
 *   server: struct control_reply; for exec at the end: the wait status, or why it could not be run
 *   client: one byte = a signal number for the command's process group, after which (but for those that
 *           only stop and continue it) the status is held back until all that came from the command has
 *           ended; hang-up (also shutdown(SHUT_WR), which
 *           still lets the status through) = SIGKILL to all of it; before the request was read: it never runs
 * Both ends are the same build or not: the first member is a version; the server refuses a newer one. */
#ifndef PROVIDERS_LINUX_CONTROL_H
#define PROVIDERS_LINUX_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"

#define CONTROL_VERSION 1u
#define CONTROL_FDS_MAX 5

enum control_kind {
    CONTROL_PING = 1, /* reply: is the desktop ready? */
    CONTROL_EXEC = 2,
    CONTROL_STOP = 3, /* reply at once, then the sandbox ends */
};

struct control_request {
    uint32_t version;
    uint32_t kind;
    uint32_t argc;       /* exec */
    uint32_t envc;       /* exec */
    uint32_t own_binary; /* exec: run the passed binary, whatever argv[0] says */
    uint32_t reserved;
};

enum control_answer {
    CONTROL_OK = 1,       /* ping: ready, the display's number in value; stop: under way */
    CONTROL_STARTING = 2, /* ping, exec: the desktop is not ready yet */
    CONTROL_STOPPING = 3,
    CONTROL_FAILED = 4,  /* exec: could not be run, errno in value */
    CONTROL_EXITED = 5,  /* exec: wait status in value */
    CONTROL_REFUSED = 6, /* a version or kind this supervisor does not know */
};

struct control_reply {
    uint32_t version;
    uint32_t answer;
    int32_t value;
    uint32_t stdout_used; /* exited: stdout was written to since the start, or that cannot be told */
};

/* Makes and binds the socket DIR/ctl, replacing an old one: nobody can connect yet. Returns the descriptor.
 */
int control_bind(int dir, struct error *e);

/* Lets clients connect; the calling process is the peer they see. */
int control_listen(int fd, struct error *e);

/* Connects and checks that the peer (SO_PEERCRED) runs as the caller or root. 1 with *fd, 0 when nobody
 * listens, -1 (TIMEOUT: it takes no connections any more). Deadlines here count from now. */
int control_connect(int dir, int deadline_ms, int *fd, struct error *e);

/* The process that listens at the other end, as seen from here; 0 when that cannot be told. */
pid_t control_peer(int fd);

/* Sends REQUEST with COUNT descriptors. */
int control_send(int fd, const struct control_request *request, const int *fds, int count, struct error *e);

/* Waits for one reply: 1, 0 at the deadline (negative: none), -1 (peer gone: ACTION_FAILED). */
int control_receive(int fd, int deadline_ms, struct control_reply *out, struct error *e);

#endif

/* providers/linux/clients.h - the supervisor's connections, and the commands that run for them.
 *
 * A connection asks one thing. A command's keeps its place until the command has ended and, when a signal was
 * sent to it, all that came from it too; its hang-up kills them all. No allocation, nothing blocks. */
#ifndef PROVIDERS_LINUX_CLIENTS_H
#define PROVIDERS_LINUX_CLIENTS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "providers/linux/control.h"
#include "providers/linux/family.h"

#define CLIENTS_COMMANDS_MAX 512
#define CLIENTS_MAX          (CLIENTS_COMMANDS_MAX + 64) /* so that pings and stops get in at any time */

enum client_phase {
    CLIENT_FREE = 0,
    CLIENT_ASKING,   /* connected; its request has not come yet */
    CLIENT_RUNNING,  /* its command runs */
    CLIENT_SETTLING, /* the command has ended; after a signal: others of its family have not */
};

struct client {
    enum client_phase phase;
    int fd;
    pid_t leader;
    int status;    /* wait status, while settling */
    bool signaled; /* a signal was sent: hold the status back until the family has ended */
    bool hung_up;  /* no request will come any more */
    int watch; /* on the command's stdout, in clients.inotify; -1: it was written to, or cannot be watched */
};

struct clients { /* large: one, made at the start */
    int used;    /* places from here on were never taken */
    int commands;
    int inotify; /* one for all and for life: closing one waits up to 20 ms for the kernel's grace period */
    bool full;   /* no place, or no descriptor: accept none until one is given back */
    struct client items[CLIENTS_MAX];
    struct family family;
};

/* What the supervisor is and has, for the answers. Lent. */
struct clients_view {
    enum control_answer state; /* CONTROL_OK, CONTROL_STARTING or CONTROL_STOPPING */
    int display;
    char *const *environment;
    const char *home;
};

void clients_init(struct clients *c); /* of zeroed memory */

/* Fills POLLS, CLIENTS_MAX places, for poll(2); returns how many are used. */
int clients_poll(const struct clients *c, struct pollfd *polls);

/* Takes new connections from LISTEN. True when one asked for the end of the sandbox. */
bool clients_accept(struct clients *c, int listen, const struct clients_view *view);

/* Handles what poll(2) found in COUNT polls. True when one asked for the end of the sandbox. */
bool clients_serve(struct clients *c, const struct pollfd *polls, int count, const struct clients_view *view);

/* A child ended; true when it was a command. */
bool clients_reaped(struct clients *c, pid_t pid, int wait_status);

/* After children have ended: sends the statuses that were held back and need not be any more. */
void clients_settle(struct clients *c);

#endif

/* providers/linux/dbus.h - as much of D-Bus as readiness needs: connect, call, wait for a name.
 *
 * Blocks, each call until the connection's deadline, so the supervisor uses it in a child. Native byte
 * order, unix sockets and EXTERNAL authentication only (D-Bus Specification 0.41). No allocation. */
#ifndef PROVIDERS_LINUX_DBUS_H
#define PROVIDERS_LINUX_DBUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

#define DBUS_MESSAGE_MAX 32768 /* ours are below 4 kB; a bus may send longer ones, which end in an error */

struct dbus { /* dbus_close() when done */
    int fd;
    uint32_t serial;
    int64_t deadline_ms; /* clock_mono_ms() */
    unsigned char bytes[DBUS_MESSAGE_MAX];
};

struct dbus_call { /* what is NULL is left out */
    const char *destination, *path, *interface, *member;
    const char *const *strings; /* arguments, ended by NULL */
    bool dictionary;            /* the strings are key, value, key, value: one argument a{ss} */
};

/* Connects to the first unix socket in ADDRESS ("unix:path=/run/x,guid=..."), authenticates and says
 * Hello. On failure (ACTION_FAILED, TIMEOUT) there is nothing to close. */
int dbus_open(struct dbus *d, const char *address, int64_t deadline_ms, struct error *e);
void dbus_close(struct dbus *d);

/* Calls and waits for the answer, skipping everything else. 1 with the first string of the reply in OUT
 * ("" when it does not begin with one; cut to ROOM); 0 when the peer answered with an error, its name in
 * OUT; -1 when no answer came. */
int dbus_call(struct dbus *d, const struct dbus_call *call, char *out, size_t room, struct error *e);

/* Waits until somebody owns NAME on the bus; never makes the bus start a service for it. */
int dbus_wait_name(struct dbus *d, const char *name, struct error *e);

#endif

/* providers/remote/channel.h - commands on an SSH connection, for who waits for several things at once:
 * nothing here blocks. Implemented in ssh.c, where libssh2 is.
 *
 * The connection has one socket. Its owner polls it as ssh_poll() says, then calls what it has use for, and
 * ssh_flush() before it waits again. When the connection is lost all calls are harmless and have no effect;
 * what had arrived before can still be read. */
#ifndef PROVIDERS_REMOTE_CHANNEL_H
#define PROVIDERS_REMOTE_CHANNEL_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"
#include "providers/remote/ssh.h"

/* READING: false while nobody would take what arrives, so that the peer is held back. */
struct pollfd ssh_poll(const struct ssh *s, bool reading);
void ssh_flush(struct ssh *s);
bool ssh_is_lost(const struct ssh *s);

/* Asks a peer that has been silent for some seconds whether it is there; one that does not answer in 15 s is
 * lost. To be called when SSH_TEND_MS have passed, but only by who reads. */
#define SSH_TEND_MS 5000
void ssh_tend(struct ssh *s);

struct channel; /* a command, run by the login shell; opaque */

enum channel_stream { CHANNEL_STDOUT, CHANNEL_STDERR };

/* One at a time: the next one when this one runs or was closed. The COMMAND is lent until it runs. */
struct channel *channel_start(struct ssh *s, const char *command);

/* 1 when it runs, 0 not yet, -1 when the guest does not want to run it: ACTION_FAILED. */
int channel_advance(struct channel *c, struct error *e);

/* At most ROOM bytes that have arrived; 0: none now; -1: it has ended and all was read. */
ssize_t channel_read(struct channel *c, enum channel_stream stream, void *out, size_t room);

/* How many of the bytes were taken; 0 while the guest is slow: then again with the same ones, or more. */
size_t channel_write(struct channel *c, const void *bytes, size_t size);
void channel_send_eof(struct channel *c);

/* Of one that has ended, as ssh_capture() tells it; false when its end is not told yet. */
bool channel_has_ended(struct channel *c, int *status);

/* Its process is told to have ended, by a signal or not with 0; others may still have its streams. */
bool channel_is_deserted(struct channel *c);

/* Also ends the command's streams. NULL is fine. */
void channel_close(struct channel *c);

#endif

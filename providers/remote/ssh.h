/* providers/remote/ssh.h - one SSH connection to a guest: one key, one pinned host key; hides libssh2.
 *
 * Reads nobody's configuration, agent or known_hosts. Only Ed25519 host keys are accepted, and only public
 * key login is tried, once, with the one key given. libssh2 and libcrypto are opened on first use. */
#ifndef PROVIDERS_REMOTE_SSH_H
#define PROVIDERS_REMOTE_SSH_H

#include <stddef.h>

#include "core/error.h"
#include "core/text.h"
#include "providers/remote/keys.h"

struct ssh; /* a connection: opaque, not for two threads */

/* How the caller is told to give up. While one of its functions is waited for, FD readable with *SIGNAL 0
 * means that SUSPEND is due: FD is read and it is called. What is asked to give up fails with ACTION_FAILED.
 */
struct ssh_cancel {
    int fd;                     /* readable when *signal was set, or suspend() is due */
    const volatile int *signal; /* not 0: give up */
    void (*suspend)(void);      /* NULL: never due */
};

struct ssh_target {
    const char *address; /* a numeric IPv4 or IPv6 address */
    int port;
    const char *user;
    int key_dir; /* descriptor of the directory with the private key ... */
    const char
        *key_file; /* ... and its name there: a regular file of ours, for nobody else, else PERM_DENIED */
    const char *known_blob; /* the pinned host key (keys.h); NULL: whatever it presents (first use) */
    const struct ssh_cancel *cancel; /* of ssh_open(); NULL: nothing cancels it */
};

/* Why there is no connection: what a caller that judges a guest branches on. */
enum ssh_obstacle {
    SSH_NO_OBSTACLE,
    SSH_SILENT,   /* no answer in time: proves nothing */
    SSH_NO_ROUTE, /* EHOSTUNREACH and the like; on macOS also what Local Network privacy looks like */
    SSH_REFUSED,  /* the port is closed: the machine is there, no sshd is */
    SSH_NOT_SSH,  /* something else answered, or the handshake broke */
    SSH_HOST_KEY, /* it presents another host key than the pinned one: HOST_KEY_CHANGED */
    SSH_LOGIN,    /* it does not let the key in: AUTH_FAILED */
    SSH_LOCAL     /* our side: the key file, a missing library, the caller's signal */
};

/* Connects and logs in within DEADLINE_MS. On failure -1 with *e and *why, and nothing was delivered; errors
 * are TIMEOUT, ACTION_FAILED, HOST_KEY_CHANGED, AUTH_FAILED, PERM_DENIED or PLATFORM_NOT_SUPPORTED. *out is
 * ended with ssh_close(). */
int ssh_open(const struct ssh_target *target, int deadline_ms, struct ssh **out, enum ssh_obstacle *why,
             struct error *e);
void ssh_close(struct ssh *s); /* NULL is fine; never waits for the peer */

const char *ssh_host_blob(const struct ssh *s); /* what it presented, as in keys.h; lent */

/* Runs one of our own fixed commands in a session of its own, with INPUT as its stdin, and waits for its end.
 * The command line must mean the same to every login shell. At most MAX bytes of stdout are kept, which begin
 * with what start-up files of the shell print: look for what you expect in it. *status is its exit status, -1
 * when a signal has ended it; 0 may also mean that none was told (libssh2 does not say), so it proves nothing
 * alone. TIMEOUT, ACTION_FAILED; after either, the connection is of no more use. */
int ssh_capture(struct ssh *s, const char *command, const void *input, size_t input_size, size_t max,
                int deadline_ms, struct text *out, int *status, struct error *e);

/* As ssh_capture(), with what the descriptor INPUT holds, from its start, as stdin. Keeps the last 4 KiB.
 * CANCEL may be NULL. */
int ssh_send_file(struct ssh *s, const char *command, int input, int deadline_ms,
                  const struct ssh_cancel *cancel, struct text *out, int *status, struct error *e);

#endif

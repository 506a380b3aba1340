/* providers/linux/namespace.h - a child process in namespaces of its own: clone(2), id maps, the order that
 * works for an ordinary user and for root.
 *
 * User: clone(NEWUSER|NEWNS|NEWPID|NEWIPC|NEWUTS), the parent writes the maps (the user mapped to itself),
 * then the child mounts. Root: clone(NEWNS|NEWPID|NEWIPC), the child mounts while it still is the host's
 * root, then unshare(NEWUSER|NEWUTS) with all ids mapped. Both: sethostname, optionally NEWNET with loopback
 * up. */
#ifndef PROVIDERS_LINUX_NAMESPACE_H
#define PROVIDERS_LINUX_NAMESPACE_H

#include <stdbool.h>
#include <sys/types.h>

#include "core/error.h"

/* Is the caller the host's root (with CAP_SYS_ADMIN, all ids mapped), as opposed to an ordinary user or the
 * root of a container's user namespace? Decides which of the two orders is taken. */
bool namespace_is_privileged(void);

#define NAMESPACE_LIMIT_MS 15000 /* a mount can hang where its file system does (NFS, FUSE); 4 ms usual */

struct namespace_request {
    const char *hostname; /* NULL: keep the host's */
    bool own_network;     /* --set net=none */
    bool files_only;      /* only what file work needs (user and mount): for copying and removing */
    int limit_ms;         /* for the set-up, then TIMEOUT; 0: NAMESPACE_LIMIT_MS */
    /* In the child. enter() builds and enters the new root (mounts.h) when the mounts are to be made; NULL
     * for files_only. Its failure is reported to the parent as this error. */
    int (*enter)(void *self, struct error *e);
    /* In the child, when all is set up: runs to the end and returns the exit status. */
    int (*run)(void *self);
    void *self;
};

/* Starts the child and returns once it is about to call run(), with its pid (child of the caller) in
 * *pid. When the child could not be set up it is gone and reaped, and *e says why: enter()'s error, or which
 * requirement of the host is not met (PROVIDER_UNAVAILABLE) in the words of obstacles.h. */
int namespace_spawn(const struct namespace_request *request, pid_t *pid, struct error *e);

/* Runs FN in a files_only child, waits for its end and passes on its error: its capabilities cover files of
 * mode 000 and directories of mode 500 that the plain user can neither read nor delete. As root: called
 * directly; likewise where the host forbids namespaces. The child dies with the caller (PR_SET_PDEATHSIG) and
 * holds the caller's locks until then. */
int namespace_run_with_files(int (*fn)(void *self, struct error *e), void *self, struct error *e);

#endif

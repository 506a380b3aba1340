/* core/root.h - the state root: where it is, whether it may be trusted, the names below it.
 *
 * ~/.agent-desktop, or AGENT_DESKTOP_HOME when set. Layout:
 *   journal/             the store's
 *   locks/<name>.op      whoever runs an operation on the sandbox; never deleted
 *   locks/<name>.run     the sandbox's session process, for life
 *   providers/<p>/<hash> files a build writes for a provider
 *   sandboxes/<name>/    sandbox.json, the rest is the provider's
 *   sandboxes/.gone-*    being removed; sandboxes/.tmp-* being copied */
#ifndef CORE_ROOT_H
#define CORE_ROOT_H

#include "core/error.h"

#define ROOT_PATH_MAX   4096
#define NAME_MAX_LENGTH 32 /* */

struct root {                 /* root_close() when done */
    char path[ROOT_PATH_MAX]; /* absolute */
    int dir;                  /* -1 when it does not exist yet (only after a read-only open) */
    int sandboxes;            /* descriptor of sandboxes/, -1 when it does not exist yet */
    int locks;                /* descriptor of locks/, the same */
};

enum root_mode { ROOT_READ, ROOT_WRITE };

/* Finds and checks the root. INVALID_ARGS when it is empty, relative, a link, not a directory, somebody
 * else's, writable by others, or on a network file system. ROOT_READ creates nothing: a missing root
 * is success with dir == -1. ROOT_WRITE makes what is missing, durably. */
int root_open(enum root_mode mode, struct root *out, struct error *e);
void root_close(struct root *root);

/* INVALID_ARGS unless it is a sandbox's name. */
int root_check_name(const char *name, struct error *e);

#endif

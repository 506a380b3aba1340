/* providers/linux/mounts.h - the file system inside: overlays over the host's directories, and what hides
 * the rest of the host. Everything is mounted in the caller's own mount namespace and dies with it. */
#ifndef PROVIDERS_LINUX_MOUNTS_H
#define PROVIDERS_LINUX_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "providers/linux/linux.h"

struct mounts_request {
    int sandbox_dir; /* sandboxes/<name>: absolute path below, work/ made anew here */
    const char *sandbox_path;
    const char *root_path; /* the state root: hidden inside */
    const struct linux_user *user;
    bool own_network; /* nothing of the host's name service is shown: its sockets are a way out */
    int binary;       /* this agent-desktop, bound read-only at /run/agent-desktop/bin/agent-desktop */
};

/* Builds the sandbox's tree (mounts.c shows it, part by part) and makes it this process's root: afterwards
 * "/" is the sandbox, and the host's tree is reachable by nothing. NOTE (lent buffer, at least 200 bytes)
 * receives what a person should know ("/var is read-only: ..."), "" when nothing. */
int mounts_enter(const struct mounts_request *request, char *note, size_t note_size, struct error *e);

/* Tries an overlay whose upper layer lies in DIR (sandboxes/), in the caller's namespaces, and undoes it. 1
 * it works, 0 not on this file system, -1 for another failure (sys ENODEV: the kernel has no overlayfs). For
 * inspect.c, in a child. */
int mounts_try_overlay(int dir, struct error *e);

#endif

/* providers/linux/obstacles.h - what on a host stands in the way of a sandbox, in words: one table of
 * symptoms (which call failed, with which errno, on a host that looks how), causes and fixes.
 *
 * The same words come from "sandbox install linux", which tries everything, and from a start that fails
 * because the host changed meanwhile. */
#ifndef PROVIDERS_LINUX_OBSTACLES_H
#define PROVIDERS_LINUX_OBSTACLES_H

#include <stdbool.h>

#include "core/error.h"

enum obstacle_stage {
    OBSTACLE_CLONE = 1 << 0, /* clone(2) or unshare(2) with new namespaces */
    OBSTACLE_MAP = 1 << 1,   /* writing the id maps */
    OBSTACLE_MOUNT = 1 << 2, /* a mount that every host allows: tmpfs, changing propagation */
    OBSTACLE_PROC = 1 << 3,  /* mounting a procfs */
};

struct obstacle {
    unsigned stages;      /* enum obstacle_stage, or-ed */
    int sys[2];           /* the errno values it shows by */
    int (*applies)(void); /* looks at the host; NULL: always */
    const char *message;  /* one sentence */
    const char *fix;      /* a command line, "{binary}" for this program's path; NULL: there is none */
};

/* Does this errno, of a call that makes namespaces or mounts, mean that the host does not have or allow it?
 * Others (no memory, too many processes, a file in the way) say nothing about the host. */
bool obstacle_is_refusal(int sys);

/* Fills E with the cause of SYS at STAGE: PROVIDER_UNAVAILABLE, or ACTION_FAILED when it is not the host's
 * lack. Always -1. */
int obstacle_set_error(enum obstacle_stage stage, int sys, struct error *e);

/* The row E was made from, NULL when it was made from none. */
const struct obstacle *obstacle_find(const struct error *e);

#endif

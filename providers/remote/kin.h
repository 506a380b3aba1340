/* providers/remote/kin.h - a command that this process has started, and all that came from it: found,
 * signalled.
 *
 * That is: every process that this one is an ancestor of, every one that was known once, and the process
 * group of the command's leader. Where orphans go to this process (process_adopt_orphans()) nothing escapes;
 * where they do not (macOS), one escapes that has left the group and whose parent ended unseen. */
#ifndef PROVIDERS_REMOTE_KIN_H
#define PROVIDERS_REMOTE_KIN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/process.h"

#define KIN_MAX 1024

struct kin {
    pid_t leader; /* a child, of a session of its own, that nobody has waited for: so its number is its
                     group's */
    size_t count;
    struct process_id ids[KIN_MAX]; /* alive when last looked at */
};

/* Who lives now; so that they are still known when the one between has ended. True when any does. */
bool kin_remember(struct kin *k);

/* SIGKILL to all of them. Stops them first: what cannot run cannot fork away. */
void kin_kill(struct kin *k);

/* Waits for children that have ended, except for the leader. */
void kin_reap(const struct kin *k);

#endif

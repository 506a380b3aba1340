/* core/process_kin.h - a child of this process and all that came from it: found, signalled, ended.
 *
 * That is: the leader, every process that it is an ancestor of, and every one that was known once. With
 * ADOPTS also every process that this one is an ancestor of, and the process group of the leader: where
 * orphans go to this process (process_adopt_orphans()) nothing escapes; where they do not (macOS), one
 * escapes that has left the group and whose parent ended unseen. */
#ifndef CORE_PROCESS_KIN_H
#define CORE_PROCESS_KIN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/process.h"

struct process_kin {        /* starts with the first two set and the rest 0 */
    pid_t leader;           /* a child that nobody has waited for: so its number is its own */
    bool adopts;            /* this process has no other children, and the leader a session of its own */
    size_t count, room;     /* of ids */
    struct process_id *ids; /* alive when last looked at */
};

/* Who lives now; so that they are still known when the one between has ended. True when any does. */
bool process_kin_remember(struct process_kin *k);

/* SIGKILL to all of them. Stops them first, again and again until nobody new is found: what cannot run cannot
 * fork away. Against one that forks faster than that it gives up the search after 5 s, and kills whom it has
 * found. Waits for nobody. */
void process_kin_kill(struct process_kin *k);

/* With ADOPTS: waits for children that have ended, except for the leader. */
void process_kin_reap(const struct process_kin *k);

void process_kin_done(struct process_kin *k); /* forgets them */

#endif

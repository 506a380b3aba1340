/* core/spawn_system.h - what posix_spawn(3) lacks, and each system adds: spawn_linux.c, spawn_darwin.c. For
 * spawn.c only. */
#ifndef CORE_SPAWN_SYSTEM_H
#define CORE_SPAWN_SYSTEM_H

#include <spawn.h>

/* Whatever is open in the child from 3 on is closed, but KEEP (ends with -1; NULL: none), which is not, even
 * when it is close-on-exec. The last of the file actions. FLAGS is added to. An errno value, as
 * posix_spawn(3) gives them. */
int spawn_close_others(posix_spawn_file_actions_t *actions, short *flags, const int *keep);

char **spawn_environment(void); /* of this process; lent */

#endif

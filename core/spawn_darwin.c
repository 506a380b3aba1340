#include "core/spawn_system.h"

#include <crt_externs.h>
#include <stddef.h>

int spawn_close_others(posix_spawn_file_actions_t *actions, short *flags, const int *keep)
{
    int failed = 0;

    *flags |= POSIX_SPAWN_CLOEXEC_DEFAULT; /* but what file actions name */
    for (; failed == 0 && keep != NULL && *keep >= 0; keep++)
        failed = posix_spawn_file_actions_addinherit_np(actions, *keep);
    return failed;
}

char **spawn_environment(void)
{
    return *_NSGetEnviron();
}

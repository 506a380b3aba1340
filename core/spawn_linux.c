#include "core/spawn_system.h"

#include <stdbool.h>
#include <unistd.h>

static bool is_kept(const int *keep, int fd)
{
    for (; *keep >= 0; keep++)
        if (*keep == fd)
            return true;
    return false;
}

int spawn_close_others(posix_spawn_file_actions_t *actions, short *flags, const int *keep)
{
    static const int none[] = { -1 };
    int first = STDERR_FILENO + 1;
    int failed = 0;

    (void)flags;
    keep = keep == NULL ? none : keep;
    for (const int *k = keep; *k >= 0; k++)
        first = *k >= first ? *k + 1 : first;
    /* What is closed already is no failure to glibc; onto itself, dup2 takes close-on-exec away (POSIX, from
     * 2024 on; glibc 2.29). */
    for (int fd = STDERR_FILENO + 1; failed == 0 && fd < first; fd++)
        failed = is_kept(keep, fd) ? posix_spawn_file_actions_adddup2(actions, fd, fd)
                                   : posix_spawn_file_actions_addclose(actions, fd);
    return failed != 0 ? failed : posix_spawn_file_actions_addclosefrom_np(actions, first);
}

char **spawn_environment(void)
{
    return environ;
}

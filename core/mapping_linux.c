#include "core/mapping.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

/* Out of proc_pid_maps(5), as START and SIZE. */
static bool find_mapping(uintptr_t at, void **start, size_t *size)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512]; /* of a longer line the rest begins with no addresses, or with ones that are not ours */
    uintptr_t from = 0, to = 0;
    bool found = false;

    while (maps != NULL && !found && fgets(line, sizeof(line), maps) != NULL)
        found = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2 && from <= at && at < to;
    if (maps != NULL)
        fclose(maps);
    *start = (void *)from;
    *size = to - from;
    return found;
}

bool mapping_keep_from_children(const void *at)
{
    void *start;
    size_t size;

    return find_mapping((uintptr_t)at, &start, &size) && madvise(start, size, MADV_DONTFORK) == 0;
}

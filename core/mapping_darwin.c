#include "core/mapping.h"

/* minherit(2) wants the range of the mapping, which only the Mach interfaces tell. Here few processes are
 * forked (spawn.h does not), and the copy of a map costs them little. */
bool mapping_keep_from_children(const void *at)
{
    (void)at;
    return false;
}

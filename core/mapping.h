/* core/mapping.h - memory that a forked child does not get. */
#ifndef CORE_MAPPING_H
#define CORE_MAPPING_H

#include <stdbool.h>

/* Leaves the whole mapping that AT lies in out of children made from now on, until it is mapped anew. False
 * where that cannot be done: a child then has a copy that it does not use. */
bool mapping_keep_from_children(const void *at);

#endif

/* core/mem.h - allocation that does not fail.
 *
 * A command line tool that is out of memory can do nothing better than stop: the journal makes every
 * point a safe one to die at. So these never return NULL; when memory is exhausted the process says so
 * with one prepared line on stderr and exits with status 1. The supervisor (PID 1 of a sandbox) must
 * outlive a shortage and therefore does not allocate after its start. */
#ifndef CORE_MEM_H
#define CORE_MEM_H

#include <stddef.h>

#include "core/util.h"

void *mem_alloc(size_t size);                               /* zeroed; free() it */
void *mem_grow(void *old, size_t count, size_t item_size);  /* realloc, overflow checked */
char *mem_copy_text(const char *text);                      /* strdup */
char *mem_print(const char *format, ...) PRINTF_LIKE(1, 2); /* asprintf */

/* What they end with; for libraries that allocate by themselves. */
_Noreturn void mem_exhausted(void);

#endif

#include "core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void mem_exhausted(void)
{
    static const char line[] = "agent-desktop: out of memory\n";
    ssize_t written = write(STDERR_FILENO, line, sizeof(line) - 1);

    (void)written;
    _exit(1); /* no stdio and no atexit handlers: both may want memory */
}

void *mem_alloc(size_t size)
{
    void *p = calloc(1, size > 0 ? size : 1);

    if (p == NULL)
        mem_exhausted();
    return p;
}

void *mem_grow(void *old, size_t count, size_t item_size)
{
    size_t size;
    void *p;

    if (__builtin_mul_overflow(count, item_size, &size))
        mem_exhausted();
    p = realloc(old, size > 0 ? size : 1);
    if (p == NULL)
        mem_exhausted();
    return p;
}

char *mem_copy_text(const char *text)
{
    size_t size = strlen(text) + 1;

    return memcpy(mem_alloc(size), text, size);
}

char *mem_print(const char *format, ...)
{
    char *out = NULL;
    va_list args;
    int length;

    va_start(args, format);
    length = vasprintf(&out, format, args);
    va_end(args);
    if (length < 0)
        mem_exhausted();
    return out;
}

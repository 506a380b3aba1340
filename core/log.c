#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/text.h"

#define LOG_LINE_SIZE 1024

void log_debug(const char *format, ...)
{
    char raw[LOG_LINE_SIZE], clean[LOG_LINE_SIZE], line[LOG_LINE_SIZE + 64], time[32];
    int length;
    va_list args;

    if (getenv("AGENT_DESKTOP_DEBUG") == NULL)
        return;
    va_start(args, format);
    length = vsnprintf(raw, sizeof(raw), format, args);
    va_end(args);
    if (length < 0)
        return;
    if ((size_t)length >= sizeof(raw))
        length = sizeof(raw) - 1;
    text_clean(clean, sizeof(clean), raw, (size_t)length);
    text_format_time(time, clock_wall_ms(), true);
    length = snprintf(line, sizeof(line), "%s agent-desktop[%d] %s\n", time, (int)getpid(), clean);
    /* One write, so that lines of several processes do not mix. Nobody can be told when it fails. */
    (void)file_write_all(STDERR_FILENO, line, (size_t)length);
}

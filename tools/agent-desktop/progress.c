#include "tools/agent-desktop/progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"

void progress_print(const struct progress *p, struct text *out)
{
    static const double gigabyte = 1e9;

    text_add_string(out, p->what);
    if (p->done_bytes >= 0 && p->total_bytes > 0)
        text_print(out, ": %.1f of %.1f GB", (double)p->done_bytes / gigabyte,
                   (double)p->total_bytes / gigabyte);
    else if (p->percent >= 0)
        text_print(out, ": %d %%", (int)p->percent);
}

/* Is there a terminal that can erase a line? A "dumb" one cannot. */
static bool has_terminal(void)
{
    const char *type = getenv("TERM");

    return isatty(STDERR_FILENO) && type != NULL && type[0] != '\0' && strcmp(type, "dumb") != 0;
}

void progress_show(const struct root *root, const char *name, const char *otherwise)
{
    struct text line = { 0 };
    struct progress p;

    if (!has_terminal())
        return;
    text_add_string(&line, "\r\033[K"); /* to the first column; erase to the end of the line */
    if (progress_read(root, name, &p) && p.what[0] != '\0')
        progress_print(&p, &line);
    else
        text_add_string(&line, otherwise);
    (void)file_write_all(STDERR_FILENO, text_get(&line), line.size);
    text_done(&line);
}

void progress_clear(void)
{
    static const char erase[] = "\r\033[K";

    if (has_terminal())
        (void)file_write_all(STDERR_FILENO, erase, sizeof(erase) - 1);
}

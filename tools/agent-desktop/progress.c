#include "tools/agent-desktop/progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"

#define PROGRESS_FILE_MAX 4096

bool progress_read(const struct root *root, const char *name, struct progress *out)
{
    struct error ignored = { 0 };
    AUTO_CLOSE int dir = root->sandboxes < 0 ? -1 : file_open_dir(root->sandboxes, name);
    AUTO_FREE char *bytes = NULL;
    AUTO_JSON struct json *j = NULL;
    size_t size = 0;

    if (dir < 0 || file_read(dir, "progress.json", PROGRESS_FILE_MAX, &bytes, &size, &ignored) != 1 ||
        json_parse(bytes, size, "progress.json", ERROR_INTERNAL, &j, &ignored) < 0)
        return false;
    const char *what = json_get_string(j, "what");

    text_clean(out->what, sizeof(out->what), what == NULL ? "" : what, what == NULL ? 0 : strlen(what));
    out->done_bytes = json_get_int(j, "done_bytes", -1);
    out->total_bytes = json_get_int(j, "total_bytes", -1);
    out->percent = json_get_int(j, "percent", -1);
    return true;
}

static void put_known(struct json *object, const char *key, int64_t value)
{
    if (value >= 0)
        json_put_int(object, key, value);
}

struct json *progress_json(const struct progress *p)
{
    struct json *object = json_new_object();

    put_known(object, "done_bytes", p->done_bytes);
    put_known(object, "total_bytes", p->total_bytes);
    put_known(object, "percent", p->percent);
    json_put_string(object, "what", p->what[0] == '\0' ? NULL : p->what);
    return object;
}

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

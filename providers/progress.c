#include "providers/progress.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/text.h"

#define PROGRESS_FILE     "progress.json"
#define PROGRESS_FILE_NEW ".progress.json"
#define PROGRESS_FILE_MAX 4096
#define PERCENT_MAX       100

bool progress_read(const struct root *root, const char *name, struct progress *out)
{
    struct error ignored = { 0 };
    AUTO_CLOSE int dir = root->sandboxes < 0 ? -1 : file_open_dir(root->sandboxes, name);
    AUTO_FREE char *bytes = NULL;
    AUTO_JSON struct json *j = NULL;
    size_t size = 0;

    if (dir < 0 || file_read(dir, PROGRESS_FILE, PROGRESS_FILE_MAX, &bytes, &size, &ignored) != 1 ||
        json_parse(bytes, size, PROGRESS_FILE, ERROR_INTERNAL, &j, &ignored) < 0)
        return false;
    const char *what = json_get_string(j, "what");

    text_clean(out->what, sizeof(out->what), what == NULL ? "" : what, what == NULL ? 0 : strlen(what));
    out->done_bytes = json_get_int(j, "done_bytes", -1);
    out->total_bytes = json_get_int(j, "total_bytes", -1);
    out->percent = json_get_int(j, "percent", -1);
    if (out->percent > PERCENT_MAX) /* damaged; nobody is told what cannot be */
        out->percent = -1;
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

/* A rename, so that a reader sees the old or the new; without the fsync of file_replace(), which would cost a
 * download more than it tells. */
void progress_write(int sandbox_dir, const struct progress *p)
{
    AUTO_JSON struct json *object = progress_json(p);
    AUTO_FREE char *line = json_print(object);
    AUTO_CLOSE int fd =
        openat(sandbox_dir, PROGRESS_FILE_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd >= 0 && file_write_all(fd, line, strlen(line)) == 0)
        (void)renameat(sandbox_dir, PROGRESS_FILE_NEW, sandbox_dir, PROGRESS_FILE);
}

void progress_remove(int sandbox_dir)
{
    (void)unlinkat(sandbox_dir, PROGRESS_FILE, 0);
    (void)unlinkat(sandbox_dir, PROGRESS_FILE_NEW, 0);
}

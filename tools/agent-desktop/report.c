#include "tools/agent-desktop/report.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/mem.h"
#include "tools/agent-desktop/envelope.h"

static int open_folder(const char *path, struct error *e)
{
    const char *slash = strrchr(path, '/');
    AUTO_FREE char *folder =
        mem_print("%.*s", slash == NULL ? 1 : (int)(slash - path) + 1, slash == NULL ? "." : path);
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return error_set_errno(e, ERROR_INVALID_ARGS, errno, "--report: cannot open the folder of '%s'",
                               path);
    return dir;
}

/* A device or a pipe would be replaced by a file: nobody means that. */
static int check_target(int dir, const char *name, const char *path, struct error *e)
{
    struct stat st;

    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return error_set(e, ERROR_INVALID_ARGS, 0, "--report: '%s' is not the name of a file", path);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
        return error_set(e, ERROR_INVALID_ARGS, 0, "--report: '%s' is not a regular file", path);
    return 0;
}

int report_open(struct report *r, const char *path, const char *command, struct error *e)
{
    struct reply nothing = { 0 };
    struct error unknown = { .delivery = DELIVERY_UNKNOWN, .retry = RETRY_UNSAFE };

    if (path == NULL)
        return 0;
    AUTO_CLOSE int dir = open_folder(path, e);
    const char *slash = strrchr(path, '/');

    r->name = slash == NULL ? path : slash + 1;
    if (dir < 0 || check_target(dir, r->name, path, e) < 0)
        return -1;
    r->dir = steal_fd(&dir);
    error_set(&unknown, ERROR_INTERNAL, 0, "the attempt has not ended, or its end could not be told");
    struct error failed = { 0 };

    if (report_write(r, command, &nothing, &unknown, &failed) < 0)
        return error_set(e, ERROR_INVALID_ARGS, 0, "--report: %s", failed.message);
    return 0;
}

int report_write(const struct report *r, const char *command, struct reply *reply,
                 const struct error *outcome, struct error *e)
{
    if (r->dir < 0)
        return 0;
    AUTO_FREE char *line = envelope_print(command, reply, outcome);

    return file_replace(r->dir, r->name, line, strlen(line), 0600, e);
}

void report_close(struct report *r)
{
    util_close_fd(&r->dir);
    r->dir = -1;
}

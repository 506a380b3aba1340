#include "store/projection.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"
#include "core/text.h"
#include "core/util.h"

#define FILE_NAME    "sandbox.json"
#define FILE_SIZE_OK 4096 /* ours has about a hundred bytes; more is somebody's edit */

static char *print(const struct journal_record *record)
{
    AUTO_JSON struct json *j = json_new_object();
    AUTO_FREE char *line = NULL;
    char created[32];

    text_format_time(created, record->created_ms, false);
    json_put_string(j, "name", record->name);
    json_put_string(j, "provider", record->provider);
    json_put_string(j, "created", created);
    line = json_print(j);
    return mem_print("%s\n", line);
}

/* Whatever is wrong with the file (missing, too large, a link, unreadable) means that it is not what it
 * should be: it is replaced, and only that can fail. */
static bool says(int dir, const char *wanted)
{
    AUTO_FREE char *found = NULL;
    struct error ignored = { 0 };
    size_t size;

    return file_read(dir, FILE_NAME, FILE_SIZE_OK, &found, &size, &ignored) == 1 && size == strlen(wanted) &&
           memcmp(found, wanted, size) == 0;
}

int projection_restore(const struct root *root, const struct journal_record *record, struct error *e)
{
    AUTO_CLOSE int dir = root->sandboxes < 0 ? -1 : file_open_dir(root->sandboxes, record->name);
    AUTO_FREE char *wanted = NULL;

    if (dir < 0)
        return 0; /* not made yet, or gone: that is for the provider to say */
    wanted = print(record);
    if (says(dir, wanted))
        return 0;
    return file_replace(dir, FILE_NAME, wanted, strlen(wanted), 0600, e);
}

/* Is NAME, in sandboxes/, a sandbox's directory with its file? */
static int has_projection(int sandboxes, const char *name, struct error *e)
{
    AUTO_CLOSE int dir = -1;
    struct error no_name = { 0 };

    if (root_check_name(name, &no_name) < 0) /* being removed, being copied, or somebody's */
        return 0;
    dir = file_open_dir(sandboxes, name);
    if (dir >= 0)
        return faccessat(dir, FILE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
        return 0;
    return error_set_errno(e, ERROR_PERM_DENIED, errno, "cannot look into sandboxes/%s", name);
}

static int find_in(DIR *stream, struct error *e)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);

        if (entry == NULL && errno != 0)
            return error_set_errno(e, ERROR_INTERNAL, errno, "cannot read sandboxes/");
        if (entry == NULL)
            return 0;
        int found = has_projection(dirfd(stream), entry->d_name, e);

        if (found != 0)
            return found;
    }
}

int projection_find_any(const struct root *root, struct error *e)
{
    AUTO_CLOSE int dir = -1;

    if (root->sandboxes < 0)
        return 0;
    dir = file_open_dir(root->sandboxes, "."); /* a position of its own */
    DIR *stream = dir < 0 ? NULL : fdopendir(dir);

    if (stream == NULL)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot read sandboxes/");
    steal_fd(&dir); /* the stream's now */
    int found = find_in(stream, e);

    closedir(stream);
    return found;
}

#include "store/projection.h"

#include <string.h>

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

#include "tools/desktop/snapshots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"
#include "core/root.h"
#include "tools/desktop/desktop.h"

#define DIRECTORY    "snapshots"
#define RECORD_MAX   (32U << 20) /* bytes; A11Y_NODES_MAX elements with the longest names are 7 MB */
#define FILE_ID_SIZE (REF_SNAPSHOT_SIZE + sizeof ".json" - 1)

void snapshots_new_id(char id[REF_SNAPSHOT_SIZE])
{
    char random[17];

    util_random_id(random);
    memcpy(id, random, REF_SNAPSHOT_SIZE - 1);
    id[REF_SNAPSHOT_SIZE - 1] = '\0';
}

static void name_file(const char *id, char out[FILE_ID_SIZE])
{
    snprintf(out, FILE_ID_SIZE, "%s.json", id);
}

struct kept {
    struct timespec time;
    char *name;
};

static int compare_newest_first(const void *a, const void *b)
{
    const struct timespec *x = &((const struct kept *)a)->time, *y = &((const struct kept *)b)->time;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? 1 : -1;
    return (x->tv_nsec < y->tv_nsec) - (x->tv_nsec > y->tv_nsec);
}

/* Everything in the directory: temporary files that a crash left behind grow old like the others. */
static size_t list_files(int dir, struct kept **out)
{
    const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* closedir() closes it */
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    struct kept *files = NULL;
    size_t count = 0;
    struct stat s;

    if (stream == NULL) {
        if (copy >= 0)
            close(copy);
        return 0;
    }
    for (struct dirent *d; (d = readdir(stream)) != NULL;) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ||
            fstatat(dir, d->d_name, &s, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        files = mem_grow(files, count + 1, sizeof files[0]);
        files[count++] = (struct kept){ s.st_mtim, mem_copy_text(d->d_name) };
    }
    closedir(stream);
    *out = files;
    return count;
}

/* What cannot be removed now is tried again after the next snapshot. */
static void prune(int dir)
{
    AUTO_FREE struct kept *files = NULL;
    const size_t count = list_files(dir, &files);

    if (count > 0)
        qsort(files, count, sizeof files[0], compare_newest_first);
    for (size_t i = 0; i < count; i++) {
        if (i >= DESKTOP_SNAPSHOTS_MAX)
            unlinkat(dir, files[i].name, 0);
        free(files[i].name);
    }
}

int snapshots_save(const char *id, const struct json *record, struct error *e)
{
    AUTO_FREE char *bytes = json_print(record);
    char file[FILE_ID_SIZE];
    struct root root;
    int result = -1;

    if (root_open(ROOT_WRITE, &root, e) < 0)
        return -1;

    AUTO_CLOSE int dir = file_make_dir(root.dir, DIRECTORY, 0700, e);

    name_file(id, file);
    if (dir >= 0)
        result = file_replace(dir, file, bytes, strlen(bytes), 0600, e);
    if (result == 0)
        prune(dir);
    root_close(&root);
    return result;
}

static int read_record(int dir, const char *id, struct json **record, struct error *e)
{
    AUTO_FREE char *bytes = NULL;
    struct error unreadable = { 0 };
    char file[FILE_ID_SIZE];
    size_t size;

    name_file(id, file);

    const int found = file_read(dir, file, RECORD_MAX, &bytes, &size, e);

    if (found <= 0)
        return found;
    return json_parse(bytes, size, file, ERROR_STALE_REF, record, &unreadable) == 0;
}

int snapshots_load(const char *id, struct json **record, struct error *e)
{
    struct root root;
    int found = 0;

    if (root_open(ROOT_READ, &root, e) < 0)
        return -1;

    AUTO_CLOSE int dir = root.dir < 0 ? -1 : file_open_dir(root.dir, DIRECTORY);

    if (dir >= 0)
        found = read_record(dir, id, record, e);
    else if (root.dir >= 0 && errno != ENOENT)
        found = error_set(e, ERROR_PERM_DENIED, errno, "cannot open '%s/" DIRECTORY "'", root.path);
    root_close(&root);
    return found;
}

#include "core/file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/text.h"

#define TEMP_NAME_SIZE 24 /* ".tmp-", 16 digits, NUL */

/* ---- whole files ---- */

int file_write_all(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        ssize_t written = RETRY_EINTR(write(fd, at, size));

        if (written < 0)
            return -1;
        if (written == 0) {
            errno = EIO;
            return -1;
        }
        at += written;
        size -= (size_t)written;
    }
    return 0;
}

/* Not by the size that fstat() tells: /proc says 0, and a file may grow. */
static int read_rest(int fd, const char *path, size_t max, struct text *content, struct error *e)
{
    char block[16384];

    for (;;) {
        ssize_t got = RETRY_EINTR(read(fd, block, sizeof(block)));

        if (got < 0)
            return error_set_errno(e, ERROR_INTERNAL, errno, "cannot read '%s'", path);
        if (got == 0)
            return 0;
        if ((size_t)got > max - content->size)
            return error_set(e, ERROR_INTERNAL, 0, "'%s' is larger than %zu bytes", path, max);
        text_add(content, block, (size_t)got);
    }
}

int file_read(int dir, const char *path, size_t max, char **out, size_t *size, struct error *e)
{
    /* O_NONBLOCK: a FIFO that somebody put there must not hang us */
    AUTO_CLOSE int fd = RETRY_EINTR(openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct text content = { 0 };
    struct stat st;

    if (fd < 0 && errno == ENOENT) {
        *out = NULL;
        *size = 0;
        return 0;
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot open '%s'", path);
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERROR_INTERNAL, 0, "'%s' is not a regular file", path);
    text_add(&content, "", 0); /* an empty file is empty text, not NULL */
    if (read_rest(fd, path, max, &content, e) < 0) {
        text_done(&content);
        return -1;
    }
    *size = content.size;
    *out = steal(&content.bytes);
    return 1;
}

/* All of it but the name: content, mode, on disk. -1 with errno. */
static int fill_temp(int fd, const void *bytes, size_t size, mode_t mode)
{
    if (fchmod(fd, mode) < 0 || file_write_all(fd, bytes, size) < 0)
        return -1;
    return RETRY_EINTR(fsync(fd)) < 0 ? -1 : file_sync_drive(fd);
}

static int close_checked(int fd)
{
    /* the descriptor is freed before it can be interrupted, and the content is on disk by then */
    return close(fd) < 0 && errno != EINTR ? -1 : 0;
}

/* -1 with errno; then the temporary file may be there. */
static int write_temp(int dir, const char *temp, const void *bytes, size_t size, mode_t mode)
{
    AUTO_CLOSE int fd =
        RETRY_EINTR(openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));

    if (fd < 0 || fill_temp(fd, bytes, size, mode) < 0)
        return -1;
    return close_checked(steal_fd(&fd));
}

int file_replace(int dir, const char *name, const void *bytes, size_t size, mode_t mode, struct error *e)
{
    char id[17], temp[TEMP_NAME_SIZE];

    assert(strchr(name, '/') == NULL);
    util_random_id(id);
    snprintf(temp, sizeof(temp), ".tmp-%s", id);
    if (write_temp(dir, temp, bytes, size, mode) < 0 || renameat(dir, temp, dir, name) < 0) {
        error_set_errno(e, ERROR_INTERNAL, errno, "cannot write '%s'", name);
        unlinkat(dir, temp, 0);
        return -1;
    }
    return file_sync_dir(dir, e);
}

/* ---- directories ---- */

int file_open_dir(int dir, const char *name)
{
    return RETRY_EINTR(openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/* Also one that its owner may not read: a umask or a mode of 000 is no reason to fail. -1 with errno. */
static int open_dir_of_ours(int dir, const char *name, mode_t mode)
{
    int fd = file_open_dir(dir, name);

    if (fd >= 0 || errno != EACCES)
        return fd;
    if (fchmodat(dir, name, mode, AT_SYMLINK_NOFOLLOW) < 0) {
        errno = EACCES;
        return -1;
    }
    return file_open_dir(dir, name);
}

static int finish_new_dir(int parent, const char *name, mode_t mode, struct error *e)
{
    AUTO_CLOSE int fd = open_dir_of_ours(parent, name, mode);

    if (fd < 0 || fchmod(fd, mode) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot open the new directory '%s'", name);
    if (file_sync_dir(parent, e) < 0)
        return -1;
    return steal_fd(&fd);
}

int file_make_dir(int dir, const char *name, mode_t mode, struct error *e)
{
    int fd = file_open_dir(dir, name);

    if (fd < 0 && errno == ENOENT) {
        if (mkdirat(dir, name, mode) == 0)
            return finish_new_dir(dir, name, mode, e);
        if (errno != EEXIST)
            return error_set_errno(e, ERROR_INTERNAL, errno, "cannot make the directory '%s'", name);
        fd = file_open_dir(dir, name); /* somebody else was faster, or it is a link to nowhere */
    }
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return error_set(e, ERROR_PERM_DENIED, 0, "'%s' is not a real directory", name);
    if (fd < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot open the directory '%s'", name);
    return fd;
}

int file_sync_dir(int dir, struct error *e)
{
    if (RETRY_EINTR(fsync(dir)) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot sync a directory");
    return 0;
}

int file_sync_full(int fd, struct error *e)
{
    if (RETRY_EINTR(fsync(fd)) < 0 || file_sync_drive(fd) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot sync a file");
    return 0;
}

/* ---- removing a tree ---- */

/* The path from the tree's top to where the removal is, one level a directory. Only the deepest
 * LEVELS_OPEN of them have a stream, so that the depth is not bounded by descriptors: a level above is
 * opened again through ".." of the one below it, and must then be the same directory as before. */
#define LEVELS_OPEN 32

/* A directory that somebody fills as fast as it is emptied must not keep us for ever. */
#define PASSES_MAX 100

struct level {
    char *name;  /* in the level above */
    DIR *stream; /* NULL when not open */
    dev_t dev;
    ino_t ino;
    int passes; /* over its entries: removing while reading may skip some (readdir(3)) */
};

struct removal {
    int base; /* where the tree's top is; the caller's */
    dev_t dev;
    struct level *levels;
    size_t depth;
    size_t room;
    size_t first_open; /* levels from here to depth have a stream */
};

static int level_fd(const struct removal *r, size_t at)
{
    return dirfd(r->levels[at].stream);
}

static void drop_stream(struct level *level)
{
    if (level->stream != NULL)
        closedir(level->stream);
    level->stream = NULL;
}

static void removal_done(struct removal *r)
{
    for (size_t i = 0; i < r->depth; i++) {
        drop_stream(&r->levels[i]);
        free(r->levels[i].name);
    }
    free(r->levels);
}

static int fail_at(const struct removal *r, int sys, const char *what, const char *name, struct error *e)
{
    struct text path = { 0 };

    for (size_t i = 0; i < r->depth; i++)
        text_print(&path, "%s/", r->levels[i].name);
    text_add_string(&path, name);
    error_set_errno(e, ERROR_ACTION_FAILED, sys, "%s '%s'", what, path.bytes);
    text_done(&path);
    return -1;
}

static void push_level(struct removal *r, const char *name, DIR *stream, const struct stat *st)
{
    if (r->depth == r->room) {
        r->room = r->room > 0 ? r->room * 2 : LEVELS_OPEN;
        r->levels = mem_grow(r->levels, r->room, sizeof(*r->levels));
    }
    r->levels[r->depth++] =
        (struct level){ .name = mem_copy_text(name), .stream = stream, .dev = st->st_dev, .ino = st->st_ino };
    if (r->depth - r->first_open > LEVELS_OPEN)
        drop_stream(&r->levels[r->first_open++]);
}

static int enter(struct removal *r, int parent, const char *name, struct error *e)
{
    AUTO_CLOSE int fd = open_dir_of_ours(parent, name, 0700);
    struct stat st;
    DIR *stream;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_at(r, errno, "cannot open the directory", name, e);
    if (st.st_dev != r->dev || file_is_mount_root(fd))
        return fail_at(r, 0, "will not remove what is mounted at", name, e);
    /* Without w and x nothing in it can be removed. Not ours: then the removal itself says so. */
    if ((st.st_mode & 0700) != 0700)
        (void)fchmod(fd, 0700);
    stream = fdopendir(fd);
    if (stream == NULL)
        return fail_at(r, errno, "cannot read the directory", name, e);
    steal_fd(&fd); /* the stream's now */
    push_level(r, name, stream, &st);
    return 0;
}

static bool is_directory(int dir, const struct dirent *entry)
{
    struct stat st;

    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int remove_entry(struct removal *r, const struct dirent *entry, struct error *e)
{
    int dir = level_fd(r, r->depth - 1);

    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
        return 0;
    if (is_directory(dir, entry))
        return enter(r, dir, entry->d_name, e);
    if (unlinkat(dir, entry->d_name, 0) < 0 && errno != ENOENT)
        return fail_at(r, errno, "cannot remove", entry->d_name, e);
    return 0;
}

/* Opens the level above the deepest one again, from below. */
static int reopen_above(struct removal *r, struct error *e)
{
    struct level *above = &r->levels[r->depth - 2];
    AUTO_CLOSE int fd = file_open_dir(level_fd(r, r->depth - 1), "..");
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_at(r, errno, "cannot leave the directory", "", e);
    if (st.st_dev != above->dev || st.st_ino != above->ino)
        return fail_at(r, 0, "somebody moved the directory", "", e);
    above->stream = fdopendir(fd);
    if (above->stream == NULL)
        return fail_at(r, errno, "cannot read the directory above", "", e);
    steal_fd(&fd);
    r->first_open = r->depth - 2;
    return 0;
}

/* The deepest directory was read to its end: removes it, or starts over when entries are left. */
static int leave(struct removal *r, struct error *e)
{
    struct level *level = &r->levels[r->depth - 1];
    int parent = r->base;

    if (r->depth > 1) {
        if (r->levels[r->depth - 2].stream == NULL && reopen_above(r, e) < 0)
            return -1;
        parent = level_fd(r, r->depth - 2);
    }
    if (unlinkat(parent, level->name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
        if ((errno != ENOTEMPTY && errno != EEXIST) || ++level->passes > PASSES_MAX)
            return fail_at(r, errno, "cannot remove the directory", "", e);
        rewinddir(level->stream);
        return 0;
    }
    drop_stream(level);
    free(level->name);
    r->depth--;
    if (r->first_open > r->depth)
        r->first_open = r->depth;
    return 0;
}

static int remove_levels(struct removal *r, struct error *e)
{
    while (r->depth > 0) {
        const struct dirent *entry;

        errno = 0;
        entry = readdir(r->levels[r->depth - 1].stream);
        if (entry == NULL && errno != 0)
            return fail_at(r, errno, "cannot read the directory", "", e);
        if ((entry != NULL ? remove_entry(r, entry, e) : leave(r, e)) < 0)
            return -1;
    }
    return 0;
}

int file_remove_tree(int dir, const char *name, struct error *e)
{
    struct removal r = { .base = dir };
    struct stat top, st;
    int result;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail_at(&r, errno, "cannot look at", name, e);
    if (!S_ISDIR(st.st_mode)) {
        if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
            return fail_at(&r, errno, "cannot remove", name, e);
        return 0;
    }
    if (fstat(dir, &top) < 0)
        return fail_at(&r, errno, "cannot look at the directory of", name, e);
    r.dev = top.st_dev;
    result = enter(&r, dir, name, e);
    if (result == 0)
        result = remove_levels(&r, e);
    removal_done(&r);
    return result;
}

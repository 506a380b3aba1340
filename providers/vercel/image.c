#include "providers/vercel/image.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/hash.h"
#include "providers/home.h"

#define PLACE       "providers/vercel" /* below the root */
#define HASH_DIGITS 32                 /* of the 64 of SHA-256: enough for no two to be the same */
#define FOLDER_SIZE (sizeof(PLACE) + 1 + HASH_DIGITS)

/* a program by its first bytes. */
static mode_t mode_of(const struct embedded *file)
{
    return strncmp(file->bytes, "#!", 2) == 0 ? 0700 : 0600;
}

static void print_hash(char out[HASH_DIGITS + 1])
{
    char digits[HASH_HEX_MAX], head[64];
    struct hash h;

    hash_init(&h, HASH_SHA256);
    for (size_t i = 0; i < IMAGE_FILE_COUNT; i++) {
        int length = snprintf(head, sizeof(head), "%s %u\n", image_files[i].name, image_files[i].size);

        assert(length > 0 && length < (int)sizeof(head));
        hash_add(&h, head, (size_t)length);
        hash_add(&h, image_files[i].bytes, image_files[i].size);
    }
    hash_end_hex(&h, digits);
    snprintf(out, HASH_DIGITS + 1, "%.*s", HASH_DIGITS, digits);
}

void image_path(const struct root *root, char out[IMAGE_PATH_SIZE])
{
    char hash[HASH_DIGITS + 1];

    print_hash(hash);
    snprintf(out, IMAGE_PATH_SIZE, "%.*s/" PLACE "/%s", ROOT_PATH_MAX - 1, root->path, hash);
}

static bool is_whole(int dir, const struct embedded *file)
{
    AUTO_FREE char *bytes = NULL;
    struct stat st;
    size_t size;

    return fstatat(dir, file->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           (st.st_mode & 07777) == mode_of(file) &&
           file_read(dir, file->name, file->size, &bytes, &size, &(struct error){ 0 }) == 1 &&
           size == file->size && memcmp(bytes, file->bytes, size) == 0;
}

bool image_is_written(const struct root *root)
{
    char hash[HASH_DIGITS + 1], folder[FOLDER_SIZE + 1];
    AUTO_CLOSE int dir = -1;

    if (root->dir < 0)
        return false;
    print_hash(hash);
    snprintf(folder, sizeof(folder), PLACE "/%s", hash);
    dir = file_open_dir(root->dir, folder);
    for (size_t i = 0; dir >= 0 && i < IMAGE_FILE_COUNT; i++)
        if (!is_whole(dir, &image_files[i]))
            return false;
    return dir >= 0;
}

/* What stands in the way of a rename: anything that is no file. */
static int make_room(int dir, const char *name, struct error *e)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    return file_remove_tree(dir, name, e);
}

/* The directory NAME of ours, whatever had that name or was done to its mode. */
static int open_folder(int parent, const char *name, struct error *e)
{
    int dir = file_open_dir(parent, name);
    int why = errno; /* before the removal has one of its own */

    if (dir < 0 && (why == ENOTDIR || why == ELOOP) && file_remove_tree(parent, name, e) < 0)
        return -1;
    if (dir < 0 && why == EACCES)
        (void)!fchmodat(parent, name, 0700, AT_SYMLINK_NOFOLLOW);
    return dir >= 0 ? dir : file_make_dir(parent, name, 0700, e);
}

static int write_file(int dir, const struct embedded *file, struct error *e)
{
    if (is_whole(dir, file))
        return 0;
    return make_room(dir, file->name, e) < 0
               ? -1
               : file_replace(dir, file->name, file->bytes, file->size, mode_of(file), e);
}

int image_write(const struct root *root, struct error *e)
{
    char hash[HASH_DIGITS + 1];
    AUTO_CLOSE int providers = -1, home = -1, dir = -1;

    if (image_is_written(root))
        return 0;
    print_hash(hash);
    providers = file_make_dir(root->dir, "providers", 0700, e);
    home = providers < 0 ? -1 : file_make_dir(providers, "vercel", 0700, e);
    dir = home < 0 ? -1 : open_folder(home, hash, e);
    if (dir < 0)
        return -1;
    if (fchmod(dir, 0700) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno,
                               "cannot set the mode of a directory of the provider");
    home_sweep(dir, ".tmp-", file_remove_tree); /* what a killed write has left would go into an image, too */
    for (size_t i = 0; i < IMAGE_FILE_COUNT; i++)
        if (write_file(dir, &image_files[i], e) < 0)
            return -1;
    return file_sync_dir(dir, e);
}

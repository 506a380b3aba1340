#include "providers/macos/files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/hash.h"
#include "providers/home.h"
#include "providers/macos/scratch.h"

#define PLACE "providers/macos" /* below the root */

#define HASH_DIGITS 32 /* of the 64 of SHA-256: enough for no two to be the same */

/* */
static const mode_t modes[] = {
    [FILE_PROVIDER_SH] = 0700,    [FILE_VMHOST_SWIFT] = 0600, [FILE_VMHOST_ENTITLEMENTS] = 0600,
    [FILE_GUEST_SETUP_SH] = 0700, [FILE_HELPER_SWIFT] = 0600,
};
_Static_assert(ARRAY_LEN(modes) == MACOS_FILE_COUNT, "each file has a mode");

static const struct {
    const char *program;
    const char *prefix;          /* of its directory */
    enum macos_file first, last; /* its sources */
} builts[MACOS_BUILT_COUNT] = {
    [BUILT_VMHOST] = { "vmhost", "vmhost", FILE_VMHOST_SWIFT, FILE_VMHOST_ENTITLEMENTS },
    [BUILT_HELPER] = { "agent-desktop-macos-helper", "helper", FILE_HELPER_SWIFT, FILE_HELPER_SWIFT },
};

/* ---- names ---- */

/* Of names, sizes and contents, so that nothing can be taken for something else. */
static void hash_files(enum macos_file first, enum macos_file last, char out[HASH_DIGITS + 1])
{
    char digits[HASH_HEX_MAX], head[64];
    struct hash h;

    hash_init(&h, HASH_SHA256);
    for (enum macos_file i = first; i <= last; i++) {
        int length = snprintf(head, sizeof(head), "%s %u\n", macos_files[i].name, macos_files[i].size);

        assert(length > 0 && length < (int)sizeof(head));
        hash_add(&h, head, (size_t)length);
        hash_add(&h, macos_files[i].bytes, macos_files[i].size);
    }
    hash_end_hex(&h, digits);
    snprintf(out, HASH_DIGITS + 1, "%.*s", HASH_DIGITS, digits);
}

const char *files_program(enum macos_built which)
{
    return builts[which].program;
}

void files_folder(enum macos_built which, char out[FILES_FOLDER_SIZE])
{
    char hash[HASH_DIGITS + 1];

    hash_files(builts[which].first, builts[which].last, hash);
    snprintf(out, FILES_FOLDER_SIZE, "%s-%s", builts[which].prefix, hash);
}

static int print_path(const struct root *root, const char *folder, const char *name, char out[ROOT_PATH_MAX],
                      struct error *e)
{
    int length = snprintf(out, ROOT_PATH_MAX, "%s/" PLACE "/%s%s%s", root->path, folder,
                          name[0] != '\0' ? "/" : "", name);

    if (length >= 0 && length < ROOT_PATH_MAX)
        return 0;
    out[0] = '\0';
    return error_set(e, ERROR_INVALID_ARGS, 0, "the path of the state root is too long");
}

/* ---- writing them ---- */

int files_open_home(const struct root *root, struct error *e)
{
    AUTO_CLOSE int providers = file_make_dir(root->dir, "providers", 0700, e);

    return providers < 0 ? -1 : file_make_dir(providers, "macos", 0700, e);
}

static int write_file(int dir, enum macos_file file, struct error *e)
{
    const struct embedded *f = &macos_files[file];

    return file_replace(dir, f->name, f->bytes, f->size, modes[file], e);
}

static bool is_whole(int dir, enum macos_file file)
{
    const struct embedded *f = &macos_files[file];
    AUTO_FREE char *bytes = NULL;
    struct error ignored = { 0 };
    struct stat st;
    size_t size;

    return fstatat(dir, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           (st.st_mode & 07777) == modes[file] &&
           file_read(dir, f->name, f->size, &bytes, &size, &ignored) == 1 && size == f->size &&
           memcmp(bytes, f->bytes, size) == 0;
}

/* What stands in the way of a rename: anything that is no file. */
static int make_room(int dir, const char *name, struct error *e)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    return file_remove_tree(dir, name, e);
}

/* Each file anew that is not what it was: renamed over the old one, which whoever runs it keeps. */
static int repair(int dir, struct error *e)
{
    if (fchmod(dir, 0700) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno,
                               "cannot set the mode of a directory of the provider");
    for (enum macos_file i = 0; i < MACOS_FILE_COUNT; i++)
        if (!is_whole(dir, i) && (make_room(dir, macos_files[i].name, e) < 0 || write_file(dir, i, e) < 0))
            return -1;
    return 0;
}

static int fill_new(int dir, struct error *e)
{
    for (enum macos_file i = 0; i < MACOS_FILE_COUNT; i++)
        if (write_file(dir, i, e) < 0)
            return -1;
    return 0;
}

/* Nobody ever sees it half full. Somebody else may be at the same: whose rename comes first does not matter.
 */
static int write_new(int home, const char *folder, struct error *e)
{
    char temp[SCRATCH_NAME_SIZE];

    home_sweep(home, ".tmp-", file_remove_tree);
    AUTO_CLOSE int dir = scratch_make(home, ".tmp-", temp, e);

    if (dir < 0)
        return -1;
    int result = fill_new(dir, e);

    if (result == 0 && renameat(home, temp, home, folder) < 0 && errno != EEXIST && errno != ENOTEMPTY)
        result = error_set_errno(e, ERROR_INTERNAL, errno, "cannot put the provider's files in their place");
    if (result == 0)
        result = file_sync_dir(home, e);
    (void)file_remove_tree(home, temp, &(struct error){ 0 }); /* gone already when all went well */
    return result;
}

/* The directory of this name, made when there is none, or something else of that name. */
static int open_folder(int home, const char *folder, struct error *e)
{
    int dir = file_open_dir(home, folder);
    int why = errno; /* before the removal has one of its own */

    if (dir < 0 && (why == ENOTDIR || why == ELOOP) && file_remove_tree(home, folder, e) < 0)
        return -1;
    if (dir < 0 && why == EACCES)
        (void)!fchmodat(home, folder, 0700, AT_SYMLINK_NOFOLLOW); /* of ours, whatever its mode is */
    else if (dir < 0 && write_new(home, folder, e) < 0)
        return -1;
    return dir >= 0 ? dir : file_make_dir(home, folder, 0700, e);
}

static void name_folder(char out[HASH_DIGITS + 1])
{
    hash_files(0, MACOS_FILE_COUNT - 1, out);
}

int files_ensure(const struct root *root, char out[ROOT_PATH_MAX], struct error *e)
{
    char folder[HASH_DIGITS + 1];
    AUTO_CLOSE int home = files_open_home(root, e);
    AUTO_CLOSE int dir = -1;

    if (home < 0)
        return -1;
    name_folder(folder);
    dir = open_folder(home, folder, e);
    if (dir < 0 || repair(dir, e) < 0)
        return -1;
    return print_path(root, folder, "", out, e);
}

int files_path(const struct root *root, enum macos_file file, char out[ROOT_PATH_MAX], struct error *e)
{
    char folder[HASH_DIGITS + 1];

    if (files_ensure(root, out, e) < 0)
        return -1;
    name_folder(folder);
    return print_path(root, folder, macos_files[file].name, out, e);
}

/* ---- what is built from them ---- */

void files_built_path(const struct root *root, enum macos_built which, char out[ROOT_PATH_MAX])
{
    char folder[FILES_FOLDER_SIZE];

    files_folder(which, folder);
    (void)print_path(root, folder, builts[which].program, out,
                     &(struct error){ 0 }); /* too long: nothing is there */
}

bool files_is_built(const struct root *root, enum macos_built which)
{
    char folder[FILES_FOLDER_SIZE], path[sizeof(PLACE) + FILES_FOLDER_SIZE];
    AUTO_CLOSE int dir = -1;
    struct stat st;

    if (root->dir < 0)
        return false;
    files_folder(which, folder);
    snprintf(path, sizeof(path), PLACE "/%s", folder);
    dir = file_open_dir(root->dir, path);
    return dir >= 0 && fstatat(dir, builts[which].program, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 07777) == 0700;
}

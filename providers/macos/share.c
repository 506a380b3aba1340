#include "providers/macos/share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/copy.h"
#include "core/file.h"
#include "core/process.h"
#include "providers/macos/files.h"
#include "providers/remote/keys.h"

#define SHARE      "share"
#define SETUP      "guest-setup.sh"
#define AUTHORIZED "authorized_key"
#define UNFINISHED ".new"
#define BLOCK_SIZE 65536

int share_find_programs(const struct macos_vm *vm, struct share_paths *paths,
                        struct remote_file out[SHARE_PROGRAMS_COUNT], size_t *count, struct error *e)
{
    if (process_self_path(paths->self, sizeof(paths->self), e) < 0)
        return -1;
    files_built_path(vm->place->root, BUILT_HELPER, paths->helper);
    out[0] = (struct remote_file){ .name = "agent-desktop", .path = paths->self };
    out[1] = (struct remote_file){ .name = "agent-desktop-macos-helper", .path = paths->helper };
    *count = files_is_built(vm->place->root, BUILT_HELPER) ? 2 : 1;
    return 0;
}

/* The code says that a person is needed: another `install` would answer `ready`, as it has to. */
static int helper_missing(struct error *e)
{
    error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0,
              "the guest's setup needs agent-desktop-macos-helper, which is not built");
    e->suggestion = "Run xcode-select --install, then agent-desktop sandbox install macos.";
    return -1;
}

/* Whatever else was put in a file's place goes. */
static int clear_place(int dir, const char *name, struct error *e)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISREG(st.st_mode))
        return 0;
    return file_remove_tree(dir, name, e);
}

/* --- texts -------------------------------------------------------------------------------------------- */

static bool is_text(int dir, const char *name, const char *bytes, size_t size, mode_t mode)
{
    AUTO_FREE char *found = NULL;
    struct error ignored = { 0 };
    struct stat st;
    size_t found_size;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           (st.st_mode & 07777) == mode && file_read(dir, name, size, &found, &found_size, &ignored) == 1 &&
           found_size == size && memcmp(found, bytes, size) == 0;
}

static int write_text(int dir, const char *name, const char *bytes, size_t size, mode_t mode, struct error *e)
{
    if (is_text(dir, name, bytes, size, mode))
        return 0;
    return clear_place(dir, name, e) < 0 ? -1 : file_replace(dir, name, bytes, size, mode, e);
}

/* The public half of the sandbox's key: one line, in the form of authorized_keys. */
static int write_key(const struct macos_vm *vm, int dir, struct error *e)
{
    AUTO_FREE char *line = NULL;
    struct error cause = { 0 };
    char blob[KEYS_BLOB_SIZE];
    size_t size = 0;

    if (file_read(vm->dir, MACOS_KEY_PUB, KEYS_PUBLIC_SIZE, &line, &size, &cause) != 1 ||
        !keys_read_blob(line, blob))
        return error_set(e, ERROR_ACTION_FAILED, 0, "'%s/" MACOS_KEY_PUB "' is no public key%s%s", vm->path,
                         cause.message[0] == '\0' ? "" : ": ", cause.message);
    return write_text(dir, AUTHORIZED, line, size, 0600, e);
}

/* --- programs ----------------------------------------------------------------------------------------- */

static bool have_equal_bytes(int a, int b)
{
    char of_a[BLOCK_SIZE / 2], of_b[BLOCK_SIZE / 2];

    for (off_t at = 0;;) {
        ssize_t n = RETRY_EINTR(pread(a, of_a, sizeof(of_a), at));

        if (n <= 0)
            return n == 0;
        if (RETRY_EINTR(pread(b, of_b, (size_t)n, at)) != n || memcmp(of_a, of_b, (size_t)n) != 0)
            return false;
        at += n;
    }
}

static bool is_copy(int dir, const char *name, const char *path)
{
    AUTO_CLOSE int theirs = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    AUTO_CLOSE int ours = open(path, O_RDONLY | O_CLOEXEC);
    struct stat there, here;

    return theirs >= 0 && ours >= 0 && fstat(theirs, &there) == 0 && fstat(ours, &here) == 0 &&
           S_ISREG(there.st_mode) && (there.st_mode & 07777) == 0700 && there.st_size == here.st_size &&
           have_equal_bytes(ours, theirs);
}

/* A new file that is renamed over the old: macOS may kill a program whose file was overwritten in place. */
static int write_program(int dir, const struct remote_file *file, struct error *e)
{
    if (is_copy(dir, file->name, file->path))
        return 0;
    if (clear_place(dir, file->name, e) < 0 || file_remove_tree(dir, UNFINISHED, e) < 0 ||
        copy_file(AT_FDCWD, file->path, dir, UNFINISHED, NULL, NULL, NULL, e) < 0)
        return -1;
    if (fchmodat(dir, UNFINISHED, 0700, 0) < 0 || renameat(dir, UNFINISHED, dir, file->name) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot write '%s' in vm/" SHARE, file->name);
    return file_sync_dir(dir, e);
}

int share_write(struct macos_vm *vm, int vm_dir, bool with_helper, struct error *e)
{
    const struct embedded *setup = &macos_files[FILE_GUEST_SETUP_SH];
    struct share_paths paths;
    struct remote_file programs[SHARE_PROGRAMS_COUNT];
    size_t count;

    if (share_find_programs(vm, &paths, programs, &count, e) < 0)
        return -1;
    if (with_helper && count < SHARE_PROGRAMS_COUNT)
        return helper_missing(e);
    AUTO_CLOSE int dir = file_make_dir(vm_dir, SHARE, 0700, e);

    if (dir < 0)
        return -1;
    if (write_text(dir, SETUP, setup->bytes, setup->size, 0700, e) < 0 || write_key(vm, dir, e) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (write_program(dir, &programs[i], e) < 0)
            return -1;
    return 0;
}

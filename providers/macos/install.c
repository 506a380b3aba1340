#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "providers/home.h"
#include "providers/macos/files.h"
#include "providers/macos/host.h"
#include "providers/macos/inspect.h"
#include "providers/macos/scratch.h"
#include "providers/macos/vmhost.h"

#define BUILD_MS  600000 /* swiftc takes seconds, and minutes on its first run after an upgrade */
#define VERIFY_MS 20000
#define CHECK_MS  20000

struct build { /* of one program, in a directory of its own that becomes the real one */
    const struct provider_place *place;
    enum macos_built which;
    int home; /* providers/macos/ */
    int dir;
    char temp[SCRATCH_NAME_SIZE];
    char folder[FILES_FOLDER_SIZE];
    int log;
};

/* ---- write-files ---- */

/* What interrupted runs have left. */
static void sweep(int home)
{
    static const char *const prefixes[] = { ".build-", ".gone-", ".tmp-" };

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        home_sweep(home, prefixes[i], file_remove_tree);
}

static enum step_result write_files(void *self, struct step_context *c, struct error *e)
{
    const struct provider_place *place = self;
    AUTO_CLOSE int home = files_open_home(place->root, e);
    char path[ROOT_PATH_MAX];

    (void)c;
    if (home < 0)
        return STEP_FAILED;
    sweep(home);
    return files_ensure(place->root, path, e) < 0 ? STEP_FAILED : STEP_DONE;
}

/* ---- building one program ---- */

/* What may be good is: a compiler that is not there any more could not replace it. */
static bool is_accepted(const struct provider_place *place, enum macos_built which)
{
    char path[ROOT_PATH_MAX];

    if (!files_is_built(place->root, which))
        return false;
    files_built_path(place->root, which, path);
    return !host_is_broken(path, place->op_lock, VERIFY_MS);
}

static int begin(struct build *b, struct error *e)
{
    files_folder(b->which, b->folder);
    b->home = files_open_home(b->place->root, e);
    b->dir = b->home < 0 ? -1 : scratch_make(b->home, ".build-", b->temp, e);
    if (b->dir < 0)
        return -1;
    b->log =
        RETRY_EINTR(openat(b->dir, FILES_BUILD_LOG, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
    if (b->log < 0 || fchmod(b->log, 0600) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot make the build log");
    return 0;
}

static void end(struct build *b)
{
    util_close_fd(&b->log);
    util_close_fd(&b->dir);
    if (b->home >= 0 && b->temp[0] != '\0')
        (void)file_remove_tree(b->home, b->temp, &(struct error){ 0 }); /* unless it was put in its place */
    util_close_fd(&b->home);
}

static int print_path(const struct build *b, const char *folder, const char *name, char out[ROOT_PATH_MAX],
                      struct error *e)
{
    int length = snprintf(out, ROOT_PATH_MAX, "%s/providers/macos/%s/%s", b->place->root->path, folder, name);

    return length > 0 && length < ROOT_PATH_MAX
               ? 0
               : error_set(e, ERROR_INVALID_ARGS, 0, "the path of the state root is too long");
}

static int compile(const struct build *b, const char *program, struct error *e)
{
    const struct host_call call = {
        .root = b->place->root, .locks = { b->place->op_lock, -1 }, .timeout_ms = BUILD_MS, .log = b->log
    };
    char source[ROOT_PATH_MAX], entitlements[ROOT_PATH_MAX];

    if (files_path(call.root, b->which == BUILT_VMHOST ? FILE_VMHOST_SWIFT : FILE_HELPER_SWIFT, source, e) <
            0 ||
        files_path(call.root, FILE_VMHOST_ENTITLEMENTS, entitlements, e) < 0)
        return -1;
    if (b->which == BUILT_VMHOST)
        return host_call(&call, (const char *const[]){ "build-vmhost", source, entitlements, program, NULL },
                         NULL, e);
    return host_call(&call, (const char *const[]){ "build-helper", source, program, NULL }, NULL, e);
}

/* The last proof: macOS lets the signed program run, and the program that this Mac can do it. */
static int check_vmhost(const struct build *b, const char *program, struct error *e)
{
    const char *argv[] = { program, "check", NULL };
    const struct vmhost_job job = { .argv =
                                        (char *const *)(uintptr_t)argv, /* posix_spawn(3) changes nothing */
                                    .op_lock = b->place->op_lock,
                                    .log = b->log,
                                    .quiet_ms = CHECK_MS };

    return b->which == BUILT_VMHOST ? vmhost_run(&job, NULL, e) : 0;
}

/* Also after a failure, for the log, when no program is there. */
static int put_in_place(struct build *b, struct error *e)
{
    char id[17], gone[SCRATCH_NAME_SIZE];

    util_random_id(id);
    snprintf(gone, sizeof(gone), ".gone-%s", id);
    if (renameat(b->home, b->folder, b->home, gone) < 0 && errno != ENOENT)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot move what was built before");
    if (renameat(b->home, b->temp, b->home, b->folder) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot put what was built in its place");
    if (file_sync_dir(b->home, e) < 0)
        return -1;
    (void)file_remove_tree(b->home, gone, &(struct error){ 0 });
    return 0;
}

static int sync_program(const struct build *b, const char *name, struct error *e)
{
    AUTO_CLOSE int fd = RETRY_EINTR(openat(b->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));

    if (fd < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open '%s'", name);
    return file_sync_full(fd, e);
}

static int make(struct build *b, struct error *e)
{
    const char *name = files_program(b->which);
    char program[ROOT_PATH_MAX];

    if (print_path(b, b->temp, name, program, e) < 0)
        return -1;
    return compile(b, program, e) < 0 || check_vmhost(b, program, e) < 0 || sync_program(b, name, e) < 0 ? -1
                                                                                                         : 0;
}

/* Into the folder of a program that is there already: a failure takes none away. */
static int add_log(const struct build *b)
{
    AUTO_CLOSE int folder = file_open_dir(b->home, b->folder);

    return folder < 0 ? -1 : renameat(b->dir, FILES_BUILD_LOG, folder, FILES_BUILD_LOG);
}

static int move_log(struct build *b)
{
    if (files_is_built(b->place->root, b->which))
        return add_log(b);
    unlinkat(b->dir, files_program(b->which), 0);
    return put_in_place(b, &(struct error){ 0 });
}

/* The log stays where the program would be, and the message names it before what may be cut. */
static int keep_log(struct build *b, const struct error *cause, struct error *e)
{
    char log[ROOT_PATH_MAX];

    if (print_path(b, b->folder, FILES_BUILD_LOG, log, e) < 0 || move_log(b) < 0)
        return error_set(e, cause->code, 0, "%s; the build log could not be kept", cause->message);
    return error_set(e, cause->code, 0, "%s could not be built; the build log is %s: %s",
                     files_program(b->which), log, cause->message);
}

static enum step_result build(const struct provider_place *place, enum macos_built which, struct error *e)
{
    struct build b = { .place = place, .which = which, .home = -1, .dir = -1, .log = -1 };
    struct error cause = { 0 };
    int result;

    if (is_accepted(place, which))
        return STEP_DONE;
    result = begin(&b, e);
    if (result == 0)
        result = make(&b, &cause) == 0 ? put_in_place(&b, e) : keep_log(&b, &cause, e);
    end(&b);
    return result < 0 ? STEP_FAILED : STEP_DONE;
}

static enum step_result build_vmhost(void *self, struct step_context *c, struct error *e)
{
    (void)c;
    return build(self, BUILT_VMHOST, e);
}

static enum step_result build_helper(void *self, struct step_context *c, struct error *e)
{
    (void)c;
    return build(self, BUILT_HELPER, e);
}

const struct step macos_install_steps[] = {
    { "write-files", write_files, false },
    { "build-vmhost", build_vmhost, false },
    { "build-helper", build_helper, false },
    { 0 },
};

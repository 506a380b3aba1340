/* rm: locked, out of the way under another name (scratch.h), then deleted by descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/lock.h"
#include "core/log.h"
#include "providers/macos/disk.h"
#include "providers/macos/macos.h"
#include "providers/macos/scratch.h"

#define LOCK_WAIT_MS 1000
#define GONE_PREFIX  ".gone-"
#define GONE_SIZE    32

void macos_sweep(int sandboxes)
{
    scratch_sweep(sandboxes, GONE_PREFIX);
}

/* --- set aside ---------------------------------------------------------------------------------------- */

/* Nobody stops what is recorded as broken, so a session that lives all the same ends here. */
static int end_session(struct macos_vm *vm, const struct facts *facts, struct error *e)
{
    struct process_id id;
    const char *forced;
    bool held;
    int found = macos_find_vmhost(vm, facts, &id, &held, e);

    if (found < 0 || (found > 0 && macos_end_vmhost(&id, &forced, e) < 0))
        return -1;
    return macos_await_end(vm, e);
}

/* An attached disk keeps its blocks until it is detached; that it cannot be is no reason to keep all the
 * rest. */
static void release_disk(struct macos_vm *vm)
{
    AUTO_CLOSE int dir = file_open_dir(vm->dir, "vm");
    AUTO_FREE char *disk = macos_print_path(vm, "vm/" MACOS_DISK);
    struct error e = { 0 };
    struct stat st;

    if (dir < 0 || fstatat(dir, MACOS_DISK, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return;
    if (disk_release(vm->place->root, vm->place->op_lock, disk, &e) < 0)
        log_debug("cannot detach the disk of %s: %s", vm->place->name, e.message);
}

/* 1 when there is a directory, locked, so that no sweep takes it from us once it has its new name. 0 when
 * there is none, or something that is no directory: that is unlinked, and what it may point to is not ours.
 */
static int open_to_remove(struct macos_vm *vm, struct error *e)
{
    int sandboxes = vm->place->root->sandboxes;

    vm->dir = vm->dir >= 0 ? vm->dir : file_open_dir(sandboxes, vm->place->name);
    if (vm->dir < 0 && errno == EACCES) { /* its mode: ours to change */
        (void)!fchmodat(sandboxes, vm->place->name, 0700, AT_SYMLINK_NOFOLLOW);
        vm->dir = file_open_dir(sandboxes, vm->place->name);
    }
    if (vm->dir >= 0) {
        int locked = lock_take_fd(vm->dir, LOCK_EXCLUSIVE, LOCK_WAIT_MS, e);

        if (locked == 0)
            return error_set(e, ERROR_SANDBOX_BUSY, 0, "another command works on the sandbox's files");
        return locked;
    }
    if (errno != ENOTDIR && errno != ELOOP)
        return errno == ENOENT ? 0
                               : error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open '%s'", vm->path);
    if (unlinkat(sandboxes, vm->place->name, 0) < 0 && errno != ENOENT)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot remove '%s'", vm->path);
    return 0;
}

static void gone_name(char out[GONE_SIZE], const char *token)
{
    snprintf(out, GONE_SIZE, GONE_PREFIX "%.16s", token);
}

static int set_aside(struct macos_vm *vm, const struct step_context *c, struct error *e)
{
    int sandboxes = vm->place->root->sandboxes;
    char name[GONE_SIZE];
    int found = end_session(vm, c->facts, e) < 0 ? -1 : open_to_remove(vm, e);

    if (found < 0)
        return -1;
    gone_name(name, c->token);
    if (found > 0) {
        release_disk(vm);
        if (renameat(sandboxes, vm->place->name, sandboxes, name) < 0 && errno != ENOENT)
            return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot rename '%s'", vm->path);
    }
    return file_sync_dir(sandboxes, e);
}

static enum step_result step_set_aside(void *self, struct step_context *c, struct error *e)
{
    return macos_step(set_aside(self, c, e));
}

/* --- delete ------------------------------------------------------------------------------------------- */

/* Also what an interrupted removal has set aside under its own token. */
static enum step_result step_delete(void *self, struct step_context *c, struct error *e)
{
    const struct macos_vm *vm = self;
    char name[GONE_SIZE];

    gone_name(name, c->token);
    if (file_remove_tree(vm->place->root->sandboxes, name, e) < 0)
        return STEP_FAILED;
    macos_sweep(vm->place->root->sandboxes);
    return STEP_DONE;
}

const struct step macos_remove_steps[] = {
    { "set-aside", step_set_aside, false },
    { "delete", step_delete, false },
    { 0 },
};

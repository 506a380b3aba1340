/* clone: the files of a stopped, set-up guest, and a new identity: machine identifier, MAC address, host key
 * . Killed anywhere it is broken like a create, and rm removes what is there. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/copy.h"
#include "core/file.h"
#include "core/lock.h"
#include "core/mem.h"
#include "providers/macos/macos.h"
#include "providers/macos/meter.h"
#include "providers/macos/pin.h"

#define LOCK_MS        5000 /* a session that is just ending */
#define RENEW_QUIET_MS 60000

int macos_check_clone(void *self, struct error *e)
{
    const struct macos_vm *vm = self;
    const struct facts *source = vm->place->source_facts;

    if (macos_is_set_up(source))
        return 0;
    return error_set(e, ERROR_INVALID_STATE, 0, "cannot clone '%s': it is stopped, but %s", vm->place->source,
                     macos_was_set_up(source) ? "its guest has lost its setup; start it and repeat the setup"
                                              : "its guest was never set up; start it and finish the setup");
}

static enum step_result end_step(const struct macos_vm *vm, int result)
{
    if (result < 0 && vm->dir >= 0)
        progress_remove(vm->dir);
    return macos_step(result);
}

/* --- copy --------------------------------------------------------------------------------------------- */

static int open_source(const struct macos_vm *vm, struct error *e)
{
    int fd = file_open_dir(vm->place->root->sandboxes, vm->place->source);

    return fd >= 0 ? fd
                   : error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open the source '%s'",
                                     vm->place->source);
}

/* Held while it is copied: a session that has not quite ended would write meanwhile. */
static int lock_source(const struct macos_vm *vm, int *fd, struct error *e)
{
    char name[MACOS_LOCK_SIZE];

    macos_lock_name(vm->place->source, name);
    int taken = lock_take(vm->place->root->locks, name, LOCK_SHARED, LOCK_MS, fd, e);

    if (taken == 0)
        return error_set(e, ERROR_SANDBOX_BUSY, 0, "the last session of '%s' has not ended",
                         vm->place->source);
    return taken < 0 ? -1 : 0;
}

static void show_bytes(void *self, int64_t done, int64_t total)
{
    meter_set_bytes(self, done, total);
}

static int copy_files(const struct macos_vm *vm, int from, int from_vm, int to_vm, struct error *e)
{
    /* The disk is last: it may take long where blocks cannot be shared. */
    const struct {
        int from, to;
        const char *name;
    } files[] = {
        { from, vm->dir, MACOS_KEY },      { from, vm->dir, MACOS_KEY_PUB },
        { from_vm, to_vm, MACOS_VM_JSON }, { from_vm, to_vm, MACOS_AUXILIARY },
        { from_vm, to_vm, MACOS_DISK },
    };
    struct meter meter;
    char what[96];

    snprintf(what, sizeof(what), "Copying %.*s", NAME_MAX_LENGTH, vm->place->source);
    meter_begin(&meter, vm->dir, what);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        if (file_remove_tree(files[i].to, files[i].name, e) < 0 || /* of an attempt before */
            copy_file(files[i].from, files[i].name, files[i].to, files[i].name, show_bytes, &meter, NULL, e) <
                0)
            return -1;
    }
    return 0;
}

/* "cannot copy x" does not help on a full disk; how much it takes does (bug case 3). */
static int explain_full(const struct macos_vm *vm, int from_vm, struct error *e)
{
    char needed[METER_SIZE], available[METER_SIZE];
    struct statvfs fs;
    struct stat st;

    if (fstatat(from_vm, MACOS_DISK, &st, AT_SYMLINK_NOFOLLOW) < 0 || RETRY_EINTR(fstatvfs(vm->dir, &fs)) < 0)
        return -1;
    meter_print_size(needed, (int64_t)st.st_blocks * 512);
    meter_print_size(available, (int64_t)fs.f_bavail * (int64_t)fs.f_frsize);
    *e = (struct error){ 0 };
    return error_set(e, ERROR_STORE_FULL, 0, "not enough room to copy '%s': its disk takes %s, %s are free",
                     vm->place->source, needed, available);
}

static int copy_source(struct macos_vm *vm, struct step_context *c, struct error *e)
{
    static const char *const kept[] = { "user", "image" };
    const struct facts *source = vm->place->source_facts;
    AUTO_CLOSE int lock = -1;

    macos_sweep(vm->place->root->sandboxes);
    if (macos_check_clone(vm, e) < 0 || lock_source(vm, &lock, e) < 0 || macos_make_dirs(vm, c, e) < 0)
        return -1;
    AUTO_CLOSE int to_vm = macos_open_vm_dir(vm, e);
    AUTO_CLOSE int from = to_vm < 0 ? -1 : open_source(vm, e);
    AUTO_CLOSE int from_vm = from < 0 ? -1 : file_open_dir(from, "vm");

    if (from < 0)
        return -1;
    if (from_vm < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open 'vm' of the source '%s'",
                               vm->place->source);
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        if (facts_get(source, kept[i]) != NULL)
            facts_set(c->outputs, kept[i], facts_get(source, kept[i]));
    if (copy_files(vm, from, from_vm, to_vm, e) == 0)
        return 0;
    return e->code == ERROR_STORE_FULL ? explain_full(vm, from_vm, e) : -1;
}

static enum step_result step_copy(void *self, struct step_context *c, struct error *e)
{
    return end_step(self, copy_source(self, c, e));
}

/* --- a new machine ------------------------------------------------------------------------------------ */

static int renew(struct macos_vm *vm, struct step_context *c, struct error *e)
{
    static char verb[] = "renew", at[] = "--vm";
    char program[ROOT_PATH_MAX], mac[18];
    AUTO_FREE char *dir = macos_print_path(vm, "vm");
    AUTO_CLOSE int vm_dir = macos_open_vm_dir(vm, e);
    char *argv[] = { program, verb, at, dir, NULL };
    const struct vmhost_job job = {
        .argv = argv, .op_lock = vm->place->op_lock, .log = -1, .quiet_ms = RENEW_QUIET_MS
    };

    if (vm_dir < 0 || macos_find_program(vm, program, e) < 0 || vmhost_run(&job, NULL, e) < 0 ||
        macos_read_mac(vm_dir, mac, e) < 0)
        return -1;
    facts_set(c->outputs, "mac", mac);
    return 0;
}

static enum step_result step_renew(void *self, struct step_context *c, struct error *e)
{
    return end_step(self, renew(self, c, e));
}

static int write_host_key(struct macos_vm *vm, struct step_context *c, struct error *e)
{
    bool written = false;

    if (pin_write(vm, c->outputs, &written, e) < 0)
        return -1;
    if (!written) /* its guest would make a key that nobody has seen */
        return error_set(e, ERROR_INVALID_STATE, 0,
                         "the guest of '%s' has no SSH host key any more: start it and repeat the setup",
                         vm->place->source);
    facts_set(c->outputs, "setup", "done");
    progress_remove(vm->dir);
    return 0;
}

static enum step_result step_host_key(void *self, struct step_context *c, struct error *e)
{
    return end_step(self, write_host_key(self, c, e));
}

const struct step macos_clone_steps[] = {
    { "copy", step_copy, false },
    { "renew", step_renew, false },
    { "host-key", step_host_key, false },
    { 0 },
};

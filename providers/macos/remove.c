/* rm: locked, out of the way under another name (home.h), then deleted by descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/log.h"
#include "providers/home.h"
#include "providers/macos/disk.h"
#include "providers/macos/macos.h"

void macos_sweep(int sandboxes)
{
    home_sweep(sandboxes, HOME_GONE, file_remove_tree);
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

static int set_aside(struct macos_vm *vm, const struct step_context *c, struct error *e)
{
    const struct root *root = vm->place->root;
    int found = end_session(vm, c->facts, e) < 0 ? -1 : home_claim(root, vm->place->name, &vm->dir, e);

    if (found < 0)
        return -1;
    if (found > 0)
        release_disk(vm);
    return home_set_aside(root, vm->place->name, c->token, e);
}

static enum step_result step_set_aside(void *self, struct step_context *c, struct error *e)
{
    return macos_step(set_aside(self, c, e));
}

/* --- delete ------------------------------------------------------------------------------------------- */

static enum step_result step_delete(void *self, struct step_context *c, struct error *e)
{
    const struct macos_vm *vm = self;

    return macos_step(home_delete(vm->place->root, c->token, file_remove_tree, e));
}

const struct step macos_remove_steps[] = {
    { "set-aside", step_set_aside, false },
    { "delete", step_delete, false },
    { 0 },
};

/* start: the stopped disk gets a fresh host key, vmhost gets the run lock, the guest gets time to answer.
 *
 * Killed anywhere, the next look finds either the run lock held, and goes by what the guest shows, or free,
 * and then nothing has started. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/lock.h"
#include "core/spawn.h"
#include "providers/macos/disk.h"
#include "providers/macos/guest.h"
#include "providers/macos/host.h"
#include "providers/macos/macos.h"
#include "providers/macos/pin.h"
#include "providers/macos/share.h"

#define LOCK_MS       5000 /* a session that is just ending */
#define HOST_MS       5000
#define BOOT_AGAIN_MS 100
#define LOOK_MS       5000
#define LOOK_AGAIN_MS 500
#define PROVEN_MS                                                                                            \
    30000 /* a guest that is still booting refuses connections too, and may not know its grants */
#define BOUND_EXTRA_MS 10000 /* the engine's own bound would call it a failure */

/* --- prepare ------------------------------------------------------------------------------------------ */

/* Nothing is left to be started, or what stands in the sandbox's place is not ours. */
static bool is_lost(const struct macos_vm *vm)
{
    AUTO_CLOSE int dir =
        vm->place->root->sandboxes < 0 ? -1 : file_open_dir(vm->place->root->sandboxes, vm->place->name);
    struct stat st;

    if (dir < 0)
        return vm->place->root->sandboxes < 0 || errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    AUTO_CLOSE int vm_dir = file_open_dir(dir, "vm");

    if (vm_dir < 0)
        return errno == ENOENT;
    return fstatat(vm_dir, MACOS_DISK, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static int require_files(struct macos_vm *vm, struct step_context *c, struct error *e)
{
    AUTO_CLOSE int vm_dir = macos_open_vm_dir(vm, e);
    struct stat st;

    if (vm_dir >= 0 && fstatat(vm_dir, MACOS_DISK, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        return 0;
    if (is_lost(vm))
        c->outcome = EV_LOST;
    return error_set(e, ERROR_ACTION_FAILED, 0, "'%s/vm/" MACOS_DISK "' is gone, or no disk image", vm->path);
}

static int take_run_lock(struct macos_vm *vm, struct error *e)
{
    char name[MACOS_LOCK_SIZE];

    if (vm->start.run_lock >= 0)
        return 0;
    macos_lock_name(vm->place->name, name);
    int taken = lock_take(vm->place->root->locks, name, LOCK_EXCLUSIVE, LOCK_MS, &vm->start.run_lock, e);

    if (taken == 0)
        return error_set(e, ERROR_SANDBOX_BUSY, 0, "another session of '%s' has not ended", vm->place->name);
    return taken < 0 ? -1 : 0;
}

/* A session that is there already: of a start whose worker died. 1, 0, -1. */
static int adopt(struct macos_vm *vm, const struct step_context *c, struct error *e)
{
    bool held;
    int found = macos_find_vmhost(vm, c->facts, &vm->start.id, &held, e);

    if (found != 1)
        vm->start.id.pid = 0;
    else
        macos_write_process(c->outputs, &vm->start.id);
    return found;
}

static int prepare(struct macos_vm *vm, struct step_context *c, struct error *e)
{
    AUTO_FREE char *disk = macos_print_path(vm, "vm/" MACOS_DISK);
    struct host host;

    vm->start.began_ms = clock_boot_ms(); /* as the engine counts its bound */
    facts_set(c->outputs, "asked", "");
    facts_set(c->outputs, "refused", "");
    int adopted = require_files(vm, c, e) < 0 ? -1 : adopt(vm, c, e);

    if (adopted != 0)
        return adopted < 0 ? -1 : 0;
    macos_forget_process(c->outputs);
    if (take_run_lock(vm, e) < 0 || host_read_system(HOST_MS, &host, e) < 0 ||
        disk_release(vm->place->root, vm->place->op_lock, disk, e) < 0)
        return -1;
    if (!facts_set(c->outputs, "leases", host.leases))
        return error_set(e, ERROR_INVALID_ARGS, 0, "the path of the lease file is too long: '%s'",
                         host.leases);
    return 0;
}

static bool is_launched(const struct macos_vm *vm)
{
    return vm->start.id.pid != 0;
}

/* What failed before the launch leaves nothing that would look like a session. */
static enum step_result end_step(struct macos_vm *vm, int result)
{
    if (result == 0)
        return STEP_DONE;
    util_close_fd(&vm->start.run_lock);
    vm->start.run_lock = -1;
    return STEP_FAILED;
}

static enum step_result step_prepare(void *self, struct step_context *c, struct error *e)
{
    return end_step(self, prepare(self, c, e));
}

static enum step_result step_share(void *self, struct step_context *c, struct error *e)
{
    struct macos_vm *vm = self;

    if (is_launched(vm))
        return STEP_DONE;
    AUTO_CLOSE int vm_dir = macos_open_vm_dir(vm, e);

    return end_step(vm, vm_dir < 0 ? -1 : share_write(vm, vm_dir, !macos_is_set_up(c->facts), e));
}

/* --- host key ----------------------------------------------------------------------------------------- */

/* A guest that never had Remote Login has no key to be replaced: it is trusted on first use. One that
 * has lost its key since makes another at the first connection, and nobody knows that one: a person is needed
 * again. */
static enum step_result step_host_key(void *self, struct step_context *c, struct error *e)
{
    struct macos_vm *vm = self;
    bool written = false;

    if (is_launched(vm) || !macos_was_set_up(c->facts))
        return STEP_DONE;
    if (pin_write(vm, c->outputs, &written, e) < 0)
        return end_step(vm, -1);
    if (!written) {
        facts_set(c->outputs, "hostkey", "");
        facts_set(c->outputs, "setup", "lost");
    }
    return STEP_DONE;
}

/* --- launch ------------------------------------------------------------------------------------------- */

/* What vmhost said of its end. Always -1. */
static int fail_ended(struct macos_vm *vm, struct error *e)
{
    struct error ignored = { 0 };
    AUTO_CLOSE int vm_dir = macos_open_vm_dir(vm, &ignored);
    struct vmhost_story story = { .launched = false };
    char why[256];

    if (vm_dir >= 0)
        vmhost_read_story(vm_dir, &story);
    if (story.failed && story.stopped[0] == '\0')
        return macos_fail(vm, &story.failure, e);
    macos_explain_end(vm, &story, why, sizeof(why));
    return error_set(e, ERROR_ACTION_FAILED, 0, "the guest ended before it was ready: %s", why);
}

/* Our child, unless it was adopted: nobody else would take its zombie. */
static void take_zombie(pid_t pid)
{
    struct error ignored = { 0 };
    int status;

    (void)spawn_wait(pid, 0, &status, &ignored);
}

static int is_alive(struct macos_vm *vm, struct error *e)
{
    AUTO_CLOSE int watch = -1;
    int alive = process_open(&vm->start.id, &watch, e);

    if (alive == 0)
        take_zombie(vm->start.id.pid);
    return alive;
}

/* What failed stays the error; that a guest is left running has to be known too. */
static void add_left_over(struct error *e, const struct error *why)
{
    const struct error cause = *e;

    e->code = ERROR_NONE;
    error_set(e, cause.code, 0, "%.300s; its VM host may still run: %.150s", cause.message, why->message);
}

/* A start that failed must not leave a guest behind that becomes ready later. Always STEP_FAILED. */
static enum step_result abandon(struct macos_vm *vm, struct error *e)
{
    struct error why = { 0 };
    const char *forced;

    if (macos_end_vmhost(&vm->start.id, &forced, &why) < 0)
        add_left_over(e, &why);
    take_zombie(vm->start.id.pid);
    return STEP_FAILED;
}

static const char *find_title(const struct macos_vm *vm, const struct facts *facts)
{
    const char *title = facts_get(facts, "set.title");

    return title == NULL ? vm->place->name : title;
}

/* a person needs the window; R-410: or asked for it. */
static int launch(struct macos_vm *vm, struct step_context *c, struct error *e)
{
    bool window = facts_get(c->facts, "set.window") != NULL || !macos_is_set_up(c->facts);
    char program[ROOT_PATH_MAX];
    AUTO_FREE char *dir = macos_print_path(vm, "vm");
    AUTO_FREE char *share = macos_print_path(vm, "vm/share");
    AUTO_CLOSE int vm_dir = macos_open_vm_dir(vm, e);
    const struct vmhost_launch request = { .program = program,
                                           .vm = dir,
                                           .share = share,
                                           .window = window ? find_title(vm, c->facts) : NULL,
                                           .vm_dir = vm_dir,
                                           .run_lock = vm->start.run_lock };
    pid_t pid;

    if (vm_dir < 0 || macos_find_program(vm, program, e) < 0 || vmhost_launch(&request, &pid, e) < 0)
        return -1;
    util_close_fd(&vm->start.run_lock); /* vmhost's alone now */
    vm->start.run_lock = -1;
    if (process_read(pid, &vm->start.id) < 0) {
        take_zombie(pid);
        return fail_ended(vm, e);
    }
    macos_write_process(c->outputs, &vm->start.id);
    if (window)
        facts_set(c->outputs, "set.window", "yes");
    return 0;
}

static enum step_result step_launch(void *self, struct step_context *c, struct error *e)
{
    return is_launched(self) ? STEP_DONE : end_step(self, launch(self, c, e));
}

/* --- boot --------------------------------------------------------------------------------------------- */

static enum step_result step_boot(void *self, struct step_context *c, struct error *e)
{
    struct macos_vm *vm = self;
    AUTO_CLOSE int vm_dir = macos_open_vm_dir(vm, e);
    struct vmhost_story story;
    int alive = vm_dir < 0 ? -1 : is_alive(vm, e); /* before its last words are read */

    if (alive < 0)
        return abandon(vm, e);
    vmhost_read_story(vm_dir, &story);
    if (story.started != 0 || (alive && !story.launched))
        return STEP_DONE;
    if (!alive) {
        fail_ended(vm, e);
        return STEP_FAILED;
    }
    if (macos_is_boot_overdue(vm, c)) {
        error_set(e, ERROR_TIMEOUT, 0, "the VM host has neither started its guest nor failed within %d s",
                  MACOS_BOOT_MS / 1000);
        return abandon(vm, e);
    }
    c->again_ms = BOOT_AGAIN_MS;
    return STEP_AGAIN;
}

/* --- guest -------------------------------------------------------------------------------------------- */

/* What the person has to do, as far as VIEW tells. */
static enum step_result need_person(struct macos_vm *vm, struct step_context *c,
                                    const struct guest_view *view)
{
    guest_print_steps(view, c->facts, vm->start.note, sizeof(vm->start.note));
    c->note = vm->start.note;
    c->outcome = EV_SETUP_REQUIRED;
    facts_set(c->outputs, "asked", "yes");
    return STEP_DONE;
}

static enum step_result lose_setup(struct macos_vm *vm, struct step_context *c, const struct guest_view *view)
{
    facts_set(c->outputs, "setup", "lost");
    return need_person(vm, c, view);
}

static enum step_result end_ready(struct step_context *c, const struct guest_view *view)
{
    facts_set(c->outputs, "address", view->address);
    c->outcome = EV_GUEST_READY;
    return STEP_DONE;
}

/* The same proof for as long as a guest may need to come up whole. */
static bool is_proven(struct macos_vm *vm, const struct guest_view *view)
{
    if (!guest_lacks_setup(view)) {
        vm->start.proven_ms = 0;
        return false;
    }
    if (vm->start.proven_ms == 0)
        vm->start.proven_ms = clock_mono_ms();
    return clock_mono_ms() - vm->start.proven_ms >= PROVEN_MS;
}

static enum step_result await_guest(struct macos_vm *vm, struct step_context *c, struct error *e)
{
    struct guest_view view;

    guest_look(vm, c->facts, LOOK_MS, true, &view);
    if (guest_lets_in(&view) && !guest_lacks_setup(&view))
        return end_ready(c, &view);
    if (view.state == GUEST_OUR_FAULT) {
        *e = view.trouble;
        return abandon(vm, e);
    }
    if (is_proven(vm, &view) || clock_boot_ms() - vm->start.began_ms > MACOS_START_BOUND_MS - BOUND_EXTRA_MS)
        return lose_setup(vm, c, &view);
    c->again_ms = LOOK_AGAIN_MS;
    return STEP_AGAIN;
}

static enum step_result step_guest(void *self, struct step_context *c, struct error *e)
{
    const struct guest_view unseen = { .state = GUEST_NO_ADDRESS };
    struct macos_vm *vm = self;
    int alive = is_alive(vm, e);

    if (alive < 0)
        return abandon(vm, e);
    if (alive == 0) {
        fail_ended(vm, e);
        return STEP_FAILED;
    }
    return macos_is_set_up(c->facts) ? await_guest(vm, c, e) : need_person(vm, c, &unseen);
}

const struct step macos_start_steps[] = {
    { "prepare", step_prepare, true },
    { "share", step_share, true },
    { "host-key", step_host_key, false },
    { "launch", step_launch, false },
    { "boot", step_boot, false },
    { "guest", step_guest, false },
    { 0 },
};

#include "providers/macos/macos.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/json.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/text.h"
#include "providers/home.h"
#include "providers/macos/files.h"
#include "providers/macos/inspect.h"
#include "providers/macos/leases.h"
#include "providers/macos/options.h"
#include "providers/progress.h"

/* How long a command waits for its worker; what has ended sooner is answered sooner. A start without a setup
 * is to answer needs_setup, and one that cannot be why: both within seconds of vmhost's launch. A stop and a
 * clone are to be over when the next line of a script needs them to be: a guest may take its time to shut
 * down; a clone takes seconds where blocks can be shared, and goes on without us where they cannot. */
#define START_GRACE_MS 10000
#define STOP_GRACE_MS  40000
#define CLONE_GRACE_MS 30000
#define STOP_BOUND_MS  120000 /* MACOS_BOOT_MS, and the three ways to end it */

#define REQUEST_MS 20000 /* nobody may be there to confirm the guest's dialog (macos requestStop) */
#define FORCE_MS   10000
#define KILL_MS    5000

#define VM_JSON_MAX  65536
#define NAMES_SIZE   160
#define SENTENCE_MAX 120

/* --- files -------------------------------------------------------------------------------------------- */

int macos_open_dir(struct macos_vm *vm, struct error *e)
{
    return home_open(vm->place->root, vm->place->name, &vm->dir, e);
}

int macos_open_vm_dir(struct macos_vm *vm, struct error *e)
{
    int found = macos_open_dir(vm, e);

    if (found < 0)
        return -1;
    int fd = found == 0 ? -1 : file_open_dir(vm->dir, "vm");

    if (fd >= 0)
        return fd;
    if (found == 0 || errno == ENOENT)
        return error_set(e, ERROR_ACTION_FAILED, 0, "'%s/vm' is gone", vm->path);
    if (errno == ENOTDIR || errno == ELOOP)
        return error_set(e, ERROR_ACTION_FAILED, 0, "'%s/vm' is not a directory", vm->path);
    return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open '%s/vm'", vm->path);
}

int macos_make_dirs(struct macos_vm *vm, const struct step_context *c, struct error *e)
{
    const struct root *root = vm->place->root;

    if (home_make(root, vm->place->name, c->attempt > 1 || vm->dir >= 0, &vm->dir, e) < 0)
        return -1;
    AUTO_CLOSE int fd = file_make_dir(vm->dir, "vm", 0700, e);

    return fd < 0 ? -1 : file_sync_dir(root->sandboxes, e);
}

char *macos_print_path(const struct macos_vm *vm, const char *below)
{
    return mem_print("%s/%s", vm->path, below);
}

int macos_find_program(const struct macos_vm *vm, char out[ROOT_PATH_MAX], struct error *e)
{
    if (!files_is_built(vm->place->root, BUILT_VMHOST))
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0, "the VM host is not built (any more)");
    files_built_path(vm->place->root, BUILT_VMHOST, out);
    return 0;
}

enum step_result macos_step(int result)
{
    return result < 0 ? STEP_FAILED : STEP_DONE;
}

/* --- the session process ------------------------------------------------------------------------------ */

void macos_lock_name(const char *name, char out[MACOS_LOCK_SIZE])
{
    snprintf(out, MACOS_LOCK_SIZE, "%.*s.run", NAME_MAX_LENGTH, name);
}

static int is_held(const struct root *root, const char *name, struct error *e)
{
    char lock[MACOS_LOCK_SIZE];

    macos_lock_name(name, lock);
    return root->locks < 0 ? 0 : lock_is_held(root->locks, lock, e);
}

int macos_is_running(const struct macos_vm *vm, struct error *e)
{
    return is_held(vm->place->root, vm->place->name, e);
}

void macos_write_process(struct facts *facts, const struct process_id *id)
{
    facts_set_int(facts, "pid", id->pid);
    facts_set_int(facts, "start", (int64_t)id->start);
    facts_set(facts, "boot", id->boot);
}

bool macos_read_process(const struct facts *facts, struct process_id *out)
{
    const char *boot = facts_get(facts, "boot");

    *out = (struct process_id){ .pid = (pid_t)facts_get_int(facts, "pid", 0),
                                .start = (uint64_t)facts_get_int(facts, "start", 0) };
    snprintf(out->boot, sizeof(out->boot), "%s", boot == NULL ? "" : boot);
    return out->pid > 1;
}

void macos_forget_process(struct facts *facts)
{
    static const char *const keys[] = { "pid", "start", "boot", "address" };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        facts_set(facts, keys[i], "");
}

static int is_alive(const struct process_id *id, struct error *e)
{
    AUTO_CLOSE int watch = -1;

    return process_open(id, &watch, e);
}

/* The log is that of the latest launch, and who was launched last holds the lock: so what it says of a pid is
 * about the holder, and that pid is nobody else's while the lock is held. */
static bool read_started(struct macos_vm *vm, struct process_id *out)
{
    struct error ignored = { 0 };
    AUTO_CLOSE int dir = macos_open_vm_dir(vm, &ignored);
    struct vmhost_story story = { .launched = false };

    if (dir >= 0)
        vmhost_read_story(dir, &story);
    return story.started > 1 && process_read(story.started, out) == 0;
}

int macos_find_vmhost(struct macos_vm *vm, const struct facts *facts, struct process_id *out, bool *held,
                      struct error *e)
{
    int running = macos_is_running(vm, e);

    *held = running > 0;
    if (running <= 0)
        return running;
    int alive = macos_read_process(facts, out) ? is_alive(out, e) : 0;

    if (alive != 0)
        return alive;
    return read_started(vm, out) && macos_is_running(vm, e) == 1;
}

bool macos_is_boot_overdue(struct macos_vm *vm, const struct step_context *c)
{
    if (c->attempt == 1)
        vm->awaited_ms = clock_mono_ms();
    return clock_mono_ms() - vm->awaited_ms >= MACOS_BOOT_MS;
}

int macos_end_vmhost(const struct process_id *id, const char **forced, struct error *e)
{
    /* vmhost.swift: what it does at each, and the file-wide words for it */
    static const struct {
        int number, wait_ms;
        const char *forced;
    } ways[] = {
        { SIGTERM, REQUEST_MS, NULL },
        { SIGUSR1, FORCE_MS, "its guest did not shut down within 20 s and was switched off" },
        { SIGKILL, KILL_MS, "its VM host did not end and was killed" },
    };
    AUTO_CLOSE int watch = -1;
    int opened = process_open_remains(id, &watch, e);

    *forced = NULL;
    if (opened <= 0)
        return opened;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        *forced = ways[i].forced;
        if (process_send(id, ways[i].number, e) < 0)
            return -1;
        if (process_wait_gone(watch, ways[i].wait_ms))
            return 0;
    }
    return error_set(e, ERROR_ACTION_FAILED, 0, "the VM host (process %d) was killed but does not end",
                     (int)id->pid);
}

int macos_await_end(const struct macos_vm *vm, struct error *e)
{
    AUTO_CLOSE int fd = -1;
    char name[MACOS_LOCK_SIZE];

    macos_lock_name(vm->place->name, name);
    int taken = lock_take(vm->place->root->locks, name, LOCK_SHARED, KILL_MS, &fd, e);

    if (taken == 0)
        return error_set(e, ERROR_ACTION_FAILED, 0, "a process that is not recorded holds locks/%s", name);
    return taken < 0 ? -1 : 0;
}

/* --- Apple's limit ------------------------------------------------------------------------------------ */

struct others {
    char names[NAMES_SIZE];
    size_t count;
};

static bool has_vm(int sandboxes, const char *name)
{
    AUTO_CLOSE int dir = file_open_dir(sandboxes, name);
    struct stat st;

    return dir >= 0 && fstatat(dir, "vm", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* A guest runs, or is being installed: that counts too, and only an installation tells a percentage. */
static bool has_guest(const struct root *root, const char *name)
{
    struct error ignored = { 0 };
    struct progress progress;
    char lock[MACOS_LOCK_SIZE];

    if (is_held(root, name, &ignored) == 1)
        return true;
    snprintf(lock, sizeof(lock), "%.*s.op", NAME_MAX_LENGTH, name);
    return root->locks >= 0 && lock_is_held(root->locks, lock, &ignored) == 1 &&
           progress_read(root, name, &progress) && progress.percent >= 0;
}

static void add_other(struct others *others, const char *name)
{
    size_t size = strlen(others->names);

    snprintf(others->names + size, sizeof(others->names) - size, "%s%s", others->count == 0 ? "" : ", ",
             name);
    others->count++;
}

/* This provider's sandboxes but EXCEPT that have a guest now. */
static void find_others(const struct root *root, const char *except, struct others *out)
{
    int fd = root->sandboxes < 0 ? -1 : file_open_dir(root->sandboxes, "."); /* a position of its own */
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    *out = (struct others){ .count = 0 };
    if (stream == NULL) {
        util_close_fd(&fd);
        return;
    }
    while ((entry = readdir(stream)) != NULL) {
        struct error no_name = { 0 };

        if (strcmp(entry->d_name, except) != 0 && root_check_name(entry->d_name, &no_name) == 0 &&
            has_vm(dirfd(stream), entry->d_name) && has_guest(root, entry->d_name))
            add_other(out, entry->d_name);
    }
    closedir(stream);
}

/* The size of TEXT's first sentence without its full stop; what helps is said by the suggestion. */
static int measure_sentence(const char *text)
{
    const char *end = strstr(text, ". ");
    size_t size = end != NULL ? (size_t)(end - text) : strlen(text);

    if (end == NULL && size > 0 && text[size - 1] == '.')
        size--;
    return (int)(size < SENTENCE_MAX ? size : SENTENCE_MAX);
}

int macos_fail(const struct macos_vm *vm, const struct vmhost_event *failure, struct error *e)
{
    struct vmhost_event told = *failure;
    struct others others;

    if (!vmhost_is_limit(failure))
        return vmhost_fail(failure, e);
    find_others(vm->place->root, vm->place->name, &others);
    if (others.count == 0)
        snprintf(told.message, sizeof(told.message),
                 "%.*s; none of them is a sandbox: another application runs them, or this Mac counts guests "
                 "that are gone",
                 measure_sentence(failure->message), failure->message);
    else
        snprintf(told.message, sizeof(told.message), "%.*s; running here: %.100s",
                 measure_sentence(failure->message), failure->message, others.names);
    return vmhost_fail(&told, e);
}

/* --- what is recorded --------------------------------------------------------------------------------- */

static bool setup_is(const struct facts *facts, const char *value)
{
    const char *setup = facts_get(facts, "setup");

    return setup != NULL && strcmp(setup, value) == 0;
}

bool macos_is_set_up(const struct facts *facts)
{
    return setup_is(facts, "done");
}

bool macos_was_set_up(const struct facts *facts)
{
    return setup_is(facts, "done") || setup_is(facts, "lost");
}

int macos_read_mac(int vm_dir, char out[18], struct error *e)
{
    AUTO_FREE char *bytes = NULL;
    AUTO_JSON struct json *j = NULL;
    struct error cause = { 0 };
    uint8_t mac[6];
    size_t size;

    if (file_read(vm_dir, MACOS_VM_JSON, VM_JSON_MAX, &bytes, &size, &cause) != 1 ||
        json_parse(bytes, size, MACOS_VM_JSON, ERROR_ACTION_FAILED, &j, &cause) < 0)
        return error_set(e, ERROR_ACTION_FAILED, 0, "vm/" MACOS_VM_JSON " cannot be read%s%s",
                         cause.message[0] == '\0' ? "" : ": ", cause.message);
    const char *text = json_get_string(j, "mac");

    if (text == NULL || !lease_parse_mac(text, mac))
        return error_set(e, ERROR_ACTION_FAILED, 0, "vm/" MACOS_VM_JSON " has no MAC address");
    snprintf(out, 18, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
    return 0;
}

/* --- the provider ------------------------------------------------------------------------------------- */

static int macos_open(const struct provider_place *place, void **self, struct error *e)
{
    struct macos_vm *vm = mem_alloc(sizeof(*vm));

    (void)e;
    vm->place = place;
    vm->dir = vm->start.run_lock = -1;
    snprintf(vm->path, sizeof(vm->path), "%s/sandboxes/%.*s", place->root->path, NAME_MAX_LENGTH,
             place->name);
    *self = vm;
    return 0;
}

static void macos_close(void *self)
{
    struct macos_vm *vm = self;

    if (vm == NULL)
        return;
    util_close_fd(&vm->start.run_lock);
    util_close_fd(&vm->dir);
    free(vm);
}

const struct provider_ops macos_ops = {
    .name = "macos",
    .summary = "a macOS guest in a virtual machine, on an Apple silicon Mac",
    .inspect_host = macos_inspect_host,
    .create_options = macos_create_options,
    .needed = "ipsw=latest",
    .start_options = macos_start_options,
    .can_window = true,
    .can_clone = true,
    .limits_running = true,
    .open = macos_open,
    .close = macos_close,
    .check_create = macos_check_create,
    .check_clone = macos_check_clone,
    .plan = {
        [OPERATION_INSTALL] = { .steps = macos_install_steps, .grace_ms = -1 },
        [OPERATION_CREATE] = { .steps = macos_create_steps }, /* tens of minutes: not waited for */
        [OPERATION_CLONE] = { .steps = macos_clone_steps, .grace_ms = CLONE_GRACE_MS },
        [OPERATION_START] = { .steps = macos_start_steps,
                              .grace_ms = START_GRACE_MS,
                              .bound_ms = MACOS_START_BOUND_MS },
        [OPERATION_STOP] = { .steps = macos_stop_steps, .grace_ms = STOP_GRACE_MS, .bound_ms = STOP_BOUND_MS },
        [OPERATION_REMOVE] = { .steps = macos_remove_steps, .grace_ms = -1 },
    },
    .observe = macos_observe,
    .explain_interruption = macos_explain_interruption,
    .exec = macos_exec,
};

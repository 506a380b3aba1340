/* providers/macos/macos.h - one macOS guest: its handle, its files, its facts.
 *
 *   sandboxes/<name>/id_ed25519, id_ed25519.pub   the guest credential
 *   sandboxes/<name>/known_hosts                  the pinned host key, for people's own ssh; the fact counts
 *   sandboxes/<name>/progress.json                while something takes long (progress.h)
 *   sandboxes/<name>/restore.ipsw                 while it is downloaded and installed
 *   sandboxes/<name>/vm/disk.img, aux.img         the guest's disk and auxiliary storage
 *   sandboxes/<name>/vm/vm.json                   vmhost's: the identity, MAC, CPUs, memory
 *   sandboxes/<name>/vm/share/                    what the guest mounts, read-only
 *   sandboxes/<name>/vm/install.log, vmhost.log
 *
 * Facts: user (guest account), image (version and build), mac, hostkey (pinned blob), setup ("done", "lost";
 * absent: never), asked ("yes" from when needs_setup is on record until the guest is ready or started anew:
 * an observation does not know the place, and what a ready guest is called depends on it), address, pid,
 * start, boot (vmhost), leases (path of bootpd's file). */
#ifndef PROVIDERS_MACOS_MACOS_H
#define PROVIDERS_MACOS_MACOS_H

#include "core/journal.h"
#include "core/process.h"
#include "providers/macos/vmhost.h"
#include "providers/provider.h"

#define MACOS_PATH_MAX (ROOT_PATH_MAX + 64)

#define MACOS_START_BOUND_MS                                                                                 \
    600000 /* design: "Lifecycle"; a guest that installs an update boots for minutes */

#define MACOS_BOOT_MS                                                                                        \
    60000 /* from a launch until vmhost tells of a start or a failure; it retries a locked disk for 5 s */

#define MACOS_KEY       "id_ed25519"
#define MACOS_KEY_PUB   "id_ed25519.pub"
#define MACOS_DISK      "disk.img" /* in vm/ */
#define MACOS_AUXILIARY "aux.img"
#define MACOS_VM_JSON   "vm.json"

struct macos_start {      /* a start between its steps; start.c */
    int run_lock;         /* from before the disk is written until vmhost has it; -1 */
    struct process_id id; /* vmhost; pid 0 before it is launched, or found running */
    int64_t began_ms;     /* boot */
    int64_t proven_ms;    /* since when the guest has been seen to lack its setup; 0: it is not */
    char note[JOURNAL_REASON_SIZE];
};

struct macos_vm {
    const struct provider_place *place;
    char path[MACOS_PATH_MAX]; /* of sandboxes/<name> */
    int dir;                   /* its descriptor, -1 until macos_open_dir() */
    struct macos_start start;
    int64_t awaited_ms; /* mono; macos_is_boot_overdue() */
};

/* Opens vm->dir if it is there now. 1, 0 when missing, -1. */
int macos_open_dir(struct macos_vm *vm, struct error *e);

/* A descriptor of vm/, never through a link; -1 with *e. */
int macos_open_vm_dir(struct macos_vm *vm, struct error *e);

/* For create and clone: makes sandboxes/<name> and vm/. What somebody put there by hand is not ours to fill:
 * SANDBOX_EXISTS. */
int macos_make_dirs(struct macos_vm *vm, const struct step_context *c, struct error *e);

char *macos_print_path(const struct macos_vm *vm, const char *below); /* PATH/below; free() it */

/* The built VM host's path; PROVIDER_UNAVAILABLE when this build's is not there. */
int macos_find_program(const struct macos_vm *vm, char out[ROOT_PATH_MAX], struct error *e);

enum step_result macos_step(int result); /* -1: STEP_FAILED */

/* --- the session process: vmhost --- */

#define MACOS_LOCK_SIZE 48

void macos_lock_name(const char *name, char out[MACOS_LOCK_SIZE]); /* "NAME.run" */

/* Does a process hold the run lock? 1, 0, -1. */
int macos_is_running(const struct macos_vm *vm, struct error *e);

/* Who holds it: the recorded process, or the one that the log of the latest launch names (a start that was
 * killed before it could record it). 1 with *out; 0 when it is nobody, or nobody that is known (yet): then
 * *held. */
int macos_find_vmhost(struct macos_vm *vm, const struct facts *facts, struct process_id *out, bool *held,
                      struct error *e);

/* For a step that waits for a launched vmhost's word: has it done so for MACOS_BOOT_MS? */
bool macos_is_boot_overdue(struct macos_vm *vm, const struct step_context *c);

/* Asks it to shut the guest down, then to switch it off, then kills it. *forced (a clause, static) is NULL
 * when the guest went by itself. ACTION_FAILED when it does not go at all. */
int macos_end_vmhost(const struct process_id *id, const char **forced, struct error *e);

/* Waits some seconds until nobody holds the run lock: the proof that it has ended. ACTION_FAILED when
 * somebody does. */
int macos_await_end(const struct macos_vm *vm, struct error *e);

void macos_write_process(struct facts *facts, const struct process_id *id);
bool macos_read_process(const struct facts *facts, struct process_id *out);
void macos_forget_process(struct facts *facts); /* pid, start, boot, address: removed when merged */

/* An error event of vmhost. At Apple's limit the message names the sandboxes that run. Always -1. */
int macos_fail(const struct macos_vm *vm, const struct vmhost_event *failure, struct error *e);

/* --- what is recorded --- */

bool macos_is_set_up(const struct facts *facts);
bool macos_was_set_up(const struct facts *facts); /* is, or has lost it since */

/* The MAC address in vm.json, as text that the lease file's reader takes. */
int macos_read_mac(int vm_dir, char out[18], struct error *e);

extern const struct provider_ops macos_ops;

/* The plans' step tables and other slots, by file. */
extern const struct step macos_create_steps[]; /* create.c */
extern const struct step macos_clone_steps[];  /* clone.c */
extern const struct step macos_start_steps[];  /* start.c */
extern const struct step macos_stop_steps[];   /* stop.c */
extern const struct step macos_remove_steps[]; /* remove.c */
observe_fn macos_observe;                      /* observe.c */

/* observe.c: why a session has ended, a clause; "" when nothing tells. */
void macos_explain_end(const struct macos_vm *vm, const struct vmhost_story *story, char *out, size_t room);

/* create.c: provider_ops.explain_interruption, for both. */
void macos_explain_interruption(void *self, const struct facts *facts, char *out, size_t room);

/* clone.c: provider_ops.check_clone. */
int macos_check_clone(void *self, struct error *e);

/* exec.c: provider_ops.exec. */
int macos_exec(void *self, const struct facts *facts, const struct exec_request *request,
               struct exec_result *out, struct error *e);

/* remove.c: what interrupted removals have left beside the sandboxes. */
void macos_sweep(int sandboxes);

#endif

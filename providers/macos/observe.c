/* observe: what the world shows of a guest. First the run lock, which the kernel frees with vmhost; then
 * vmhost's log; then the guest itself. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "providers/macos/guest.h"
#include "providers/macos/macos.h"
#include "providers/macos/pin.h"

#define MARGIN_MS 100 /* of the deadline: for what comes after the guest's answer */
#define DOUBT_MS  300 /* longer than a VM host that dies holds its lock */

/* --- the end of a session ----------------------------------------------------------------------------- */

void macos_explain_end(const struct macos_vm *vm, const struct vmhost_story *story, char *out, size_t room)
{
    static const struct {
        const char *how, *clause;
    } ends[] = {
        { "window", "its window was closed, which shuts the guest down" },
        { "guest", "its guest was shut down from inside" },
        { "request", "its guest was asked to shut down, and did" },
        { "force", "its guest was switched off" },
    };
    const char *how = story->stopped[0] != '\0' ? story->stopped : story->stopping;

    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (strcmp(how, ends[i].how) == 0) {
            snprintf(out, room, "%s", ends[i].clause);
            return;
        }
    if (story->failed)
        snprintf(out, room, "%s", story->failure.message);
    else
        snprintf(out, room, "its VM host was killed or crashed; its log is sandboxes/%s/vm/" VMHOST_LOG,
                 vm->place->name);
}

/* Nothing of this start is recorded: then the general words are the right ones. */
static void explain_gone(const struct macos_vm *vm, int vm_dir, const struct facts *facts, char *out,
                         size_t room)
{
    struct process_id id;
    struct vmhost_story story = { .launched = false };

    out[0] = '\0';
    if (!macos_read_process(facts, &id))
        return;
    if (strcmp(id.boot, process_boot_id()) != 0) {
        snprintf(out, room, "the host was restarted");
        return;
    }
    if (vm_dir >= 0)
        vmhost_read_story(vm_dir, &story);
    macos_explain_end(vm, &story, out, room);
}

static bool is_missing(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/* A guest that shuts down may take seconds for it, in which its port is closed. That was no loss of Remote
 * Login then, and if it was, the next start sees it. */
static void restore_setup(const struct facts *facts, struct facts *out)
{
    if (facts_get(facts, "refused") == NULL)
        return;
    facts_set(out, "setup", "done");
    facts_set(out, "refused", "");
}

static int observe_gone(struct macos_vm *vm, const struct facts *facts, struct observation *out,
                        struct error *e)
{
    int found = macos_open_dir(vm, e);
    AUTO_CLOSE int vm_dir = found > 0 ? file_open_dir(vm->dir, "vm") : -1;

    if (found < 0)
        return -1;
    if (found == 0 || is_missing(vm->dir, "vm") || (vm_dir >= 0 && is_missing(vm_dir, MACOS_DISK))) {
        out->event = EV_LOST;
        snprintf(out->message, sizeof(out->message), "its %s gone",
                 found == 0 ? "directory is" : "disk image is");
        return 0;
    }
    out->event = EV_GUEST_GONE;
    restore_setup(facts, &out->facts);
    explain_gone(vm, vm_dir, facts, out->message, sizeof(out->message));
    return 0;
}

/* --- a session that lives ----------------------------------------------------------------------------- */

/* A start that was killed before it could record it. */
static void add_process(struct macos_vm *vm, const struct facts *facts, struct facts *out)
{
    struct error ignored = { 0 };
    struct process_id id;
    bool held;

    if (!macos_read_process(facts, &id) && macos_find_vmhost(vm, facts, &id, &held, &ignored) == 1)
        macos_write_process(out, &id);
}

static void add_address(const struct facts *facts, const struct guest_view *view, struct facts *out)
{
    const char *known = facts_get(facts, "address");

    if (view->address[0] != '\0' && (known == NULL || strcmp(known, view->address) != 0))
        facts_set(out, "address", view->address);
}

/* The person is done: from now on the host key is pinned, if this was the first use. */
static void accept_setup(struct macos_vm *vm, const struct facts *facts, const struct guest_view *view,
                         struct observation *out)
{
    out->event = EV_SETUP_DONE;
    facts_set(&out->facts, "setup", "done");
    facts_set(&out->facts, "asked", "");
    facts_set(&out->facts, "refused", "");
    if (facts_get(facts, "hostkey") == NULL) {
        facts_set(&out->facts, "hostkey", view->blob);
        pin_publish(vm, view->blob);
    }
}

static void ask_for_setup(const struct facts *facts, const struct guest_view *view, enum fsm_event event,
                          struct observation *out)
{
    out->event = event;
    facts_set(&out->facts, "asked", "yes");
    guest_print_steps(view, facts, out->message, sizeof(out->message));
}

/* Which event depends on what is on record, which the facts tell: without a setup, needs_setup comes first,
 * and only from there a guest that is ready leads on. */
static void judge(struct macos_vm *vm, const struct facts *facts, const struct guest_view *view,
                  struct observation *out)
{
    bool asked = facts_get(facts, "asked") != NULL;

    if (asked && view->state == GUEST_READY) {
        accept_setup(vm, facts, view, out);
    } else if (asked || !macos_is_set_up(facts)) {
        ask_for_setup(facts, view, EV_SETUP_REQUIRED, out);
    } else if (guest_lacks_setup(view)) {
        ask_for_setup(facts, view, EV_SETUP_LOST, out);
        facts_set(&out->facts, "setup", "lost");
        if (view->state == GUEST_REFUSED)
            facts_set(&out->facts, "refused", "yes");
    } else {
        out->event = guest_lets_in(view) ? EV_GUEST_READY : EV_NONE;
        guest_print_trouble(view, facts, out->message, sizeof(out->message));
    }
}

static void observe_guest(struct macos_vm *vm, const struct facts *facts, int deadline_ms,
                          struct observation *out)
{
    struct guest_view view;

    guest_look(vm, facts, deadline_ms > 2 * MARGIN_MS ? deadline_ms - MARGIN_MS : MARGIN_MS, false, &view);
    judge(vm, facts, &view, out);
    add_address(facts, &view, &out->facts);
    add_process(vm, facts, &out->facts);
}

static int observe_alive(struct macos_vm *vm, const struct facts *facts, int deadline_ms,
                         struct observation *out)
{
    struct error ignored = { 0 };
    AUTO_CLOSE int vm_dir = macos_open_vm_dir(vm, &ignored);
    struct vmhost_story story = { .launched = false };

    out->alive = true;
    if (vm_dir < 0) {
        snprintf(out->message, sizeof(out->message), "its guest runs, but its directory is gone");
        return 0;
    }
    vmhost_read_story(vm_dir, &story);
    if (story.stopping[0] != '\0') {
        out->event = EV_GUEST_STOPPING;
        snprintf(out->message, sizeof(out->message), "%s",
                 strcmp(story.stopping, "window") == 0 ? "its window was closed"
                                                       : "its guest was asked to shut down");
    } else if (story.launched && story.started == 0) {
        snprintf(out->message, sizeof(out->message), "its VM host has not started the guest yet");
    } else {
        observe_guest(vm, facts, deadline_ms, out);
    }
    return 0;
}

static int observe_now(struct macos_vm *vm, const struct facts *facts, int deadline_ms,
                       struct observation *out, struct error *e)
{
    int running = macos_is_running(vm, e);

    memset(out, 0, offsetof(struct observation, facts));
    out->facts.count = 0;
    if (running < 0)
        return -1;
    return running > 0 ? observe_alive(vm, facts, deadline_ms, out) : observe_gone(vm, facts, out, e);
}

/* A guest whose VM host dies refuses us a moment before the run lock is free: a setup is lost when that is
 * seen twice. */
int macos_observe(void *self, const struct facts *facts, int deadline_ms, struct observation *out,
                  struct error *e)
{
    int64_t end_ms = clock_mono_ms() + deadline_ms;

    if (observe_now(self, facts, deadline_ms, out, e) < 0)
        return -1;
    if (out->event != EV_SETUP_LOST)
        return 0;
    clock_sleep_ms(DOUBT_MS);
    int64_t left_ms = end_ms - clock_mono_ms();

    return observe_now(self, facts, left_ms > 0 ? (int)left_ms : 0, out, e);
}

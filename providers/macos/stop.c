/* stop: asks the guest, then does without it (bug case 15). By the process that holds the run lock, never by
 * a number alone. */
#include "providers/macos/macos.h"

#define AGAIN_MS 100

static enum step_result step_halt(void *self, struct step_context *c, struct error *e)
{
    struct macos_vm *vm = self;
    struct process_id id;
    bool held;
    int found = macos_find_vmhost(vm, c->facts, &id, &held, e);

    /* A vmhost whose starter was killed tells its pid once its guest runs. */
    if (found == 0 && held && !macos_is_boot_overdue(vm, c)) {
        c->again_ms = AGAIN_MS;
        return STEP_AGAIN;
    }
    if (found < 0 || (found > 0 && macos_end_vmhost(&id, &c->note, e) < 0) || macos_await_end(vm, e) < 0)
        return STEP_FAILED;
    macos_forget_process(c->outputs);
    facts_set(c->outputs, "asked", "");
    return STEP_DONE;
}

const struct step macos_stop_steps[] = {
    { "halt", step_halt, false },
    { 0 },
};

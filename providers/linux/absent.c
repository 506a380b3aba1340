/* The linux provider of a system that is not Linux: known by name, and unavailable with the reason. */
#include "providers/linux/linux.h"

#include <stdio.h>

#include "providers/linux/options.h"
#include "providers/linux/supervisor.h"

static int refuse(struct error *e)
{
    return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0, "linux sandboxes run on Linux only");
}

static int absent_inspect_host(const struct root *root, struct provider_host_report *out, struct error *e)
{
    (void)root, (void)e;
    *out = (struct provider_host_report){ .state = PROVIDER_UNAVAILABLE };
    snprintf(out->message, sizeof(out->message), "Linux sandboxes run on Linux only.");
    return 0;
}

static int absent_open(const struct provider_place *place, void **self, struct error *e)
{
    (void)place, (void)self;
    return refuse(e);
}

static void absent_close(void *self)
{
    (void)self;
}

static int absent_observe(void *self, const struct facts *facts, int deadline_ms, struct observation *out,
                          struct error *e)
{
    (void)self, (void)facts, (void)deadline_ms, (void)out;
    return refuse(e);
}

static int absent_exec(void *self, const struct facts *facts, const struct exec_request *request,
                       struct exec_result *out, struct error *e)
{
    (void)self, (void)facts, (void)request, (void)out;
    return refuse(e);
}

static enum step_result absent_step(void *self, struct step_context *c, struct error *e)
{
    (void)self, (void)c;
    refuse(e);
    return STEP_FAILED;
}

static const struct step absent_steps[] = { { "refuse", absent_step, false }, { 0 } };

const struct provider_ops linux_ops = {
    .name = "linux",
    .summary = "a desktop of its own over a Linux system's files",
    .inspect_host = absent_inspect_host,
    .create_options = linux_create_options,
    .start_options = linux_start_options,
    .can_clone = true,
    .open = absent_open,
    .close = absent_close,
    .check_create = linux_check_create,
    .plan = {
        [OPERATION_CREATE] = { .steps = absent_steps },
        [OPERATION_CLONE] = { .steps = absent_steps },
        [OPERATION_START] = { .steps = absent_steps },
        [OPERATION_STOP] = { .steps = absent_steps },
        [OPERATION_REMOVE] = { .steps = absent_steps },
    },
    .observe = absent_observe,
    .exec = absent_exec,
};

int supervisor_main(int argc, char **argv)
{
    (void)argc, (void)argv;
    return 2;
}

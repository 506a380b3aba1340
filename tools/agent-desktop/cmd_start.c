#include <string.h>

#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/operate.h"
#include "tools/agent-desktop/settings.h"

#define WINDOW_FACT SETTING_PREFIX "window" /* "yes" while a start with a window is asked for */

static int read_settings(const struct operate *o, const struct args *args, struct settings *settings,
                         struct error *e)
{
    const struct provider_ops *ops = o->sandbox.ops;
    bool window = args_has(args, "window");

    if (settings_read(ops, ops->start_options, false, args, settings, e) < 0)
        return -1;
    if (window && !ops->can_window)
        return error_set(e, ERROR_INVALID_ARGS, 0, "the %s provider has no --window", ops->name);
    if (!settings_forget(ops, &settings->facts) ||
        (ops->can_window && !facts_set(&settings->facts, WINDOW_FACT, window ? "yes" : "")))
        return error_set(e, ERROR_INVALID_ARGS, 0, "there are too many options");
    return 0;
}

/* What is running without a window gets none by another start. */
static int check_window(const struct operate *o, const struct args *args, struct error *e)
{
    const char *shown = facts_get(&o->sandbox.look.record.facts, WINDOW_FACT);

    if (!args_has(args, "window") || shown != NULL || !fsm_can_exec(o->sandbox.look.place))
        return 0;
    return error_set(e, ERROR_INVALID_STATE, 0, "'%s' runs without a window; stop it first",
                     o->sandbox.place.name);
}

int cmd_start(const struct args *args, struct reply *reply, struct error *e)
{
    AUTO_OPERATE struct operate o = OPERATE_CLOSED;
    AUTO_SETTINGS struct settings settings = { 0 };

    o.command = args->command;
    o.event = EV_START;
    o.operation = OPERATION_START;
    o.needs_host = true;
    if (operate_read_wait(&o, args, e) < 0 ||
        operate_open(&o, args->positional[0], NULL, CONTEXT_WRITE, e) < 0)
        return operate_fail(&o, reply, e);
    if (o.sandbox.ops != NULL && read_settings(&o, args, &settings, e) < 0)
        return operate_fail(&o, reply, e);
    if (check_window(&o, args, e) < 0) {
        sandbox_fail(&o.sandbox, reply, (struct fsm_next){ NEXT_STOP, false });
        return -1;
    }
    o.facts = &settings.facts;
    o.options = settings.recorded.bytes;
    return operate_run(&o, reply, e);
}

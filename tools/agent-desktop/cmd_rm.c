#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/operate.h"

int cmd_rm(const struct args *args, struct reply *reply, struct error *e)
{
    AUTO_OPERATE struct operate o = OPERATE_CLOSED;

    o.command = args->command;
    o.event = EV_REMOVE;
    o.operation = OPERATION_REMOVE;
    if (operate_open(&o, args->positional[0], NULL, CONTEXT_WRITE, e) < 0)
        return operate_fail(&o, reply, e);
    return operate_run(&o, reply, e);
}

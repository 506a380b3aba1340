#include "tools/agent-desktop/attempt.h"
#include "tools/agent-desktop/command.h"

int cmd_run(const struct args *args, struct reply *reply, struct error *e)
{
    return attempt_run(args, false, args->rest, reply, e);
}

#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/sandbox.h"

int cmd_status(const struct args *args, struct reply *reply, struct error *e)
{
    const char *name = args->positional[0];
    AUTO_CONTEXT struct context c = CONTEXT_CLOSED;
    AUTO_SANDBOX struct sandbox s = SANDBOX_CLOSED;

    if (root_check_name(name, e) < 0 || context_open(&c, CONTEXT_READ, e) < 0)
        return -1;
    return sandbox_answer(&s, &c, name, reply, e);
}

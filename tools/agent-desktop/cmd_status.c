#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/sandbox.h"

int cmd_status(const struct args *args, struct reply *reply, struct error *e)
{
    const char *name = args->positional[0];
    AUTO_CONTEXT struct context c = CONTEXT_CLOSED;
    AUTO_SANDBOX struct sandbox s = SANDBOX_CLOSED;

    if (root_check_name(name, e) < 0 || context_open(&c, CONTEXT_READ, e) < 0)
        return -1;
    if (sandbox_see(&s, &c, name, e) < 0) {
        if (e->code == ERROR_SANDBOX_NOT_FOUND)
            sandbox_fail(&s, reply, fsm_find_next_after_refusal(FSM_MISSING, EV_NONE));
        return -1;
    }
    struct reply_view view = sandbox_view(&s);

    reply->data = reply_sandbox(&view, &c.root);
    return 0;
}

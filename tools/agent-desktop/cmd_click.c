#include "tools/agent-desktop/command.h"
#include "tools/desktop/desktop.h"

int cmd_click(const struct args *args, struct reply *reply, struct error *e)
{
    struct desktop_click options = { .ref = args->positional[0] };

    return desktop_click(&options, &reply->data, e);
}

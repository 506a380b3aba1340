#include "tools/agent-desktop/command.h"
#include "tools/desktop/desktop.h"

int cmd_type(const struct args *args, struct reply *reply, struct error *e)
{
    struct desktop_type options = { .ref = args->positional[0], .text = args->positional[1] };

    return desktop_type(&options, &reply->data, e);
}

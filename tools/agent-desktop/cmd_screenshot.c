#include "tools/agent-desktop/command.h"
#include "tools/desktop/desktop.h"

int cmd_screenshot(const struct args *args, struct reply *reply, struct error *e)
{
    struct desktop_screenshot options = { .out = args_value(args, "out") };

    if (options.out == NULL)
        return error_set(e, ERROR_INVALID_ARGS, 0, "--out is missing: where does the PNG go?");
    return desktop_screenshot(&options, &reply->data, e);
}

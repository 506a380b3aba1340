#include "tools/agent-desktop/command.h"
#include "tools/desktop/desktop.h"

int cmd_snapshot(const struct args *args, struct reply *reply, struct error *e)
{
    struct desktop_snapshot options = { .app = args_value(args, "app"),
                                        .interactive = args_has(args, "interactive") };

    if (options.app == NULL)
        return error_set(e, ERROR_INVALID_ARGS, 0, "--app is missing: which application?");
    return desktop_snapshot(&options, &reply->data, e);
}

#include "core/text.h"
#include "tools/agent-desktop/command.h"
#include "tools/desktop/desktop.h"

int cmd_launch(const struct args *args, struct reply *reply, struct error *e)
{
    AUTO_FREE const char **values = NULL;
    size_t count = args_values(args, "arg", &values);
    struct desktop_launch options = {
        .app = args->positional[0], .args = values, .arg_count = count, .activate = args_has(args, "activate")
    };
    const char *timeout = args_value(args, "timeout-ms");
    int64_t ms = 0;

    if (timeout != NULL && text_parse_int(timeout, "--timeout-ms", 1, DESKTOP_TIMEOUT_MS_MAX, &ms, e) < 0)
        return -1;
    options.timeout_ms = (int)ms;
    return desktop_launch(&options, &reply->data, e);
}

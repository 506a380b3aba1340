#include <string.h>

#include "core/text.h"
#include "tools/agent-desktop/command.h"
#include "tools/desktop/desktop.h"

int cmd_type(const struct args *args, struct reply *reply, struct error *e)
{
    struct desktop_type options = { .ref = args->positional[0], .text = args->positional[1] };

    if (!text_is_utf8(options.text, strlen(options.text)))
        return error_set(e, ERROR_INVALID_ARGS, 0, "the text is not valid UTF-8");
    return desktop_type(&options, &reply->data, e);
}

#include <string.h>

#include "core/mem.h"
#include "tools/agent-desktop/attempt.h"
#include "tools/agent-desktop/command.h"

/* exec is run of the sandbox's agent-desktop. */
int cmd_exec(const struct args *args, struct reply *reply, struct error *e)
{
    static char name[] = "agent-desktop";
    size_t count = args_rest_count(args);
    AUTO_FREE char **argv = mem_alloc((count + 2) * sizeof(*argv));

    argv[0] = name;
    memcpy(argv + 1, args->rest, count * sizeof(*argv));
    return attempt_run(args, true, argv, reply, e);
}

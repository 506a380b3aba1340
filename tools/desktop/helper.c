#include "tools/desktop/helper.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/mem.h"
#include "core/process.h"
#include "tools/desktop/desktop.h"

#define LAUNCH_WORDS_MAX 8 /* less those of --arg */

static bool find_helper(char out[PATH_MAX])
{
    struct error unknown = { 0 };
    char *name;

    if (process_self_path(out, PATH_MAX, &unknown) < 0) {
        log_debug("no " HELPER_NAME ": %s", unknown.message);
        return false;
    }
    name = strrchr(out, '/') + 1;

    const size_t room = PATH_MAX - (size_t)(name - out);

    return (size_t)snprintf(name, room, "%s", HELPER_NAME) < room && access(out, F_OK) == 0;
}

/* WORDS: the helper's command line less its own name, for which the first place is free. */
static int execute(const char **words, struct error *e)
{
    char path[PATH_MAX];

    if (!find_helper(path))
        return 0;
    words[0] = path;
    execv(path, (char *const *)words);
    e->delivery = DELIVERY_NOT_DELIVERED;
    e->retry = RETRY_SAFE;
    return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot run '%s'", path);
}

int helper_launch(const struct desktop_launch *options, struct error *e)
{
    AUTO_FREE const char **words = mem_alloc((LAUNCH_WORDS_MAX + 2 * options->arg_count) * sizeof words[0]);
    char timeout[16];
    size_t count = 1;

    words[count++] = "launch";
    if (options->activate)
        words[count++] = "--activate";
    if (options->timeout_ms > 0) {
        snprintf(timeout, sizeof timeout, "%d", options->timeout_ms);
        words[count++] = "--timeout-ms";
        words[count++] = timeout;
    }
    for (size_t i = 0; i < options->arg_count; i++) {
        words[count++] = "--arg";
        words[count++] = options->args[i];
    }
    words[count++] = "--"; /* the application's name may begin with a dash */
    words[count] = options->app;
    return execute(words, e);
}

int helper_snapshot(const struct desktop_snapshot *options, struct error *e)
{
    const char *words[] = {
        NULL, "snapshot", "--app", options->app, options->interactive ? "--interactive" : NULL, NULL
    };

    return execute(words, e);
}

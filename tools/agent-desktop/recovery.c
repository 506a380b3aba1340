#include "tools/agent-desktop/recovery.h"

/* What can be said of a code alone. */
static const struct way {
    enum fsm_next_command command;
    bool needs_person;
    bool passes; /* of a look: it may well succeed the next time */
} ways[ERROR_CODE_COUNT] = {
    [ERROR_PROVIDER_UNAVAILABLE] = { .command = NEXT_INSTALL }, /* whose answer tells what is missing */
    [ERROR_SANDBOX_BUSY] = { .command = NEXT_STATUS, .passes = true },
    [ERROR_STORE_BUSY] = { .command = NEXT_STATUS, .passes = true },
    [ERROR_TIMEOUT] = { .command = NEXT_STATUS, .passes = true },
    [ERROR_ACTION_FAILED] = { .passes = true },
    [ERROR_LIMIT_REACHED] = { .needs_person = true, .passes = true }, /* of a look: too many requests */
    [ERROR_PROVIDER_NOT_FOUND] = { .needs_person = true },
    [ERROR_AUTH_FAILED] = { .needs_person = true },
    [ERROR_HOST_KEY_CHANGED] = { .needs_person = true },
    [ERROR_NAME_TAKEN] = { .needs_person = true },
    [ERROR_PERM_DENIED] = { .needs_person = true },
    [ERROR_PLATFORM_NOT_SUPPORTED] = { .needs_person = true },
    [ERROR_STORE_CORRUPT] = { .needs_person = true },
    [ERROR_STORE_FULL] = { .needs_person = true },
};

enum fsm_next_command recovery_find_command(enum error_code code)
{
    return ways[code].command;
}

bool recovery_needs_person(enum error_code code)
{
    return ways[code].needs_person;
}

struct fsm_next recovery_after_look(enum error_code code)
{
    if (code == ERROR_INVALID_ARGS) /* the message says which; the same command would fail the same way */
        return (struct fsm_next){ NEXT_NONE, false };
    if (ways[code].passes)
        return (struct fsm_next){ NEXT_STATUS, false };
    if (ways[code].command != NEXT_NONE)
        return (struct fsm_next){ ways[code].command, false };
    return (struct fsm_next){ NEXT_STATUS, true };
}

void recovery_excuse_look(struct error *e)
{
    if (e->delivery == DELIVERY_DEFAULT)
        e->delivery = DELIVERY_NOT_DELIVERED;
    if (e->retry == RETRY_DEFAULT)
        e->retry = RETRY_SAFE;
    if (e->suggestion == NULL && ways[e->code].passes)
        e->suggestion = "Repeat the command after a while.";
}

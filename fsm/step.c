#include "fsm/step.h"

#include <assert.h>

/* The journal stores these: never renamed. */
static const char *const operation_names[] = {
    [OPERATION_NONE] = "none",     [OPERATION_INSTALL] = "install", [OPERATION_CREATE] = "create",
    [OPERATION_CLONE] = "clone",   [OPERATION_START] = "start",     [OPERATION_STOP] = "stop",
    [OPERATION_REMOVE] = "remove",
};
_Static_assert(ARRAY_LEN(operation_names) == FSM_OPERATION_COUNT, "each operation has a name");

const char *fsm_operation_name(enum fsm_operation operation)
{
    assert(operation < FSM_OPERATION_COUNT);
    return operation_names[operation];
}

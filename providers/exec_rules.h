/* providers/exec_rules.h - what is the same in the exec() of all providers. */
#ifndef PROVIDERS_EXEC_RULES_H
#define PROVIDERS_EXEC_RULES_H

#include "core/error.h"
#include "providers/provider.h"

/* INVALID_ARGS for a directory as one of the caller's streams: where it was passed on, it would be a way into
 * the host's tree, for its ".." leads on. */
int exec_check_streams(const struct exec_request *request, struct error *e);

/* FD, or -1 when it is closed, or open for the other direction only: FORBIDDEN is O_RDONLY or O_WRONLY. */
int exec_usable_stream(int fd, int forbidden);

/* TIMEOUT, for a command that had begun. Always -1. */
int exec_set_late(const struct exec_request *request, struct error *e);

#endif

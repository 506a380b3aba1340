/* providers/linux/session.h - start, observe and stop a sandbox's session: the host's side of the supervisor.
 */
#ifndef PROVIDERS_LINUX_SESSION_H
#define PROVIDERS_LINUX_SESSION_H

#include "providers/linux/linux.h"
#include "providers/provider.h"

/* Frees what a start holds between its steps; a supervisor not yet let go sees the closed pipe and exits. */
void session_start_free(struct session_start *s); /* NULL is fine */

/* Waits until the recorded supervisor, dead or ending, has vanished with every process inside: only then are
 * the sandbox's files nobody's. ACTION_FAILED when that takes longer than 5 s. */
int session_wait_remains(const struct facts *facts, struct error *e);

/* provider_ops.exec */
int linux_exec(void *self, const struct facts *facts, const struct exec_request *request,
               struct exec_result *out, struct error *e);

#endif

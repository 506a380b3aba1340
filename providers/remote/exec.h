/* providers/remote/exec.h - provider_ops.exec over SSH: exact argv, three byte streams, a status that counts
 * only when it has arrived.
 *
 * In the guest the command is run by this same program (runner.h), which is brought up to date first: its
 * files are compared by SHA-1 on the way, in the same round trip, and uploaded beside and renamed when they
 * differ. The environment is that of the account's login shell.
 *
 * What cannot be as if the command ran here: stdin is read ahead of the command; a command whose stdout
 * nobody reads any more finds that out (SIGPIPE, EPIPE), but its stdin ends at that time too. */
#ifndef PROVIDERS_REMOTE_EXEC_H
#define PROVIDERS_REMOTE_EXEC_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "providers/provider.h"
#include "providers/remote/ssh.h"

#define REMOTE_BIN ".local/bin" /* below the guest user's home */

/* A file of the host's that the guest has a copy of, in REMOTE_BIN. */
struct remote_file {
    const char *name; /* "agent-desktop"; letters, digits, '-' and '.', 63 of them at most */
    const char *path; /* here */
};

/* FILES[0] is the runner, this program; at most 4 of them. Honours REQUEST as provider.h says of exec(), the
 * time limit counted from BEGAN_MS (clock_mono_ms()), before it was connected. The connection is of no more
 * use afterwards but to be closed, which also ends whatever of the command is not told to have ended. */
int remote_exec(struct ssh *s, const struct remote_file *files, size_t count,
                const struct exec_request *request, int64_t began_ms, struct exec_result *out,
                struct error *e);

#endif

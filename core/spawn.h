/* core/spawn.h - runs another program: no shell between, everything it inherits is named, and it ends in
 * time.
 *
 * By posix_spawn(3): the caller's memory is never copied. The child gets default signals, an empty mask and
 * only the descriptors that are named here; everything else is closed whether close-on-exec or not. It stays
 * in the caller's process group unless it is detached, so that whoever ends that group, a terminal or
 * process_end(), ends it too. EINTR is retried. */
#ifndef CORE_SPAWN_H
#define CORE_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/error.h"
#include "core/text.h"

struct spawn {
    char *const *argv; /* NULL-terminated; argv[0] without a slash is looked up in the caller's PATH */
    const char *const *environment; /* more of it, "KEY=VALUE", NULL-terminated, instead of what the caller
                                       has under the same key; NULL: none */
    int directory;                  /* working directory's descriptor; -1: the caller's */
    int streams[3];                 /* become 0, 1, 2; -1: /dev/null */
    const int *keep; /* kept open under their own numbers, 3 and above; ends with -1; NULL: none */
    bool detach;     /* a session of its own: it outlives the caller and its terminal */
};

/* Starts it; the caller waits for *pid (a detached one is a child all the same until the caller ends).
 * ACTION_FAILED, or what errno stands for (error.h), and nothing runs, when it cannot be executed. */
int spawn_start(const struct spawn *s, pid_t *pid, struct error *e);

/* Waits for a child at most TIMEOUT_MS (-1: for ever). 1 with its wait(2) status, 0 when it still runs, -1.
 */
int spawn_wait(pid_t pid, int timeout_ms, int *status, struct error *e);

/* Ends a child and all that it has started and that has not left it (a daemon does), with SIGKILL, and waits
 * for the child: at most 10 s (one that waits for a device may take that long), behind the search for all of
 * them, which takes at most 5 s (process_kin_kill()). Nothing when it is no child, or was waited for. */
void spawn_kill(pid_t pid);

/* Runs it to its end with S->streams[1] and [2] ignored: at most MAX bytes of stdout go to *OUT and of stderr
 * to *ERR (either may be NULL: discarded); what is more is read and dropped. Its end counts, not that of the
 * streams, which a process that it leaves behind may keep open. After TIMEOUT_MS (-1: never) it is ended as
 * by spawn_kill(): TIMEOUT; so it is when it cannot be waited for. 0 with the wait(2) status in *status,
 * whatever it is. */
int spawn_capture(const struct spawn *s, int timeout_ms, size_t max, struct text *out, struct text *err,
                  int *status, struct error *e);

#endif

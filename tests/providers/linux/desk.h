/* tests/providers/linux/desk.h - a real sandbox for tests: a state root of its own, the provider's steps run
 * as the engine would, without a journal. */
#ifndef TESTS_PROVIDERS_LINUX_DESK_H
#define TESTS_PROVIDERS_LINUX_DESK_H

#include <stdbool.h>
#include <stddef.h>

#include "providers/linux/linux.h"
#include "providers/linux/session.h"

struct desk {
    char home[64]; /* AGENT_DESKTOP_HOME */
    struct root root;
    struct provider_place place;
    struct linux_sandbox *s;
    struct facts facts;
    enum fsm_event outcome; /* of the last operation */
    char note[256];
};

/* NULL where this host can run sandboxes, else why not. Lent. */
const char *desk_refusal(void);

/* A new state root with the sandbox NAME, created. Asserts. */
void desk_open(struct desk *d, const char *name);
void desk_close(struct desk *d); /* stops it, removes everything */

/* Another sandbox in the same state root. */
void desk_open_beside(struct desk *d, const struct desk *other, const char *name);
void desk_close_beside(struct desk *d);

/* All steps of OPERATION, or the first COUNT of them; outputs go to the facts. 0 or -1. */
int desk_run(struct desk *d, enum fsm_operation operation, size_t count, struct error *e);

void desk_start(struct desk *d); /* asserts */
void desk_stop(struct desk *d);

/* Runs ARGV inside; its stdout, cut to ROOM, in OUT (may be NULL). */
int desk_exec(struct desk *d, const char *const *argv, struct exec_result *result, char *out, size_t room,
              struct error *e);

/* `sh -c SCRIPT` inside: the exit status, 128+N, or -1. */
int desk_shell(struct desk *d, const char *script);

/* How many processes inside have WORD in their command line; -1 when that cannot be found out. */
int desk_count(struct desk *d, const char *word);

/* Waits until desk_count() is COUNT; false after 5 s. */
bool desk_wait_count(struct desk *d, const char *word, int count);

pid_t desk_supervisor(const struct desk *d);

#endif

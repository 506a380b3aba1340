/* providers/macos/host.h - everything that is asked of Apple's tools, through provider.sh, their only caller.
 *
 * provider.sh VERB ARGUMENTS: exit 0 and the answer on stdout, or another status and the reason on stderr.
 * The verbs are listed at its top. Read-only questions run the script from memory; everything else runs the
 * written file (files.h). */
#ifndef PROVIDERS_MACOS_HOST_H
#define PROVIDERS_MACOS_HOST_H

#include <stdbool.h>

#include "core/error.h"
#include "core/root.h"
#include "core/text.h"

enum host_tools {
    HOST_TOOLS_READY,
    HOST_TOOLS_ABSENT,
    HOST_TOOLS_STALE,
    HOST_TOOLS_LICENCE,
    HOST_TOOLS_UNKNOWN, /* not asked for, or an answer that this version does not know */
    HOST_TOOLS_COUNT
};

struct host {
    char system[32]; /* uname -s: "Darwin" */
    bool apple_silicon;
    bool virtual_machine; /* is itself a guest, which cannot host macOS guests */
    char version[32];     /* "15.6.1" */
    enum host_tools tools;
    char leases[256]; /* path of bootpd's file */
};

/* provider.sh host. At most 2 s. */
int host_read(struct host *out, struct error *e);

/* The same without the tools, which can take seconds to be found (a new xcrun cache); at most TIMEOUT_MS. */
int host_read_system(int timeout_ms, struct host *out, struct error *e);
int host_read_tools(int timeout_ms, enum host_tools *out, struct error *e);

#define HOST_ANSWER_MAX (1024 * 1024)

struct host_call {
    const struct root *root; /* may be NULL for read-only questions */
    int locks[3]; /* inherited, so that what a killed caller leaves running holds them on ("attach" leaves
                     something running anyway, and gets none); ends with -1 */
    int timeout_ms;
    int log; /* both streams go there, as they come, and there is no answer; -1: there is none */
};

/* Runs WORDS (a verb, its arguments, NULL) to the end: at most HOST_ANSWER_MAX bytes of its stdout in *ANSWER
 * (NULL: nobody wants it); a status other than 0 is ACTION_FAILED with the last line of its stderr, or the
 * code that the status stands for. */
int host_call(const struct host_call *call, const char *const *words, struct text *answer, struct error *e);

/* The usual one, with the words behind: host_run(root, op_lock, timeout_ms, answer, e, "detach", disk, NULL).
 * OP_LOCK (or -1) is inherited. */
int host_run_words(const struct root *root, int op_lock, int timeout_ms, struct text *answer, struct error *e,
                   const char *const *words);
#define host_run(root, op_lock, timeout_ms, answer, e, ...)                                                  \
    host_run_words(root, op_lock, timeout_ms, answer, e, (const char *const[]){ __VA_ARGS__ })

/* Is it proven that PROGRAM's signature is broken? A tool that is slow, or cannot be asked, proves nothing.
 * At most TIMEOUT_MS; OP_LOCK (or -1) is inherited. */
bool host_is_broken(const char *program, int op_lock, int timeout_ms);

#endif

/* providers/macos/vmhost.h - the VM host program: how it is started, what it says, what its failures mean.
 *
 * vmhost VERB OPTIONS writes one JSON object a line to its stdout; vmhost.swift lists the events. A short
 * verb (install, renew) is a child that is read through a pipe. `vmhost run` is the sandbox's session
 * process: detached, it holds the run lock for life and appends to vm/vmhost.log, which is where everybody
 * else learns of it. */
#ifndef PROVIDERS_MACOS_VMHOST_H
#define PROVIDERS_MACOS_VMHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/error.h"

#define VMHOST_LOG "vmhost.log" /* in vm/ */

enum vmhost_event_kind {
    VMHOST_OTHER,  /* not an event, or one that this version does not know: passed over */
    VMHOST_LAUNCH, /* ours, not vmhost's: in its log, what follows is of the one that was started then */
    VMHOST_IMAGE,
    VMHOST_PROGRESS,
    VMHOST_INSTALLED,
    VMHOST_STARTED,
    VMHOST_STOPPING,
    VMHOST_STOPPED,
    VMHOST_ERROR
};

struct vmhost_event {
    enum vmhost_event_kind kind;
    double fraction;  /* progress: 0 to 1 */
    char version[32]; /* image */
    char build[32];
    pid_t pid;         /* started */
    char how[16];      /* stopping, stopped: "request", "force", "window", "guest" */
    char problem[24];  /* error: "limit", "keychain", "locked", "entitlement", "image", "host-too-old", ... */
    long long code;    /* error: of the framework */
    char message[256]; /* error: one line, UTF-8 */
};

/* Any bytes are fine; a line is without its newline. */
void vmhost_parse_event(const char *line, size_t size, struct vmhost_event *out);

/* What an error event stands for. Fills *e; always -1. */
int vmhost_fail(const struct vmhost_event *failure, struct error *e);
bool vmhost_is_limit(const struct vmhost_event *failure); /* Apple's: two macOS guests at once */

/* What the log says of the latest launch, whoever made it; from the end of the file, whatever that holds. */
struct vmhost_story {
    bool launched; /* false: the log is gone, or tells of no launch (any more) */
    pid_t started; /* 0: not (yet) */
    bool failed;
    struct vmhost_event failure; /* the last */
    char stopping[16];           /* how; "" not */
    char stopped[16];
};

void vmhost_read_story(int vm_dir, struct vmhost_story *out);

struct vmhost_launch {
    const char *program;
    const char *vm; /* absolute paths */
    const char *share;
    const char *window; /* its title; NULL: headless */
    int vm_dir;
    int run_lock; /* inherited */
};

/* Starts `vmhost run`, detached. *pid is a child until the caller ends. */
int vmhost_launch(const struct vmhost_launch *launch, pid_t *pid, struct error *e);

struct vmhost_job {
    char *const *argv;
    int op_lock;  /* inherited, so that it is held until all is over; -1 */
    int log;      /* what it prints is copied there; -1 */
    int quiet_ms; /* telling of nothing for so long, it is ended: TIMEOUT */
    void (*on_event)(void *self, const struct vmhost_event *event); /* NULL */
    void *self;
};

/* Runs a short verb to its end. It ends by itself when the caller dies: its stdin is then closed. *failure
 * tells of its error event, kind VMHOST_OTHER when there was none; may be NULL. */
int vmhost_run(const struct vmhost_job *job, struct vmhost_event *failure, struct error *e);

#endif

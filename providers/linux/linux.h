/* providers/linux/linux.h - what the files of the linux provider share: the handle of one sandbox.
 *
 * On disk, below sandboxes/<name>/:
 *   upper/   one mirrored tree: the upper layer of /usr is upper/usr, of /etc upper/etc
 *   home/    HOME inside
 *   vartmp/  /var/tmp inside
 *   work/    overlay's scratch; removed and made anew by every start
 *   root/    the mount point of the new root
 *   ctl      the supervisor's socket (SOCK_SEQPACKET); env  its environment, NUL-separated
 *   log/     what the supervisor and the desktop's services said
 *
 * Facts: "set.screen", "set.net" (options); "pid", "start", "boot" (the supervisor, process.h);
 * "display" (":100"); "note" (what is not isolated in this session, a clause; observe's message). */
#ifndef PROVIDERS_LINUX_LINUX_H
#define PROVIDERS_LINUX_LINUX_H

#include <stdbool.h>
#include <sys/types.h>

#include "core/facts.h"
#include "providers/provider.h"

/* From spawn to a desktop that answers; the benchmark (P-7) shows some 90 ms. */
#define LINUX_START_BOUND_MS 15000

struct session_start; /* a start between its steps; session.h */

struct linux_sandbox { /* the handle behind provider_ops.open */
    const struct provider_place *place;
    int dir;                    /* sandboxes/<name>, -1 when there is none (yet) */
    char path[4352];            /* the same as an absolute path */
    char note[FACT_VALUE_SIZE]; /* of the session that was started here: the fact, and the move's reason */
    struct session_start *starting;
};

struct linux_user { /* who runs inside: the caller, mapped to itself */
    uid_t uid;
    gid_t gid;
    char name[64];
    char home[256]; /* from passwd */
    char shell[128];
};

/* getpwuid; PROVIDER_UNAVAILABLE when there is no entry or no home. */
int linux_user_find(struct linux_user *out, struct error *e);

/* Opens s->dir if it is there now. 1, 0 when missing, -1. */
int linux_sandbox_open_dir(struct linux_sandbox *s, struct error *e);

extern const struct provider_ops linux_ops;

/* The plans' step tables, by file. */
extern const struct step linux_create_steps[]; /* steps_files.c: directories, skeleton of /etc */
extern const struct step linux_clone_steps[];  /* steps_files.c: copy of the stopped source */
extern const struct step linux_remove_steps[]; /* steps_files.c: rename to .gone-<token>, delete */
extern const struct step linux_start_steps[];  /* session.c: spawn, desktop */
extern const struct step linux_stop_steps[];   /* session.c: halt */
observe_fn linux_observe;                      /* session.c */

#endif

/* providers/linux/supervisor.h - PID 1 of a sandbox: starts the desktop, reaps, answers ctl, stops the
 * desktop.
 *
 * Runs inside the namespaces, after mounts_enter(). As an ordinary user it never execs, so that it keeps its
 * capabilities in the namespace and programs inside cannot ptrace it or read its /proc entries; as root it
 * re-executes itself from a sealed memfd copy of the binary (main() calls supervisor_main for that).
 * Allocates nothing after its start. */
#ifndef PROVIDERS_LINUX_SUPERVISOR_H
#define PROVIDERS_LINUX_SUPERVISOR_H

#include <stdint.h>

#include "providers/linux/linux.h"

struct supervisor {
    struct linux_user user;
    char name[33];   /* the sandbox's */
    char screen[32]; /* "1280x800" */
    char lang[64];   /* LANG of every program inside */
    int listen;      /* ctl, from control_bind() */
    int go;          /* socket: one byte when the host has recorded us; closed first: exit */
    int report;      /* socket: supervisor_report when ready or failed; a broken one does not matter */
    int run_lock;    /* held for life, never passed on to programs; deleted: the session ends */
    int log_dir;     /* sandboxes/<name>/log */
    int env_dir;     /* sandboxes/<name>, for the env file */
    int bound_ms;    /* for the whole start of the desktop */
};

struct supervisor_report {
    uint32_t ready; /* 1: the desktop answers */
    uint32_t display;
    uint32_t scoped;   /* Landlock keeps abstract sockets and signals inside */
    char message[244]; /* when not ready: which service, why, which log */
};

/* In log/supervisor.log, before what ended the session. */
#define SUPERVISOR_ENDED " ended: "

/* Never returns to the caller's program: the exit status of PID 1. */
int supervisor_run(const struct supervisor *s);

/* Entry of the re-executed binary: argv[1] is SUPERVISOR_MODE. */
#define SUPERVISOR_MODE "--supervise"
int supervisor_main(int argc, char **argv);

#endif

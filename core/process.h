/* core/process.h - who a process is, beyond a number that is reused.
 *
 * pid + start time + boot id, with the pidfd for signalling: a signal never reaches a stranger. A zombie
 * and a process on its way out count as gone. */
#ifndef CORE_PROCESS_H
#define CORE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"

#define BOOT_ID_SIZE 40 /* 36 characters and a NUL, rounded up */

struct process_id { /* pid 0: none */
    pid_t pid;
    uint64_t start;          /* clock ticks since boot: field 22 of /proc/PID/stat, proc_pid_stat(5) */
    char boot[BOOT_ID_SIZE]; /* /proc/sys/kernel/random/boot_id */
};

void process_read_self(struct process_id *out);

/* Identity of a live process, -1 when it is gone. */
int process_read(pid_t pid, struct process_id *out);

/* A pidfd for exactly this process: opens first, compares after, so that a reuse between the two is
 * seen. 1 with *pidfd; 0 when it is gone (another boot, another start, a zombie, exiting); -1 on error. */
int process_open(const struct process_id *id, int *pidfd, struct error *e);

/* The same, but a zombie and a process on its way out are found too: for waiting until all is gone that a
 * dead one still holds (the init of a pid namespace is on its way out until its last process is gone). */
int process_open_remains(const struct process_id *id, int *pidfd, struct error *e);

/* Waits until the pidfd's process is gone. 1 gone, 0 after WAIT_MS. */
int process_wait_gone(int pidfd, int wait_ms);

/* Ends the process ID names: SIGTERM, GRACE_MS, SIGKILL, until gone. When it leads its own session the
 * signals go to its process group. 0 also when it was gone already. */
int process_end(const struct process_id *id, int grace_ms, struct error *e);

const char *process_boot_id(void); /* of this boot; "" where the system has none */

#endif

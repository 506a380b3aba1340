/* core/process.h - who a process is, beyond a number that is reused.
 *
 * pid + start time + boot id, and a descriptor that watches it: a pidfd on Linux, through which it is
 * signalled, so that a signal never reaches a stranger; a kqueue on macOS, where the start time is compared
 * first. A zombie and a process on its way out count as gone. */
#ifndef CORE_PROCESS_H
#define CORE_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"

#define BOOT_ID_SIZE 40 /* 36 characters and a NUL, rounded up */

struct process_id { /* pid 0: none */
    pid_t pid;
    uint64_t start; /* Linux: clock ticks since boot, field 22 of proc_pid_stat(5); macOS: us since 1970 */
    char boot[BOOT_ID_SIZE]; /* /proc/sys/kernel/random/boot_id; sysctl kern.bootsessionuuid */
};

void process_read_self(struct process_id *out);

/* Identity of a live process, -1 when it is gone. */
int process_read(pid_t pid, struct process_id *out);

/* Watches exactly this process: opens first, compares after, so that a reuse between the two is seen. 1 with
 * *watch, which is closed with close(2); 0 when it is gone (another boot, another start, a zombie, exiting);
 * -1 on error. */
int process_open(const struct process_id *id, int *watch, struct error *e);

/* The same, but a zombie and a process on its way out are found too: for waiting until all is gone that a
 * dead one still holds (the init of a pid namespace is on its way out until its last process is gone). On
 * macOS a dead one holds nothing, and a zombie is not found. */
int process_open_remains(const struct process_id *id, int *watch, struct error *e);

/* Waits until the watched process is gone. 1 gone, 0 after WAIT_MS. */
int process_wait_gone(int watch, int wait_ms);

/* Sends it a signal, by number: to exactly this process and to nobody else. 1; 0 when it is gone; -1. */
int process_send(const struct process_id *id, int number, struct error *e);

/* Ends the process ID names: SIGTERM, GRACE_MS, SIGKILL, until gone. When it leads its own session the
 * signals go to its process group. 0 also when it was gone already. */
int process_end(const struct process_id *id, int grace_ms, struct error *e);

/* All of its children, zombies too. How many; 0 also when they cannot be known. free(*out), which may be
 * NULL. One may be missed while others of them end: Linux reads the list in pieces
 * (proc_pid_task_children(5)).
 */
size_t process_children(pid_t pid, pid_t **out);

/* From now on, whoever below this process loses its parent becomes its child, where the system can do that
 * (Linux, PR_SET_CHILD_SUBREAPER of prctl(2)); elsewhere nothing changes. */
void process_adopt_orphans(void);

const char *process_boot_id(void); /* of this boot; "" where the system has none */

/* The absolute path of this program's file, links resolved. INTERNAL when it does not fit, or when the file
 * is gone or was replaced (Linux) since this process began. */
int process_self_path(char *out, size_t room, struct error *e);

#endif

/* core/process_system.h - what the systems tell about processes, each in its own way: process_linux.c,
 * process_darwin.c. For process.c and spawn.c only. */
#ifndef CORE_PROCESS_SYSTEM_H
#define CORE_PROCESS_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/process.h"

/* How long a process may take to vanish after SIGKILL: one that waits for a device can take seconds, and
 * more than this is worth a message. */
#define PROCESS_KILL_WAIT_MS 10000

struct process_look {
    uint64_t start; /* as in struct process_id */
    pid_t session;
    bool ending; /* a zombie, or on its way out */
};

/* 1 with what is to be seen of a process, 0 when there is none, -1 with errno. */
int process_look(pid_t pid, struct process_look *out);

/* A descriptor that poll(2) finds readable once the process has ended. -1 with errno; ESRCH when there is
 * none, ENOSYS where the system cannot. */
int process_watch(pid_t pid);

/* To the process that WATCH was opened for, or to the process group that it leads. -1 with errno. */
int process_signal(pid_t pid, int watch, bool group, int number);

void process_read_boot_id(char out[BOOT_ID_SIZE]); /* "" where the system has none */

#endif

/* providers/linux/family.h - a command and all that came from it: found, remembered, ended.
 *
 * Works on /proc of the pid namespace of the caller, which is its PID 1 and the only parent of commands. A
 * family is: the process group its leader made (setsid), every process one of these is an ancestor of, and
 * who was remembered. A process that left the group and whose ancestors have ended belongs to PID 1 and
 * is nobody's. No allocation; a scan holds FAMILY_SCAN_MAX processes. */
#ifndef PROVIDERS_LINUX_FAMILY_H
#define PROVIDERS_LINUX_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FAMILY_SCAN_MAX     16384
#define FAMILY_REMEMBER_MAX 4096

struct family_process {
    pid_t pid, parent, group;
    uint64_t start;
    char state; /* as in /proc/PID/stat */
    bool marked;
};

struct family_kin {
    pid_t leader, pid;
    uint64_t start;
};

struct family { /* large: one, made at the start; { 0 } is an empty one */
    size_t process_count;
    struct family_process processes[FAMILY_SCAN_MAX];
    size_t kin_count; /* remembered ones of all families */
    struct family_kin kin[FAMILY_REMEMBER_MAX];
};

/* Remembers who belongs to the family now, so that they are found when the leader is gone, and forgets
 * those that have ended. */
void family_remember(struct family *f, pid_t leader);
void family_forget(struct family *f, pid_t leader);

/* Does any process of the family still live? A zombie does not. */
bool family_lives(struct family *f, pid_t leader);

/* SIGKILL to every process of these COUNT families. Stops them first: what cannot run cannot fork away. */
void family_kill(struct family *f, const pid_t *leaders, size_t count);

#endif

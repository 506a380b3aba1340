#include "core/process_system.h"

#include <errno.h>
#include <libproc.h>
#include <limits.h>
#include <mach-o/dyld.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/event.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/process.h"

/* By sysctl(3), as ps(1) does: proc_pidinfo() tells when a process began only to its owner and to root, and a
 * number that is another user's now must be seen to be another process. */
int process_look(pid_t pid, struct process_look *out)
{
    int name[] = { CTL_KERN, KERN_PROC, KERN_PROC_PID, pid };
    struct kinfo_proc info = { 0 };
    size_t size = sizeof(info);
    const struct timeval *start = &info.kp_proc.p_starttime;

    if (sysctl(name, ARRAY_LEN(name), &info, &size, NULL, 0) < 0)
        return errno == ESRCH ? 0 : -1;
    if (size == 0)
        return 0;
    *out = (struct process_look){
        .start = (uint64_t)start->tv_sec * 1000000 + (uint64_t)start->tv_usec,
        .session = getsid(pid), /* -1 when it goes at this moment */
        .ending = info.kp_proc.p_stat == SZOMB || (info.kp_proc.p_flag & P_WEXIT) != 0,
    };
    return 1;
}

/* sysctl(3) documents neither; xnu bsd/kern/kern_sysctl.c: 36 characters, anew at each boot */
void process_read_boot_id(char out[BOOT_ID_SIZE])
{
    size_t size = BOOT_ID_SIZE;

    if (sysctlbyname("kern.bootsessionuuid", out, &size, NULL, 0) < 0)
        out[0] = '\0';
    out[BOOT_ID_SIZE - 1] = '\0';
}

/* What does not fit is left out without a word, so a full list is asked for again with more room. */
size_t process_children(pid_t pid, pid_t **out)
{
    pid_t *pids = NULL;
    size_t room = 128, count;

    do {
        room *= 2;
        pids = mem_grow(pids, room, sizeof(*pids));
        int bytes = proc_listpids(PROC_PPID_ONLY, (uint32_t)pid, pids, (int)(room * sizeof(*pids)));

        count = bytes < 0 ? 0 : (size_t)bytes / sizeof(*pids);
    } while (count >= room);
    *out = pids;
    return count;
}

void process_adopt_orphans(void)
{
}

int process_self_path(char *out, size_t room, struct error *e)
{
    char started[PATH_MAX], real[PATH_MAX]; /* as it was started: perhaps through links */
    uint32_t size = sizeof(started);

    if (_NSGetExecutablePath(started, &size) != 0 || realpath(started, real) == NULL)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot find the file of this program");
    if (strlen(real) >= room)
        return error_set(e, ERROR_INTERNAL, 0, "the path of this program is longer than %zu bytes", room - 1);
    memcpy(out, real, strlen(real) + 1);
    return 0;
}

/* A kqueue that holds one event: kqueue(2), EVFILT_PROC. It is not taken out, so the descriptor stays
 * readable. A zombie cannot be watched any more (ESRCH), and holds nothing that could be waited for. */
int process_watch(pid_t pid)
{
    AUTO_CLOSE int queue = kqueue(); /* not inherited: fork(2) closes it */
    struct kevent exits;

    if (queue < 0)
        return -1;
    EV_SET(&exits, (uintptr_t)pid, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, NULL);
    if (RETRY_EINTR(kevent(queue, &exits, 1, NULL, 0, NULL)) < 0)
        return -1;
    return steal_fd(&queue);
}

/* By number: there is nothing better. Who calls has compared the start of the process a moment ago, behind
 * the opening of the watch; what has ended since is not signalled. */
int process_signal(pid_t pid, int watch, bool group, int number)
{
    if (!group && process_wait_gone(watch, 0) == 1) {
        errno = ESRCH;
        return -1;
    }
    return kill(group ? -pid : pid, number);
}

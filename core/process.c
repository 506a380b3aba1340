#include "core/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"

/* How long a process may take to vanish after SIGKILL: one that waits for a device can take seconds, and
 * more than this is worth a message. */
#define KILL_WAIT_MS 10000

#define PF_EXITING_FLAG 0x4 /* include/linux/sched.h; not exported */

#ifndef PIDFD_SIGNAL_PROCESS_GROUP
#define PIDFD_SIGNAL_PROCESS_GROUP (1U << 2) /* pidfd_send_signal(2), Linux 6.9 */
#endif

/* What is needed of /proc/PID/stat, proc_pid_stat(5). */
struct stat_fields {
    char state;     /* field 3 */
    pid_t session;  /* field 6 */
    unsigned flags; /* field 9 */
    uint64_t start; /* field 22 */
};

static bool parse_stat(const char *line, struct stat_fields *out)
{
    /* field 2 is the name in brackets, which may hold blanks and brackets itself */
    const char *behind = strrchr(line, ')');
    int session;

    *out = (struct stat_fields){ 0 };
    if (behind == NULL)
        return false;
    if (sscanf(behind + 1,
               " %c %*d %*d %d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
               &out->state, &session, &out->flags, &out->start) != 4)
        return false;
    out->session = session;
    return true;
}

/* One read: the kernel makes the line anew for each. -1 with errno; ENOENT or ESRCH: there is none. */
static int read_proc_file(const char *path, char *out, size_t room)
{
    AUTO_CLOSE int fd = RETRY_EINTR(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t got;

    if (fd < 0)
        return -1;
    got = RETRY_EINTR(read(fd, out, room - 1));
    if (got < 0)
        return -1;
    out[got] = '\0';
    return 0;
}

/* 1 with the fields of a process, 0 when there is none, -1 with errno. */
static int read_stat(pid_t pid, struct stat_fields *out)
{
    char path[32], line[1024];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (read_proc_file(path, line, sizeof(line)) < 0)
        return errno == ENOENT || errno == ESRCH ? 0 : -1;
    if (!parse_stat(line, out)) {
        errno = EPROTO;
        return -1;
    }
    return 1;
}

/* A killed namespace init stays in state S for tens of milliseconds while it reaps: only its flags tell. */
static bool is_ending(const struct stat_fields *fields)
{
    return strchr("ZXx", fields->state) != NULL || (fields->flags & PF_EXITING_FLAG) != 0;
}

static char boot_id[BOOT_ID_SIZE];

static void read_boot_id(void)
{
    if (read_proc_file("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id)) < 0)
        boot_id[0] = '\0';
    boot_id[strcspn(boot_id, "\n")] = '\0';
}

const char *process_boot_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, read_boot_id); /* it cannot change while we live */
    return boot_id;
}

int process_read(pid_t pid, struct process_id *out)
{
    struct stat_fields fields = { 0 };

    if (pid <= 0 || read_stat(pid, &fields) != 1 || is_ending(&fields))
        return -1;
    *out = (struct process_id){ .pid = pid, .start = fields.start };
    snprintf(out->boot, sizeof(out->boot), "%s", process_boot_id());
    return 0;
}

void process_read_self(struct process_id *out)
{
    if (process_read(getpid(), out) == 0)
        return;
    *out = (struct process_id){ .pid = getpid() }; /* no /proc: start 0 never matches a real one */
    snprintf(out->boot, sizeof(out->boot), "%s", process_boot_id());
}

/* As process_open_remains(), with what was read of it. */
static int open_checked(const struct process_id *id, int *pidfd, struct stat_fields *fields, struct error *e)
{
    AUTO_CLOSE int fd = -1;
    int found;

    if (id->pid <= 0 || strcmp(id->boot, process_boot_id()) != 0)
        return 0;
    fd = (int)syscall(SYS_pidfd_open, id->pid, 0);
    /* besides ESRCH: the number is a thread's now, which is another reuse */
    if (fd < 0 && (errno == ESRCH || errno == EINVAL || errno == ENOENT))
        return 0;
    if (fd < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot open process %d", (int)id->pid);
    found = read_stat(id->pid, fields);
    if (found < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot look at process %d", (int)id->pid);
    if (found == 0 || fields->start != id->start)
        return 0;
    *pidfd = steal_fd(&fd);
    return 1;
}

/* As process_open(); *leads tells whether it leads its own session. */
static int open_alive(const struct process_id *id, int *pidfd, bool *leads, struct error *e)
{
    AUTO_CLOSE int fd = -1;
    struct stat_fields fields = { 0 };
    int found = open_checked(id, &fd, &fields, e);

    if (found <= 0 || is_ending(&fields))
        return found < 0 ? -1 : 0;
    *leads = fields.session == id->pid && id->pid > 1; /* kill(-1) is everybody */
    *pidfd = steal_fd(&fd);
    return 1;
}

int process_open(const struct process_id *id, int *pidfd, struct error *e)
{
    bool leads;

    return open_alive(id, pidfd, &leads, e);
}

int process_open_remains(const struct process_id *id, int *pidfd, struct error *e)
{
    struct stat_fields fields = { 0 };

    return open_checked(id, pidfd, &fields, e);
}

int process_wait_gone(int pidfd, int wait_ms)
{
    int64_t end_ms = clock_mono_ms() + wait_ms;

    for (;;) {
        struct pollfd waiting = { .fd = pidfd, .events = POLLIN };
        int64_t left_ms = end_ms - clock_mono_ms();
        int ready = poll(&waiting, 1, left_ms > 0 ? (int)left_ms : 0);

        if (ready > 0)
            return (waiting.revents & POLLIN) != 0;
        if (ready == 0 || errno != EINTR)
            return 0;
    }
}

/* To the process, or to the group it leads. 0 also when nobody is left to get it; -1 with errno. */
static int send_signal(const struct process_id *id, int pidfd, bool group, int number)
{
    unsigned int flags = group ? PIDFD_SIGNAL_PROCESS_GROUP : 0;
    long sent = syscall(SYS_pidfd_send_signal, pidfd, number, NULL, flags);

    /* Before Linux 6.9 a group has only its number. It cannot be a stranger's while a member lives, and
     * the leader did a moment ago. */
    if (sent < 0 && errno == EINVAL && group)
        sent = kill(-id->pid, number);
    return sent < 0 && errno != ESRCH ? -1 : 0;
}

int process_end(const struct process_id *id, int grace_ms, struct error *e)
{
    AUTO_CLOSE int pidfd = -1;
    bool leads = false;
    int opened = open_alive(id, &pidfd, &leads, e);

    if (opened <= 0)
        return opened;
    if (send_signal(id, pidfd, leads, SIGTERM) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot end process %d", (int)id->pid);
    /* A group is killed even when its leader went at once: its children may not have. That they are gone
     * is proven by the locks they inherited, not here: a zombie nobody reaps would keep us. */
    if (process_wait_gone(pidfd, grace_ms) && !leads)
        return 0;
    if (send_signal(id, pidfd, leads, SIGKILL) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot kill process %d", (int)id->pid);
    if (!process_wait_gone(pidfd, KILL_WAIT_MS))
        return error_set(e, ERROR_TIMEOUT, 0, "process %d was killed and is still there after %d s",
                         (int)id->pid, KILL_WAIT_MS / 1000);
    return 0;
}

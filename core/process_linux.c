#include "core/process_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/process.h"

#define PF_EXITING_FLAG 0x4 /* include/linux/sched.h; not exported */

#ifndef PIDFD_SIGNAL_PROCESS_GROUP
#define PIDFD_SIGNAL_PROCESS_GROUP (1U << 2) /* pidfd_send_signal(2), Linux 6.9 */
#endif

/* ---- /proc ---- */

static bool parse_stat(const char *line, struct process_look *out)
{
    /* field 2 is the name in brackets, which may hold blanks and brackets itself */
    const char *behind = strrchr(line, ')');
    unsigned flags;
    int session;
    char state;

    *out = (struct process_look){ 0 };
    if (behind == NULL)
        return false;
    /* fields 3 (state), 6 (session), 9 (flags) and 22 (start) of proc_pid_stat(5) */
    if (sscanf(behind + 1,
               " %c %*d %*d %d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64, &state,
               &session, &flags, &out->start) != 4)
        return false;
    out->session = session;
    /* A killed namespace init stays in state S for tens of milliseconds while it reaps: only its flags tell.
     */
    out->ending = strchr("ZXx", state) != NULL || (flags & PF_EXITING_FLAG) != 0;
    return true;
}

/* One read: the kernel makes the text anew for each. -1 with errno; ENOENT or ESRCH: there is none. */
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

int process_look(pid_t pid, struct process_look *out)
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

void process_read_boot_id(char out[BOOT_ID_SIZE])
{
    if (read_proc_file("/proc/sys/kernel/random/boot_id", out, BOOT_ID_SIZE) < 0)
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* The whole file as text to free; NULL when there is none. Of one of sequential records the kernel gives at
 * most a page at a time. */
static char *read_whole_proc_file(const char *path)
{
    AUTO_CLOSE int fd = RETRY_EINTR(open(path, O_RDONLY | O_CLOEXEC));
    size_t room = 4096, size = 0;
    ssize_t got = 1;

    if (fd < 0)
        return NULL;
    char *text = mem_alloc(room);

    while (got > 0) {
        if (size + 1 == room)
            text = mem_grow(text, room *= 2, 1);
        got = RETRY_EINTR(read(fd, text + size, room - size - 1));
        size += got > 0 ? (size_t)got : 0;
    }
    text[size] = '\0';
    return text;
}

struct pid_list {
    pid_t *pids;
    size_t count, room;
};

/* Those that one thread has started. */
static void add_children(struct pid_list *list, const char *path)
{
    AUTO_FREE char *line = read_whole_proc_file(path);
    char *at = line, *end;

    for (; at != NULL; at = end) {
        long pid = strtol(at, &end, 10);

        if (end == at || *end != ' ') /* the end, or a number that was cut by an error */
            break;
        if (list->count == list->room) {
            list->room = list->room == 0 ? 16 : 2 * list->room;
            list->pids = mem_grow(list->pids, list->room, sizeof(*list->pids));
        }
        list->pids[list->count++] = (pid_t)pid;
    }
}

size_t process_children(pid_t pid, pid_t **out)
{
    struct pid_list list = { 0 };
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);

    for (const struct dirent *entry; threads != NULL && (entry = readdir(threads)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%.11s/children", (int)pid, entry->d_name);
        add_children(&list, path);
    }
    if (threads != NULL)
        closedir(threads);
    *out = list.pids;
    return list.count;
}

void process_adopt_orphans(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int process_self_path(char *out, size_t room, struct error *e)
{
    static const char removed[] = " (deleted)"; /* proc_pid_exe(5) */
    ssize_t size = readlink("/proc/self/exe", out, room);

    if (size < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot find the file of this program");
    if ((size_t)size >= room)
        return error_set(e, ERROR_INTERNAL, 0, "the path of this program is longer than %zu bytes", room - 1);
    out[size] = '\0';
    if ((size_t)size >= sizeof(removed) && access(out, F_OK) < 0 &&
        strcmp(out + size - (sizeof(removed) - 1), removed) == 0)
        return error_set(e, ERROR_INTERNAL, 0, "the file of this program was replaced or removed meanwhile");
    return 0;
}

/* ---- pidfd ---- */

int process_watch(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0 && (errno == EINVAL || errno == ENOENT)) /* the number is a thread's now: a reuse as well */
        errno = ESRCH;
    return fd;
}

int process_signal(pid_t pid, int watch, bool group, int number)
{
    unsigned int flags = group ? PIDFD_SIGNAL_PROCESS_GROUP : 0;
    long sent = syscall(SYS_pidfd_send_signal, watch, number, NULL, flags);

    /* Before Linux 6.9 a group has only its number. It cannot be a stranger's while a member lives, and
     * the leader did a moment ago. */
    if (sent < 0 && errno == EINVAL && group)
        return kill(-pid, number);
    return (int)sent;
}

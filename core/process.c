#include "core/process.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/process_system.h"

static char boot_id[BOOT_ID_SIZE];

static void read_boot_id(void)
{
    process_read_boot_id(boot_id);
}

const char *process_boot_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, read_boot_id); /* it cannot change while we live */
    return boot_id;
}

int process_read(pid_t pid, struct process_id *out)
{
    struct process_look look = { 0 };

    if (pid <= 0 || process_look(pid, &look) != 1 || look.ending)
        return -1;
    *out = (struct process_id){ .pid = pid, .start = look.start };
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

/* As process_open_remains(), with what was seen of it. */
static int open_checked(const struct process_id *id, int *watch, struct process_look *look, struct error *e)
{
    AUTO_CLOSE int fd = -1;
    int found;

    if (id->pid <= 0 || strcmp(id->boot, process_boot_id()) != 0)
        return 0;
    fd = process_watch(id->pid);
    if (fd < 0 && errno == ESRCH)
        return 0;
    if (fd < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot open process %d", (int)id->pid);
    found = process_look(id->pid, look);
    if (found < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot look at process %d", (int)id->pid);
    if (found == 0 || look->start != id->start)
        return 0;
    *watch = steal_fd(&fd);
    return 1;
}

/* As process_open(); *leads tells whether it leads its own session. */
static int open_alive(const struct process_id *id, int *watch, bool *leads, struct error *e)
{
    AUTO_CLOSE int fd = -1;
    struct process_look look = { 0 };
    int found = open_checked(id, &fd, &look, e);

    if (found <= 0 || look.ending)
        return found < 0 ? -1 : 0;
    *leads = look.session == id->pid && id->pid > 1; /* kill(-1) is everybody */
    *watch = steal_fd(&fd);
    return 1;
}

int process_open(const struct process_id *id, int *watch, struct error *e)
{
    bool leads;

    return open_alive(id, watch, &leads, e);
}

int process_open_remains(const struct process_id *id, int *watch, struct error *e)
{
    struct process_look look = { 0 };

    return open_checked(id, watch, &look, e);
}

int process_wait_gone(int watch, int wait_ms)
{
    int64_t end_ms = clock_mono_ms() + wait_ms;

    for (;;) {
        struct pollfd waiting = { .fd = watch, .events = POLLIN };
        int64_t left_ms = end_ms - clock_mono_ms();
        int ready = poll(&waiting, 1, left_ms > 0 ? (int)left_ms : 0);

        if (ready > 0)
            return (waiting.revents & POLLIN) != 0;
        if (ready == 0 || errno != EINTR)
            return 0;
    }
}

/* 0 also when nobody is left to get it; -1 with errno. */
static int send_signal(const struct process_id *id, int watch, bool group, int number)
{
    return process_signal(id->pid, watch, group, number) < 0 && errno != ESRCH ? -1 : 0;
}

int process_send(const struct process_id *id, int number, struct error *e)
{
    AUTO_CLOSE int watch = -1;
    int opened = process_open(id, &watch, e);

    if (opened <= 0)
        return opened;
    if (send_signal(id, watch, false, number) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot signal process %d", (int)id->pid);
    return 1;
}

int process_end(const struct process_id *id, int grace_ms, struct error *e)
{
    AUTO_CLOSE int watch = -1;
    bool leads = false;
    int opened = open_alive(id, &watch, &leads, e);

    if (opened <= 0)
        return opened;
    if (send_signal(id, watch, leads, SIGTERM) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot end process %d", (int)id->pid);
    /* A group is killed even when its leader went at once: its children may not have. That they are gone
     * is proven by the locks they inherited, not here: a zombie nobody reaps would keep us. */
    if (process_wait_gone(watch, grace_ms) && !leads)
        return 0;
    if (send_signal(id, watch, leads, SIGKILL) < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot kill process %d", (int)id->pid);
    if (!process_wait_gone(watch, PROCESS_KILL_WAIT_MS))
        return error_set(e, ERROR_TIMEOUT, 0, "process %d was killed and is still there after %d s",
                         (int)id->pid, PROCESS_KILL_WAIT_MS / 1000);
    return 0;
}

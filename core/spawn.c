#include "core/spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/process_kin.h"
#include "core/process_system.h"
#include "core/spawn_system.h"

#define POLL_MS  10        /* where the system cannot tell when a child ends */
#define PIPE_MAX (1 << 20) /* Linux lets an ordinary user have no larger one: pipe(7) */

/* ---- starting ---- */

static bool has_key_of(const char *setting, const char *other)
{
    size_t length = strcspn(other, "=");

    return strncmp(setting, other, length) == 0 && setting[length] == '=';
}

static bool is_replaced(const char *setting, const char *const *more)
{
    for (; *more != NULL; more++)
        if (has_key_of(setting, *more))
            return true;
    return false;
}

/* A list to free; the texts are lent. */
static char **make_environment(const char *const *more)
{
    static const char *const none[] = { NULL };
    char **inherited = spawn_environment();
    size_t count = 0, all = 0;

    more = more == NULL ? none : more;
    while (inherited[all] != NULL)
        all++;
    for (const char *const *m = more; *m != NULL; m++)
        all++;
    char **list = mem_alloc((all + 1) * sizeof(*list));

    for (; *inherited != NULL; inherited++)
        if (!is_replaced(*inherited, more))
            list[count++] = *inherited;
    for (; *more != NULL; more++)
        list[count++] = (char *)(uintptr_t)*more; /* posix_spawn(3) takes no const, and changes nothing */
    return list;
}

/* A copy of FD, or of /dev/null, that stands in the way of none of the three streams. -1 with errno. */
static int copy_stream(int fd)
{
    AUTO_CLOSE int null = fd < 0 ? RETRY_EINTR(open("/dev/null", O_RDWR | O_CLOEXEC)) : -1;

    return fcntl(fd < 0 ? null : fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

/* An errno value, as all of these. */
static int describe_files(const struct spawn *s, const int streams[3], posix_spawn_file_actions_t *actions,
                          short *flags)
{
    int failed = s->directory < 0 ? 0 : posix_spawn_file_actions_addfchdir_np(actions, s->directory);

    for (int i = 0; failed == 0 && i < 3; i++)
        failed = posix_spawn_file_actions_adddup2(actions, streams[i], i);
    return failed != 0 ? failed : spawn_close_others(actions, flags, s->keep);
}

static int describe_process(const struct spawn *s, posix_spawnattr_t *attributes, short flags)
{
    sigset_t none, all;
    int failed;

    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL); /* which have no other action, and cannot be told to have the default one */
    sigdelset(&all, SIGSTOP);
    failed = posix_spawnattr_setsigmask(attributes, &none);
    if (failed == 0)
        failed = posix_spawnattr_setsigdefault(attributes, &all);
    flags |= POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    if (s->detach)
        flags |= POSIX_SPAWN_SETSID;
    return failed != 0 ? failed : posix_spawnattr_setflags(attributes, flags);
}

static int start_described(const struct spawn *s, const int streams[3], pid_t *pid)
{
    AUTO_FREE char **environment = make_environment(s->environment);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    short flags = 0;
    int failed = posix_spawn_file_actions_init(&actions);

    if (failed != 0)
        return failed;
    failed = posix_spawnattr_init(&attributes);
    if (failed != 0)
        goto no_attributes;
    failed = describe_files(s, streams, &actions, &flags);
    if (failed == 0)
        failed = describe_process(s, &attributes, flags);
    if (failed == 0)
        failed = posix_spawnp(pid, s->argv[0], &actions, &attributes, s->argv, environment);
    posix_spawnattr_destroy(&attributes);
no_attributes:
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

int spawn_start(const struct spawn *s, pid_t *pid, struct error *e)
{
    int streams[3] = { -1, -1, -1 };
    int failed = 0;

    assert(s->argv[0] != NULL);
    for (int i = 0; failed == 0 && i < 3; i++) {
        streams[i] = copy_stream(s->streams[i]);
        failed = streams[i] < 0 ? errno : 0;
    }
    if (failed == 0)
        failed = start_described(s, streams, pid);
    for (int i = 0; i < 3; i++)
        util_close_fd(&streams[i]);
    if (failed == 0)
        return 0;
    e->delivery = DELIVERY_NOT_DELIVERED;
    e->retry = RETRY_SAFE;
    return error_set_errno(e, ERROR_ACTION_FAILED, failed, "cannot start '%s'", s->argv[0]);
}

/* ---- waiting ---- */

static int64_t end_of(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : clock_mono_ms() + timeout_ms;
}

/* For poll(2): at most what is left until END_MS, and in short pieces when nothing tells of the child's end.
 */
static int wait_step(int64_t end_ms, bool told)
{
    int64_t left = end_ms == INT64_MAX ? INT32_MAX : end_ms - clock_mono_ms();

    if (!told && left > POLL_MS)
        left = POLL_MS;
    return left < 0 ? 0 : (int)left;
}

/* 1 with the status when it has ended, 0 when not, -1. */
static int reap(pid_t pid, int *status, struct error *e)
{
    pid_t got = RETRY_EINTR(waitpid(pid, status, WNOHANG));

    if (got < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot wait for process %d", (int)pid);
    return got == pid;
}

int spawn_wait(pid_t pid, int timeout_ms, int *status, struct error *e)
{
    int64_t end_ms = end_of(timeout_ms);
    AUTO_CLOSE int watch = process_watch(pid);

    for (;;) {
        struct pollfd end = { .fd = watch, .events = POLLIN };
        int reaped = reap(pid, status, e);

        if (reaped != 0)
            return reaped;
        if (clock_mono_ms() >= end_ms)
            return 0;
        poll(&end, 1, wait_step(end_ms, watch >= 0));
    }
}

/* The number of one that was waited for is a stranger's by now, or nobody's. */
static bool is_child(pid_t pid)
{
    siginfo_t info;

    return pid > 0 && (RETRY_EINTR(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT)) == 0 ||
                       errno != ECHILD);
}

void spawn_kill(pid_t pid)
{
    struct process_kin kin = { .leader = pid };
    struct error ignored = { 0 };
    int status;

    if (!is_child(pid))
        return;
    process_kin_kill(&kin);
    process_kin_done(&kin);
    (void)spawn_wait(pid, PROCESS_KILL_WAIT_MS, &status, &ignored);
}

/* ---- capturing ---- */

struct capture { /* of one stream */
    int fd;      /* -1 at its end, or when nobody wants it */
    struct text *text;
    size_t max;
};

/* -1 with errno. *write_end is for the child; -1: /dev/null. */
static int open_capture(struct capture *c, struct text *text, size_t max, int *write_end)
{
    int ends[2];

    *c = (struct capture){ .fd = -1, .text = text, .max = max };
    if (text == NULL)
        return 0;
    if (descriptor_pipe(ends, false) < 0)
        return -1;
    c->fd = ends[0];
    *write_end = ends[1];
    return descriptor_set_nonblocking(c->fd, true); /* of this end only */
}

/* Takes what is there, but no more than can have been in the pipe: whoever fills it without an end must not
 * keep us. */
static void read_available(struct capture *c)
{
    char block[16384];

    for (size_t taken = 0; c->fd >= 0 && taken < PIPE_MAX;) {
        ssize_t got = RETRY_EINTR(read(c->fd, block, sizeof(block)));

        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (got <= 0) {
            util_close_fd(&c->fd);
            c->fd = -1;
            return;
        }
        size_t room = c->max > c->text->size ? c->max - c->text->size : 0;

        text_add(c->text, block, (size_t)got < room ? (size_t)got : room);
        taken += (size_t)got;
    }
}

/* Until the child ends. 1 with its status; 0 when the time is over before; -1. */
static int read_to_end(pid_t pid, int timeout_ms, struct capture captures[2], int *status, struct error *e)
{
    int64_t end_ms = end_of(timeout_ms);
    AUTO_CLOSE int watch = process_watch(pid);

    for (;;) {
        struct pollfd ready[] = { { .fd = captures[0].fd, .events = POLLIN },
                                  { .fd = captures[1].fd, .events = POLLIN },
                                  { .fd = watch, .events = POLLIN } };
        int reaped = reap(pid, status, e);

        for (int i = 0; i < 2; i++)
            read_available(&captures[i]); /* behind the look at the child: of a dead one that is all */
        if (reaped != 0)
            return reaped;
        if (clock_mono_ms() >= end_ms)
            return 0;
        poll(ready, ARRAY_LEN(ready), wait_step(end_ms, watch >= 0));
    }
}

int spawn_capture(const struct spawn *s, int timeout_ms, size_t max, struct text *out, struct text *err,
                  int *status, struct error *e)
{
    struct capture captures[2];
    AUTO_CLOSE int out_end = -1;
    AUTO_CLOSE int err_end = -1;
    struct spawn with_pipes = *s;
    pid_t pid = -1;
    int ended = -1;

    captures[1].fd = -1;
    if (open_capture(&captures[0], out, max, &out_end) < 0 ||
        open_capture(&captures[1], err, max, &err_end) < 0) {
        error_set_errno(e, ERROR_INTERNAL, errno, "cannot make a pipe");
        goto done;
    }
    with_pipes.streams[1] = out_end;
    with_pipes.streams[2] = err_end;
    if (spawn_start(&with_pipes, &pid, e) < 0)
        goto done;
    ended = read_to_end(pid, timeout_ms, captures, status, e);
    if (ended != 1)
        spawn_kill(pid);
    if (ended == 0)
        error_set(e, ERROR_TIMEOUT, 0, "'%s' did not end within %d ms and was killed", s->argv[0],
                  timeout_ms);
done:
    util_close_fd(&captures[0].fd);
    util_close_fd(&captures[1].fd);
    return ended == 1 ? 0 : -1;
}

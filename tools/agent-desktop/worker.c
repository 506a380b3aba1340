#include "tools/agent-desktop/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/file.h"
#include "core/text.h"

#define LOG_NAME_SIZE 48

enum message_kind { MESSAGE_BEGUN = 'b', MESSAGE_ENDED = 'e' };

struct outcome {    /* follows MESSAGE_ENDED; both ends are one build, forked from one process */
    struct error e; /* its suggestion is static text: at the same address in both */
    struct engine_look look;
};

/* --- the worker's side --------------------------------------------------------------------------------- */

/* What this program opens is close-on-exec; what is not came from the caller. A pipe kept open here would
 * make the caller's reader wait for the end of the worker. */
static void close_inherited(void)
{
    DIR *dir = opendir("/dev/fd");

    for (struct dirent *entry = dir == NULL ? NULL : readdir(dir); entry != NULL; entry = readdir(dir)) {
        struct error not_a_number = { 0 };
        int64_t fd;

        if (text_parse_int(entry->d_name, "descriptor", STDERR_FILENO + 1, INT_MAX, &fd, &not_a_number) < 0)
            continue;
        int flags = fcntl((int)fd, F_GETFD);

        if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
            close((int)fd);
    }
    if (dir != NULL)
        closedir(dir);
}

static void format_log_name(char out[LOG_NAME_SIZE], const char *name)
{
    snprintf(out, LOG_NAME_SIZE, "%s.log", name);
}

/* Where the worker's stderr goes. A stop must not fail for want of a log: without one it goes nowhere. */
static int open_log(const struct root *root, const char *name)
{
    struct error ignored = { 0 };
    AUTO_CLOSE int dir = file_make_dir(root->dir, "logs", 0700, &ignored);
    char file[LOG_NAME_SIZE];

    format_log_name(file, name);
    int fd = dir < 0
                 ? -1
                 : openat(dir, file, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return open("/dev/null", O_WRONLY | O_CLOEXEC);
    fchmod(fd, 0600);
    return fd;
}

static void detach(int log)
{
    static const int signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };
    AUTO_CLOSE int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigset_t none;

    setsid();
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        signal(signals[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    close_inherited();
    (void)!chdir("/"); /* pin nobody's directory; the work goes by descriptors and absolute paths */
}

void worker_tell_begun(int report_fd)
{
    static const char begun = MESSAGE_BEGUN;

    (void)file_write_all(report_fd, &begun, 1); /* nobody may be listening any more */
}

static void tell_ended(int report_fd, const struct outcome *outcome)
{
    static const char ended = MESSAGE_ENDED;

    if (file_write_all(report_fd, &ended, 1) == 0)
        (void)file_write_all(report_fd, outcome, sizeof(*outcome));
}

_Noreturn static void work(const struct worker_job *job, int log, int report_fd)
{
    struct outcome outcome = { .e = { 0 } };
    int status;

    detach(log);
    status = job->run(job->self, report_fd, &outcome.e) < 0 ? 1 : 0;
    if (status != 0)
        fprintf(stderr, "%s: %s\n", error_code_name(outcome.e.code), outcome.e.message);
    outcome.look = *job->look;
    tell_ended(report_fd, &outcome);
    _exit(status);
}

/* --- the command's side -------------------------------------------------------------------------------- */

int worker_start(const struct worker_job *job, struct worker *out, struct error *e)
{
    AUTO_CLOSE int log = open_log(job->root, job->name);
    int ends[2];
    int status;

    if (log < 0)
        return error_set_errno(e, ERROR_INTERNAL, errno, "cannot open /dev/null");
    if (descriptor_pipe(ends, false) < 0)
        return error_set(e, ERROR_INTERNAL, errno, "cannot make a pipe");
    pid_t middle = fork();

    if (middle == 0) { /* the one between ends at once, so that the worker is nobody's child here */
        pid_t pid = fork();

        if (pid == 0) {
            close(ends[0]);
            work(job, log, ends[1]);
        }
        _exit(pid < 0 ? 1 : 0);
    }
    close(ends[1]);
    out->report_fd = ends[0];
    out->begun = false;
    if (middle < 0 || (RETRY_EINTR(waitpid(middle, &status, 0)) == middle && status != 0)) {
        worker_leave(out);
        return error_set(e, ERROR_INTERNAL, middle < 0 ? errno : EAGAIN, "cannot start a process");
    }
    return 0;
}

static int worker_lost(const struct worker *w, const char *name, struct error *e)
{
    return error_set(e, w->begun ? ERROR_ACTION_FAILED : ERROR_INTERNAL, 0,
                     "the process that worked on '%s' was cancelled or died; logs/%s.log may say why", name,
                     name);
}

static bool read_exactly(int fd, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = RETRY_EINTR(read(fd, (char *)bytes + done, size - done));

        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* One message that is there. 1 begun, 0 ended with the outcome, -1 when the worker is gone. */
static int receive(struct worker *w, struct outcome *outcome)
{
    char kind;

    if (!read_exactly(w->report_fd, &kind, 1))
        return -1;
    if (kind == MESSAGE_BEGUN) {
        w->begun = true;
        return 1;
    }
    return read_exactly(w->report_fd, outcome, sizeof(*outcome)) ? 0 : -1;
}

/* Waits for a message until DEADLINE_MS (-1: for ever). false when none came. */
static bool wait_message(const struct worker *w, int64_t deadline_ms, void (*on_tick)(void *self), void *self)
{
    for (;;) {
        struct pollfd p = { .fd = w->report_fd, .events = POLLIN };
        int64_t left = deadline_ms < 0 ? WORKER_TICK_MS : deadline_ms - clock_mono_ms();

        if (left < 0)
            left = 0;
        int ready = poll(&p, 1, (int)(left < WORKER_TICK_MS ? left : WORKER_TICK_MS));

        if (ready > 0)
            return true;
        if (left == 0)
            return false;
        if (on_tick != NULL)
            on_tick(self);
    }
}

int worker_await(struct worker *w, const char *name, int64_t limit_ms, void (*on_tick)(void *self),
                 void *self, enum worker_news *news, struct engine_look *look, struct error *e)
{
    int64_t started = clock_mono_ms();
    struct outcome outcome;

    *news = WORKER_ENDED;
    for (;;) {
        bool lengthen = !w->begun && limit_ms >= 0 && limit_ms < WORKER_BEGIN_LIMIT_MS;
        int64_t limit = lengthen ? WORKER_BEGIN_LIMIT_MS : limit_ms;

        if (!wait_message(w, limit < 0 ? -1 : started + limit, on_tick, self)) {
            *news = WORKER_GOES_ON;
            return 0;
        }
        int got = receive(w, &outcome);

        if (got < 0)
            return worker_lost(w, name, e);
        if (got == 0)
            break;
    }
    *look = outcome.look;
    if (outcome.e.code == ERROR_NONE)
        return 0;
    *e = outcome.e;
    return -1;
}

void worker_leave(struct worker *w)
{
    util_close_fd(&w->report_fd);
    w->report_fd = -1;
}

void worker_forget_log(const struct root *root, const char *name)
{
    AUTO_CLOSE int dir = root->dir < 0 ? -1 : file_open_dir(root->dir, "logs");
    char file[LOG_NAME_SIZE];

    format_log_name(file, name);
    if (dir >= 0)
        (void)unlinkat(dir, file, 0);
}

#include "tools/desktop/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"

struct report { /* through a pipe that a successful exec closes */
    pid_t pid, session;
    int error; /* errno, 0 while all is well */
};

static void reset_signals(void)
{
    sigset_t none;

    for (int signal = 1; signal < NSIG; signal++)
        sigaction(signal, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL); /* two of them refuse: fine */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* In the grandchild. Writes a report only when the program could not be executed. */
static void run(char *const argv[], int output, int report)
{
    struct report r = { .pid = getpid(), .session = getsid(0) };
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    file_write_all(report, &r, sizeof r);
    reset_signals();
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 &&
        dup2(output, STDERR_FILENO) >= 0 && close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0)
        execv(argv[0], argv);
    r.error = errno;
    file_write_all(report, &r, sizeof r);
    _exit(127);
}

/* Forked twice: the program is nobody's child, and not a session's leader, which could get a terminal. */
static void detach(char *const argv[], int output, int report)
{
    struct report r = { 0 };
    pid_t pid;

    setsid();
    pid = fork();
    if (pid == 0)
        run(argv, output, report);
    if (pid < 0) {
        r.error = errno;
        file_write_all(report, &r, sizeof r);
    }
    _exit(0);
}

/* The last one counts; the end of the stream says that the exec succeeded or the grandchild is gone. */
static struct report read_reports(int fd)
{
    struct report r = { .error = EIO }, next = { 0 };

    while (RETRY_EINTR(read(fd, &next, sizeof next)) == (ssize_t)sizeof next) /* written whole: < PIPE_BUF */
        r = next;
    return r;
}

int spawn_detached(char *const argv[], int output, pid_t *pid, pid_t *session, struct error *e)
{
    int ends[2];
    struct report r;
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot start '%s'", argv[0]);

    AUTO_CLOSE int read_end = ends[0];
    AUTO_CLOSE int write_end = ends[1];

    child = fork();
    if (child == 0)
        detach(argv, output, write_end);
    close(steal_fd(&write_end)); /* or the reader would never see the end */
    if (child < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot start '%s'", argv[0]);
    RETRY_EINTR(waitpid(child, NULL, 0));
    r = read_reports(read_end);
    if (r.error != 0) {
        e->delivery = DELIVERY_NOT_DELIVERED;
        e->retry = RETRY_SAFE;
        return error_set(e, ERROR_ACTION_FAILED, r.error, "cannot start '%s'", argv[0]);
    }
    *pid = r.pid;
    *session = r.session;
    return 0;
}

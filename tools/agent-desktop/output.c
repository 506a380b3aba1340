#include "tools/agent-desktop/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/util.h"

static void ignore_signal(int signal)
{
    (void)signal;
}

void output_init(void)
{
    /* A reader that left and a file that may not grow (ulimit -f) are errors of write(2). A handler, not
     * SIG_IGN: exec(2) puts handlers back to the default but would pass SIG_IGN on. */
    static const int signals[] = { SIGPIPE, SIGXFSZ };
    struct sigaction ignore = { .sa_handler = ignore_signal, .sa_flags = SA_RESTART };

    /* open() takes the lowest free number. Read only even as stdout: writing there must go on failing. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            (void)open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    sigemptyset(&ignore.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        sigaction(signals[i], &ignore, NULL);
}

static int report_failure(int fd)
{
    if (fd != STDERR_FILENO)
        fprintf(stderr, "agent-desktop: cannot write the reply to stdout: %s\n", strerror(errno));
    return -1;
}

int output_write(int fd, const char *bytes, size_t size)
{
    return file_write_all(fd, bytes, size) < 0 ? report_failure(fd) : 0;
}

int output_finish(void)
{
    /* EINTR leaves the descriptor closed on Linux and says nothing about the bytes. */
    if (close(STDOUT_FILENO) < 0 && errno != EINTR)
        return report_failure(STDOUT_FILENO);
    return 0;
}

#include "tools/agent-desktop/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* What a handler may touch has to be global. */
static volatile int caught;
static int wake_fd = -1;
static const char *last_words;
static size_t last_words_size;
static int last_status;
static pid_t speaker;

const volatile int *const signals_caught = &caught;

static void on_signal(int signal)
{
    int saved = errno;

    if (caught == 0)
        caught = signal;
    (void)!write(wake_fd, "", 1); /* full is as good as written */
    errno = saved;
}

int signals_watch(int *fd, struct error *e)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction action = { .sa_handler = on_signal }; /* no SA_RESTART: waits are to end */
    struct sigaction old;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_set(e, ERROR_INTERNAL, errno, "cannot make a pipe");
    *fd = ends[0];
    wake_fd = ends[1];
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        if (signals[i] == SIGHUP && sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
            continue;
        sigaction(signals[i], &action, NULL);
    }
    return 0;
}

static void on_term(int signal)
{
    (void)signal;
    if (getpid() != speaker) /* a child that inherited this: one voice is enough */
        _exit(1);
    _exit(write(STDOUT_FILENO, last_words, last_words_size) == (ssize_t)last_words_size ? last_status : 1);
}

void signals_reply_to_term(const char *line, int status)
{
    struct sigaction action = { .sa_handler = line == NULL ? SIG_IGN : on_term };

    sigemptyset(&action.sa_mask);
    if (line != NULL) {
        last_words = line;
        last_words_size = strlen(line);
        last_status = status;
        speaker = getpid();
    }
    sigaction(SIGTERM, &action, NULL);
}

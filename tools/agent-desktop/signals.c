#include "tools/agent-desktop/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/descriptor.h"

/* What a handler may touch has to be global. */
static volatile int caught;
static volatile int continued;
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

static void on_suspend(int signal)
{
    int saved = errno;

    (void)signal;
    (void)!write(wake_fd, "", 1);
    errno = saved;
}

static void on_continue(int signal)
{
    (void)signal;
    continued = 1;
}

int signals_watch(int *fd, struct error *e)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction action = { .sa_handler = on_signal }; /* no SA_RESTART: waits are to end */
    struct sigaction old;
    int ends[2];

    if (descriptor_pipe(ends, true) < 0)
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

void signals_watch_suspension(void)
{
    struct sigaction action = { .sa_handler = on_suspend };
    struct sigaction old;

    sigemptyset(&action.sa_mask);
    if (sigaction(SIGTSTP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(SIGTSTP, &action, NULL);
}

bool signals_in_background(void)
{
    pid_t foreground = tcgetpgrp(STDIN_FILENO); /* fails unless it is the terminal that controls us */

    return foreground >= 0 && foreground != getpgrp();
}

/* By the default action, which shells know to tell. False when it stops nobody: in an orphaned process group,
 * which nobody could continue. */
static bool stop_by(int number, pid_t whom)
{
    struct sigaction usual = { .sa_handler = SIG_DFL };
    struct sigaction resume = { .sa_handler = on_continue };
    struct sigaction old;

    sigemptyset(&usual.sa_mask);
    sigemptyset(&resume.sa_mask);
    continued = 0;
    sigaction(SIGCONT, &resume, NULL);
    sigaction(number, &usual, &old);
    kill(whom, number);
    sigaction(number, &old, NULL);
    return continued != 0;
}

void signals_suspend(void)
{
    bool stopped = stop_by(SIGTSTP, getpid());

    /* Continued by `bg`: what a program that reads is sent then, with all of its process group. */
    while (stopped && caught == 0 && signals_in_background())
        stopped = stop_by(SIGTTIN, 0);
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

#include "store/crash.h"

#include <string.h>
#include <unistd.h>

#include "core/util.h"

static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGABRT };
_Static_assert(ARRAY_LEN(signals) == CRASH_SIGNAL_COUNT, "a saved action for each signal");

/* A handler takes no argument, so what it needs stands here; written only while no guard is armed. */
static struct {
    const char *text;
    size_t size;
    int exit_status;
} reply;

void crash_set_reply(const char *text, int exit_status)
{
    reply.text = text;
    reply.size = text == NULL ? 0 : strlen(text);
    reply.exit_status = exit_status;
}

/* Async-signal-safe only: the heap may be what broke. */
static void end_with_reply(int number)
{
    const char *at = reply.text;
    size_t left = reply.size;

    (void)number;
    while (left > 0) {
        ssize_t n = write(STDOUT_FILENO, at, left);

        if (n <= 0)
            break;
        at += n;
        left -= (size_t)n;
    }
    _exit(reply.exit_status);
}

void crash_enter(struct crash_guard *guard)
{
    struct sigaction action = { .sa_handler = end_with_reply };

    guard->armed = reply.text != NULL;
    if (!guard->armed)
        return;
    sigfillset(&action.sa_mask); /* nothing may run between the crash and the end */
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        sigaction(signals[i], &action, &guard->before[i]);
}

void crash_leave(struct crash_guard *guard)
{
    if (!guard->armed)
        return;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        sigaction(signals[i], &guard->before[i], NULL);
    guard->armed = false;
}

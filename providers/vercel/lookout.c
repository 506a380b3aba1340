#include "providers/vercel/lookout.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/mem.h"
#include "core/util.h"
#include "providers/vercel/input.h"

struct lookout {
    int signal_fd, stdin_fd; /* the thread's: -1 when there is nothing more to look for */
    int wake[2];             /* for the owner */
    int orders[2];           /* for the thread */
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* for all below */
    int64_t alarm_ms;
    unsigned news;
    bool stopping;
};

/* Full is as good as written. */
static void ring(const int pipe[2])
{
    (void)!write(pipe[1], "", 1);
}

/* False when nothing will come any more. */
static bool drain(int fd)
{
    char bytes[64];
    ssize_t n;

    do
        n = read(fd, bytes, sizeof(bytes));
    while (n == (ssize_t)sizeof(bytes));
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* --- the thread ----------------------------------------------------------------------------------------- */

static void tell(struct lookout *l, unsigned news)
{
    pthread_mutex_lock(&l->lock);
    l->news |= news;
    pthread_mutex_unlock(&l->lock);
    ring(l->wake);
}

/* For poll(2), until the alarm; false when it is due. */
static bool choose_wait(const struct lookout *l, int *ms)
{
    int64_t left = l->alarm_ms - clock_mono_ms();

    *ms = l->alarm_ms == 0 ? -1 : left < INT_MAX ? (int)left : INT_MAX;
    return l->alarm_ms == 0 || left > 0;
}

static void take_input(struct lookout *l)
{
    enum input input = input_look(l->stdin_fd);

    if (input == INPUT_LATER)
        return;
    l->stdin_fd = -1;
    if (input == INPUT_THERE)
        tell(l, LOOKOUT_INPUT);
}

/* One round; false when it is to end. */
static bool look_out(struct lookout *l)
{
    struct pollfd polls[] = { { .fd = l->orders[0], .events = POLLIN },
                              { .fd = l->signal_fd, .events = POLLIN },
                              { .fd = l->stdin_fd, .events = POLLIN } };
    int ms;

    pthread_mutex_lock(&l->lock);
    bool stopping = l->stopping, early = choose_wait(l, &ms);

    if (!early)
        l->alarm_ms = 0;
    pthread_mutex_unlock(&l->lock);
    if (stopping)
        return false;
    if (!early) {
        tell(l, 0);
        return true;
    }
    if (poll(polls, ARRAY_LEN(polls), ms) <= 0)
        return true;
    if (polls[0].revents != 0)
        drain(l->orders[0]);
    if (polls[1].revents != 0) {
        if (!drain(l->signal_fd))
            l->signal_fd = -1;
        tell(l, LOOKOUT_SIGNAL);
    }
    if (polls[2].revents != 0)
        take_input(l);
    return true;
}

static void *run(void *self)
{
    while (look_out(self))
        ;
    return NULL;
}

/* --- the owner ------------------------------------------------------------------------------------------ */

static int start(struct lookout *l, struct error *e)
{
    sigset_t all, before;

    if (descriptor_pipe(l->wake, true) < 0 || descriptor_pipe(l->orders, true) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot make a pipe");
    /* Signals are the main thread's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&l->thread, NULL, run, l);

    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return error_set(e, ERROR_LIMIT_REACHED, error, "cannot start a thread");
    l->running = true;
    return 0;
}

int lookout_open(int signal_fd, int stdin_fd, struct lookout **out, struct error *e)
{
    struct lookout *l = mem_alloc(sizeof(*l));

    l->signal_fd = signal_fd;
    l->stdin_fd = stdin_fd;
    l->wake[0] = l->wake[1] = l->orders[0] = l->orders[1] = -1;
    pthread_mutex_init(&l->lock, NULL);
    if (start(l, e) < 0) {
        lookout_close(l);
        return -1;
    }
    *out = l;
    return 0;
}

void lookout_close(struct lookout *l)
{
    if (l == NULL)
        return;
    if (l->running) {
        pthread_mutex_lock(&l->lock);
        l->stopping = true;
        pthread_mutex_unlock(&l->lock);
        ring(l->orders);
        pthread_join(l->thread, NULL);
    }
    for (int i = 0; i < 2; i++) {
        util_close_fd(&l->wake[i]);
        util_close_fd(&l->orders[i]);
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
}

int lookout_fd(const struct lookout *l)
{
    return l->wake[0];
}

int lookout_wake_fd(const struct lookout *l)
{
    return l->wake[1];
}

void lookout_set_alarm(struct lookout *l, int64_t when_ms)
{
    pthread_mutex_lock(&l->lock);
    bool changed = l->alarm_ms != when_ms;

    l->alarm_ms = when_ms;
    pthread_mutex_unlock(&l->lock);
    if (changed)
        ring(l->orders);
}

unsigned lookout_take(struct lookout *l)
{
    unsigned news;

    drain(l->wake[0]);
    pthread_mutex_lock(&l->lock);
    news = l->news;
    l->news = 0;
    pthread_mutex_unlock(&l->lock);
    return news;
}

bool lookout_wait(const struct lookout *l, int ms)
{
    struct pollfd wake = { .fd = l->wake[0], .events = POLLIN };

    return poll(&wake, 1, ms) > 0;
}

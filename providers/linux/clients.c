#include "providers/linux/clients.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/util.h"
#include "providers/linux/program.h"

#define STATUS_NOT_RUN 127

struct request { /* as received; the descriptors are closed by the one who read it */
    struct control_request head;
    int fds[CONTROL_FDS_MAX];
    int fd_count;
};

enum { FD_WORDS = 3, FD_BINARY = 4 };

void clients_init(struct clients *c)
{
    for (int i = 0; i < CLIENTS_MAX; i++)
        c->items[i] = (struct client){ .fd = -1, .watch = -1 };
    c->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
}

int clients_poll(const struct clients *c, struct pollfd *polls)
{
    for (int i = 0; i < c->used; i++) {
        const struct client *client = &c->items[i];
        /* A peer that is gone altogether is reported for ever, whatever is asked for. */
        bool heard = client->phase != CLIENT_FREE && !client->hung_up;

        polls[i] = (struct pollfd){ .fd = heard ? client->fd : -1, .events = POLLIN };
    }
    return c->used;
}

static void send_reply(int fd, const struct control_reply *r)
{
    /* A client that went away, or that never reads, does not matter. */
    (void)send(fd, r, sizeof(*r), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void reply(int fd, enum control_answer answer, int value)
{
    const struct control_reply r = { .version = CONTROL_VERSION, .answer = (uint32_t)answer, .value = value };

    send_reply(fd, &r);
}

/* --- whether stdout was used --------------------------------------------------------------------- */

/* Watches from before the command starts. Pipes, files and terminals tell of a write; sockets do not. */
static int watch_stdout(const struct clients *c, int fd)
{
    char path[32];
    struct stat st;

    if (fstat(fd, &st) < 0 || !(S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISCHR(st.st_mode)))
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return inotify_add_watch(c->inotify, path, IN_MODIFY | IN_ONESHOT);
}

/* Commands with one stdout in common have one watch: whoever writes, all may have. */
static void forget_watch(struct clients *c, int watch)
{
    for (int i = 0; i < c->used; i++)
        if (watch < 0 || c->items[i].watch == watch)
            c->items[i].watch = -1;
}

static void take_writes(struct clients *c)
{
    _Alignas(struct inotify_event) char bytes[4096];
    ssize_t n;

    while ((n = read(c->inotify, bytes, sizeof(bytes))) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const void *)(bytes + at);

            at += (ssize_t)(sizeof(*event) + event->len);
            if ((event->mask & (IN_MODIFY | IN_Q_OVERFLOW)) != 0)
                forget_watch(c, event->wd); /* -1 when the queue overflowed: all */
        }
    }
}

static void unwatch(struct clients *c, struct client *client)
{
    int watch = client->watch;

    client->watch = -1;
    for (int i = 0; i < c->used; i++)
        if (c->items[i].watch == watch)
            return; /* another command's too */
    if (watch >= 0)
        inotify_rm_watch(c->inotify, watch);
}

static void release(struct clients *c, struct client *client)
{
    if (client->phase == CLIENT_RUNNING || client->phase == CLIENT_SETTLING)
        c->commands--;
    unwatch(c, client);
    util_close_fd(&client->fd);
    *client = (struct client){ .fd = -1, .watch = -1 };
    c->full = false;
}

/* --- connections --------------------------------------------------------------------------------- */

static bool may_ask(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static struct client *free_place(struct clients *c)
{
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (c->items[i].phase != CLIENT_FREE)
            continue;
        c->used = i >= c->used ? i + 1 : c->used;
        return &c->items[i];
    }
    return NULL;
}

/* 1 with a request, 0 when none is there, -1 when none will come. */
static int receive_request(int fd, struct request *out)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * CONTROL_FDS_MAX)];
    } control;
    struct iovec part = { .iov_base = &out->head, .iov_len = sizeof(out->head) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    ssize_t n = RETRY_EINTR(recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT));
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;

    out->fd_count = 0;
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        out->fd_count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(out->fds, CMSG_DATA(c), sizeof(int) * (size_t)out->fd_count);
    }
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n == (ssize_t)sizeof(out->head))
        return 1;
    for (int i = 0; i < out->fd_count; i++)
        close(out->fds[i]);
    return -1;
}

/* --- commands ------------------------------------------------------------------------------------ */

/* The NUL-separated words behind *AT as a vector ended by NULL; FIRST (lent words) come before them. NULL
 * when there are fewer than COUNT. In the child, where memory may be taken. */
static char **take_words(char **at, const char *end, uint32_t count, char *const *first)
{
    size_t n = 0;
    char **words;

    while (first[n] != NULL)
        n++;
    words = mem_alloc((n + count + 1) * sizeof(*words));
    memcpy(words, first, n * sizeof(*words));
    for (uint32_t i = 0; i < count; i++) {
        char *nul = memchr(*at, '\0', (size_t)(end - *at));

        if (nul == NULL)
            return NULL;
        words[n++] = *at;
        *at = nul + 1;
    }
    return words;
}

/* Later words win: a variable the client adds replaces the sandbox's. */
static void drop_replaced(char **environment)
{
    char **out = environment;

    for (char **in = environment; *in != NULL; in++) {
        size_t name = strcspn(*in, "=") + 1;
        bool replaced = false;

        for (char **later = in + 1; *later != NULL && !replaced; later++)
            replaced = strncmp(*in, *later, name) == 0;
        if (!replaced)
            *out++ = *in;
    }
    *out = NULL;
}

/* Becomes the command; returns the errno that prevented it. */
static int become(const struct request *r, const struct clients_view *view)
{
    static char *const nothing[] = { NULL };
    int words_fd = r->fds[FD_WORDS];
    const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    struct stat st;
    char *text, *end, **argv, **environment;

    /* Sealed: a client that shrank the file could end this process while it reads. */
    if ((fcntl(words_fd, F_GET_SEALS) & seals) != seals || fstat(words_fd, &st) < 0 || st.st_size <= 0)
        return EINVAL;
    if (r->head.argc == 0 || r->head.argc > (uint64_t)st.st_size || r->head.envc > (uint64_t)st.st_size)
        return EINVAL;
    text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, words_fd, 0);
    if (text == MAP_FAILED)
        return errno;
    end = text + st.st_size;
    argv = take_words(&text, end, r->head.argc, nothing);
    environment = take_words(&text, end, r->head.envc, view->environment);
    if (argv == NULL || environment == NULL)
        return EINVAL;
    drop_replaced(environment);
    if (r->head.own_binary == 0)
        return program_execute(argv, environment);
    execveat(r->fds[FD_BINARY], "", argv, environment, AT_EMPTY_PATH);
    return errno;
}

static _Noreturn void run_command(const struct request *r, int connection, const struct clients_view *view)
{
    int error = program_prepare(r->fds, view->home) < 0 ? errno : become(r, view);

    /* The child itself tells why: the client takes the first reply, and PID 1 need not wait for an exec. */
    reply(connection, CONTROL_FAILED, error);
    _exit(STATUS_NOT_RUN);
}

/* A client that gave up while we could not listen must not find its command run after all. */
static bool has_left(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP)) != 0;
}

static void start_command(struct clients *c, struct client *client, struct request *r,
                          const struct clients_view *view)
{
    int needed = r->head.own_binary != 0 ? FD_BINARY + 1 : FD_WORDS + 1;
    pid_t pid;

    if (has_left(client->fd)) {
        release(c, client);
        return;
    }
    if (view->state != CONTROL_OK || r->fd_count < needed || c->commands >= CLIENTS_COMMANDS_MAX) {
        if (view->state != CONTROL_OK)
            reply(client->fd, view->state, 0);
        else /* descriptors get lost on the way when there is no room for them */
            reply(client->fd, CONTROL_FAILED, r->fd_count < needed ? EMFILE : EAGAIN);
        release(c, client);
        return;
    }
    client->watch = watch_stdout(c, r->fds[1]);
    pid = fork();
    if (pid == 0)
        run_command(r, client->fd, view);
    if (pid < 0) {
        reply(client->fd, CONTROL_FAILED, errno);
        release(c, client);
        return;
    }
    client->phase = CLIENT_RUNNING;
    client->leader = pid;
    c->commands++;
}

/* True when it asks for the end of the sandbox. */
static bool handle_request(struct clients *c, struct client *client, struct request *r,
                           const struct clients_view *view)
{
    enum control_kind kind = r->head.version > CONTROL_VERSION ? 0 : (enum control_kind)r->head.kind;

    if (kind == CONTROL_EXEC) {
        start_command(c, client, r, view);
        return false;
    }
    if (kind == CONTROL_PING) { /* it may ask on */
        reply(client->fd, view->state, view->display);
        return false;
    }
    reply(client->fd, kind == CONTROL_STOP ? CONTROL_OK : CONTROL_REFUSED, 0);
    release(c, client);
    return kind == CONTROL_STOP;
}

static bool serve_asking(struct clients *c, struct client *client, const struct clients_view *view)
{
    struct request r;
    int got = receive_request(client->fd, &r);
    bool stop = false;

    if (got < 0)
        release(c, client);
    if (got <= 0)
        return false;
    stop = handle_request(c, client, &r, view);
    for (int i = 0; i < r.fd_count; i++)
        close(r.fds[i]);
    return stop;
}

bool clients_accept(struct clients *c, int listen, const struct clients_view *view)
{
    bool stop = false;

    for (;;) {
        struct client *client = free_place(c);
        int fd = client == NULL ? -1 : accept4(listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            c->full = client == NULL || errno == EMFILE || errno == ENFILE;
            return stop;
        }
        if (!may_ask(fd)) {
            close(fd);
            continue;
        }
        *client = (struct client){ .phase = CLIENT_ASKING, .fd = fd, .watch = -1 };
        stop = serve_asking(c, client, view) || stop; /* most have sent it by now: saves a round of poll(2) */
    }
}

/* Ctrl-Z and what follows it: no end of the command, so its status is not to be held back. */
static bool is_pause(int number)
{
    return number == SIGSTOP || number == SIGCONT;
}

static void signal_command(struct clients *c, struct client *client, int number)
{
    if (number < 1 || number > SIGRTMAX || client->phase != CLIENT_RUNNING)
        return;
    if (!is_pause(number)) {
        /* Who belongs to it is asked before: the signal may end the leader, and with it the trace to a child
         * in another group. */
        family_remember(&c->family, client->leader);
        client->signaled = true;
    }
    /* A child that has not come to setsid() yet has no group, but has the signal blocked and pending. */
    if (kill(-client->leader, number) < 0 && errno == ESRCH)
        kill(client->leader, number);
}

static void serve_command(struct clients *c, struct client *client)
{
    unsigned char number = 0;
    ssize_t n = recv(client->fd, &number, 1, MSG_DONTWAIT);

    if (n == 1)
        signal_command(c, client, number);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        client->hung_up = true;
}

static void kill_hung_up(struct clients *c)
{
    pid_t leaders[CLIENTS_COMMANDS_MAX];
    size_t count = 0;

    for (int i = 0; i < c->used; i++)
        if (c->items[i].hung_up && count < ARRAY_LEN(leaders))
            leaders[count++] = c->items[i].leader;
    family_kill(&c->family, leaders, count);
}

bool clients_serve(struct clients *c, const struct pollfd *polls, int count, const struct clients_view *view)
{
    bool stop = false, hung_up = false;

    for (int i = 0; i < count; i++) {
        struct client *client = &c->items[i];

        if (polls[i].fd < 0 || polls[i].revents == 0)
            continue;
        if (client->phase == CLIENT_ASKING) {
            stop = serve_asking(c, client, view) || stop;
            continue;
        }
        serve_command(c, client);
        hung_up = hung_up || client->hung_up;
    }
    if (hung_up)
        kill_hung_up(c);
    return stop;
}

static void finish(struct clients *c, struct client *client)
{
    struct control_reply r = { .version = CONTROL_VERSION,
                               .answer = CONTROL_EXITED,
                               .value = client->status };

    take_writes(c);
    r.stdout_used = client->watch < 0;
    send_reply(client->fd, &r);
    family_forget(&c->family, client->leader);
    release(c, client);
}

bool clients_reaped(struct clients *c, pid_t pid, int wait_status)
{
    for (int i = 0; i < c->used; i++) {
        struct client *client = &c->items[i];

        if (client->phase != CLIENT_RUNNING || client->leader != pid)
            continue;
        client->status = wait_status;
        client->phase = CLIENT_SETTLING;
        if (!client->signaled)
            finish(c, client);
        return true;
    }
    return false;
}

void clients_settle(struct clients *c)
{
    for (int i = 0; i < c->used; i++) {
        struct client *client = &c->items[i];

        if (client->phase == CLIENT_SETTLING && !family_lives(&c->family, client->leader))
            finish(c, client);
    }
}

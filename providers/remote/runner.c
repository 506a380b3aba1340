#include "providers/remote/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/process_kin.h"
#include "core/util.h"
#include "providers/remote/protocol.h"

#define GRACE_MS     2000 /* between SIGTERM for the time limit and SIGKILL */
#define HANG_UP_MS   250  /* how often it is asked whether the host is there: not every system tells */
#define SETTLE_MS    20   /* how often it is asked whether all of a command are gone */
#define STATUS_USAGE 2
#define STATUS_LOST  1 /* the host is gone: nobody reads this */
#define NOT_RUN      127

/* TOLD: how it ended is on its way, and the host hangs up when it has that. */
enum phase { PHASE_RUNNING, PHASE_TOLD };

struct runner {
    const char *own_path;
    struct protocol_request request;
    struct process_kin kin;
    enum phase phase;
    int64_t end_ms, kill_ms; /* the time limit; when SIGKILL is due, 0: not */
    bool timed_out;
    bool settle; /* signalled by the host: its end is told when all that came from it is gone */
    bool ended;  /* the leader */
    uint32_t status;

    /* The command's stderr, on its way to the host. As long as the host may still join, what was sent is
     * kept: it may be stuck, and is then sent once more the other way. */
    int errors; /* -1 when there is no more, or nobody wants it */
    bool keep;
    size_t sent, size;
    uint8_t buffer[PROTOCOL_STDERR_MAX + PROTOCOL_MARK_SIZE];

    bool end_due; /* of stdout: its mark */
    bool stdout_gone;

    int listener; /* -1: cannot be joined (any more) */
    char path[PROTOCOL_PATH_SIZE];
    int joiner;        /* the second runner's connection, -1 */
    int joined[2];     /* its stdin and stdout, -1 */
    uint8_t offset[8]; /* what the host says first */
    size_t offset_size;
};

/* --- signals: what a handler may touch has to be global ------------------------------------------------- */

static int wake_fd = -1;
static volatile sig_atomic_t asked_to_end;

static void on_signal(int number)
{
    int saved = errno;

    if (number != SIGCHLD)
        asked_to_end = 1;
    (void)!write(wake_fd, "", 1); /* full is as good as written */
    errno = saved;
}

static int watch_signals(void)
{
    static const int numbers[] = { SIGCHLD, SIGTERM, SIGHUP, SIGINT };
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigset_t none;
    int ends[2];

    if (descriptor_pipe(ends, true) < 0)
        return -1;
    wake_fd = ends[1];
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        sigaction(numbers[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return ends[0];
}

/* --- the header ----------------------------------------------------------------------------------------- */

/* Not a byte more than it was asked for: the next one is the command's. */
static bool read_exactly(int fd, void *out, size_t size)
{
    uint8_t *at = out;

    while (size > 0) {
        ssize_t n = RETRY_EINTR(read(fd, at, size));

        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static bool tell(const struct runner *r, int fd, enum mark_kind kind, uint32_t value)
{
    uint8_t mark[PROTOCOL_MARK_SIZE];

    protocol_print_mark(mark, r->request.nonce, (struct mark){ kind, value });
    return file_write_all(fd, mark, sizeof(mark)) == 0;
}

static bool hash_file(const char *path, uint8_t sum[HASH_SIZE_MAX])
{
    AUTO_CLOSE int fd = RETRY_EINTR(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    uint8_t block[16384];
    struct hash hash;
    ssize_t n = -1;

    hash_init(&hash, HASH_SHA1);
    while (fd >= 0 && (n = RETRY_EINTR(read(fd, block, sizeof(block)))) > 0)
        hash_add(&hash, block, (size_t)n);
    hash_end(&hash, sum);
    return n == 0;
}

/* Which of the files are not what the host has. */
static uint32_t find_stale(const struct runner *r)
{
    int directory = (int)(strrchr(r->own_path, '/') - r->own_path);
    uint32_t stale = 0;

    for (size_t i = 0; i < r->request.file_count; i++) {
        const struct protocol_file *file = &r->request.files[i];
        AUTO_FREE char *path = mem_print("%.*s/%s", directory, r->own_path, file->name);
        uint8_t sum[HASH_SIZE_MAX];

        if (!hash_file(path, sum) || memcmp(sum, file->sha1, HASH_SHA1_SIZE) != 0)
            stale |= 1u << i;
    }
    return stale;
}

/* 1 with the request; 0 when there is nothing to do, which the host was told; -1 when it is no header. */
static int read_request(struct runner *r)
{
    uint8_t head[PROTOCOL_HEAD_SIZE];
    unsigned version;
    size_t size;

    if (!read_exactly(STDIN_FILENO, head, sizeof(head)) ||
        !protocol_unpack_head(head, &r->request, &version, &size))
        return -1;
    if (version != PROTOCOL_VERSION) {
        (void)tell(r, STDOUT_FILENO, MARK_STALE, UINT32_MAX);
        return 0;
    }
    if (size > PROTOCOL_REST_MAX)
        return -1;
    AUTO_FREE uint8_t *rest = mem_alloc(size + 1);

    if (!read_exactly(STDIN_FILENO, rest, size) || !protocol_unpack_rest(rest, size, &r->request))
        return -1;
    uint32_t stale = find_stale(r);

    if (stale == 0)
        return 1;
    (void)tell(r, STDOUT_FILENO, MARK_STALE, stale);
    return 0;
}

/* --- the command ---------------------------------------------------------------------------------------- */

static char **list_words(const struct protocol_request *request)
{
    char **words = mem_alloc((request->word_count + 1) * sizeof(*words));
    char *at = request->words;

    for (uint32_t i = 0; i < request->word_count; i++) {
        words[i] = at;
        at += strlen(at) + 1;
    }
    return words;
}

static _Noreturn void become_command(const struct runner *r, int errors, int failure)
{
    char **words = list_words(&r->request);
    sigset_t none;
    int error;

    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (setsid() >= 0 && dup2(errors, STDERR_FILENO) >= 0) {
        if (r->request.own_binary)
            execv(r->own_path, words);
        else
            execvp(words[0], words);
    }
    error = errno;
    (void)!write(failure, &error, sizeof(error));
    _exit(NOT_RUN);
}

/* Only the command has its stdin, so that whoever writes there notices when it does not read any more. */
static void leave_stdin(void)
{
    AUTO_CLOSE int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (null < 0 || dup2(null, STDIN_FILENO) < 0)
        close(STDIN_FILENO);
}

/* 0, or the errno why nothing runs. */
static int start_command(struct runner *r)
{
    int errors[2] = { -1, -1 }, failure[2] = { -1, -1 };
    int error = 0;

    process_adopt_orphans();
    if (descriptor_pipe(errors, false) < 0 || descriptor_pipe(failure, false) < 0 ||
        descriptor_set_nonblocking(errors[0], true) < 0)
        return errno; /* and exits soon */
    r->kin.leader = fork();
    if (r->kin.leader < 0)
        return errno;
    if (r->kin.leader == 0)
        become_command(r, errors[1], failure[1]);
    close(errors[1]);
    close(failure[1]);
    leave_stdin();
    if (RETRY_EINTR(read(failure[0], &error, sizeof(error))) <= 0)
        error = 0; /* closed by a successful exec */
    close(failure[0]);
    r->errors = errors[0];
    return error;
}

static void take_leaders_end(struct runner *r)
{
    siginfo_t info = { .si_pid = 0 };

    if (r->ended)
        return;
    /* It stays a zombie: its number is that of its group, and must not become anybody else's. */
    if (waitid(P_PID, (id_t)r->kin.leader, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
        return;
    r->ended = true;
    r->status = info.si_code == CLD_EXITED ? protocol_status(info.si_status & 0xff, 0)
                                           : protocol_status(0, info.si_status);
}

/* --- being joined --------------------------------------------------------------------------------------- */

static void forget_fd(int *fd)
{
    util_close_fd(fd);
    *fd = -1;
}

static void stop_listening(struct runner *r)
{
    if (r->listener < 0)
        return;
    forget_fd(&r->listener);
    (void)unlink(r->path);
}

/* Without it signals cannot be forwarded, and one slow stream holds up the other; the command runs all the
 * same: it may be the one that makes room on a full disk. */
static void listen_for_join(struct runner *r)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    mode_t mask = umask(0177);

    protocol_print_path(r->path, r->request.rendezvous); /* by chance: nobody else's */
    memcpy(address.sun_path, r->path, sizeof(r->path));
    r->listener = descriptor_socket(AF_UNIX, SOCK_STREAM, 0, true);
    if (r->listener >= 0 &&
        (bind(r->listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(r->listener, 1) < 0))
        stop_listening(r);
    umask(mask);
    r->keep = r->listener >= 0;
}

static void leave_joiner(struct runner *r)
{
    int *const fds[] = { &r->joiner, &r->joined[0], &r->joined[1] };

    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        forget_fd(fds[i]);
    r->offset_size = 0;
}

static void accept_joiner(struct runner *r)
{
    int fd = accept(r->listener, NULL, NULL);

    if (fd < 0)
        return;
    leave_joiner(r);
    r->joiner = fd;
    (void)descriptor_set_nonblocking(fd, true);
}

/* Its descriptors come with one byte. */
static bool receive_descriptors(int socket, int out[2])
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    char byte;
    struct iovec part = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    ssize_t n = RETRY_EINTR(recvmsg(socket, &message, 0));
    const struct cmsghdr *c = n == 1 ? CMSG_FIRSTHDR(&message) : NULL;

    if (c == NULL || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return false;
    memcpy(out, CMSG_DATA(c), 2 * sizeof(int));
    return true;
}

static void take_descriptors(struct runner *r)
{
    if (!receive_descriptors(r->joiner, r->joined)) {
        leave_joiner(r);
        return;
    }
    (void)descriptor_set_nonblocking(r->joined[0], true);
    (void)descriptor_set_nonblocking(r->joined[1], true);
    if (!tell(r, r->joined[1], MARK_BEGIN, 0)) /* a fresh pipe has room for it */
        leave_joiner(r);
}

/* The host has said how much it has: from there on everything goes the new way. */
static bool switch_over(struct runner *r)
{
    uint64_t offset = 0;

    for (size_t i = 0; i < sizeof(r->offset); i++)
        offset = offset << 8 | r->offset[i];
    if (offset > r->size)
        return false;
    r->sent = (size_t)offset;
    r->keep = false;
    stop_listening(r);
    return true;
}

static bool is_joined(const struct runner *r)
{
    return r->offset_size == sizeof(r->offset);
}

static void obey(struct runner *r, int number)
{
    if (number == PROTOCOL_STDERR_CLOSED) {
        forget_fd(&r->errors); /* who writes there learns it as he would from any pipe */
        return;
    }
    if (number >= NSIG || r->phase != PHASE_RUNNING)
        return;
    if (number == SIGSTOP || number == SIGCONT) { /* Ctrl-Z and what follows it: no end of the command */
        (void)kill(-r->kin.leader, number);
        return;
    }
    /* Who belongs to it is asked before: the signal may end the leader, and with it the trace to a child in
     * another group. */
    process_kin_remember(&r->kin);
    r->settle = true;
    if (number == SIGKILL)
        process_kin_kill(&r->kin);
    else
        (void)kill(-r->kin.leader, number);
}

/* False when the host has hung up. */
static bool take_orders(struct runner *r)
{
    uint8_t bytes[64];
    ssize_t n = RETRY_EINTR(read(r->joined[0], bytes, sizeof(bytes)));

    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return true;
    for (ssize_t i = 0; i < n; i++) {
        if (is_joined(r)) {
            obey(r, bytes[i]);
            continue;
        }
        r->offset[r->offset_size++] = bytes[i];
        if (is_joined(r) && !switch_over(r))
            return false;
    }
    if (n > 0 || is_joined(r))
        return n > 0;
    leave_joiner(r); /* it came to nothing; another one may come */
    return true;
}

/* --- stderr --------------------------------------------------------------------------------------------- */

static size_t room_for_errors(struct runner *r)
{
    if (!r->keep && r->sent == r->size)
        r->sent = r->size = 0;
    return r->phase == PHASE_RUNNING && r->size < PROTOCOL_STDERR_MAX ? PROTOCOL_STDERR_MAX - r->size : 0;
}

/* False when there is nothing now. */
static bool read_errors(struct runner *r)
{
    size_t room = r->errors < 0 ? 0 : room_for_errors(r);
    ssize_t n = room == 0 ? -1 : RETRY_EINTR(read(r->errors, r->buffer + r->size, room));

    if (room > 0 && n == 0)
        forget_fd(&r->errors);
    r->size += n > 0 ? (size_t)n : 0;
    return n > 0;
}

static int errors_way(const struct runner *r)
{
    return is_joined(r) ? r->joined[1] : STDERR_FILENO;
}

/* Of what is sent by way of stderr, which may not be made non-blocking (others have it, too), only as much at
 * once as there is room for when poll(2) says that there is any. */
static void send_errors(struct runner *r)
{
    size_t size = r->size - r->sent;

    if (!is_joined(r) && size > PIPE_BUF)
        size = PIPE_BUF;
    ssize_t n = RETRY_EINTR(write(errors_way(r), r->buffer + r->sent, size));

    r->sent += n > 0 ? (size_t)n : 0;
}

static void append_mark(struct runner *r, enum mark_kind kind, uint32_t value)
{
    (void)room_for_errors(r);
    protocol_print_mark(r->buffer + r->size, r->request.nonce, (struct mark){ kind, value });
    r->size += PROTOCOL_MARK_SIZE;
    r->end_due = true;
    r->phase = PHASE_TOLD;
}

/* --- the loop ------------------------------------------------------------------------------------------- */

static bool is_broken(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

/* Once joined, the first channel may be closed: nobody reads the command's stdout any more. */
static bool has_hung_up(const struct runner *r)
{
    if (asked_to_end)
        return true;
    if (r->joined[0] >= 0) /* the host may have said so, and closed the other, before we have heard it */
        return is_broken(r->joined[1]);
    return is_broken(STDOUT_FILENO) || is_broken(STDERR_FILENO);
}

static void keep_time(struct runner *r)
{
    int64_t now = clock_mono_ms();

    if (r->phase != PHASE_RUNNING)
        return;
    if (!r->timed_out && now >= r->end_ms && !r->ended) {
        obey(r, SIGTERM);
        r->timed_out = true;
        r->kill_ms = now + GRACE_MS;
    }
    if (r->kill_ms != 0 && now >= r->kill_ms) {
        obey(r, SIGKILL);
        r->kill_ms = 0;
    }
}

/* All that it wrote is in the pipe before its end is seen. What children of its write later, who keep its
 * stderr, is not waited for. */
static void tell_end(struct runner *r)
{
    if (r->phase != PHASE_RUNNING || !r->ended)
        return;
    if (r->settle && process_kin_remember(&r->kin))
        return;
    while (read_errors(r)) {
    }
    if (r->errors >= 0 && r->size >= PROTOCOL_STDERR_MAX)
        return; /* there may be more */
    append_mark(r, r->timed_out ? MARK_LATE : MARK_DONE, r->status);
}

enum {
    POLL_SIGNALS,
    POLL_ERRORS,
    POLL_WAY,
    POLL_STDOUT,
    POLL_LISTENER,
    POLL_JOINER,
    POLL_ORDERS,
    POLL_COUNT
};

static void fill_polls(struct runner *r, int signals, struct pollfd polls[POLL_COUNT])
{
    bool awaits_descriptors = r->joiner >= 0 && r->joined[0] < 0;

    polls[POLL_SIGNALS] = (struct pollfd){ .fd = signals, .events = POLLIN };
    polls[POLL_ERRORS] = (struct pollfd){ .fd = room_for_errors(r) > 0 ? r->errors : -1, .events = POLLIN };
    polls[POLL_WAY] = (struct pollfd){ .fd = r->sent < r->size ? errors_way(r) : -1, .events = POLLOUT };
    /* Without events: Linux tells at once when its reader is gone. */
    polls[POLL_STDOUT] =
        (struct pollfd){ .fd = r->stdout_gone ? -1 : STDOUT_FILENO, .events = r->end_due ? POLLOUT : 0 };
    polls[POLL_LISTENER] = (struct pollfd){ .fd = r->listener, .events = POLLIN };
    polls[POLL_JOINER] = (struct pollfd){ .fd = awaits_descriptors ? r->joiner : -1, .events = POLLIN };
    polls[POLL_ORDERS] = (struct pollfd){ .fd = r->joined[0], .events = POLLIN };
}

static int choose_wait(const struct runner *r)
{
    int64_t now = clock_mono_ms(), wait = r->ended && r->phase == PHASE_RUNNING ? SETTLE_MS : HANG_UP_MS;

    if (r->phase == PHASE_RUNNING && !r->timed_out && r->end_ms - now < wait)
        wait = r->end_ms - now;
    return wait < 0 ? 0 : (int)wait;
}

/* False when the host is gone. */
static bool serve(struct runner *r, const struct pollfd polls[POLL_COUNT])
{
    char bytes[64];

    if (polls[POLL_SIGNALS].revents != 0) {
        (void)!read(polls[POLL_SIGNALS].fd, bytes, sizeof(bytes));
        take_leaders_end(r);
        process_kin_reap(&r->kin);
    }
    if (polls[POLL_ERRORS].revents != 0)
        (void)read_errors(r);
    if ((polls[POLL_WAY].revents & POLLOUT) != 0)
        send_errors(r);
    if ((polls[POLL_STDOUT].revents & POLLOUT) != 0) {
        (void)tell(r, STDOUT_FILENO, MARK_END, 0);
        r->end_due = false;
    }
    if ((polls[POLL_STDOUT].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0)
        r->stdout_gone = true;
    if (polls[POLL_LISTENER].revents != 0)
        accept_joiner(r);
    if (polls[POLL_JOINER].revents != 0)
        take_descriptors(r);
    if (polls[POLL_ORDERS].revents != 0 && !take_orders(r))
        return false;
    return !has_hung_up(r);
}

static void serve_host(struct runner *r, int signals)
{
    struct pollfd polls[POLL_COUNT];
    bool there = true;

    while (there) {
        fill_polls(r, signals, polls);
        int ready = poll(polls, POLL_COUNT, choose_wait(r));

        for (int i = 0; ready < 0 && i < POLL_COUNT; i++)
            polls[i].revents = 0;
        there = serve(r, polls);
        keep_time(r);
        tell_end(r);
    }
    if (r->phase == PHASE_RUNNING)
        process_kin_kill(&r->kin);
}

/* Marks in front, so that the host knows from what it hears last whether anything may have run. */
static int run(struct runner *r)
{
    int signals = watch_signals();

    if (signals < 0)
        return STATUS_LOST;
    r->end_ms = clock_mono_ms() + r->request.timeout_ms;
    listen_for_join(r);
    uint32_t can_join = r->listener >= 0;

    if (tell(r, STDOUT_FILENO, MARK_BEGIN, can_join) && tell(r, STDERR_FILENO, MARK_BEGIN, can_join)) {
        int error = start_command(r);

        if (error != 0)
            append_mark(r, MARK_NOT_RUN, (uint32_t)error);
        serve_host(r, signals);
    }
    stop_listening(r);
    leave_joiner(r);
    return 0;
}

static int run_for_host(const char *own_path)
{
    struct runner *r = mem_alloc(sizeof(*r));

    *r = (struct runner){ .own_path = own_path,
                          .kin.adopts = true,
                          .errors = -1,
                          .listener = -1,
                          .joiner = -1,
                          .joined = { -1, -1 } };
    int got = read_request(r);
    int status = got > 0 ? run(r) : 0;

    if (got < 0) {
        fprintf(stderr, "agent-desktop: " RUNNER_MODE " is for agent-desktop itself\n");
        status = STATUS_USAGE;
    }
    process_kin_done(&r->kin);
    protocol_done(&r->request);
    free(r);
    return status;
}

/* --- the second one ------------------------------------------------------------------------------------- */

static int send_descriptors(int socket)
{
    static const int fds[] = { STDIN_FILENO, STDOUT_FILENO };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(fds))];
    } control = { .bytes = { 0 } };
    struct iovec part = { .iov_base = &(char){ 0 }, .iov_len = 1 };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(c), fds, sizeof(fds));
    return (int)RETRY_EINTR(sendmsg(socket, &message, 0));
}

static int join(const char *word)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char path[PROTOCOL_PATH_SIZE], byte, *end;
    uint64_t rendezvous = strtoull(word, &end, 16);
    AUTO_CLOSE int socket = descriptor_socket(AF_UNIX, SOCK_STREAM, 0, false);

    if (*word == '\0' || *end != '\0')
        return STATUS_USAGE;
    protocol_print_path(path, rendezvous);
    memcpy(address.sun_path, path, sizeof(path));
    if (socket < 0 || connect(socket, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        send_descriptors(socket) < 0)
        return STATUS_LOST;
    while (RETRY_EINTR(read(socket, &byte, 1)) > 0) { /* until the first one has no more use for it */
    }
    return 0;
}

int runner_main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[2], "join") == 0)
        return join(argv[3]);
    if (argc == 2 && strchr(argv[0], '/') != NULL)
        return run_for_host(argv[0]);
    fprintf(stderr, "agent-desktop: " RUNNER_MODE " is for agent-desktop itself\n");
    return STATUS_USAGE;
}

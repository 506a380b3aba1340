/* provider_ops.exec: hands the caller's own streams to the supervisor and waits for the end of the command.
 *
 * Not a byte is copied on the way: what the command writes is in the caller's pipe before its status is, so
 * output cannot be lost, and back-pressure is the pipe's own. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/util.h"
#include "providers/exec_rules.h"
#include "providers/linux/control.h"
#include "providers/linux/session.h"

#define CONNECT_MS     2000
#define GREET_MS       10000             /* a supervisor that is not stuck answers within milliseconds */
#define GRACE_MS       2000              /* between SIGTERM (or the caller's signal) and SIGKILL */
#define KILL_MS        2000              /* for the supervisor to tell that all is gone */
#define WORDS_SIZE_MAX (2 * 1024 * 1024) /* execve(2) takes no more with the usual stack limit */

struct execution {
    const struct exec_request *request;
    struct exec_result *out;
    int control;
    int words;      /* memfd */
    int64_t end_ms; /* the time limit */
    uint32_t argc, envc;
    int binary;
    off_t position; /* of stdout before, when it is a file; else -1 */
    int null;
    int streams[3];
};

/* --- what is sent --------------------------------------------------------------------------------------- */

/* A stream the caller has closed would arrive as some descriptor of ours. */
static int choose_streams(struct execution *x, struct error *e)
{
    if (exec_check_streams(x->request, e) < 0)
        return -1;
    for (int i = 0; i < 3; i++) {
        x->streams[i] = x->request->streams[i];
        if (x->streams[i] >= 0 && fcntl(x->streams[i], F_GETFD) >= 0)
            continue;
        if (x->null < 0)
            x->null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (x->null < 0)
            return error_set(e, ERROR_ACTION_FAILED, errno, "cannot open /dev/null");
        x->streams[i] = x->null;
    }
    return 0;
}

static int add_word(struct execution *x, size_t *size, const char *word, struct error *e)
{
    size_t n = strlen(word) + 1;

    if (n > WORDS_SIZE_MAX - *size)
        return error_set(e, ERROR_INVALID_ARGS, 0, "the arguments are longer than %d bytes together",
                         WORDS_SIZE_MAX);
    if (file_write_all(x->words, word, n) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot store the arguments");
    *size += n;
    return 0;
}

/* Nothing of the caller's environment gets inside but these two. */
static int add_environment(struct execution *x, size_t *size, struct error *e)
{
    static const char *const names[] = { "TERM", "LANG" };
    char word[256];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i]);
        int n = value == NULL ? -1 : snprintf(word, sizeof(word), "%s=%s", names[i], value);

        if (n < 0 || (size_t)n >= sizeof(word))
            continue;
        if (add_word(x, size, word, e) < 0)
            return -1;
        x->envc++;
    }
    return 0;
}

/* A memfd, since a message is limited by net.core.wmem_default; sealed, so that PID 1 may rely on its size.
 */
static int store_words(struct execution *x, struct error *e)
{
    char *const *argv = x->request->argv;
    size_t size = 0;

    x->words = memfd_create("words", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (x->words < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot store the arguments");
    for (; argv[x->argc] != NULL; x->argc++) {
        const char *word = x->request->own_binary && x->argc == 0 ? "agent-desktop" : argv[x->argc];

        if (add_word(x, &size, word, e) < 0)
            return -1;
    }
    if (add_environment(x, &size, e) < 0)
        return -1;
    if (fcntl(x->words, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot store the arguments");
    return 0;
}

/* A detached read-only mount of FILE: root inside finds the running file as /proc/PID/exe, and must not be
 * able to write the host's. FILE itself where that cannot be had: an ordinary user has no privilege to make
 * mounts, nor one to write a file of root's. */
static int protect(int file)
{
    struct mount_attr read_only = { .attr_set = MOUNT_ATTR_RDONLY };
    int mount =
        geteuid() == 0 ? open_tree(file, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC) : -1;

    if (mount < 0)
        return file;
    if (mount_setattr(mount, "", AT_EMPTY_PATH, &read_only, sizeof(read_only)) < 0) {
        close(mount);
        return file;
    }
    close(file);
    return mount;
}

/* The very build that runs here, whatever lies at its path by now. */
static int open_binary(struct execution *x, struct error *e)
{
    if (!x->request->own_binary)
        return 0;
    x->binary = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (x->binary < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot open this program's own file");
    x->binary = protect(x->binary);
    return 0;
}

/* A file's position is shared with the command, and tells of writes that the supervisor cannot see: to a
 * memfd (since Linux 6.14). */
static off_t stdout_position(const struct execution *x)
{
    struct stat st;

    if (fstat(x->streams[1], &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    return lseek(x->streams[1], 0, SEEK_CUR);
}

static int send_command(struct execution *x, struct error *e)
{
    const struct control_request request = { .version = CONTROL_VERSION,
                                             .kind = CONTROL_EXEC,
                                             .argc = x->argc,
                                             .envc = x->envc,
                                             .own_binary = x->request->own_binary };
    const int fds[CONTROL_FDS_MAX] = { x->streams[0], x->streams[1], x->streams[2], x->words, x->binary };

    return control_send(x->control, &request, fds, x->binary >= 0 ? CONTROL_FDS_MAX : CONTROL_FDS_MAX - 1, e);
}

/* --- how it went ---------------------------------------------------------------------------------------- */

static int not_delivered(struct execution *x, struct error *e)
{
    x->out->delivery = EXEC_NOT_SENT;
    x->out->stdout_used = false;
    e->delivery = DELIVERY_NOT_DELIVERED;
    e->retry = RETRY_SAFE;
    return -1;
}

/* A program that cannot be run has no exit status: 127 could be the program's own. */
static int refuse_start(struct execution *x, int sys, struct error *e)
{
    const char *word = x->request->own_binary ? "agent-desktop" : x->request->argv[0];

    if (sys == E2BIG)
        error_set(e, ERROR_INVALID_ARGS, 0, "the arguments are too long for the system");
    else
        error_set(e, ERROR_ACTION_FAILED, sys, "cannot run '%.200s' in the sandbox", word);
    return not_delivered(x, e);
}

static void take_end(struct execution *x, const struct control_reply *reply)
{
    x->out->delivery = EXEC_FINISHED;
    x->out->stdout_used = reply->stdout_used != 0;
}

static int take_status(struct execution *x, const struct control_reply *reply)
{
    int wait_status = reply->value;

    take_end(x, reply);
    x->out->status_known = true;
    x->out->status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
    x->out->signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    return 0;
}

static int take_reply(struct execution *x, const struct control_reply *reply, struct error *e)
{
    switch (reply->answer) {
    case CONTROL_EXITED:
        return take_status(x, reply);
    case CONTROL_FAILED:
        return refuse_start(x, reply->value, e);
    case CONTROL_STARTING:
    case CONTROL_STOPPING:
        error_set(e, ERROR_INVALID_STATE, 0, "the sandbox's desktop is %s",
                  reply->answer == CONTROL_STARTING ? "not ready yet" : "ending");
        return not_delivered(x, e);
    default:
        error_set(e, ERROR_ACTION_FAILED, 0,
                  "the sandbox was started by another version of this program: stop and start it");
        return not_delivered(x, e);
    }
}

static int lost_connection(struct error *e)
{
    error_set(e, ERROR_ACTION_FAILED, 0, "the sandbox ended before it told how the command went");
    e->delivery = DELIVERY_UNKNOWN;
    e->retry = RETRY_UNSAFE;
    return -1;
}

/* 1 with the reply, 0 after MS, -1 when the supervisor is gone. */
static int wait_reply(const struct execution *x, int ms, struct control_reply *reply)
{
    struct error ignored = { 0 };

    return control_receive(x->control, ms, reply, &ignored);
}

/* That the supervisor is gone is found by who waits for its reply. */
static void forward(const struct execution *x, int number)
{
    unsigned char byte = (unsigned char)number;

    (void)send(x->control, &byte, 1, MSG_NOSIGNAL);
}

/* The signal, some time to act on it, then hang-up: whatever is left of the command is killed. The supervisor
 * answers only when nothing of it lives any more. */
static int end_command(const struct execution *x, int number, struct control_reply *reply)
{
    int r;

    forward(x, number);
    r = wait_reply(x, GRACE_MS, reply);
    if (r != 0)
        return r;
    shutdown(x->control, SHUT_WR);
    return wait_reply(x, KILL_MS, reply);
}

static int time_out(struct execution *x, struct error *e)
{
    struct control_reply reply;
    int r = end_command(x, SIGTERM, &reply);

    if (r == 1 && reply.answer == CONTROL_FAILED)
        return take_reply(x, &reply, e);
    if (r == 1 && reply.answer == CONTROL_EXITED)
        take_end(x, &reply);
    return exec_set_late(x->request, e);
}

static int interrupt(struct execution *x, struct error *e)
{
    struct control_reply reply;
    int number = *x->request->signal;
    int r = end_command(x, number > 0 ? number : SIGTERM, &reply);

    return r == 1 ? take_reply(x, &reply, e) : lost_connection(e);
}

enum news { NEWS_REPLY, NEWS_SIGNAL, NEWS_TIME_OUT, NEWS_LOST };

/* The command has no part in the caller's terminal, so Ctrl-Z does not reach it by itself. */
static void suspend(const struct execution *x)
{
    bool sent = x->out->delivery == EXEC_SENT;

    if (sent)
        forward(x, SIGSTOP);
    x->request->suspend();
    if (sent)
        forward(x, SIGCONT);
}

/* True when the caller's signal is to end the command. What woke us is taken first: a signal that comes after
 * the look at it wakes us again. */
static bool take_signal(const struct execution *x)
{
    char bytes[64];

    (void)!read(x->request->signal_fd, bytes, sizeof(bytes));
    if (x->request->suspend == NULL || *x->request->signal != 0)
        return true;
    suspend(x);
    return false;
}

/* Waits for the reply, the caller's signal or the end of the time. */
static enum news wait_news(const struct execution *x, int64_t end_ms, struct control_reply *reply)
{
    struct pollfd polls[2] = { { .fd = x->control, .events = POLLIN },
                               { .fd = x->request->signal_fd, .events = POLLIN } };

    for (;;) {
        int64_t left = end_ms - clock_mono_ms();
        int n = poll(polls, ARRAY_LEN(polls), left > 0 ? (int)left : 0);

        if (n > 0 && polls[0].revents != 0)
            return wait_reply(x, 0, reply) == 1 ? NEWS_REPLY : NEWS_LOST;
        if (n > 0 && polls[1].revents != 0 && take_signal(x))
            return NEWS_SIGNAL;
        if (n == 0 && left <= 0)
            return NEWS_TIME_OUT;
        if (n < 0 && errno != EINTR)
            return NEWS_LOST;
    }
}

static int wait_command(struct execution *x, struct error *e)
{
    struct control_reply reply;

    switch (wait_news(x, x->end_ms, &reply)) {
    case NEWS_REPLY:
        return take_reply(x, &reply, e);
    case NEWS_SIGNAL:
        return interrupt(x, e);
    case NEWS_TIME_OUT:
        return time_out(x, e);
    case NEWS_LOST:
        break;
    }
    return lost_connection(e);
}

/* Is anybody listening? Descriptors sent to a supervisor that hangs would stay open in its queue after we are
 * gone, and whoever reads the other end of our stdout would wait for them. */
static int greet(struct execution *x, struct error *e)
{
    const struct control_request ping = { .version = CONTROL_VERSION, .kind = CONTROL_PING };
    int64_t end_ms = clock_mono_ms() + GREET_MS;
    struct control_reply reply;

    if (control_send(x->control, &ping, NULL, 0, e) < 0)
        return not_delivered(x, e);
    switch (wait_news(x, x->end_ms < end_ms ? x->end_ms : end_ms, &reply)) {
    case NEWS_REPLY:
        return reply.answer == CONTROL_OK ? 0 : take_reply(x, &reply, e);
    case NEWS_SIGNAL:
        error_set(e, ERROR_ACTION_FAILED, 0, "interrupted before the sandbox took the command");
        break;
    case NEWS_TIME_OUT:
        error_set(e, ERROR_TIMEOUT, 0, "the sandbox does not answer and did not take the command");
        break;
    case NEWS_LOST:
        error_set(e, ERROR_INVALID_STATE, 0, "the sandbox has ended");
        break;
    }
    return not_delivered(x, e);
}

static int connect_session(struct execution *x, struct linux_sandbox *s, struct error *e)
{
    int found = linux_sandbox_open_dir(s, e);
    int connected = found > 0 ? control_connect(s->dir, CONNECT_MS, &x->control, e) : found;

    if (connected == 0)
        error_set(e, ERROR_INVALID_STATE, 0, "'%s' is not running", s->place->name);
    return connected > 0 ? 0 : not_delivered(x, e);
}

static int prepare_command(struct execution *x, struct linux_sandbox *s, struct error *e)
{
    /* The streams first: descriptors that are opened here must not be taken for them. */
    if (choose_streams(x, e) < 0 || store_words(x, e) < 0 || open_binary(x, e) < 0)
        return not_delivered(x, e);
    return connect_session(x, s, e);
}

static int execute(struct execution *x, struct linux_sandbox *s, struct error *e)
{
    int r;

    x->end_ms = clock_mono_ms() + x->request->timeout_ms;
    if (prepare_command(x, s, e) < 0 || greet(x, e) < 0)
        return -1;
    x->position = stdout_position(x);
    if (send_command(x, e) < 0)
        return not_delivered(x, e);
    x->out->delivery = EXEC_SENT;
    x->out->stdout_used = true; /* until the supervisor tells otherwise */
    r = wait_command(x, e);
    if (stdout_position(x) != x->position && x->out->delivery != EXEC_NOT_SENT)
        x->out->stdout_used = true;
    return r;
}

int linux_exec(void *self, const struct facts *facts, const struct exec_request *request,
               struct exec_result *out, struct error *e)
{
    struct execution x = {
        .request = request, .out = out, .control = -1, .words = -1, .binary = -1, .null = -1
    };
    int r;

    (void)facts; /* the socket is where the sandbox is */
    assert(request->argv[0] != NULL);
    *out = (struct exec_result){ .delivery = EXEC_NOT_SENT };
    r = execute(&x, self, e);
    util_close_fd(&x.control);
    util_close_fd(&x.words);
    util_close_fd(&x.binary);
    util_close_fd(&x.null);
    return r;
}

/* The host's side of runner.c; what passes between the two is specified in protocol.h.
 *
 * One thread has the connection and never blocks; a thread each moves the caller's streams (pump.h). */
#include "providers/remote/exec.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/util.h"
#include "providers/exec_rules.h"
#include "providers/remote/channel.h"
#include "providers/remote/protocol.h"
#include "providers/remote/pump.h"
#include "providers/remote/runner.h"
#include "providers/remote/sync.h"

#define GRACE_MS  2000  /* between SIGTERM (or the caller's signal) and SIGKILL */
#define KILL_MS   2000  /* for the runner to tell that all is gone */
#define JOIN_MS   6000  /* until a signal is on its way: a busy guest takes seconds to start what takes it */
#define SLACK_MS  1000  /* the runner keeps the time limit, and its word takes some time to come */
#define GONE_MS   1000  /* for what was on its way when the runner was ended, before it could tell */
#define STALL_MS  100   /* a reader that takes nothing for so long holds up what comes behind */
#define UPLOAD_MS 30000 /* of one file */
#define READS_MAX 16    /* blocks in a row before signals and times are looked at again */
#define NOISE_MAX 160

#define NOT_BEGUN "the sandbox did not begin with the command in time"
#define BAD_GUEST "the agent-desktop in the guest does not keep to the protocol"

#define RUNNER_PATH    "~/" REMOTE_BIN "/agent-desktop" /* every login shell expands the tilde */
#define RUNNER_COMMAND RUNNER_PATH " " RUNNER_MODE

/* What comes through one stream of one channel, and where it goes. */
enum route_number { ROUTE_OUT, ROUTE_ERR, ROUTE_CONTROL, ROUTE_CONTROL_NOISE, ROUTE_COUNT };
enum route_phase { ROUTE_NOISE, ROUTE_TEXT, ROUTE_ENDED };

struct route {
    struct channel *channel; /* NULL: none, or not any more */
    enum channel_stream stream;
    struct sink *sink;
    enum route_phase phase;
    uint64_t text_size;                    /* so much of the command's */
    uint8_t left_over[PROTOCOL_MARK_SIZE]; /* may be the beginning of a mark */
    size_t left_size;
};

/* One of the caller's output streams. */
struct sink {
    int fd;            /* -1: to nowhere */
    struct pump *pump; /* NULL until there is something */
};

enum outcome { OUTCOME_NONE, OUTCOME_STALE, OUTCOME_DONE, OUTCOME_LATE, OUTCOME_NOT_RUN };

enum joining { JOIN_NONE, JOIN_STARTING, JOIN_JOINED, JOIN_FAILED };

struct execution {
    const struct exec_request *request;
    struct exec_result *out;
    struct ssh *ssh;
    const struct remote_file *files;
    size_t file_count;
    int64_t end_ms; /* the time limit */

    struct protocol_request wire;
    struct text words, header;
    size_t header_sent;
    struct mark_scanner scanner;

    struct channel *data, *control;
    struct route routes[ROUTE_COUNT];
    struct sink sinks[2]; /* stdout, stderr */
    int stdin_fd;
    struct pump *in;
    bool in_ended;
    int wake[2]; /* the pumps' */
    uint8_t scratch[PUMP_BLOCK_SIZE];
    char noise[NOISE_MAX]; /* the end of what the shell says before */
    size_t noise_size;

    enum outcome outcome;
    uint32_t value;
    int64_t outcome_ms;
    bool can_join;
    enum joining joining;
    char join_command[sizeof(RUNNER_COMMAND) + 32];
    uint8_t orders[32]; /* on their way to the control channel: how much of stderr is here, then signals */
    size_t order_count;
    bool stderr_closed; /* has been ordered */
    int64_t kill_ms;    /* when SIGKILL follows the caller's signal, and when that is enough; 0: no signal */
    int64_t give_up_ms;
    bool signal_sent;   /* from then on the grace counts */
    int64_t suspend_ms; /* until when an ordered stop may take; 0: none is under way */
    int64_t tend_ms;
    int64_t gone_ms; /* when it was told that the runner is gone; 0: it is not */
};

/* --- what is sent --------------------------------------------------------------------------------------- */

static int choose_streams(struct execution *x, struct error *e)
{
    const int *streams = x->request->streams;

    if (exec_check_streams(x->request, e) < 0)
        return -1;
    x->stdin_fd = exec_usable_stream(streams[0], O_WRONLY);
    x->sinks[0].fd = exec_usable_stream(streams[1], O_RDONLY);
    x->sinks[1].fd = exec_usable_stream(streams[2], O_RDONLY);
    return 0;
}

static int add_words(struct execution *x, struct error *e)
{
    char *const *argv = x->request->argv;

    for (; argv[x->wire.word_count] != NULL; x->wire.word_count++) {
        uint32_t i = x->wire.word_count;
        const char *word = x->request->own_binary && i == 0 ? "agent-desktop" : argv[i];
        size_t size = strlen(word) + 1;

        if (size > PROTOCOL_WORDS_MAX - x->words.size)
            return error_set(e, ERROR_INVALID_ARGS, 0, "the arguments are longer than %d bytes together",
                             PROTOCOL_WORDS_MAX);
        text_add(&x->words, word, size);
    }
    x->wire.words = x->words.bytes;
    x->wire.words_size = x->words.size;
    return 0;
}

static int add_files(struct execution *x, struct error *e)
{
    assert(x->file_count > 0 && x->file_count <= PROTOCOL_FILES_MAX);
    for (size_t i = 0; i < x->file_count; i++) {
        struct protocol_file *file = &x->wire.files[i];

        snprintf(file->name, sizeof(file->name), "%s", x->files[i].name);
        if (sync_hash(&x->files[i], file->sha1, e) < 0)
            return -1;
    }
    x->wire.file_count = x->file_count;
    return 0;
}

static int prepare(struct execution *x, struct error *e)
{
    x->wire.own_binary = x->request->own_binary;
    if (choose_streams(x, e) < 0 || add_words(x, e) < 0 || add_files(x, e) < 0)
        return -1;
    if (descriptor_pipe(x->wake, true) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot make a pipe");
    return 0;
}

/* Anew for each attempt: what an earlier runner may still say is not taken for this one's. */
static int begin_attempt(struct execution *x, struct error *e)
{
    int64_t left = x->end_ms - clock_mono_ms();

    if (getentropy(x->wire.nonce, sizeof(x->wire.nonce)) < 0 ||
        getentropy(&x->wire.rendezvous, sizeof(x->wire.rendezvous)) < 0)
        return error_set(e, ERROR_INTERNAL, 0, "the system gives no random numbers");
    x->wire.timeout_ms = left > 0 ? (uint32_t)left : 1;
    x->header.size = x->header_sent = 0;
    protocol_pack(&x->wire, &x->header);
    mark_scanner_init(&x->scanner, x->wire.nonce);
    snprintf(x->join_command, sizeof(x->join_command), "%s join %016" PRIx64, RUNNER_COMMAND,
             x->wire.rendezvous);
    x->noise_size = 0;
    x->outcome = OUTCOME_NONE;
    x->gone_ms = 0;
    x->out->delivery = EXEC_NOT_SENT;
    x->data = channel_start(x->ssh, RUNNER_COMMAND);
    x->routes[ROUTE_OUT] =
        (struct route){ .channel = x->data, .stream = CHANNEL_STDOUT, .sink = &x->sinks[0] };
    x->routes[ROUTE_ERR] =
        (struct route){ .channel = x->data, .stream = CHANNEL_STDERR, .sink = &x->sinks[1] };
    return 0;
}

/* --- how it went ---------------------------------------------------------------------------------------- */

enum verdict { GO_ON, FINISHED, FAILED, UPDATE }; /* FAILED with the error, UPDATE: upload and try again */

static enum verdict fail(struct error *e, enum error_delivery delivery, enum error_retry retry)
{
    e->delivery = delivery;
    e->retry = retry;
    return FAILED;
}

static enum verdict not_delivered(struct execution *x, struct error *e)
{
    x->out->delivery = EXEC_NOT_SENT;
    return fail(e, DELIVERY_NOT_DELIVERED, RETRY_SAFE);
}

/* The command may have run, whole or in part. */
static enum verdict unknown(struct execution *x, const char *what, struct error *e)
{
    error_set(e, ERROR_ACTION_FAILED, 0, "%s", what);
    return x->out->delivery == EXEC_NOT_SENT ? not_delivered(x, e) : fail(e, DELIVERY_UNKNOWN, RETRY_UNSAFE);
}

static enum verdict late(const struct execution *x, struct error *e)
{
    exec_set_late(x->request, e);
    return FAILED;
}

/* A program that cannot be run has no exit status: 127 could be the program's own. */
static enum verdict not_run(struct execution *x, struct error *e)
{
    const char *word = x->request->own_binary ? "agent-desktop" : x->request->argv[0];

    if (x->value == E2BIG)
        error_set(e, ERROR_INVALID_ARGS, 0, "the arguments are too long for the system");
    else
        error_set(e, ERROR_ACTION_FAILED, (int)x->value, "cannot run '%.200s' in the sandbox", word);
    return not_delivered(x, e);
}

static enum verdict done(struct execution *x)
{
    x->out->delivery = EXEC_FINISHED;
    x->out->status_known = true;
    x->out->status = protocol_exit_status(x->value);
    x->out->signal = protocol_signal(x->value);
    return FINISHED;
}

/* --- what comes ----------------------------------------------------------------------------------------- */

/* The end of what the shell has said, for the case that the runner does not. */
static void remember_noise(struct execution *x, const uint8_t *bytes, size_t size)
{
    size_t kept = size < NOISE_MAX ? size : NOISE_MAX;
    size_t old = x->noise_size < NOISE_MAX - kept ? x->noise_size : NOISE_MAX - kept;

    memmove(x->noise, x->noise + x->noise_size - old, old);
    memcpy(x->noise + old, bytes + size - kept, kept);
    x->noise_size = old + kept;
}

static bool sink_is_open(const struct sink *s)
{
    return s->fd >= 0 && (s->pump == NULL || pump_error(s->pump) == 0);
}

/* To write straight into what the pump writes from. NULL: it is full. */
static uint8_t *choose_buffer(struct execution *x, const struct route *r)
{
    if (r->phase == ROUTE_TEXT && r->sink->pump != NULL && sink_is_open(r->sink))
        return pump_block(r->sink->pump);
    return x->scratch;
}

/* TEXT lies in BUFFER, which is the sink's block or scratch. */
static int deliver(struct execution *x, struct route *r, const uint8_t *buffer, const uint8_t *text,
                   size_t size, struct error *e)
{
    struct sink *sink = r->sink;

    r->text_size += size;
    if (!sink_is_open(sink))
        return 0;
    if (sink->pump == NULL && pump_start(sink->fd, PUMP_OUT, x->wake[1], &sink->pump, e) < 0)
        return -1;
    if (buffer != x->scratch) {
        pump_give(sink->pump, (size_t)(text - buffer), size);
        return 0;
    }
    /* There is room in the sink of a guest that keeps to the protocol: what lies in scratch is the first
     * text. */
    uint8_t *block = pump_block(sink->pump);

    if (block == NULL)
        return error_set(e, ERROR_ACTION_FAILED, 0, BAD_GUEST);
    memcpy(block, text, size);
    pump_give(sink->pump, 0, size);
    return 0;
}

static void end_route(struct route *r)
{
    r->phase = ROUTE_ENDED;
    r->left_size = 0;
}

static void take_outcome(struct execution *x, enum outcome outcome, uint32_t value)
{
    x->outcome = outcome;
    x->value = value;
    x->outcome_ms = clock_mono_ms();
}

/* The second runner's stdout is the command's stderr from here on. What of it has come the other way is told,
 * in front of all orders. */
static void switch_to_control(struct execution *x)
{
    struct route *err = &x->routes[ROUTE_ERR];

    memmove(x->orders + 8, x->orders, x->order_count);
    x->order_count += 8;
    for (int i = 0; i < 8; i++)
        x->orders[i] = (uint8_t)(err->text_size >> (56 - 8 * i));
    end_route(err);
    x->joining = JOIN_JOINED;
}

static void begin_text(struct execution *x, struct route *r, uint32_t value)
{
    r->phase = ROUTE_TEXT;
    if (r == &x->routes[ROUTE_CONTROL])
        switch_to_control(x);
    else
        x->can_join = value != 0;
}

/* False when it has no business there. */
static bool take_mark(struct execution *x, struct route *r, struct mark m)
{
    bool on_stdout = r == &x->routes[ROUTE_OUT];

    switch (m.kind) {
    case MARK_BEGIN:
        if (r->phase != ROUTE_NOISE)
            return false;
        begin_text(x, r, m.value);
        return true;
    case MARK_STALE:
        if (r->phase != ROUTE_NOISE || !on_stdout)
            return false;
        take_outcome(x, OUTCOME_STALE, m.value);
        end_route(r);
        return true;
    case MARK_END:
        if (r->phase != ROUTE_TEXT || !on_stdout)
            return false;
        end_route(r);
        return true;
    case MARK_DONE:
    case MARK_LATE:
    case MARK_NOT_RUN:
        if (r->phase != ROUTE_TEXT || on_stdout)
            return false;
        take_outcome(x,
                     m.kind == MARK_DONE   ? OUTCOME_DONE
                     : m.kind == MARK_LATE ? OUTCOME_LATE
                                           : OUTCOME_NOT_RUN,
                     m.value);
        end_route(r);
        return true;
    case MARK_NONE:
    case MARK_KIND_COUNT:
        break;
    }
    return false;
}

/* BUFFER holds SIZE bytes. */
static int take_bytes(struct execution *x, struct route *r, const uint8_t *buffer, size_t size,
                      struct error *e)
{
    const uint8_t *at = buffer;

    while (r->phase != ROUTE_ENDED) {
        struct mark found;
        size_t left = size - (size_t)(at - buffer);
        size_t text = mark_scanner_look(&x->scanner, at, left, &found);

        if (r->phase == ROUTE_NOISE)
            remember_noise(x, at, text);
        else if (text > 0 && deliver(x, r, buffer, at, text, e) < 0)
            return -1;
        at += text;
        if (found.kind == MARK_NONE) {
            r->left_size = left - text;
            memcpy(r->left_over, at, r->left_size);
            return 0;
        }
        if (!take_mark(x, r, found))
            return error_set(e, ERROR_ACTION_FAILED, 0, BAD_GUEST);
        at += PROTOCOL_MARK_SIZE;
    }
    return 0;
}

/* The channel is closed: what might have been the beginning of a mark is none. */
static int end_channel(struct execution *x, struct route *r, struct error *e)
{
    size_t size = r->left_size;

    r->channel = NULL;
    r->left_size = 0;
    if (r->phase != ROUTE_TEXT || size == 0)
        return 0;
    memcpy(x->scratch, r->left_over, size);
    if (r->sink->pump != NULL && sink_is_open(r->sink) && pump_block(r->sink->pump) == NULL)
        return 0; /* some bytes of a stream whose end is missing anyway */
    return deliver(x, r, x->scratch, x->scratch, size, e);
}

/* 1 when something came, 0 when nothing did or nobody takes it, -1 on error. */
static int read_route(struct execution *x, struct route *r, struct error *e)
{
    uint8_t *buffer = r->channel == NULL ? NULL : choose_buffer(x, r);

    if (buffer == NULL)
        return 0;
    memcpy(buffer, r->left_over, r->left_size);
    ssize_t n = channel_read(r->channel, r->stream, buffer + r->left_size, PUMP_BLOCK_SIZE - r->left_size);

    if (n < 0)
        return end_channel(x, r, e);
    if (n == 0)
        return 0;
    size_t size = r->left_size + (size_t)n;

    r->left_size = 0;
    return take_bytes(x, r, buffer, size, e) < 0 ? -1 : 1;
}

static bool is_held_up(const struct route *r)
{
    return r->channel != NULL && r->phase == ROUTE_TEXT && r->sink->pump != NULL && sink_is_open(r->sink) &&
           pump_block(r->sink->pump) == NULL;
}

/* 1 when there may be more at once. */
static int read_routes(struct execution *x, struct error *e)
{
    int came = 1;

    for (int i = 0; i < READS_MAX && came > 0; i++) {
        came = 0;
        for (int number = 0; number < ROUTE_COUNT; number++) {
            int r = read_route(x, &x->routes[number], e);

            if (r < 0)
                return -1;
            came |= r;
        }
    }
    return came;
}

/* --- what goes ------------------------------------------------------------------------------------------ */

static void send_header(struct execution *x)
{
    size_t left = x->header.size - x->header_sent;

    if (left == 0)
        return;
    x->header_sent += channel_write(x->data, x->header.bytes + x->header_sent, left);
    if (x->header_sent == x->header.size)
        x->out->delivery = EXEC_SENT; /* before the last of it, nothing can run */
}

static bool has_begun(const struct execution *x)
{
    return x->routes[ROUTE_OUT].phase != ROUTE_NOISE && x->outcome != OUTCOME_STALE;
}

/* Only when the command has begun: what is read before a runner turns out to be stale would be lost. */
static int send_stdin(struct execution *x, struct error *e)
{
    const uint8_t *bytes;
    size_t size, taken = 1;

    if (!has_begun(x) || x->data == NULL || x->in_ended)
        return 0;
    if (x->stdin_fd >= 0 && x->in == NULL && pump_start(x->stdin_fd, PUMP_IN, x->wake[1], &x->in, e) < 0)
        return -1;
    while (x->in != NULL && taken > 0 && (bytes = pump_peek(x->in, &size)) != NULL) {
        taken = channel_write(x->data, bytes, size);
        pump_take(x->in, taken);
    }
    if (x->in != NULL && !pump_is_done(x->in))
        return 0;
    channel_send_eof(x->data);
    x->in_ended = true;
    return 0;
}

/* --- the control channel -------------------------------------------------------------------------------- */

static void join(struct execution *x)
{
    if (x->joining != JOIN_NONE || x->outcome != OUTCOME_NONE || !has_begun(x))
        return;
    if (!x->can_join) {
        x->joining = JOIN_FAILED;
        return;
    }
    x->control = channel_start(x->ssh, x->join_command);
    x->routes[ROUTE_CONTROL] =
        (struct route){ .channel = x->control, .stream = CHANNEL_STDOUT, .sink = &x->sinks[1] };
    x->routes[ROUTE_CONTROL_NOISE] =
        (struct route){ .channel = x->control, .stream = CHANNEL_STDERR, .phase = ROUTE_ENDED };
    x->joining = JOIN_STARTING;
}

static void set_kill_time(struct execution *x, int ms)
{
    x->kill_ms = clock_mono_ms() + ms;
    x->give_up_ms = x->kill_ms + KILL_MS;
}

static void advance_control(struct execution *x)
{
    struct error ignored = { 0 };

    if (x->joining == JOIN_STARTING &&
        (channel_advance(x->control, &ignored) < 0 || x->routes[ROUTE_CONTROL].channel == NULL)) {
        x->joining = JOIN_FAILED;
        x->routes[ROUTE_CONTROL].channel = x->routes[ROUTE_CONTROL_NOISE].channel = NULL;
        channel_close(x->control);
        x->control = NULL;
    }
    if (x->joining != JOIN_JOINED)
        return;
    size_t taken = channel_write(x->control, x->orders, x->order_count);

    memmove(x->orders, x->orders + taken, x->order_count - taken);
    x->order_count -= taken;
    if (x->kill_ms != 0 && x->order_count == 0 && !x->signal_sent) {
        x->signal_sent = true;
        set_kill_time(x, GRACE_MS);
    }
}

static void order(struct execution *x, int number)
{
    if (x->order_count < sizeof(x->orders) - 8)
        x->orders[x->order_count++] = (uint8_t)number;
    join(x);
    advance_control(x);
}

/* The runner sends no more of stderr the first way. */
static bool stderr_is_used_up(const struct execution *x)
{
    return x->routes[ROUTE_ERR].text_size >= PROTOCOL_STDERR_MAX;
}

/* What comes behind gets a way of its own. */
static bool needs_control(const struct execution *x)
{
    const struct route *out = &x->routes[ROUTE_OUT];

    return stderr_is_used_up(x) ||
           (is_held_up(out) && clock_mono_ms() - pump_moved_ms(out->sink->pump) >= STALL_MS);
}

/* --- streams that nobody reads any more ----------------------------------------------------------------- */

static int broken_sink(const struct sink *s)
{
    return s->pump == NULL ? 0 : pump_error(s->pump);
}

/* The guest closes the command's stdout, so that writing there fails as it would here. */
static void close_stdout(struct execution *x)
{
    if (x->data == NULL || x->joining != JOIN_JOINED)
        return;
    channel_close(x->data);
    x->data = NULL;
    x->routes[ROUTE_OUT].channel = x->routes[ROUTE_ERR].channel = NULL;
    end_route(&x->routes[ROUTE_OUT]);
}

static enum verdict look_after_sinks(struct execution *x, struct error *e)
{
    for (size_t i = 0; i < ARRAY_LEN(x->sinks); i++) {
        int error = broken_sink(&x->sinks[i]);

        if (error == 0 || error == EPIPE)
            continue;
        error_set_errno(e, ERROR_ACTION_FAILED, error, "the command was ended: its %s cannot be written",
                        i == 0 ? "stdout" : "stderr");
        return fail(e, DELIVERY_DELIVERED_UNVERIFIED, RETRY_UNSAFE);
    }
    if (broken_sink(&x->sinks[0]) != 0) {
        join(x);
        close_stdout(x);
    }
    if (broken_sink(&x->sinks[1]) != 0 && !x->stderr_closed) {
        x->stderr_closed = true;
        order(x, PROTOCOL_STDERR_CLOSED);
    }
    return GO_ON;
}

/* --- signals -------------------------------------------------------------------------------------------- */

static void forward_signal(struct execution *x)
{
    int number = *x->request->signal;

    set_kill_time(x, JOIN_MS);
    x->suspend_ms = 0;
    order(x, number > 0 ? number : SIGTERM);
}

/* The command has no part in the caller's terminal, so Ctrl-Z does not reach it by itself. */
static void begin_suspension(struct execution *x)
{
    if (!has_begun(x) || x->outcome != OUTCOME_NONE) {
        x->request->suspend();
        return;
    }
    x->suspend_ms = clock_mono_ms() + GRACE_MS;
    order(x, SIGSTOP);
}

/* When the guest has been told, or does not listen. */
static void suspend_when_told(struct execution *x)
{
    struct pollfd sent = ssh_poll(x->ssh, false);

    if (x->suspend_ms == 0)
        return;
    if (x->joining != JOIN_FAILED && clock_mono_ms() < x->suspend_ms &&
        (x->order_count > 0 || sent.events != 0))
        return;
    x->suspend_ms = 0;
    x->request->suspend();
    order(x, SIGCONT);
}

/* What woke us is taken first: a signal that comes after the look at it wakes us again. */
static void take_signal(struct execution *x)
{
    char bytes[64];

    (void)!read(x->request->signal_fd, bytes, sizeof(bytes));
    if (x->kill_ms != 0)
        return;
    if (x->request->suspend == NULL || *x->request->signal != 0)
        forward_signal(x);
    else if (x->suspend_ms == 0)
        begin_suspension(x);
}

/* The caller's signal was forwarded: its consequences. */
static enum verdict follow_signal(struct execution *x, struct error *e)
{
    int64_t now = clock_mono_ms();

    if (x->kill_ms == 0 || x->outcome != OUTCOME_NONE)
        return GO_ON;
    if (x->out->delivery == EXEC_NOT_SENT)
        return unknown(x, "interrupted before the sandbox took the command", e);
    if (!has_begun(x) || x->joining == JOIN_FAILED)
        return unknown(x, "interrupted; how the command ended was not told", e);
    if (now >= x->give_up_ms || (now >= x->kill_ms && x->joining != JOIN_JOINED))
        return unknown(x, "interrupted; the sandbox did not tell in time how the command ended", e);
    if (now >= x->kill_ms && x->kill_ms != x->give_up_ms) {
        x->kill_ms = x->give_up_ms;
        order(x, SIGKILL);
    }
    return GO_ON;
}

/* --- judging -------------------------------------------------------------------------------------------- */

static bool is_delivered(const struct execution *x)
{
    for (size_t i = 0; i < ARRAY_LEN(x->sinks); i++)
        if (x->sinks[i].pump != NULL && !pump_is_done(x->sinks[i].pump))
            return false;
    return x->routes[ROUTE_OUT].phase == ROUTE_ENDED || !sink_is_open(&x->sinks[0]);
}

/* When is_stuck(), if nothing more is delivered; 0: the command has not ended. */
static int64_t stuck_ms(const struct execution *x)
{
    int64_t moved_ms = x->outcome_ms;

    if (x->outcome == OUTCOME_NONE)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(x->sinks); i++)
        if (x->sinks[i].pump != NULL && pump_moved_ms(x->sinks[i].pump) > moved_ms)
            moved_ms = pump_moved_ms(x->sinks[i].pump);
    return moved_ms + KILL_MS;
}

/* Since the end of the command nothing was delivered for so long. */
static bool is_stuck(const struct execution *x)
{
    return clock_mono_ms() >= stuck_ms(x);
}

/* The end of stdout will not come any more. */
static bool is_cut_off(const struct execution *x, bool more)
{
    const struct route *out = &x->routes[ROUTE_OUT];
    bool read_all = !more && !is_held_up(out);

    return out->phase != ROUTE_ENDED && (out->channel == NULL || (ssh_is_lost(x->ssh) && read_all));
}

/* The command has ended. A slow reader has all the time it wants, except when somebody waits for the end. */
static enum verdict judge_end(struct execution *x, bool more, struct error *e)
{
    bool hurry = x->outcome == OUTCOME_LATE || x->kill_ms != 0;

    if (!is_delivered(x) && !(hurry && is_stuck(x)) && !is_cut_off(x, more))
        return GO_ON;
    if (x->outcome == OUTCOME_LATE) {
        x->out->delivery = EXEC_FINISHED;
        return late(x, e);
    }
    if (is_delivered(x) || hurry)
        return done(x);
    x->out->delivery = EXEC_FINISHED;
    error_set(e, ERROR_ACTION_FAILED, 0,
              "the command has ended, but the connection was lost before all of its output had come");
    return fail(e, DELIVERY_DELIVERED_UNVERIFIED, RETRY_UNSAFE);
}

/* The channels are closed, and no word came. Before the first mark nothing was run. */
static enum verdict judge_silence(struct execution *x, struct error *e)
{
    if (!has_begun(x)) {
        x->out->delivery = EXEC_NOT_SENT;
        return UPDATE;
    }
    return unknown(x, "the sandbox did not tell how the command ended", e);
}

/* True when nothing will come any more. */
static bool is_silent(struct execution *x)
{
    if (x->gone_ms == 0 && x->data != NULL && channel_is_deserted(x->data))
        x->gone_ms = clock_mono_ms();
    /* Whoever has its streams keeps the channel open. */
    if (x->gone_ms != 0 && has_begun(x) && clock_mono_ms() - x->gone_ms >= GONE_MS &&
        !is_held_up(&x->routes[ROUTE_OUT]))
        return true;
    if (x->joining == JOIN_JOINED)
        return x->routes[ROUTE_CONTROL].channel == NULL;
    return x->routes[ROUTE_OUT].channel == NULL && x->routes[ROUTE_ERR].channel == NULL;
}

static enum verdict judge_time(struct execution *x, struct error *e)
{
    int64_t now = clock_mono_ms();

    if (now < x->end_ms)
        return GO_ON;
    if (has_begun(x)) /* then it is the runner that ends it */
        return now < x->end_ms + GRACE_MS + KILL_MS + SLACK_MS ? GO_ON : late(x, e);
    error_set(e, ERROR_TIMEOUT, 0, NOT_BEGUN);
    return x->out->delivery == EXEC_NOT_SENT ? not_delivered(x, e) : fail(e, DELIVERY_UNKNOWN, RETRY_UNSAFE);
}

/* MORE: not all that has arrived is read. */
static enum verdict judge(struct execution *x, bool more, struct error *e)
{
    enum verdict v;

    if (x->outcome == OUTCOME_STALE)
        return UPDATE;
    if (x->outcome == OUTCOME_NOT_RUN)
        return not_run(x, e);
    if (x->outcome != OUTCOME_NONE)
        return judge_end(x, more, e);
    if (!more && is_silent(x))
        return judge_silence(x, e);
    if (!more && ssh_is_lost(x->ssh) && !is_held_up(&x->routes[ROUTE_OUT]) &&
        !is_held_up(&x->routes[ROUTE_ERR]))
        return unknown(x, "the connection to the sandbox was lost before it told how the command went", e);
    if (x->joining == JOIN_FAILED && needs_control(x) && x->can_join)
        return unknown(x, "the guest does not start a second command over SSH, which so much output needs",
                       e);
    if (x->joining == JOIN_FAILED && (broken_sink(&x->sinks[0]) != 0 || broken_sink(&x->sinks[1]) != 0))
        return unknown(x, "nobody reads the command's output any more, and its end was not told", e);
    v = follow_signal(x, e);
    return v == GO_ON ? judge_time(x, e) : v;
}

/* --- the loop ------------------------------------------------------------------------------------------- */

/* When something is to be looked at although nothing has come. */
static int choose_wait(const struct execution *x)
{
    const int64_t times[] = { x->end_ms,
                              x->end_ms + GRACE_MS + KILL_MS + SLACK_MS,
                              x->kill_ms,
                              x->give_up_ms,
                              x->suspend_ms,
                              x->tend_ms,
                              x->gone_ms + GONE_MS,
                              stuck_ms(x) };
    int64_t now = clock_mono_ms(), next = now + SSH_TEND_MS;

    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        if (times[i] > now && times[i] < next)
            next = times[i];
    if (is_held_up(&x->routes[ROUTE_OUT]) && x->joining == JOIN_NONE && now + STALL_MS < next)
        next = now + STALL_MS;
    return (int)(next - now);
}

static void wait_for_news(struct execution *x, bool more)
{
    bool reading = false;
    char bytes[64];

    ssh_flush(x->ssh);
    for (int i = 0; i < ROUTE_COUNT; i++)
        reading = reading || (x->routes[i].channel != NULL && !is_held_up(&x->routes[i]));
    struct pollfd polls[] = { ssh_poll(x->ssh, reading),
                              { .fd = x->wake[0], .events = POLLIN },
                              { .fd = x->request->signal_fd, .events = POLLIN } };

    if (poll(polls, ARRAY_LEN(polls), more ? 0 : choose_wait(x)) < 0)
        return; /* interrupted: the descriptor of signals will tell */
    if (polls[1].revents != 0)
        (void)!read(x->wake[0], bytes, sizeof(bytes));
    if (polls[2].revents != 0)
        take_signal(x);
    if (reading && clock_mono_ms() >= x->tend_ms) {
        x->tend_ms = clock_mono_ms() + SSH_TEND_MS;
        ssh_tend(x->ssh);
    }
}

/* Everything that can be done now. 1 when there may be more at once. */
static int work(struct execution *x, struct error *e)
{
    int more = 0;

    if (x->data != NULL && channel_advance(x->data, e) < 0)
        return -1;
    if (x->data != NULL)
        send_header(x);
    more = read_routes(x, e);
    if (more < 0 || send_stdin(x, e) < 0)
        return -1;
    if (needs_control(x))
        join(x);
    advance_control(x);
    suspend_when_told(x);
    return more;
}

static enum verdict attempt(struct execution *x, struct error *e)
{
    enum verdict v = GO_ON;
    int more = 0;

    if (begin_attempt(x, e) < 0)
        return FAILED;
    while (v == GO_ON) {
        more = work(x, e);
        if (more < 0)
            return x->out->delivery == EXEC_NOT_SENT ? not_delivered(x, e)
                                                     : fail(e, DELIVERY_UNKNOWN, RETRY_UNSAFE);
        v = x->outcome == OUTCOME_NONE ? look_after_sinks(x, e) : GO_ON;
        if (v == GO_ON)
            v = judge(x, more > 0, e);
        if (v == GO_ON)
            wait_for_news(x, more > 0);
    }
    return v;
}

static void end_attempt(struct execution *x)
{
    channel_close(x->data);
    channel_close(x->control);
    x->data = x->control = NULL;
    for (int i = 0; i < ROUTE_COUNT; i++)
        x->routes[i].channel = NULL;
    ssh_flush(x->ssh);
}

/* --- bringing the runner up to date --------------------------------------------------------------------- */

/* Those that the runner named, or all, when there was none to name any. */
static int update(struct execution *x, struct error *e)
{
    uint32_t wanted = x->outcome == OUTCOME_STALE ? x->value : UINT32_MAX;
    const struct ssh_cancel cancel = { x->request->signal_fd, x->request->signal, x->request->suspend };

    for (size_t i = 0; i < x->file_count; i++) {
        int64_t left = x->end_ms - clock_mono_ms();

        if ((wanted >> i & 1) == 0)
            continue;
        if (left <= 0)
            return error_set(e, ERROR_TIMEOUT, 0, NOT_BEGUN);
        if (sync_upload(x->ssh, &x->files[i], x->wire.files[i].sha1, left < UPLOAD_MS ? (int)left : UPLOAD_MS,
                        &cancel, e) < 0)
            return -1;
    }
    return 0;
}

/* It was brought up to date a moment ago, and is not, or does not run. */
static int still_stale(const struct execution *x, struct error *e)
{
    char said[NOISE_MAX];

    if (x->outcome == OUTCOME_STALE)
        return error_set(e, ERROR_ACTION_FAILED, 0,
                         "the guest's copy of agent-desktop is replaced by somebody else's at the same time");
    text_clean(said, sizeof(said), x->noise, x->noise_size);
    return error_set(e, ERROR_ACTION_FAILED, 0, "agent-desktop does not run in the guest: %s",
                     said[0] == '\0' ? "its login shell says nothing" : said);
}

static enum verdict execute(struct execution *x, struct error *e)
{
    enum verdict v;

    if (prepare(x, e) < 0)
        return not_delivered(x, e);
    v = attempt(x, e);
    if (v != UPDATE)
        return v;
    end_attempt(x);
    if (update(x, e) < 0)
        return not_delivered(x, e);
    v = attempt(x, e);
    if (v != UPDATE)
        return v;
    still_stale(x, e);
    return not_delivered(x, e);
}

/* The threads end before anything is said about what they did. */
static void finish(struct execution *x)
{
    pump_free(x->in);
    for (size_t i = 0; i < ARRAY_LEN(x->sinks); i++)
        pump_stop(x->sinks[i].pump);
    x->out->stdout_used = x->sinks[0].pump != NULL && pump_bytes(x->sinks[0].pump) > 0;
    for (size_t i = 0; i < ARRAY_LEN(x->sinks); i++)
        pump_free(x->sinks[i].pump);
    end_attempt(x);
    util_close_fd(&x->wake[0]);
    util_close_fd(&x->wake[1]);
    text_done(&x->words);
    text_done(&x->header);
    free(x);
}

int remote_exec(struct ssh *s, const struct remote_file *files, size_t count,
                const struct exec_request *request, int64_t began_ms, struct exec_result *out,
                struct error *e)
{
    struct execution *x = mem_alloc(sizeof(*x));

    assert(request->argv[0] != NULL);
    *out = (struct exec_result){ .delivery = EXEC_NOT_SENT };
    x->request = request;
    x->out = out;
    x->ssh = s;
    x->files = files;
    x->file_count = count;
    x->end_ms = began_ms + request->timeout_ms;
    x->wake[0] = x->wake[1] = -1;
    enum verdict v = execute(x, e);

    finish(x);
    return v == FINISHED ? 0 : -1;
}

/* provider_ops.exec: one request that runs the command, and whose answer is its output.
 *
 * How it ended is known from the service's word alone: a stream that ends is no end of the command. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "core/clock.h"
#include "core/text.h"
#include "providers/exec_rules.h"
#include "providers/vercel/execution.h"
#include "providers/vercel/input.h"
#include "providers/vercel/options.h"

#define LOOK_MS       10000 /* for the session to be told */
#define GUEST_MORE_MS 5000  /* the guest ends the command so long after we would have: we may be gone */
#define WORDS_MAX     (2 * 1024 * 1024) /* execve(2) takes no more with the usual stack limit */
#define WORD_MAX      (128 * 1024 - 1)  /* MAX_ARG_STRLEN of the guest's Linux */

#define WAY_OUT "Give it no stdin: add </dev/null, and write what it is to read into a file there first."

static int not_sent(struct execution *x, struct error *e)
{
    x->out->delivery = EXEC_NOT_SENT;
    e->delivery = DELIVERY_NOT_DELIVERED;
    e->retry = RETRY_SAFE;
    return -1;
}

static int fail(struct error *e, enum error_delivery delivery)
{
    e->delivery = delivery;
    e->retry = RETRY_UNSAFE;
    return -1;
}

/* --- what is sent --------------------------------------------------------------------------------------- */

static int check_words(char *const *words, struct error *e)
{
    size_t all = 0;

    for (; *words != NULL; words++) {
        size_t size = strlen(*words);

        all += size + 1;
        if (size > WORD_MAX || all > WORDS_MAX)
            return error_set(e, ERROR_INVALID_ARGS, 0,
                             "an argument is longer than %d bytes, or all together are longer than %d",
                             WORD_MAX, WORDS_MAX);
        if (!text_is_utf8(*words, size))
            return error_set(e, ERROR_INVALID_ARGS, 0,
                             "an argument is not valid UTF-8, and the service carries nothing else");
    }
    return 0;
}

static int refuse_input(struct error *e)
{
    e->suggestion = WAY_OUT;
    return error_set(e, ERROR_INVALID_ARGS, 0,
                     "there is something to read on stdin, which the service does not carry: add </dev/null");
}

static int prepare(struct execution *x, struct error *e)
{
    const int *streams = x->request->streams;

    if (exec_check_streams(x->request, e) < 0 || check_words(x->request->argv, e) < 0)
        return -1;
    int stdin_fd = exec_usable_stream(streams[0], O_WRONLY);
    enum input input = input_look(stdin_fd);

    if (input == INPUT_THERE)
        return refuse_input(e);
    if (lookout_open(x->request->signal_fd, input == INPUT_LATER ? stdin_fd : -1, &x->lookout, e) < 0)
        return -1;
    relay_init(&x->relay, exec_usable_stream(streams[1], O_RDONLY), exec_usable_stream(streams[2], O_RDONLY),
               lookout_wake_fd(x->lookout));
    return 0;
}

/* --- the look before ------------------------------------------------------------------------------------ */

/* What has come from this side while nothing is sent yet. */
static int check_news(void *self, struct error *e)
{
    struct execution *x = self;
    unsigned news = lookout_take(x->lookout);
    bool may_suspend = x->request->suspend != NULL;

    if ((news & LOOKOUT_SIGNAL) != 0 && may_suspend && *x->request->signal == 0)
        x->request->suspend();
    if (*x->request->signal != 0 || ((news & LOOKOUT_SIGNAL) != 0 && !may_suspend))
        return error_set(e, ERROR_ACTION_FAILED, 0, "interrupted before the sandbox took the command");
    return (news & LOOKOUT_INPUT) != 0 ? refuse_input(e) : 0;
}

static int look(struct execution *x, struct hosted *hosted, struct error *e)
{
    int64_t left = x->end_ms - clock_mono_ms();
    const struct api_wake wake = { check_news, lookout_fd(x->lookout), x };

    if (vercel_connect(x->box, x->facts, e) < 0)
        return -1;
    api_set_wake(x->box->api, &wake);
    int found = vercel_look(x->box, x->facts, left < LOOK_MS ? (int)left : LOOK_MS, hosted, NULL, e);

    api_set_wake(x->box->api, &(const struct api_wake){ 0 });
    return found;
}

static int find_session(struct execution *x, struct error *e)
{
    const char *name = x->box->place->name;
    struct hosted hosted;
    int found = look(x, &hosted, e);

    if (found < 0)
        return -1;
    if (found == API_ENDED)
        return error_set(e, ERROR_INVALID_STATE, 0, "the session of '%s' has ended on the service", name);
    if (found != API_FOUND)
        return error_set(e, ERROR_INVALID_STATE, 0, "the service has no '%s' any more", name);
    if (hosted.status != HOSTED_RUNNING || hosted.session[0] == '\0')
        return error_set(e, ERROR_INVALID_STATE, 0, "'%s' is not running: the service says '%s'", name,
                         hosted.word);
    memcpy(x->session, hosted.session, sizeof(x->session));
    if (clock_mono_ms() >= x->end_ms)
        return error_set(e, ERROR_TIMEOUT, 0,
                         "the time was over before the service was asked to run the command");
    return check_news(x, e);
}

/* --- the verdict ---------------------------------------------------------------------------------------- */

/* A program that cannot be run has no exit status: 127 could be the program's own. */
static int refuse_program(const struct execution *x, struct error *e)
{
    const char *name = x->box->place->name;

    if (!x->request->own_binary) {
        e->suggestion = "Nothing ran. Check the program's name, and the PATH of the image.";
        return error_set(e, ERROR_ACTION_FAILED, 0,
                         "cannot run '%.200s' in the sandbox: the service finds no such program there",
                         x->request->argv[0]);
    }
    e->suggestion = "Nothing ran. 'agent-desktop sandbox run' runs the programs that are there.";
    return error_set(e, ERROR_ACTION_FAILED, 0,
                     vercel_wants_desktop(x->facts)
                         ? "there is no " VERCEL_WRAPPER " in the image of '%s', which exec needs; run works"
                         : "'%s' was made without a desktop image, so there is no " VERCEL_WRAPPER
                           ", which exec needs; run works",
                     name);
}

static int judge_refusal(struct execution *x, enum command_start start, struct error *e)
{
    if (start == COMMAND_NO_PROGRAM)
        refuse_program(x, e);
    else
        error_set(e, ERROR_INVALID_STATE, 0, "'%s' was stopped before it took the command",
                  x->box->place->name);
    return not_sent(x, e);
}

/* The request was made, but not even the id of the command was told. */
static int judge_silence(struct execution *x, int r, struct error *e)
{
    static const char *const what[] = {
        [ENDING_NONE] = "the stream ended",
        [ENDING_SIGNAL] = "interrupted",
        [ENDING_LATE] = "the time was over",
        [ENDING_READER] = "nobody read its output any more",
        [ENDING_SINK] = "its output could not be written",
        [ENDING_INPUT] = "stdin got something to read, which the service does not carry,",
    };
    bool sent = r == 0 || e->delivery != DELIVERY_NOT_DELIVERED;

    if (x->ending != ENDING_NONE) /* that is why */
        *e = (struct error){ 0 };
    error_set(e, x->ending == ENDING_LATE ? ERROR_TIMEOUT : ERROR_ACTION_FAILED, 0,
              "%s before the service told that it runs the command%s%s", what[x->ending],
              x->said[0] == '\0' ? "" : "; ", x->said);
    if (!sent)
        return not_sent(x, e);
    x->out->delivery = EXEC_SENT;
    return fail(e, DELIVERY_UNKNOWN);
}

/* The errno of a stream that cannot be written, although somebody would read it; 0. */
static int find_unwritable(struct execution *x, const char **name)
{
    static const char *const names[] = { [RELAY_OUT] = "stdout", [RELAY_ERR] = "stderr" };

    for (int i = 0; i < RELAY_STREAMS; i++) {
        int error = relay_broken(&x->relay, (enum relay_stream)i);

        *name = names[i];
        if (error != 0 && error != EPIPE)
            return error;
    }
    return 0;
}

/* How it ended counts no more, for it was ended from here. */
static int judge_ending(struct execution *x, struct error *e)
{
    const char *name;

    if (x->ending == ENDING_LATE)
        return exec_set_late(x->request, e);
    if (x->ending == ENDING_INPUT) {
        e->suggestion = WAY_OUT;
        error_set(e, ERROR_ACTION_FAILED, 0,
                  "the command was ended: stdin has got something to read, which the service does not carry");
    } else {
        int error = find_unwritable(x, &name);

        error_set_errno(e, ERROR_ACTION_FAILED, error, "the command was ended: its %s cannot be written",
                        name);
    }
    return fail(e, DELIVERY_DELIVERED_UNVERIFIED);
}

static int judge_ignorance(const struct execution *x, struct error *e)
{
    if (x->is_short)
        error_set(e, ERROR_ACTION_FAILED, 0,
                  "the command has ended with status %d, but the service tells less of its output than "
                  "before: some may be missing",
                  x->status);
    else if (x->session_ended && x->status_known)
        error_set(e, ERROR_INVALID_STATE, 0,
                  "the command has ended, but the sandbox was stopped before all of its output had come");
    else if (x->session_ended)
        error_set(e, ERROR_INVALID_STATE, 0,
                  "the sandbox was stopped before it told how the command went%s%s",
                  x->said[0] == '\0' ? "" : ": ", x->said);
    else
        error_set(e, ERROR_ACTION_FAILED, 0,
                  x->ending == ENDING_READER
                      ? "nobody reads the command's output any more, and its end was not told"
                      : "interrupted; the service did not tell in time how the command ended");
    return fail(e, x->session_ended || x->is_short ? DELIVERY_DELIVERED_UNVERIFIED : DELIVERY_UNKNOWN);
}

static int judge(struct execution *x, struct error *e)
{
    bool is_told = x->finished || (x->gave_up && x->status_known);

    x->out->delivery = x->status_known ? EXEC_FINISHED : EXEC_SENT;
    if (x->ending == ENDING_LATE || x->ending == ENDING_INPUT || x->ending == ENDING_SINK)
        return judge_ending(x, e);
    if (!is_told)
        return judge_ignorance(x, e);
    x->out->status_known = true;
    x->out->status = x->status;
    return 0;
}

/* --- the course of it ----------------------------------------------------------------------------------- */

/* The command has ended. A slow reader has all the time it wants, except when somebody waits for the end. */
static void deliver_rest(struct execution *x)
{
    bool hurry = x->ending != ENDING_NONE;
    int64_t since_ms = clock_mono_ms();

    while (!relay_is_done(&x->relay)) {
        int64_t moved_ms = relay_moved_ms(&x->relay);
        int64_t left = (moved_ms > since_ms ? moved_ms : since_ms) + EXEC_KILL_MS - clock_mono_ms();

        if (hurry && left <= 0)
            return;
        lookout_wait(x->lookout, hurry ? (int)left : -1);
        unsigned news = lookout_take(x->lookout);

        relay_advance(&x->relay);
        if ((news & LOOKOUT_SIGNAL) == 0)
            continue;
        if (*x->request->signal == 0 && x->request->suspend != NULL)
            x->request->suspend();
        else if (!hurry)
            since_ms = clock_mono_ms();
        hurry = hurry || *x->request->signal != 0 || x->request->suspend == NULL;
    }
}

/* A disk that was full only for the last bytes. */
static int check_delivered(struct execution *x, struct error *e)
{
    const char *name;
    int error = find_unwritable(x, &name);

    if (error == 0)
        return 0;
    error_set_errno(e, ERROR_ACTION_FAILED, error, "the command has ended, but its %s cannot be written",
                    name);
    return fail(e, DELIVERY_DELIVERED_UNVERIFIED);
}

static int run(struct execution *x, struct error *e)
{
    char *const *argv = x->request->argv;
    const struct api_command command = { .program = x->request->own_binary ? VERCEL_WRAPPER : argv[0],
                                         .args = (const char *const *)argv + 1,
                                         .timeout_ms = (int)(x->end_ms - clock_mono_ms()) + GUEST_MORE_MS };
    enum command_start start = COMMAND_ENDED;
    int r = execution_follow(x, &command, &start, e);

    if (x->command[0] == '\0')
        return r == 0 && start != COMMAND_ENDED ? judge_refusal(x, start, e) : judge_silence(x, r, e);
    if (r < 0) {
        x->out->delivery = x->status_known ? EXEC_FINISHED : EXEC_SENT;
        return fail(e, DELIVERY_DELIVERED_UNVERIFIED);
    }
    if (x->finished || x->is_short)
        deliver_rest(x);
    r = judge(x, e);
    return r == 0 && x->ending == ENDING_NONE ? check_delivered(x, e) : r;
}

static int execute(struct execution *x, struct error *e)
{
    if (prepare(x, e) < 0 || find_session(x, e) < 0)
        return not_sent(x, e);
    return run(x, e);
}

int vercel_exec(void *self, const struct facts *facts, const struct exec_request *request,
                struct exec_result *out, struct error *e)
{
    struct execution x = { .box = self,
                           .facts = facts,
                           .request = request,
                           .out = out,
                           .end_ms = clock_mono_ms() + request->timeout_ms };

    assert(request->argv[0] != NULL);
    *out = (struct exec_result){ .delivery = EXEC_NOT_SENT };
    relay_init(&x.relay, -1, -1, -1);
    int r = execute(&x, e);

    relay_stop(&x.relay); /* before anything is said about what was written */
    out->stdout_used = relay_has_written(&x.relay, RELAY_OUT);
    relay_done(&x.relay);
    lookout_close(x.lookout);
    api_close(x.beside.api);
    return r;
}

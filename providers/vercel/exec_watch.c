/* What comes from this side while a command runs. Whatever ends it goes the same way: a signal, some time to
 * act on it, SIGKILL, and some time for the service to tell. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "providers/vercel/execution.h"

/* The guest's numbers, not the host's: they differ on macOS. Those that are forwarded are the same
 * everywhere. */
#define GUEST_SIGCONT 18
#define GUEST_SIGSTOP 19

#define SLACK_MS 1000 /* behind the last alarm: only what is stuck runs into it */
#define LOOK_MS  200  /* between two questions whether it has ended */

/* --- calls beside the stream ---------------------------------------------------------------------------- */

/* NULL, with the reason in the log, when that fails. */
static struct api *connect_beside(struct execution *x)
{
    struct error why = { 0 };

    if (x->beside.api != NULL)
        return x->beside.api;
    x->beside = (struct vercel_box){ .place = x->box->place, .credentials = x->box->credentials, .dir = -1 };
    if (vercel_connect(&x->beside, x->facts, &why) < 0)
        log_debug("no second client: %s", why.message);
    return x->beside.api;
}

/* Whether it has any effect is seen by how the command ends. False: it was not taken. */
static bool send_signal(struct execution *x, int number)
{
    struct api *api = connect_beside(x);
    struct error why = { 0 };

    if (api != NULL && api_kill(api, x->session, x->command, number, EXEC_CALL_MS, &why) >= 0)
        return true;
    log_debug("signal %d was not sent: %s", number, why.message);
    return false;
}

/* While a reader holds the stream up, its last line is behind what is not read. */
static bool has_ended(struct execution *x)
{
    struct api *api = x->status_known ? NULL : connect_beside(x);
    struct error ignored = { 0 };
    int status = -1;

    if (x->status_known)
        return true;
    if (api == NULL ||
        api_command_status(api, x->session, x->command, false, EXEC_CALL_MS, &status, &ignored) != API_FOUND)
        return false;
    if (status >= 0)
        execution_take_status(x, status);
    return x->status_known;
}

/* --- ending it ------------------------------------------------------------------------------------------ */

static void begin_ending(struct execution *x, enum ending ending, int number)
{
    x->ending = ending;
    x->number = number;
    x->kill_ms = clock_mono_ms() + EXEC_GRACE_MS;
    x->give_up_ms = x->kill_ms + EXEC_KILL_MS;
}

/* What is to be said can be said only to a command whose id was told. */
static void advance_ending(struct execution *x)
{
    bool is_known = x->command[0] != '\0';

    if (x->number != 0 && is_known) {
        (void)send_signal(x, x->number);
        x->number = 0;
    }
    if (clock_mono_ms() >= x->kill_ms && !x->killed) {
        x->killed = true;
        if (is_known && !has_ended(x))
            (void)send_signal(x, SIGKILL);
        else if (!is_known || x->ending == ENDING_READER)
            x->give_up_ms = x->kill_ms; /* nobody to kill, or nothing to wait for */
    }
    if (clock_mono_ms() >= x->give_up_ms)
        x->gave_up = true;
}

/* --- reasons to end it ---------------------------------------------------------------------------------- */

/* The command has no part in the caller's terminal, so Ctrl-Z does not reach it by itself. */
static void suspend(struct execution *x)
{
    bool runs = x->command[0] != '\0' && !x->finished;

    if (runs)
        (void)send_signal(x, GUEST_SIGSTOP);
    x->request->suspend();
    if (runs)
        (void)send_signal(x, GUEST_SIGCONT);
}

static enum ending take_signal(struct execution *x)
{
    if (x->request->suspend != NULL && *x->request->signal == 0)
        suspend(x);
    return x->request->suspend == NULL || *x->request->signal != 0 ? ENDING_SIGNAL : ENDING_NONE;
}

static enum ending look_at_readers(struct execution *x)
{
    enum ending found = ENDING_NONE;

    for (int i = 0; i < RELAY_STREAMS; i++) {
        int error = relay_broken(&x->relay, (enum relay_stream)i);

        if (error != 0 && found != ENDING_SINK)
            found = error == EPIPE ? ENDING_READER : ENDING_SINK;
    }
    return found;
}

static enum ending find_reason(struct execution *x, unsigned news)
{
    enum ending ending = (news & LOOKOUT_SIGNAL) != 0 ? take_signal(x) : ENDING_NONE;

    if (ending == ENDING_NONE && (news & LOOKOUT_INPUT) != 0)
        ending = ENDING_INPUT;
    if (ending == ENDING_NONE)
        ending = look_at_readers(x);
    return ending == ENDING_NONE && clock_mono_ms() >= x->end_ms ? ENDING_LATE : ending;
}

/* What the command itself would have got, had it run here. */
static int choose_number(const struct execution *x, enum ending ending)
{
    int caught = *x->request->signal;

    if (ending == ENDING_READER)
        return SIGPIPE;
    return ending == ENDING_SIGNAL && caught > 0 ? caught : SIGTERM;
}

/* --- the watch ------------------------------------------------------------------------------------------ */

static int64_t next_alarm_ms(const struct execution *x)
{
    if (x->ending == ENDING_NONE)
        return x->end_ms;
    return x->killed ? x->give_up_ms : x->kill_ms;
}

bool execution_watch(struct execution *x)
{
    unsigned news = lookout_take(x->lookout);

    relay_advance(&x->relay);
    if (x->ending == ENDING_NONE) {
        enum ending ending = find_reason(x, news);

        if (ending != ENDING_NONE)
            begin_ending(x, ending, choose_number(x, ending));
    } else if ((news & LOOKOUT_SIGNAL) != 0) {
        (void)take_signal(x);
    }
    if (x->ending != ENDING_NONE)
        advance_ending(x);
    lookout_set_alarm(x->lookout, x->gave_up ? 0 : next_alarm_ms(x));
    return !x->gave_up;
}

/* Where not even the signal is taken, nothing is waited for. */
void execution_abandon(struct execution *x, struct error *e)
{
    if (x->ending == ENDING_NONE && !has_ended(x) && send_signal(x, SIGTERM))
        begin_ending(x, ENDING_LOST, 0);
    while (x->ending != ENDING_NONE && !has_ended(x) && execution_watch(x))
        lookout_wait(x->lookout, LOOK_MS);
    if (x->ending == ENDING_LOST && x->status_known)
        e->suggestion = "The command was ended. Look at what it has done before repeating it.";
}

int64_t execution_limit_ms(const struct execution *x)
{
    int64_t end_ms = x->ending == ENDING_NONE ? x->end_ms + EXEC_GRACE_MS + EXEC_KILL_MS : x->give_up_ms;

    return end_ms + 3 * EXEC_CALL_MS + SLACK_MS;
}

#include "tools/agent-desktop/attempt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"
#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/recovery.h"
#include "tools/agent-desktop/report.h"
#include "tools/agent-desktop/sandbox.h"
#include "tools/agent-desktop/signals.h"

#define TIMEOUT_MAX_S 300 /* */
#define SIGNAL_STATUS 128 /* shells: ended by signal N is 128+N */
#define WORD_SIZE     64  /* of the first word, as the journal keeps it */

struct attempt {
    const char *command; /* "sandbox run" */
    struct context context;
    struct sandbox sandbox;
    struct exec_request request;
    struct exec_result result;
    bool unseen;      /* the look at it failed */
    const char *word; /* the first of the command line */
    int64_t number;   /* names the attempt in its two entries and in the report; 0: not recorded yet */
    int64_t started_ms;
    int64_t duration_ms;
};

/* Ended by itself, and not by a signal. */
static bool has_status(const struct attempt *a)
{
    return a->result.status_known && a->result.signal == 0;
}

/* --- the journal --------------------------------------------------------------------------------------- */

static struct journal_entry describe(const struct attempt *a, const char *phase, char word[WORD_SIZE])
{
    char *const *argv = a->request.argv;
    struct journal_entry entry = { .kind = JOURNAL_EXEC, .name = a->sandbox.place.name, .status = -1 };

    entry.id = a->sandbox.look.record.id;
    entry.provider = a->sandbox.provider;
    entry.attempt = a->number;
    entry.command = strchr(a->command, ' ') + 1;
    entry.phase = phase;
    text_clean(word, WORD_SIZE, a->word, strlen(a->word));
    entry.word = word;
    for (; *argv != NULL; argv++) {
        entry.argc++;
        entry.bytes += (int64_t)strlen(*argv);
    }
    return entry;
}

static int refuse(struct attempt *a, struct error *e)
{
    return error_set(e, ERROR_INVALID_STATE, 0, "'%s' is %s; commands run only inside a running sandbox",
                     a->sandbox.place.name, fsm_place_name(a->sandbox.look.place));
}

/* By chance: two attempts at the same time must not have to agree on a counter. */
static int64_t new_number(const struct context *c)
{
    char id[JOURNAL_ID_SIZE];

    c->engine.host->random_id(c->engine.host_self, id);
    id[12] = '\0'; /* 48 bits: whole in any reader's numbers */
    return (int64_t)strtoull(id, NULL, 16) + 1;
}

/* The intent, as long as the sandbox still runs. */
static int record_begin(struct attempt *a, struct error *e)
{
    struct context *c = &a->context;
    struct journal_guard guard = { .id = a->sandbox.look.record.id, .state = fsm_state_name(FSM_RUNNING) };
    char word[WORD_SIZE];
    struct journal_entry entry;

    a->number = new_number(c);
    entry = describe(a, "begin", word);
    int done = journal_lmdb_ops.commit(c->journal, a->sandbox.place.name, &guard, &entry, 1, NULL, e);

    if (done != 0)
        return done < 0 ? -1 : 0;
    return sandbox_look(&a->sandbox, c, e) < 0 ? -1 : refuse(a, e);
}

/* How it ended. When this cannot be written the guest's answer is passed on all the same: the open entry
 * reads as unknown. */
static void record_end(struct attempt *a, const struct error *outcome)
{
    static const struct journal_guard anything = { .ends = true };
    struct error ignored = { 0 };
    char word[WORD_SIZE];
    struct journal_entry entry = describe(a, outcome->code == ERROR_NONE ? "done" : "failed", word);

    entry.status = has_status(a) ? a->result.status : -1;
    entry.signal = a->result.signal;
    entry.unknown = a->result.delivery == EXEC_SENT;
    entry.duration_ms = a->duration_ms;
    if (outcome->code != ERROR_NONE) {
        entry.code = error_code_name(outcome->code);
        entry.message = outcome->message;
    }
    if (journal_lmdb_ops.commit(a->context.journal, a->sandbox.place.name, &anything, &entry, 1, NULL,
                                &ignored) < 0)
        log_debug("the end of the command was not recorded: %s", ignored.message);
}

/* --- the attempt --------------------------------------------------------------------------------------- */

static int read_options(struct attempt *a, const struct args *args, struct error *e)
{
    const char *timeout = args_value(args, "timeout");

    a->request.timeout_ms = TIMEOUT_MAX_S * 1000;
    return timeout == NULL
               ? 0
               : text_parse_seconds(timeout, "--timeout", TIMEOUT_MAX_S, &a->request.timeout_ms, e);
}

/* A recorded `running` is not looked at before: the attempt itself shows whether it is true. */
static int find_running(struct attempt *a, const char *name, struct error *e)
{
    if (root_check_name(name, e) < 0 || context_open(&a->context, CONTEXT_WRITE, e) < 0 ||
        sandbox_open(&a->sandbox, &a->context, name, NULL, e) < 0 ||
        sandbox_check_provider(&a->sandbox, e) < 0)
        return -1;
    if (!fsm_can_exec(a->sandbox.look.place) && sandbox_look(&a->sandbox, &a->context, e) < 0) {
        a->unseen = true;
        recovery_excuse_look(e);
        return -1;
    }
    if (!a->sandbox.look.found)
        return error_set(e, ERROR_SANDBOX_NOT_FOUND, 0, "no sandbox is named '%s'", name);
    sandbox_project(&a->sandbox, &a->context);
    return fsm_can_exec(a->sandbox.look.place) ? 0 : refuse(a, e);
}

static void dispose(const struct exec_result *result, struct error *e)
{
    bool sent = result->delivery != EXEC_NOT_SENT;

    if (e->delivery == DELIVERY_DEFAULT)
        e->delivery = sent ? DELIVERY_DELIVERED_UNVERIFIED : DELIVERY_NOT_DELIVERED;
    if (e->retry == RETRY_DEFAULT)
        e->retry = sent ? RETRY_UNSAFE : RETRY_SAFE;
}

static int send(struct attempt *a, struct error *e)
{
    const struct sandbox *s = &a->sandbox;

    a->started_ms = clock_mono_ms();
    int r = s->ops->exec(s->handle, &s->look.record.facts, &a->request, &a->result, e);

    a->duration_ms = clock_mono_ms() - a->started_ms;
    if (r == 0 && !a->result.status_known && a->result.signal == 0)
        r = error_set(e, ERROR_ACTION_FAILED, 0, "how the command ended was not told");
    if (r < 0)
        dispose(&a->result, e);
    return r;
}

static int exit_status(const struct attempt *a)
{
    if (*signals_caught != 0)
        return SIGNAL_STATUS + *signals_caught;
    return a->result.signal != 0 ? SIGNAL_STATUS + a->result.signal : a->result.status;
}

static int try_it(struct attempt *a, const struct args *args, struct error *e)
{
    struct error ignored = { 0 };

    if (read_options(a, args, e) < 0 || find_running(a, args->positional[0], e) < 0 || record_begin(a, e) < 0)
        return -1;
    int r = send(a, e);

    /* What the guest has said is the answer, whatever becomes of the closing entry. */
    if (r == 0 || a->result.stdout_used)
        journal_set_crash_reply("", r < 0 ? 1 : exit_status(a));
    record_end(a, e);
    if (r < 0 && e->code != ERROR_TIMEOUT)
        (void)sandbox_look(&a->sandbox, &a->context, &ignored); /* a guest that is gone is seen now */
    return r;
}

/* --- telling ------------------------------------------------------------------------------------------- */

/* How far it came: finished is a command whose own end was told. */
static const char *delivery_name(const struct attempt *a, bool failed)
{
    static const char *const names[] = {
        [EXEC_NOT_SENT] = "not_sent", [EXEC_SENT] = "sent", [EXEC_FINISHED] = "finished"
    };

    return names[failed && a->result.delivery == EXEC_FINISHED ? EXEC_SENT : a->result.delivery];
}

static void put_attempt(struct json *object, const struct attempt *a, bool failed)
{
    if (a->number != 0)
        json_put_int(object, "attempt", a->number);
    json_put_string(object, "delivery", delivery_name(a, failed));
    if (!failed && has_status(a))
        json_put_int(object, "status", a->result.status);
    if (!failed && a->result.signal != 0)
        json_put_int(object, "signal", a->result.signal);
    if (a->started_ms != 0)
        json_put_int(object, "duration_ms", a->duration_ms);
}

/* A host key is made anew by a start; why it has changed is for a person to find out. */
static struct fsm_next find_recovery(const struct attempt *a, const struct error *e)
{
    const struct engine_look *look = &a->sandbox.look;

    if (a->unseen)
        return recovery_after_look(e->code);
    if (e->code == ERROR_HOST_KEY_CHANGED)
        return (struct fsm_next){ NEXT_STOP, true };
    if (e->code == ERROR_PROVIDER_UNAVAILABLE)
        return (struct fsm_next){ NEXT_INSTALL, false };
    struct fsm_next next = fsm_find_next_after_refusal(look->place, look->known, EV_NONE);

    next.needs_person = next.needs_person || e->code == ERROR_AUTH_FAILED;
    return next;
}

static void fail(const struct attempt *a, struct reply *reply, const struct error *e)
{
    if (a->sandbox.look.place == FSM_NONE)
        return;
    sandbox_fail(&a->sandbox, reply, find_recovery(a, e));
    put_attempt(reply->details, a, true);
}

static int tell_report(const struct attempt *a, const struct report *report, const struct error *outcome,
                       struct error *e)
{
    struct reply reply = { 0 };

    if (outcome->code != ERROR_NONE) {
        fail(a, &reply, outcome);
    } else {
        reply.data = json_new_object();
        json_put_string(reply.data, "name", a->sandbox.place.name);
        json_put_string(reply.data, "provider", a->sandbox.provider);
        put_attempt(reply.data, a, false);
    }
    int r = report_write(report, a->command, &reply, outcome, e);

    reply_done(&reply);
    return r;
}

/* The guest is no part of the terminal's session, so nothing would stop it from reading what is typed for the
 * foreground: behind `&` it gets no stdin, and whoever reads none runs on. */
static int choose_stdin(void)
{
    return signals_in_background() ? -1 : STDIN_FILENO;
}

int attempt_run(const struct args *args, bool own_binary, char *const *argv, struct reply *reply,
                struct error *e)
{
    AUTO_REPORT struct report report = REPORT_NONE;
    struct attempt a = { .command = args->command, .context = CONTEXT_CLOSED, .sandbox = SANDBOX_CLOSED };
    struct error unwritten = { 0 };

    a.request = (struct exec_request){ .own_binary = own_binary,
                                       .argv = argv,
                                       .streams = { choose_stdin(), STDOUT_FILENO, STDERR_FILENO },
                                       .signal = signals_caught,
                                       .suspend = signals_suspend };
    a.word = args->rest[0] == NULL ? "" : args->rest[0];
    if (signals_watch(&a.request.signal_fd, e) < 0 ||
        report_open(&report, args_value(args, "report"), args->command, e) < 0)
        return -1;
    signals_watch_suspension();
    int r = try_it(&a, args, e);

    if (tell_report(&a, &report, e, &unwritten) < 0)
        fprintf(stderr, "agent-desktop: the report was not written: %s\n", unwritten.message);
    reply->streamed = r == 0 || *signals_caught != 0;
    reply->exit_status = exit_status(&a);
    reply->stdout_used = a.result.stdout_used;
    if (r < 0)
        fail(&a, reply, e);
    sandbox_close(&a.sandbox);
    context_close(&a.context);
    return r;
}

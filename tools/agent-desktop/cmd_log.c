#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/text.h"
#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/context.h"
#include "tools/agent-desktop/event.h"
#include "tools/agent-desktop/output.h"
#include "tools/agent-desktop/signals.h"

#define FOLLOW_POLL_MS 250
#define LIMIT_DEFAULT  10000 /* of an envelope, which is made in memory; --follow prints as it reads */
#define LIMIT_MAX      1000000000

struct reading {
    struct context context;
    struct journal_filter filter;
    struct reply *reply; /* events are added here, or ... */
    bool follow;         /* ... printed, one a line */
    uint64_t count;      /* of those */
    int signal_fd;       /* of a following one */
    bool ended;          /* the reader went away, or a signal came */
};

static int read_options(struct reading *r, const struct args *args, struct error *e)
{
    const char *limit = args_value(args, "limit"), *since = args_value(args, "since");
    int64_t count = r->follow ? 0 : LIMIT_DEFAULT;

    r->filter.name = args->positional[0];
    if (r->filter.name != NULL && root_check_name(r->filter.name, e) < 0)
        return -1;
    if (limit != NULL && text_parse_int(limit, "--limit", 1, LIMIT_MAX, &count, e) < 0)
        return -1;
    if (since != NULL && text_parse_time(since, clock_wall_ms(), &r->filter.since_ms, e) < 0)
        return -1;
    if (args_has(args, "follow") && args_has(args, "verify"))
        return error_set(e, ERROR_INVALID_ARGS, 0, "--follow and --verify exclude each other");
    r->filter.limit = (uint64_t)count;
    return 0;
}

/* Waits until stdout has one of EVENTS, at most TIMEOUT_MS (-1: for ever). false when a signal came, or
 * nobody can read any more. */
static bool wait_stdout(const struct reading *r, short events, int timeout_ms)
{
    struct pollfd p[] = { { .fd = r->signal_fd, .events = POLLIN },
                          { .fd = STDOUT_FILENO, .events = events } };

    (void)poll(p, ARRAY_LEN(p), timeout_ms);
    return *signals_caught == 0 && (p[1].revents & (POLLERR | POLLHUP)) == 0;
}

/* A reader that has seen enough, or a signal, ends the command, and is no failure. A signal is to end it also
 * while the reader pauses. */
static int print_event(struct reading *r, const char *event, struct error *e)
{
    AUTO_FREE char *line = mem_print("%s\n", event);

    r->ended = !wait_stdout(r, POLLOUT, -1);
    if (!r->ended && file_write_all(STDOUT_FILENO, line, strlen(line)) == 0)
        return 0;
    r->ended = r->ended || errno == EPIPE;
    return error_set(e, ERROR_INTERNAL, errno, "cannot write to stdout");
}

static int take_event(void *self, const struct journal_entry *entry, struct error *e)
{
    struct reading *r = self;
    AUTO_JSON struct json *event = event_json(entry);
    AUTO_FREE char *text = json_print(event);

    if (!r->follow)
        reply_add_item(r->reply, text);
    else if (print_event(r, text, e) < 0)
        return -1;
    r->filter.after_seq = entry->seq;
    r->count++;
    return 0;
}

static int read_events(struct reading *r, struct error *e)
{
    return journal_each_entry(r->context.journal, &r->filter, take_event, r, e);
}

/* --- following ----------------------------------------------------------------------------------------- */

/* A journal that is not there yet may come. */
static int open_late(struct context *c, struct error *e)
{
    if (c->journal != NULL)
        return 0;
    context_close(c);
    return context_open(c, CONTEXT_READ, e);
}

/* One turn. A busy journal is for the next one: whoever follows for days meets one some time. */
static int read_more(struct reading *r, struct error *e)
{
    if (open_late(&r->context, e) == 0 && read_events(r, e) == 0) {
        r->filter.limit = 0; /* of what was there at the start */
        return 0;
    }
    if (e->code != ERROR_STORE_BUSY)
        return -1;
    *e = (struct error){ 0 };
    if (r->count > 0)
        r->filter.limit = 0; /* it was being served: behind the last event printed nothing is left out */
    return 0;
}

static int follow(struct reading *r, struct error *e)
{
    int failed = signals_watch(&r->signal_fd, e);

    while (failed == 0) {
        failed = read_more(r, e);
        if (failed == 0 && !wait_stdout(r, 0, FOLLOW_POLL_MS))
            break;
    }
    r->reply->stdout_used = r->count > 0;
    r->reply->streamed = failed == 0 || r->ended;
    return failed;
}

/* --- the envelope -------------------------------------------------------------------------------------- */

static int verify(struct reading *r, struct json *data, struct error *e)
{
    struct journal_verdict verdict = { .verified = true };
    struct json *head;

    /* journal_verify() has a child of its own open the journal: it must not be open here. */
    context_suspend(&r->context);
    if (r->context.root.dir >= 0 && journal_verify(&r->context.root, &verdict, e) < 0)
        return -1;
    json_put_bool(data, "verified", verdict.verified);
    if (verdict.head_seq > 0) {
        head = json_new_object();
        json_put_int(head, "seq", (int64_t)verdict.head_seq);
        json_put_string(head, "hash", verdict.head_hash);
        json_put(data, "head", head);
    }
    if (!verdict.verified) {
        json_put_int(data, "broken_at", (int64_t)verdict.broken_at);
        json_put_string(data, "message", verdict.message);
    }
    return 0;
}

/* The events, and the verdict on all of them. A journal that is found to be damaged is an answer here, and
 * what can still be read of it is shown. */
static int collect(struct reading *r, const struct args *args, struct error *e)
{
    AUTO_JSON struct json *more = json_new_object();
    struct error unreadable = { 0 };

    if (args_has(args, "verify") && (verify(r, more, e) < 0 || context_resume(&r->context, e) < 0))
        return -1;
    reply_open_list(r->reply, "events");
    if (read_events(r, &unreadable) < 0 && json_get_bool(more, "verified", true)) {
        *e = unreadable;
        return -1;
    }
    if (r->count == LIMIT_DEFAULT && !args_has(args, "limit"))
        json_put_int(more, "limited_to", LIMIT_DEFAULT); /* nobody asked for so few */
    reply_close_list(r->reply, more);
    return 0;
}

int cmd_log(const struct args *args, struct reply *reply, struct error *e)
{
    struct reading r = { .context = CONTEXT_CLOSED, .reply = reply, .follow = args_has(args, "follow") };
    int failed = read_options(&r, args, e);

    if (failed == 0)
        failed = context_open(&r.context, CONTEXT_READ, e);
    if (failed == 0)
        failed = r.follow ? follow(&r, e) : collect(&r, args, e);
    context_close(&r.context);
    return failed;
}

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
#define LIMIT_MAX      1000000000

struct reading {
    struct context context;
    struct journal_filter filter;
    struct reply *reply; /* events are added here, or ... */
    bool follow;         /* ... printed, one a line */
    bool printed;        /* at least one */
    bool ended;          /* the reader went away */
};

static int read_options(struct reading *r, const struct args *args, struct error *e)
{
    const char *limit = args_value(args, "limit"), *since = args_value(args, "since");
    int64_t count = 0;

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

/* A reader that has seen enough ends the command, and is no failure. */
static int print_event(struct reading *r, const char *event, struct error *e)
{
    AUTO_FREE char *line = mem_print("%s\n", event);

    if (file_write_all(STDOUT_FILENO, line, strlen(line)) == 0) {
        r->printed = true;
        return 0;
    }
    r->ended = errno == EPIPE;
    return error_set(e, ERROR_INTERNAL, errno, "cannot write to stdout");
}

static int take_event(void *self, const struct journal_entry *entry, struct error *e)
{
    struct reading *r = self;
    AUTO_JSON struct json *event = event_json(entry);
    AUTO_FREE char *text = json_print(event);

    r->filter.after_seq = entry->seq;
    if (r->follow)
        return print_event(r, text, e);
    reply_add_item(r->reply, text);
    return 0;
}

static int read_events(struct reading *r, struct error *e)
{
    return journal_each_entry(r->context.journal, &r->filter, take_event, r, e);
}

/* --- following ----------------------------------------------------------------------------------------- */

/* false when a signal came. */
static bool wait_for_more(int signal_fd)
{
    struct pollfd p = { .fd = signal_fd, .events = POLLIN };

    (void)poll(&p, 1, FOLLOW_POLL_MS);
    return *signals_caught == 0;
}

/* A journal that is not there yet may come. */
static int open_late(struct context *c, struct error *e)
{
    if (c->journal != NULL)
        return 0;
    context_close(c);
    return context_open(c, CONTEXT_READ, e);
}

static int follow(struct reading *r, struct error *e)
{
    int signal_fd;
    int failed = signals_watch(&signal_fd, e);

    while (failed == 0) {
        failed = read_events(r, e);
        if (failed == 0 && !wait_for_more(signal_fd))
            break;
        r->filter.limit = 0; /* of what was there at the start */
        if (failed == 0)
            failed = open_late(&r->context, e);
    }
    r->reply->stdout_used = r->printed;
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
static int collect(struct reading *r, bool verified, struct error *e)
{
    AUTO_JSON struct json *verdict = json_new_object();
    struct error unreadable = { 0 };

    if (verified && (verify(r, verdict, e) < 0 || context_resume(&r->context, e) < 0))
        return -1;
    reply_open_list(r->reply, "events");
    if (read_events(r, &unreadable) < 0 && json_get_bool(verdict, "verified", true)) {
        *e = unreadable;
        return -1;
    }
    reply_close_list(r->reply, verdict);
    return 0;
}

int cmd_log(const struct args *args, struct reply *reply, struct error *e)
{
    struct reading r = { .context = CONTEXT_CLOSED, .reply = reply, .follow = args_has(args, "follow") };
    int failed = read_options(&r, args, e);

    if (failed == 0)
        failed = context_open(&r.context, CONTEXT_READ, e);
    if (failed == 0)
        failed = r.follow ? follow(&r, e) : collect(&r, args_has(args, "verify"), e);
    context_close(&r.context);
    return failed;
}

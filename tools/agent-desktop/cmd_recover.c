#include "core/clock.h"
#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/next.h"
#include "tools/agent-desktop/operate.h"

#define POLL_MS 250

struct recovery {
    const char *command;
    const char *name;
    bool may_remove;
    struct reply *reply;
    struct json *ran; /* each command and how it went */
    enum fsm_next_command last;
    enum fsm_place place;
    enum fsm_known known;
};

/* `status`, as a command of its own would: fills reply->data. */
static int ask(struct recovery *r, struct error *e)
{
    AUTO_CONTEXT struct context c = CONTEXT_CLOSED;
    AUTO_SANDBOX struct sandbox s = SANDBOX_CLOSED;

    if (context_open(&c, CONTEXT_READ, e) < 0 || sandbox_answer(&s, &c, r->name, r->reply, e) < 0)
        return -1;
    r->place = s.look.place;
    r->known = s.look.known;
    return 0;
}

static int wait_and_ask(struct recovery *r, struct error *e)
{
    clock_sleep_ms(POLL_MS);
    return ask(r, e);
}

static int operate(struct recovery *r, enum fsm_event event, enum fsm_operation operation, struct error *e)
{
    AUTO_OPERATE struct operate o = OPERATE_CLOSED;

    json_free(steal(&r->reply->data));
    o.command = r->command;
    o.event = event;
    o.operation = operation;
    if (operate_open(&o, r->name, NULL, CONTEXT_WRITE, e) < 0)
        return operate_fail(&o, r->reply, e);
    int done = operate_run(&o, r->reply, e);

    r->place = o.sandbox.look.place;
    r->known = o.sandbox.look.known;
    return done;
}

static int follow(struct recovery *r, enum fsm_next_command command, struct error *e)
{
    switch (command) {
    case NEXT_STATUS:
        return wait_and_ask(r, e);
    case NEXT_STOP:
        return operate(r, EV_STOP, OPERATION_STOP, e);
    case NEXT_REMOVE:
        return operate(r, EV_REMOVE, OPERATION_REMOVE, e);
    case NEXT_NONE:
    case NEXT_INSTALL:
    case NEXT_CREATE:
    case NEXT_START:
    case NEXT_HOST_FIX:
    case FSM_NEXT_COUNT:
        break;
    }
    return error_set(e, ERROR_INTERNAL, 0, "nothing can be followed from here");
}

/* What to run now; NEXT_NONE at the end of the way: at rest, gone, a person's turn, or a removal that nobody
 * has allowed. */
static enum fsm_next_command find_command(const struct recovery *r)
{
    struct fsm_next next = fsm_find_next(r->place, r->known);

    if (next.command == NEXT_START || next.needs_person)
        return NEXT_NONE;
    return next.command == NEXT_REMOVE && !r->may_remove ? NEXT_NONE : next.command;
}

/* One entry of `ran`; a question that is asked again and again is one. */
static void note(struct recovery *r, enum fsm_next_command command, const struct error *e)
{
    struct next_subject subject = { .name = r->name };
    struct next_words words;

    if (command == NEXT_STATUS && r->last == NEXT_STATUS && e->code == ERROR_NONE)
        return;
    r->last = command;
    next_find_words(command, &subject, &words);
    AUTO_FREE char *line = next_line(&words);
    struct json *entry = json_new_object();

    json_put_string(entry, "command", line);
    json_put(entry, "argv", json_new_strings(words.words, words.count));
    json_put_bool(entry, "ok", e->code == ERROR_NONE);
    if (e->code != ERROR_NONE)
        json_put_string(entry, "code", error_code_name(e->code));
    json_add(r->ran, entry);
}

static int recover(struct recovery *r, struct error *e)
{
    int failed = ask(r, e);

    while (failed == 0) {
        enum fsm_next_command command = find_command(r);

        if (command == NEXT_NONE)
            break;
        failed = follow(r, command, e);
        note(r, command, e);
    }
    return failed;
}

int cmd_recover(const struct args *args, struct reply *reply, struct error *e)
{
    struct recovery r = { .command = args->command,
                          .name = args->positional[0],
                          .may_remove = args_has(args, "rm"),
                          .reply = reply };

    if (root_check_name(r.name, e) < 0)
        return -1;
    r.ran = json_new_array();
    int failed = recover(&r, e);
    struct json *where = failed == 0 ? reply->data : reply->details;

    if (where != NULL && (failed == 0 || json_count(r.ran) > 0))
        json_put(where, "ran", r.ran);
    else
        json_free(r.ran);
    return failed;
}

#include "tools/agent-desktop/reply.h"

#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "tools/agent-desktop/next.h"
#include "tools/agent-desktop/progress.h"

static const char *const sentences[FSM_PLACE_COUNT] = {
    /* without the full stop: details may follow */
    [FSM_NONE] = "is in a state that this version does not know",
    [FSM_MISSING] = "is removed",
    [FSM_INSTALLING] = "is being installed",
    [FSM_CLONING] = "is being cloned",
    [FSM_STARTING] = "is starting",
    [FSM_STOPPING] = "is stopping",
    [FSM_REMOVING] = "is being removed",
    [FSM_NEEDS_SETUP] = "needs a person to finish its setup",
    [FSM_RUNNING] = "is running",
    [FSM_STOPPED] = "is stopped",
    [FSM_BROKEN] = "is broken",
};

void reply_done(struct reply *r)
{
    json_free(r->data);
    json_free(r->details);
    json_free(r->recovery);
    text_done(&r->printed);
    *r = (struct reply){ 0 };
}

void reply_open_list(struct reply *r, const char *key)
{
    text_print(&r->printed, "{\"%s\":[", key);
}

void reply_add_item(struct reply *r, const char *item)
{
    if (text_get(&r->printed)[r->printed.size - 1] != '[')
        text_add_string(&r->printed, ",");
    text_add_string(&r->printed, item);
}

void reply_close_list(struct reply *r, const struct json *more)
{
    AUTO_FREE char *members = json_print(more);
    bool none = strcmp(members, "{}") == 0;

    text_print(&r->printed, "]%s%s", none ? "" : ",", members + 1); /* less its opening brace */
}

struct reply_view reply_view_of(const struct engine_look *look, const char *provider)
{
    return (struct reply_view){ .name = look->record.name,
                                .provider = provider,
                                .place = look->place,
                                .known = look->known,
                                .message = look->message,
                                .reason = look->record.reason,
                                .created_ms = look->record.created_ms };
}

static void put_identity(struct json *object, const struct reply_view *v)
{
    json_put_string(object, "name", v->name);
    json_put_string(object, "provider", v->provider[0] == '\0' ? NULL : v->provider);
    json_put_string(object, "state", fsm_state_name(v->place));
    json_put_string(object, "activity", fsm_activity_name(v->place));
}

/* "demo is stopped: its session ended without a stop." */
static void put_message(struct json *object, const struct reply_view *v, const struct progress *progress)
{
    const char *detail = v->message[0] != '\0' ? v->message : v->reason;
    struct text sentence = { 0 };

    if (progress != NULL && progress->what[0] != '\0') {
        progress_print(progress, &sentence);
    } else {
        bool unfit = v->place == FSM_NEEDS_SETUP && v->known == KNOWN_UNFIT;

        text_print(&sentence, "%s %s", v->name, unfit ? "runs, and cannot be set up" : sentences[v->place]);
        if (detail[0] != '\0')
            text_print(&sentence, ": %s", detail);
    }
    if (text_get(&sentence)[sentence.size - 1] != '.')
        text_add_string(&sentence, ".");
    json_put_string(object, "message", text_get(&sentence));
    text_done(&sentence);
}

static void put_created(struct json *object, int64_t created_ms)
{
    char time[32];

    if (created_ms == 0)
        return;
    text_format_time(time, created_ms, false);
    json_put_string(object, "created", time);
}

struct json *reply_sandbox(const struct reply_view *v, const struct root *root)
{
    struct next_subject subject = { .name = v->name, .provider = v->provider };
    struct json *data = json_new_object();
    struct progress progress;
    bool going = root != NULL && fsm_is_working(v->place) && progress_read(root, v->name, &progress);

    put_identity(data, v);
    put_message(data, v, going ? &progress : NULL);
    if (going)
        json_put(data, "progress", progress_json(&progress));
    put_created(data, v->created_ms);
    next_put(data, fsm_find_next(v->place, v->known), &subject);
    return data;
}

struct json *reply_provider(const char *provider, const struct provider_host_report *report,
                            const char *free_name)
{
    struct next_subject subject = { .name = free_name, .provider = provider, .fix = report->fix };
    struct json *data = json_new_object();

    json_put_string(data, "provider", provider);
    json_put_string(data, "state", fsm_provider_state_name(report->state));
    json_put_string(data, "message", report->message);
    next_put(data, fsm_find_provider_next(report->state), &subject);
    return data;
}

void reply_fail(struct reply *r, const struct reply_view *v, struct fsm_next next)
{
    struct next_subject subject = { .name = v->name, .provider = v->provider };

    json_free(r->details);
    json_free(r->recovery);
    r->details = json_new_object();
    r->recovery = json_new_object();
    put_identity(r->details, v);
    next_put(r->recovery, next, &subject);
    if (next.command == NEXT_NONE && !next.needs_person) {
        json_free(r->recovery);
        r->recovery = NULL;
    }
}

#include "tests/providers/vercel/fake_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"

struct fake_service fake;

struct api {
    struct credentials credentials;
};

static const char *const words[] = {
    [HOSTED_OTHER] = "hibernating", [HOSTED_PENDING] = "pending",           [HOSTED_RUNNING] = "running",
    [HOSTED_STOPPING] = "stopping", [HOSTED_SNAPSHOTTING] = "snapshotting", [HOSTED_STOPPED] = "stopped",
    [HOSTED_FAILED] = "failed",     [HOSTED_ABORTED] = "aborted",
};

void fake_reset(void)
{
    free(fake.body);
    fake = (struct fake_service){ .count = 0 };
}

static void set_status(struct hosted *box, enum hosted_status status)
{
    box->status = status;
    snprintf(box->word, sizeof(box->word), "%s", words[status]);
}

struct hosted *fake_find(const char *name)
{
    for (size_t i = 0; i < fake.count; i++)
        if (strcmp(fake.boxes[i].name, name) == 0)
            return &fake.boxes[i];
    return NULL;
}

struct hosted *fake_add(const char *name, const char *tag, enum hosted_status status)
{
    struct hosted *box = &fake.boxes[fake.count++];

    *box = (struct hosted){ .persistent = true, .has_snapshot = status == HOSTED_STOPPED };
    snprintf(box->name, sizeof(box->name), "%s", name);
    snprintf(box->tag, sizeof(box->tag), "%s", tag);
    snprintf(box->session, sizeof(box->session), "sbx_%d", ++fake.sessions);
    set_status(box, status);
    return box;
}

static void begin_session(struct hosted *box)
{
    snprintf(box->session, sizeof(box->session), "sbx_%d", ++fake.sessions);
    set_status(box, fake.pending > 0 ? HOSTED_PENDING : fake.fails_to_boot ? HOSTED_FAILED : HOSTED_RUNNING);
}

/* Time goes by with looks. */
static void pass_time(void)
{
    if (fake.late > 0 && --fake.late == 0)
        fake.boxes[fake.count++] = fake.coming;
    for (size_t i = 0; i < fake.count; i++) {
        struct hosted *box = &fake.boxes[i];

        if (box->status == HOSTED_PENDING && fake.pending-- <= 1)
            set_status(box, fake.fails_to_boot ? HOSTED_FAILED : HOSTED_RUNNING);
        if (box->status == HOSTED_SNAPSHOTTING && fake.ending-- <= 1) {
            set_status(box, HOSTED_STOPPED);
            box->has_snapshot = box->persistent;
        }
    }
}

int api_open(struct credentials *c, struct api **out, struct error *e)
{
    (void)e;
    *out = mem_alloc(sizeof(**out));
    (*out)->credentials = *c;
    *c = (struct credentials){ 0 };
    return 0;
}

void api_set_options(struct api *a, char *const *options)
{
    (void)a, (void)options;
}

void api_set_wake(struct api *a, const struct api_wake *wake)
{
    (void)a, (void)wake;
}

void api_close(struct api *a)
{
    if (a != NULL)
        credentials_done(&a->credentials);
    free(a);
}

static int lose(struct error *e)
{
    e->delivery = DELIVERY_UNKNOWN;
    return error_set(e, ERROR_ACTION_FAILED, 0, "the connection was reset");
}

static int refuse_connection(struct error *e)
{
    e->delivery = DELIVERY_NOT_DELIVERED;
    return error_set(e, ERROR_ACTION_FAILED, 0, "nobody answers");
}

static int refuse_look(struct error *e)
{
    e->delivery = DELIVERY_NOT_DELIVERED;
    e->retry = RETRY_SAFE;
    return error_set(e, fake.trouble, 0, "the service does not want to");
}

static struct json *print_tags(void)
{
    struct json *tags = json_new_object();

    json_put_string(tags, "colour", "green");
    for (int i = 0; i < fake.tags; i++) {
        AUTO_FREE char *key = mem_print("tag-%d", i);

        json_put_string(tags, key, "");
    }
    return tags;
}

int api_get(struct api *a, const char *name, bool resume, int deadline_ms, struct hosted *out,
            struct json **tags, struct error *e)
{
    (void)a;
    fake.deadline_ms = deadline_ms;
    fake.looks += !resume;
    fake.resumes += resume;
    if (fake.trouble != ERROR_NONE && fake.looks > fake.calm)
        return refuse_look(e);
    pass_time();
    struct hosted *box = fake_find(name);

    if (box == NULL || (fake.vanishes && fake.looks > 1) || (!resume && fake.unseen-- > 0))
        return API_GONE;
    if (resume && box->status == HOSTED_STOPPED) {
        if (fake.snapshot_is_gone)
            return API_ENDED;
        begin_session(box);
    }
    *out = *box;
    if (tags != NULL)
        *tags = print_tags();
    return API_FOUND;
}

static int make(const struct json *body, struct hosted *out, struct error *why)
{
    const char *name = json_get_string(body, "name");

    if (fake_find(name) != NULL) {
        error_set(why, ERROR_INVALID_ARGS, 0, "a sandbox of that name exists");
        return API_REFUSED;
    }
    struct hosted *box = fake_add(name, json_get_string(json_get(body, "tags"), HOSTED_TAG), HOSTED_PENDING);

    begin_session(box);
    *out = *box;
    return API_FOUND;
}

int api_create(struct api *a, const char *source, bool legacy, const struct json *body, int deadline_ms,
               struct hosted *out, struct error *why, struct error *e)
{
    (void)a, (void)legacy, (void)deadline_ms;
    enum fake_fate fate = fake.fates[fake.makings++];

    snprintf(fake.source, sizeof(fake.source), "%s", source == NULL ? "" : source);
    free(fake.body);
    fake.body = json_print(body);
    switch (fate) {
    case FATE_OK:
        return make(body, out, why);
    case FATE_LOST_BEFORE:
        return lose(e);
    case FATE_LOST_AFTER:
        (void)make(body, out, why);
        return lose(e);
    case FATE_LOST_LATE:
        (void)make(body, &fake.coming, why);
        fake.count--;
        fake.late = 3;
        return lose(e);
    case FATE_NOT_SENT:
        return refuse_connection(e);
    case FATE_REFUSED:
        break;
    }
    error_set(why, ERROR_INVALID_ARGS, 0, "%s",
              fake.says != NULL ? fake.says : "timeout must be at most 2700000");
    return API_REFUSED;
}

int api_stop(struct api *a, const char *session, int deadline_ms, struct error *e)
{
    enum fake_fate fate = fake.stop_fates[fake.stops++];

    (void)a, (void)deadline_ms;
    if (fate == FATE_NOT_SENT)
        return refuse_connection(e);
    if (fate == FATE_LOST_BEFORE)
        return lose(e);
    if (fate == FATE_REFUSED) {
        error_set(e, ERROR_ACTION_FAILED, 0, "not for now");
        e->delivery = DELIVERY_NOT_DELIVERED;
        return API_REFUSED;
    }
    for (size_t i = 0; i < fake.count; i++)
        if (strcmp(fake.boxes[i].session, session) == 0) {
            set_status(&fake.boxes[i], fake.ending > 0 ? HOSTED_SNAPSHOTTING : HOSTED_STOPPED);
            return fate == FATE_LOST_AFTER ? lose(e) : API_FOUND;
        }
    return API_GONE;
}

int api_delete(struct api *a, const char *name, int deadline_ms, struct error *e)
{
    (void)a, (void)deadline_ms;
    fake.deletions++;
    if (fake.delete_fate == FATE_NOT_SENT)
        return refuse_connection(e);
    struct hosted *box = fake_find(name);

    if (box == NULL)
        return API_GONE;
    *box = fake.boxes[--fake.count];
    return API_FOUND;
}

/* As a listing tells it: expiresAt is there while it runs. */
static struct hosted make_coarse(const struct hosted *box)
{
    static const enum hosted_status coarse[] = {
        [HOSTED_PENDING] = HOSTED_RUNNING, [HOSTED_SNAPSHOTTING] = HOSTED_STOPPING,
        [HOSTED_FAILED] = HOSTED_STOPPED,  [HOSTED_ABORTED] = HOSTED_STOPPED,
        [HOSTED_RUNNING] = HOSTED_RUNNING, [HOSTED_STOPPING] = HOSTED_STOPPING,
        [HOSTED_STOPPED] = HOSTED_STOPPED,
    };
    struct hosted one = *box;

    set_status(&one, coarse[box->status]);
    one.expires_ms = box->status == HOSTED_RUNNING ? FAKE_EXPIRES_MS : 0;
    return one;
}

int api_list(struct api *a, enum api_order order, int deadline_ms,
             int (*on_one)(void *self, const struct hosted *one, struct error *e), void *self,
             struct error *e)
{
    bool enough = false;

    (void)a, (void)deadline_ms;
    atomic_fetch_add(&fake.listings, 1);
    clock_sleep_ms(fake.list_ms);
    if (fake.trouble != ERROR_NONE)
        return error_set(e, fake.trouble, 0, "the service does not want to");
    for (size_t i = 0; i < fake.count && !fake.lists_untagged_only; i++) {
        bool begins = fake.page == 0 ? i == 0 : i % fake.page == 0;

        if (begins && enough)
            return 0;
        atomic_fetch_add(&fake.pages, begins);
        const struct hosted one =
            make_coarse(&fake.boxes[order == API_OLDEST_FIRST ? i : fake.count - 1 - i]);
        int r = on_one(self, &one, e);

        if (r < 0)
            return -1;
        enough = enough || r > 0;
    }
    return 0;
}

int api_check(struct api *a, int deadline_ms, struct error *e)
{
    (void)a, (void)deadline_ms, (void)e;
    return fake.has_no_project ? API_GONE : API_FOUND;
}

int api_run(struct api *a, const char *session, const struct api_command *c, const struct api_stream *s,
            enum command_start *start, struct error *e)
{
    (void)a, (void)session, (void)c, (void)s;
    fake.runs++;
    if (fake.probes_lost-- > 0)
        return lose(e);
    *start = fake.has_no_wrapper ? COMMAND_NO_PROGRAM : COMMAND_ENDED;
    return 0;
}

int api_logs(struct api *a, const char *session, const char *command, const struct api_stream *s,
             struct error *e)
{
    (void)a, (void)session, (void)command, (void)s, (void)e;
    return API_GONE;
}

int api_command_status(struct api *a, const char *session, const char *command, bool wait, int deadline_ms,
                       int *status, struct error *e)
{
    (void)a, (void)session, (void)command, (void)wait, (void)deadline_ms, (void)status, (void)e;
    return API_GONE;
}

int api_kill(struct api *a, const char *session, const char *command, int number, int deadline_ms,
             struct error *e)
{
    (void)a, (void)session, (void)command, (void)number, (void)deadline_ms, (void)e;
    return API_GONE;
}

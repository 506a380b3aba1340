/* What test_api.py runs: calls of api.h with the credentials of the environment, told on the command line,
 * and what came of them as JSON lines.
 *
 *   api_driver CALL DEADLINE_MS [WORD...] [-- CALL DEADLINE_MS WORD...]...     one client for all of them
 *
 * Words: get NAME, resume NAME, create BODY, legacy BODY, fork SOURCE BODY, stop SESSION, delete NAME, list,
 * check, run SESSION TIMEOUT_MS PROGRAM ARG..., run-until-stdin (likewise; ends when stdin becomes readable),
 * run-unread (likewise; its reader fails), logs SESSION COMMAND, status SESSION COMMAND, wait SESSION
 * COMMAND, kill SESSION COMMAND NUMBER. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/json.h"
#include "core/mem.h"
#include "core/text.h"
#include "providers/remote/http.h"
#include "providers/vercel/api.h"

struct run { /* one call */
    struct api *api;
    int deadline_ms;
    char **words;
    struct json *told;
    struct text bytes; /* of a stream */
    bool fails;        /* the reader of the stream */
};

static void put_error(struct json *object, int result, const struct error *e)
{
    json_put_bool(object, "ok", result >= 0);
    if (e->code == ERROR_NONE)
        return;
    json_put_string(object, "code", error_code_name(e->code));
    json_put_string(object, "message", e->message);
    json_put_string(object, "suggestion", error_suggestion(e));
    json_put_string(object, "delivery", error_delivery_name(e));
    json_put_string(object, "retry", error_retry_name(e));
}

static void put_found(struct run *run, int found)
{
    static const char *const names[] = {
        [API_GONE] = "gone", [API_FOUND] = "found", [API_ENDED] = "ended", [API_REFUSED] = "refused"
    };

    if (found >= 0)
        json_put_string(run->told, "found", names[found]);
}

static void put_why(struct run *run, const struct error *why)
{
    json_put(run->told, "why", json_new_object());
    put_error(json_get(run->told, "why"), -1, why);
}

static struct json *print_hosted(const struct hosted *h)
{
    struct json *object = json_new_object();

    json_put_string(object, "name", h->name);
    json_put_string(object, "session", h->session);
    json_put_string(object, "tag", h->tag);
    json_put_string(object, "word", h->word);
    json_put_int(object, "status", h->status);
    json_put_bool(object, "persistent", h->persistent);
    json_put_bool(object, "has_snapshot", h->has_snapshot);
    json_put_int(object, "expires_ms", h->expires_ms);
    return object;
}

/* ---- sandboxes ---- */

static int get(struct run *run, bool resume, struct error *e)
{
    struct hosted h;
    struct json *tags = NULL;
    int found = api_get(run->api, run->words[0], resume, run->deadline_ms, &h, &tags, e);

    put_found(run, found);
    if (found == API_FOUND)
        json_put(run->told, "hosted", print_hosted(&h));
    json_put(run->told, "tags", tags);
    return found;
}

static int run_get(struct run *run, struct error *e)
{
    return get(run, false, e);
}

static int run_resume(struct run *run, struct error *e)
{
    return get(run, true, e);
}

static int create(struct run *run, const char *source, bool legacy, const char *text, struct error *e)
{
    AUTO_JSON struct json *body = NULL;
    struct error why = { 0 };
    struct hosted h;
    int found;

    if (json_parse(text, strlen(text), "the body", ERROR_INVALID_ARGS, &body, e) < 0)
        return -1;
    found = api_create(run->api, source, legacy, body, run->deadline_ms, &h, &why, e);
    put_found(run, found);
    if (found == API_FOUND)
        json_put(run->told, "hosted", print_hosted(&h));
    if (found == API_REFUSED)
        put_why(run, &why);
    return found;
}

static int run_create(struct run *run, struct error *e)
{
    return create(run, NULL, false, run->words[0], e);
}

static int run_legacy(struct run *run, struct error *e)
{
    return create(run, NULL, true, run->words[0], e);
}

static int run_fork(struct run *run, struct error *e)
{
    return create(run, run->words[0], false, run->words[1], e);
}

static int run_stop(struct run *run, struct error *e)
{
    struct error why = { 0 };
    int found = api_stop(run->api, run->words[0], run->deadline_ms, &why);

    put_found(run, found);
    if (found == API_REFUSED)
        put_why(run, &why);
    if (found < 0)
        *e = why;
    return found;
}

static int run_delete(struct run *run, struct error *e)
{
    int found = api_delete(run->api, run->words[0], run->deadline_ms, e);

    put_found(run, found);
    return found;
}

static int add_one(void *self, const struct hosted *one, struct error *e)
{
    (void)e;
    json_add(self, print_hosted(one));
    return 0;
}

static int run_list(struct run *run, struct error *e)
{
    struct json *all = json_new_array();

    json_put(run->told, "sandboxes", all);
    bool oldest = run->words[0] != NULL && strcmp(run->words[0], "oldest") == 0;

    return api_list(run->api, oldest ? API_OLDEST_FIRST : API_NEWEST_FIRST, run->deadline_ms, add_one, all,
                    e);
}

static int run_check(struct run *run, struct error *e)
{
    int found = api_check(run->api, run->deadline_ms, e);

    put_found(run, found);
    return found;
}

/* ---- commands ---- */

static int take_bytes(void *self, const char *bytes, size_t size, struct error *e)
{
    struct run *run = self;

    if (run->fails)
        return error_set(e, ERROR_STORE_FULL, 0, "the reader has no room");
    text_add(&run->bytes, bytes, size);
    return 0;
}

static int have_enough(void *self, struct error *e)
{
    (void)self, (void)e;
    return HTTP_ENOUGH;
}

static void put_stream(struct run *run)
{
    json_put_int(run->told, "size", (int64_t)run->bytes.size);
    if (run->bytes.size < 65536)
        json_put_string(run->told, "stream", text_get(&run->bytes));
}

static int start_command(struct run *run, struct api_stream *s, struct error *e)
{
    static const char *const names[] = { [COMMAND_NO_PROGRAM] = "no_program",
                                         [COMMAND_ENDED] = "ended",
                                         [COMMAND_SESSION_GONE] = "session_gone" };
    const struct api_command c = { .program = run->words[2],
                                   .args = (const char *const *)run->words + 3,
                                   .timeout_ms = atoi(run->words[1]) };
    enum command_start start;
    int result;

    s->on_bytes = take_bytes;
    s->deadline_ms = run->deadline_ms;
    s->self = run;
    result = api_run(run->api, run->words[0], &c, s, &start, e);
    if (result == 0)
        json_put_string(run->told, "start", names[start]);
    put_stream(run);
    return result;
}

static int run_run(struct run *run, struct error *e)
{
    return start_command(run, &(struct api_stream){ 0 }, e);
}

static int run_run_until_stdin(struct run *run, struct error *e)
{
    return start_command(run, &(struct api_stream){ .on_wake = have_enough, .wake_fd = 0 }, e);
}

static int run_run_unread(struct run *run, struct error *e)
{
    run->fails = true;
    return start_command(run, &(struct api_stream){ 0 }, e);
}

static int run_logs(struct run *run, struct error *e)
{
    const struct api_stream s = { .on_bytes = take_bytes, .deadline_ms = run->deadline_ms, .self = run };
    int found = api_logs(run->api, run->words[0], run->words[1], &s, e);

    put_found(run, found);
    put_stream(run);
    return found;
}

static int tell_status(struct run *run, bool wait, struct error *e)
{
    int status;
    int found =
        api_command_status(run->api, run->words[0], run->words[1], wait, run->deadline_ms, &status, e);

    put_found(run, found);
    if (found == API_FOUND)
        json_put_int(run->told, "status", status);
    return found;
}

static int run_status(struct run *run, struct error *e)
{
    return tell_status(run, false, e);
}

static int run_wait(struct run *run, struct error *e)
{
    return tell_status(run, true, e);
}

static int run_kill(struct run *run, struct error *e)
{
    int found = api_kill(run->api, run->words[0], run->words[1], atoi(run->words[2]), run->deadline_ms, e);

    put_found(run, found);
    return found;
}

/* ---- the command line ---- */

static const struct row {
    const char *name;
    int (*run)(struct run *run, struct error *e);
} rows[] = {
    { "get", run_get },       { "resume", run_resume },
    { "create", run_create }, { "legacy", run_legacy },
    { "fork", run_fork },     { "stop", run_stop },
    { "delete", run_delete }, { "list", run_list },
    { "check", run_check },   { "run", run_run },
    { "logs", run_logs },     { "run-until-stdin", run_run_until_stdin },
    { "status", run_status }, { "run-unread", run_run_unread },
    { "wait", run_wait },     { "kill", run_kill },
};

static const struct row *find_row(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    fprintf(stderr, "%s: no such call\n", name);
    exit(2);
}

static void run_call(struct api *api, char **words)
{
    AUTO_JSON struct json *told = json_new_object();
    AUTO_FREE char *line = NULL;
    struct run run = { .api = api, .deadline_ms = atoi(words[1]), .words = words + 2, .told = told };
    struct error e = { 0 };
    int64_t begun = clock_mono_ms();
    int result = find_row(words[0])->run(&run, &e);

    put_error(told, result, &e);
    json_put_int(told, "elapsed_ms", clock_mono_ms() - begun);
    line = json_print(told);
    puts(line);
    fflush(stdout);
    text_done(&run.bytes);
}

static int print_refusal(const struct error *e)
{
    AUTO_JSON struct json *told = json_new_object();
    AUTO_FREE char *line = NULL;

    put_error(told, -1, e);
    line = json_print(told);
    puts(line);
    return 0;
}

int main(int argc, char **argv)
{
    struct credentials c = { 0 };
    struct api *api = NULL;
    struct error e = { 0 };

    if (credentials_find(&c, &e) < 0 || api_open(&c, &api, &e) < 0) {
        credentials_done(&c);
        return print_refusal(&e);
    }
    for (char **words = argv + 1, **end; words < argv + argc; words = end + 1) {
        for (end = words; *end != NULL && strcmp(*end, "--") != 0; end++) {
        }
        *end = NULL;
        if (end - words >= 2)
            run_call(api, words);
    }
    api_close(api);
    return 0;
}

/* What test_http.py runs: calls of http.h, told on the command line, and what came of them as JSON lines.
 *
 *   http_driver get URL MAX DEADLINE_MS
 *   http_driver download URL FILE [sha1=HEX] [stall=MS] [give_up=MS] [memory]
 *   http_driver request WORD... [-- WORD...]...     one client for all of them
 *
 * Words of a request: url=, method=, header=NAME: VALUE, secret, compressed, repeatable, tries=, deadline=,
 * stall=, stall_bytes=, body=TEXT, produce=BYTES (through on_read), untold (of what length), max=, stream (a
 * line for the head and for each piece), enough=BYTES (is all that on_body wants), wake (stdin, when it
 * becomes readable, ends it). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/json.h"
#include "core/mem.h"
#include "providers/remote/http.h"

#define HEADERS_MAX 8

static void print_line(struct json *object)
{
    AUTO_FREE char *line = json_print(object);

    puts(line);
    fflush(stdout);
    json_free(object);
}

static void put_error(struct json *object, int result, const struct error *e)
{
    json_put_bool(object, "ok", result == 0);
    if (result == 0)
        return;
    json_put_string(object, "code", error_code_name(e->code));
    json_put_string(object, "message", e->message);
    json_put_string(object, "delivery", error_delivery_name(e));
    json_put_string(object, "retry", error_retry_name(e));
}

/* Peak memory of this process in KiB. */
static int64_t read_peak(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[128];
    long peak = -1;

    while (status != NULL && fgets(line, sizeof(line), status) != NULL)
        (void)sscanf(line, "VmHWM: %ld", &peak);
    if (status != NULL)
        fclose(status);
    return peak;
}

/* ---- get ---- */

static int run_get(char **words)
{
    struct json *object = json_new_object();
    struct text document = { 0 };
    struct error e = { 0 };
    int result = http_get(words[0], (size_t)atol(words[1]), atoi(words[2]), &document, &e);

    put_error(object, result, &e);
    json_put_int(object, "size", (int64_t)document.size);
    if (document.size < 4096)
        json_put_string(object, "text", text_get(&document));
    print_line(object);
    text_done(&document);
    return 0;
}

/* ---- download ---- */

static void on_bytes(void *self, int64_t done, int64_t total)
{
    struct json *pair = json_new_object();

    json_put_int(pair, "done", done);
    json_put_int(pair, "total", total);
    json_add(self, pair);
}

static int run_download(char **words)
{
    struct json *object = json_new_object(), *progress = json_new_array();
    struct http_download download = { .url = words[0], .stall_ms = 5000, .give_up_ms = 10000 };
    char sum[HTTP_SHA1_SIZE] = "";
    struct error e = { 0 };
    int result;

    download.file = open(words[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    download.on_bytes = on_bytes;
    download.self = progress;
    for (char **word = words + 2; *word != NULL; word++) {
        if (strncmp(*word, "sha1=", 5) == 0)
            download.sha1 = *word + 5;
        if (strncmp(*word, "stall=", 6) == 0)
            download.stall_ms = atoi(*word + 6);
        if (strncmp(*word, "give_up=", 8) == 0)
            download.give_up_ms = atoi(*word + 8);
    }
    result = http_download(&download, sum, &e);
    put_error(object, result, &e);
    json_put_string(object, "sum", sum);
    json_put(object, "progress", progress);
    json_put_int(object, "peak_kib", read_peak());
    print_line(object);
    close(download.file);
    return 0;
}

/* ---- requests ---- */

struct call {
    struct http_request request;
    struct http_header headers[HEADERS_MAX + 1];
    int64_t produce, enough;
    int64_t taken;
    struct http *h;
};

static int on_head(void *self, const struct http_answer *head, struct error *e)
{
    struct call *call = self;
    struct json *object = json_new_object();

    (void)e;
    json_put_int(object, "head", head->status);
    json_put_string(object, "type", head->type);
    json_put_string(object, "x-case", http_header(call->h, "X-CASE"));
    print_line(object);
    return HTTP_GO_ON;
}

static int on_body(void *self, const char *bytes, size_t size, struct error *e)
{
    struct call *call = self;
    struct json *object = json_new_object();
    char piece[32];

    (void)e;
    text_clean(piece, sizeof(piece), bytes, size);
    json_put_string(object, "piece", piece);
    print_line(object);
    call->taken += (int64_t)size;
    return call->enough > 0 && call->taken >= call->enough ? HTTP_ENOUGH : HTTP_GO_ON;
}

/* Every byte tells its offset. */
static long on_read(void *self, int64_t offset, void *bytes, size_t room, struct error *e)
{
    const struct call *call = self;
    int64_t left = call->produce - offset;
    size_t size = left < (int64_t)room ? (size_t)left : room;

    (void)e;
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)((offset + (int64_t)i) % 251);
    return (long)size;
}

static int on_wake(void *self, struct error *e)
{
    (void)self, (void)e;
    return HTTP_ENOUGH;
}

static void read_flag(struct call *call, const char *word)
{
    struct http_request *r = &call->request;

    r->secret |= strcmp(word, "secret") == 0;
    r->compressed |= strcmp(word, "compressed") == 0;
    if (strcmp(word, "repeatable") == 0)
        r->repeat = HTTP_REPEATABLE;
    if (strcmp(word, "untold") == 0)
        r->body_size = -1;
    if (strcmp(word, "wake") == 0)
        r->on_wake = on_wake;
    if (strcmp(word, "stream") == 0) {
        r->on_head = on_head;
        r->on_body = on_body;
    }
}

static void add_header(struct call *call, char *text)
{
    struct http_header *h = call->headers;
    char *colon = strchr(text, ':');

    while (h->name != NULL)
        h++;
    *colon = '\0';
    *h = (struct http_header){ text, colon + 2 };
}

static void read_value(struct call *call, const char *key, char *value)
{
    struct http_request *r = &call->request;

    if (strcmp(key, "url") == 0)
        r->url = value;
    if (strcmp(key, "method") == 0)
        r->method = value;
    if (strcmp(key, "header") == 0)
        add_header(call, value);
    if (strcmp(key, "tries") == 0)
        r->tries = atoi(value);
    if (strcmp(key, "deadline") == 0)
        r->deadline_ms = atoi(value);
    if (strcmp(key, "stall") == 0)
        r->stall_ms = atoi(value);
    if (strcmp(key, "stall_bytes") == 0)
        r->stall_bytes = atoi(value);
    if (strcmp(key, "max") == 0)
        r->max = (size_t)atol(value);
    if (strcmp(key, "enough") == 0)
        call->enough = atol(value);
    if (strcmp(key, "body") == 0) {
        r->body = value;
        r->body_size = (int64_t)strlen(value);
    }
    if (strcmp(key, "produce") == 0) {
        call->produce = atol(value);
        r->on_read = on_read;
        r->body_size = call->produce;
    }
}

static const char *fate_name(enum http_fate fate)
{
    static const char *const fates[] = {
        [HTTP_NOT_SENT] = "not_sent", [HTTP_UNKNOWN] = "unknown", [HTTP_ANSWERED] = "answered"
    };

    return fates[fate];
}

static void run_call(struct call *call)
{
    struct json *object = json_new_object();
    struct http_answer answer;
    struct error e = { 0 };
    int64_t begun = clock_mono_ms();
    int result = http_request(call->h, &call->request, &answer, &e);

    put_error(object, result, &e);
    json_put_int(object, "elapsed_ms", clock_mono_ms() - begun);
    json_put_string(object, "fate", fate_name(answer.fate));
    json_put_int(object, "status", answer.status);
    json_put_string(object, "type", answer.type);
    json_put_int(object, "size", answer.size);
    json_put_string(object, "text", text_get(&answer.body));
    json_put_string(object, "x-case", answer.status == 0 ? NULL : http_header(call->h, "x-case"));
    json_put_int(object, "peak_kib", read_peak());
    print_line(object);
    http_answer_done(&answer);
}

static int run_requests(char **words)
{
    struct error e = { 0 };
    struct http *h = NULL;

    if (http_open(&h, &e) < 0)
        return 1;
    while (*words != NULL) {
        struct call call = { .h = h, .request = { .deadline_ms = 10000, .max = 65536 } };

        call.request.headers = call.headers;
        call.request.self = &call;
        for (; *words != NULL && strcmp(*words, "--") != 0; words++) {
            char *equals = strchr(*words, '=');

            if (equals == NULL) {
                read_flag(&call, *words);
            } else {
                *equals = '\0';
                read_value(&call, *words, equals + 1);
            }
        }
        run_call(&call);
        words += *words != NULL;
    }
    http_close(h);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 5 && strcmp(argv[1], "get") == 0)
        return run_get(argv + 2);
    if (argc >= 4 && strcmp(argv[1], "download") == 0)
        return run_download(argv + 2);
    if (argc >= 3 && strcmp(argv[1], "request") == 0)
        return run_requests(argv + 2);
    return 2;
}

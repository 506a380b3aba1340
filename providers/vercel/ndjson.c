#include "providers/vercel/ndjson.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/mem.h"
#include "core/text.h"
#include "providers/vercel/reply.h"

#define ROOM_KEPT ((size_t)1 << 20) /* between lines: a huge one's memory is given back */

typedef int event_fn(void *self, const struct ndjson_event *event, struct error *e);

struct ndjson {
    const char *secret;
    struct text line; /* the beginning of one that has not ended */
    long count;       /* of lines, for messages */
};

struct ndjson *ndjson_new(const char *secret)
{
    struct ndjson *n = mem_alloc(sizeof(*n));

    n->secret = secret;
    return n;
}

void ndjson_free(struct ndjson *n)
{
    if (n == NULL)
        return;
    text_done(&n->line);
    free(n);
}

/* --- what JSON allows and the parser does not -------------------------------------------------------- */

/* The UTF-16 unit of an escape \uXXXX at BYTES; -1 when there is none. */
static long read_unit(const char *bytes, size_t size)
{
    char digits[5] = "";

    if (size < 6 || bytes[0] != '\\' || bytes[1] != 'u')
        return -1;
    memcpy(digits, bytes + 2, 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16) : -1;
}

/* Copies one character or escape to OUT, or what stands for it: a half of a surrogate pair without its other
 * half, as a writer makes that cuts UTF-16 anywhere, and a byte that is no UTF-8. Returns how much of BYTES.
 */
static size_t mend_one(struct text *out, const char *bytes, size_t size)
{
    long unit = read_unit(bytes, size), next = size > 6 ? read_unit(bytes + 6, size - 6) : -1;
    bool is_pair = unit >= 0xD800 && unit < 0xDC00 && next >= 0xDC00 && next < 0xE000;
    size_t step = unit < 0 ? text_char_size(bytes, size) : is_pair ? 12 : 6;

    if (unit < 0 && size >= 2 && bytes[0] == '\\' && bytes[1] == '\\')
        step = 2; /* the second one begins no escape */
    if (step == 0 || (unit >= 0xD800 && unit < 0xE000 && !is_pair))
        text_add_string(out, "\xEF\xBF\xBD");
    else
        text_add(out, bytes, step);
    return step == 0 ? 1 : step;
}

static int parse_line(const struct ndjson *n, const char *bytes, size_t size, struct json **out,
                      struct error *e)
{
    char what[64];
    struct text mended = { 0 };
    struct error ignored = { 0 };
    int r = json_parse_foreign(bytes, size, "it", ERROR_ACTION_FAILED, out, &ignored);

    if (r == 0)
        return 0;
    for (size_t at = 0; at < size;)
        at += mend_one(&mended, bytes + at, size - at);
    snprintf(what, sizeof(what), "line %ld of the command's stream", n->count);
    r = json_parse_foreign(mended.bytes, mended.size, what, ERROR_ACTION_FAILED, out, e);
    text_done(&mended);
    return r;
}

/* --- what a line means ------------------------------------------------------------------------------- */

/* What is no exit status does not end the command: then the service has to be asked. */
static void read_command(const struct json *command, struct ndjson_event *out)
{
    int64_t status = json_get_int(command, "exitCode", -1);
    const char *id = json_get_string(command, "id");

    out->kind = NDJSON_COMMAND;
    out->id = id != NULL ? id : "";
    out->ended = status >= 0 && status <= 255;
    out->status = out->ended ? (int)status : 0;
}

static void read_error(const struct ndjson *n, const struct json *line, struct ndjson_event *out)
{
    const struct json *data = json_get(line, "data");
    const char *code = json_get_string(data, "code"), *words = json_get_string(data, "message");

    if (words == NULL) /* the data itself may be the text */
        words = json_get_string(line, "data");
    out->kind = NDJSON_ERROR;
    reply_copy_without(n->secret, code != NULL ? code : "", out->code, sizeof(out->code));
    reply_copy_without(n->secret, words != NULL ? words : "", out->message, sizeof(out->message));
}

/* 1 with *OUT, 0 for a line to be skipped. */
static int read_line(const struct ndjson *n, const struct json *line, struct ndjson_event *out,
                     struct error *e)
{
    const char *stream = json_get_string(line, "stream");

    if (json_get_kind(line, "command") == JSON_KIND_OBJECT) {
        read_command(json_get(line, "command"), out);
        return 1;
    }
    if (stream != NULL && strcmp(stream, "error") == 0) {
        read_error(n, line, out);
        return 1;
    }
    if (stream == NULL || (strcmp(stream, "stdout") != 0 && strcmp(stream, "stderr") != 0))
        return 0;
    out->kind = NDJSON_OUTPUT;
    out->stream = strcmp(stream, "stdout") == 0 ? 1 : 2;
    out->bytes = json_get_bytes(line, "data", &out->size);
    if (out->bytes == NULL)
        return error_set(e, ERROR_ACTION_FAILED, 0, "line %ld of the command's stream has no output in it",
                         n->count);
    return 1;
}

static bool is_blank(const char *bytes, size_t size)
{
    while (size > 0 && strchr(" \t\r", bytes[size - 1]) != NULL && bytes[size - 1] != '\0')
        size--;
    return size == 0;
}

static int take_line(struct ndjson *n, const char *bytes, size_t size, event_fn *on_event, void *self,
                     struct error *e)
{
    struct ndjson_event event = { 0 };
    AUTO_JSON struct json *line = NULL;
    int has_event;

    n->count++;
    if (is_blank(bytes, size))
        return 0;
    if (parse_line(n, bytes, size, &line, e) < 0)
        return -1;
    has_event = read_line(n, line, &event, e);
    return has_event > 0 ? on_event(self, &event, e) : has_event;
}

/* --- lines ------------------------------------------------------------------------------------------- */

static int take_kept(struct ndjson *n, event_fn *on_event, void *self, struct error *e)
{
    int r = take_line(n, text_get(&n->line), n->line.size, on_event, self, e);

    if (n->line.room > ROOM_KEPT)
        text_done(&n->line);
    n->line.size = 0;
    return r;
}

int ndjson_feed(struct ndjson *n, const char *bytes, size_t size, event_fn *on_event, void *self,
                struct error *e)
{
    int r = 0;

    while (r == 0 && size > 0) {
        const char *end = memchr(bytes, '\n', size);
        size_t part = end != NULL ? (size_t)(end - bytes) : size, step = part + (end != NULL);

        if (part > NDJSON_LINE_MAX - n->line.size)
            return error_set(e, ERROR_ACTION_FAILED, 0,
                             "line %ld of the command's stream is longer than %d MiB", n->count + 1,
                             NDJSON_LINE_MAX >> 20);
        if (end != NULL && n->line.size == 0) {
            r = take_line(n, bytes, part, on_event, self, e);
        } else {
            text_add(&n->line, bytes, part);
            r = end != NULL ? take_kept(n, on_event, self, e) : 0;
        }
        bytes += step;
        size -= step;
    }
    return r;
}

int ndjson_end(struct ndjson *n, event_fn *on_event, void *self, struct error *e)
{
    return n->line.size > 0 ? take_kept(n, on_event, self, e) : 0;
}

#include "tools/agent-desktop/envelope.h"

#include <string.h>

#include "core/mem.h"
#include "core/util.h"

static struct json *print_error(struct reply *reply, const struct error *e)
{
    struct json *error = json_new_object();
    struct json *disposition = json_new_object();

    json_put_string(error, "code", error_code_name(e->code));
    json_put_string(error, "message", e->message);
    json_put_string(error, "suggestion", error_suggestion(e));
    if (reply->recovery != NULL)
        json_put(error, "recovery", steal(&reply->recovery));
    if (reply->details != NULL)
        json_put(error, "details", steal(&reply->details));
    json_put_string(disposition, "delivery", error_delivery_name(e));
    json_put_string(disposition, "retry", error_retry_name(e));
    json_put(error, "disposition", disposition);
    return error;
}

/* The members that every envelope begins with, as an object. */
static struct json *new_envelope(const char *command, bool ok)
{
    struct json *envelope = json_new_object();

    json_put_string(envelope, "version", ENVELOPE_VERSION);
    json_put_bool(envelope, "ok", ok);
    json_put_string(envelope, "command", command);
    return envelope;
}

/* HEAD with the printed data as its last member. */
static char *splice(const char *head, const struct text *data)
{
    struct text line = { 0 };

    text_add(&line, head, strlen(head) - 1); /* less its closing brace */
    text_add_string(&line, ",\"data\":");
    text_add(&line, text_get(data), data->size);
    text_add_string(&line, "}\n");
    return line.bytes;
}

char *envelope_print(const char *command, struct reply *reply, const struct error *e)
{
    bool ok = e->code == ERROR_NONE;
    AUTO_JSON struct json *envelope = new_envelope(command, ok);

    if (!ok)
        json_put(envelope, "error", print_error(reply, e));
    else if (reply->printed.size == 0)
        json_put(envelope, "data", reply->data != NULL ? steal(&reply->data) : json_new_object());
    AUTO_FREE char *line = json_print(envelope);

    return ok && reply->printed.size > 0 ? splice(line, &reply->printed) : mem_print("%s\n", line);
}

int envelope_exit_status(const struct error *e)
{
    if (e->code == ERROR_NONE)
        return 0;
    return e->code == ERROR_INVALID_ARGS ? 2 : 1;
}

#include "providers/vercel/reply.h"

#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "core/text.h"

#define VALUE_MIN 4

/* As SDK 3.5.0 has them for sessions. */
static const char *const status_words[] = {
    [HOSTED_PENDING] = "pending",           [HOSTED_RUNNING] = "running", [HOSTED_STOPPING] = "stopping",
    [HOSTED_SNAPSHOTTING] = "snapshotting", [HOSTED_STOPPED] = "stopped", [HOSTED_FAILED] = "failed",
    [HOSTED_ABORTED] = "aborted",
};

/* What names something in an address: nothing that could be taken for a way up. */
static bool read_id(const struct json *object, const char *key, char *out, size_t room)
{
    const char *id = json_get_string(object, key);

    if (id == NULL || id[0] == '\0' || id[0] == '.' || strlen(id) >= room)
        return false;
    return text_clean(out, room, id, strlen(id)) == strlen(id) && strcmp(out, id) == 0;
}

static enum hosted_status find_status(const char *word)
{
    for (size_t i = 0; i < ARRAY_LEN(status_words); i++)
        if (status_words[i] != NULL && strcmp(word, status_words[i]) == 0)
            return (enum hosted_status)i;
    return HOSTED_OTHER;
}

bool reply_read_status(const struct json *object, enum hosted_status *out, char word[HOSTED_WORD_SIZE])
{
    const char *told = json_get_string(object, "status");

    if (told == NULL)
        return false;
    *out = find_status(told);
    text_clean(word, HOSTED_WORD_SIZE, told, strlen(told));
    return true;
}

/* Tags that cannot be read must not make a stranger of what is ours. */
static bool read_tag(const struct json *sandbox, char out[HOSTED_TAG_SIZE])
{
    const struct json *tags = json_get(sandbox, "tags");
    const char *tag = json_get_string(tags, HOSTED_TAG);
    enum json_kind kind = json_get_kind(sandbox, "tags");

    if (kind != JSON_KIND_ABSENT && kind != JSON_KIND_NULL && kind != JSON_KIND_OBJECT)
        return false;
    if (tag == NULL && json_get(tags, HOSTED_TAG) != NULL)
        return false;
    snprintf(out, HOSTED_TAG_SIZE, "%s", tag != NULL ? tag : "");
    return true;
}

bool reply_read_sandbox(const struct json *sandbox, const struct json *session, struct hosted *out)
{
    struct hosted h = { 0 };
    const char *snapshot = json_get_string(sandbox, "currentSnapshotId");

    if (!read_id(sandbox, "name", h.name, sizeof(h.name)) || !read_tag(sandbox, h.tag) ||
        json_get_kind(sandbox, "persistent") != JSON_KIND_BOOL)
        return false;
    if (session != NULL ? !read_id(session, "id", h.session, sizeof(h.session))
                        : json_get_kind(sandbox, "currentSessionId") == JSON_KIND_STRING &&
                              !read_id(sandbox, "currentSessionId", h.session, sizeof(h.session)))
        return false;
    if (!reply_read_status(session != NULL ? session : sandbox, &h.status, h.word))
        return false;
    h.persistent = json_get_bool(sandbox, "persistent", false);
    h.has_snapshot = snapshot != NULL && snapshot[0] != '\0';
    h.expires_ms = json_get_int(sandbox, "expiresAt", 0);
    *out = h;
    return true;
}

struct json *reply_copy_tags(const struct json *sandbox)
{
    bool has_some = json_get_kind(sandbox, "tags") == JSON_KIND_OBJECT;

    return has_some ? json_clone(json_get(sandbox, "tags")) : json_new_object();
}

bool reply_read_command(const struct json *command, int *status)
{
    int64_t code = json_get_int(command, "exitCode", -1);
    bool runs = json_get_kind(command, "exitCode") == JSON_KIND_NULL;

    if (!runs && (code < 0 || code > 255))
        return false;
    *status = runs ? -1 : (int)code;
    return true;
}

bool reply_read_pagination(const struct json *pagination, const char **next)
{
    *next = json_get_string(pagination, "next");
    return *next != NULL || json_get_kind(pagination, "next") == JSON_KIND_NULL;
}

/* --- errors ------------------------------------------------------------------------------------------ */

static void blot(struct text *words, const char *secret)
{
    struct text blotted = { 0 };
    const char *at = text_get(words), *found;

    for (; secret[0] != '\0' && (found = strcasestr(at, secret)) != NULL; at = found + strlen(secret)) {
        text_add(&blotted, at, (size_t)(found - at));
        text_add_string(&blotted, "...");
    }
    text_add_string(&blotted, at);
    text_done(words);
    *words = blotted;
}

/* A value of a few letters is no secret, and without them the words would say nothing. */
static void blot_values(struct text *words, char *const *options)
{
    for (; options != NULL && *options != NULL; options++) {
        const char *equals = strchr(*options, '=');

        if (equals != NULL && strlen(equals + 1) >= VALUE_MIN)
            blot(words, equals + 1);
    }
}

static void copy_words(const char *text, const char *secret, char *const *options, char *out, size_t room)
{
    struct text words = { 0 };

    text_add_string(&words, text != NULL ? text : "");
    blot(&words, secret);
    blot_values(&words, options);
    text_clean(out, room, text_get(&words), words.size);
    text_done(&words);
}

void reply_copy_without(const char *secret, const char *text, char *out, size_t room)
{
    copy_words(text, secret, NULL, out, room);
}

void reply_read_refusal(const char *body, size_t size, const char *secret, char *const *options,
                        struct reply_refusal *out)
{
    AUTO_JSON struct json *reply = NULL;
    struct error ignored = { 0 };
    const struct json *error;
    const char *code, *words;

    *out = (struct reply_refusal){ 0 };
    if (json_parse_foreign(body, size, "the reply", ERROR_ACTION_FAILED, &reply, &ignored) < 0)
        return;
    error = json_get(reply, "error");
    code = json_get_string(error, "code");
    words = error != NULL && json_get_string(reply, "error") != NULL ? json_get_string(reply, "error")
                                                                     : json_get_string(error, "message");
    copy_words(code, secret, options, out->code, sizeof(out->code));
    copy_words(words, secret, options, out->words, sizeof(out->words));
}

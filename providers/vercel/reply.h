/* providers/vercel/reply.h - reads what the service says: sandboxes, commands, errors. For api.c, and for the
 * reader of streams (ndjson.c).
 *
 * Members that are not looked for may be there, or be of any type; one that is needed and is missing, of
 * another type or too long makes the reply a wrong one: false. */
#ifndef PROVIDERS_VERCEL_REPLY_H
#define PROVIDERS_VERCEL_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "core/json.h"
#include "providers/vercel/api.h"

/* SESSION: the one that was told with it; NULL: none, as in a list. */
bool reply_read_sandbox(const struct json *sandbox, const struct json *session, struct hosted *out);

bool reply_read_status(const struct json *object, enum hosted_status *out, char word[HOSTED_WORD_SIZE]);

/* All tags of it, to be freed; an empty object when it has none. */
struct json *reply_copy_tags(const struct json *sandbox);

/* *STATUS is -1 while it runs. */
bool reply_read_command(const struct json *command, int *status);

/* *NEXT is the cursor of the next page, lent; NULL on the last one. */
bool reply_read_pagination(const struct json *pagination, const char **next);

/* Copies TEXT, cleaned and cut to ROOM: a peer that repeats what it was sent must not bring the token,
 * SECRET, into a message. */
void reply_copy_without(const char *secret, const char *text, char *out, size_t room);

struct reply_refusal { /* "": not told */
    char code[64];
    char words[256];
};

/* What BODY says why, without SECRET and the values of OPTIONS ("KEY=VALUE", NULL-terminated; NULL: none). A
 * body that is none of the service's says nothing. */
void reply_read_refusal(const char *body, size_t size, const char *secret, char *const *options,
                        struct reply_refusal *out);

#endif

#include "core/journal.h"

#include <stdio.h>
#include <string.h>

#include "core/root.h"
#include "core/util.h"

_Static_assert(JOURNAL_NAME_SIZE == NAME_MAX_LENGTH + 1, "a record has room for every name");

static const char *const kind_names[] = {
    [JOURNAL_OP] = "op",   [JOURNAL_MOVE] = "move", [JOURNAL_STEP] = "step",
    [JOURNAL_END] = "end", [JOURNAL_EXEC] = "exec", [JOURNAL_REFUSED] = "refused",
};
_Static_assert(ARRAY_LEN(kind_names) == JOURNAL_KIND_COUNT, "each kind has a name");

const char *journal_kind_name(enum journal_kind kind)
{
    return kind < JOURNAL_KIND_COUNT ? kind_names[kind] : "unknown"; /* of a newer format */
}

void journal_record_init(struct journal_record *r, const char *name)
{
    /* Not the facts' items: 6 kB that nobody reads beyond the count. */
    memset(r, 0, offsetof(struct journal_record, facts));
    r->facts.count = 0;
    snprintf(r->name, sizeof(r->name), "%s", name);
    snprintf(r->state, sizeof(r->state), "missing");
}

bool journal_record_exists(const struct journal_record *r)
{
    return strcmp(r->state, "missing") != 0;
}

/* Copies TEXT (NULL is ""), cut at a character when it does not fit. */
static void copy(char *out, size_t room, const char *text)
{
    size_t n = text == NULL ? 0 : strlen(text);

    if (n >= room)
        for (n = room - 1; n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80; n--)
            ;
    if (n > 0)
        memcpy(out, text, n);
    out[n] = '\0';
}

#define COPY(field, text) copy(field, sizeof(field), text)

static bool is_word(const char *text, const char *word)
{
    return text != NULL && strcmp(text, word) == 0;
}

static void fold_op(struct journal_record *r, const struct journal_entry *entry)
{
    const char *id = entry->id == NULL ? "" : entry->id;

    if (strcmp(r->id, id) != 0 || r->created_ms == 0)
        r->created_ms = entry->time_ms;
    COPY(r->id, id);
    if (entry->provider != NULL)
        COPY(r->provider, entry->provider);
    COPY(r->op, entry->op);
    COPY(r->command, entry->command);
    COPY(r->token, entry->token);
    r->owner.pid = (pid_t)entry->actor_pid;
    r->owner.start = (uint64_t)entry->actor_start;
    COPY(r->owner.boot, entry->boot);
}

static void fold_move(struct journal_record *r, const struct journal_entry *entry)
{
    if (is_word(entry->to, "missing")) {
        char name[JOURNAL_NAME_SIZE];

        COPY(name, r->name);
        journal_record_init(r, name);
        return;
    }
    COPY(r->state, entry->to);
    COPY(r->activity, entry->activity);
    COPY(r->reason, entry->reason);
    r->moved_ms = entry->time_ms;
    r->moved_boot_ms = entry->mono_ms;
    COPY(r->moved_boot, entry->boot);
    if (entry->facts != NULL)
        (void)facts_merge(&r->facts, entry->facts); /* the engine has seen that they fit */
}

static void fold_step(struct journal_record *r, const struct journal_entry *entry)
{
    if (is_word(entry->phase, "done") && entry->facts != NULL)
        (void)facts_merge(&r->facts, entry->facts);
}

static void fold_end(struct journal_record *r, const struct journal_entry *entry)
{
    (void)entry;
    r->token[0] = r->op[0] = r->command[0] = '\0';
    memset(&r->owner, 0, sizeof(r->owner));
}

static void fold_refused(struct journal_record *r, const struct journal_entry *entry)
{
    COPY(r->refused, entry->event);
}

void journal_fold(struct journal_record *r, const struct journal_entry *entry)
{
    static void (*const folds[])(struct journal_record *, const struct journal_entry *) = {
        [JOURNAL_OP] = fold_op,   [JOURNAL_MOVE] = fold_move, [JOURNAL_STEP] = fold_step,
        [JOURNAL_END] = fold_end, [JOURNAL_EXEC] = NULL,      [JOURNAL_REFUSED] = fold_refused,
    };
    _Static_assert(ARRAY_LEN(folds) == JOURNAL_KIND_COUNT, "each kind has its rule");

    if (entry->kind >= JOURNAL_KIND_COUNT || folds[entry->kind] == NULL)
        return;
    r->refused[0] = '\0';
    folds[entry->kind](r, entry);
    r->seq = entry->seq;
}

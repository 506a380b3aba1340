#include "store/record.h"

#include <assert.h>
#include <msgpack/pack.h>
#include <string.h>

#include "core/util.h"
#include "store/reader.h"

#define MEMBER(struct_, key_, type_, field_)                                                                 \
    {                                                                                                        \
        .key = (key_), .type = (type_), .offset = offsetof(struct struct_, field_)                           \
    }
#define REQUIRED(struct_, key_, type_, field_)                                                               \
    {                                                                                                        \
        .key = (key_), .type = (type_), .offset = offsetof(struct struct_, field_), .required = true         \
    }
#define CHARS(struct_, key_, field_)                                                                         \
    {                                                                                                        \
        .key = (key_), .type = RECORD_CHARS, .offset = offsetof(struct struct_, field_),                     \
        .size = sizeof(((struct struct_ *)0)->field_)                                                        \
    }
#define GROUP(key_, members_)                                                                                \
    {                                                                                                        \
        .key = (key_), .type = RECORD_GROUP, .group = (members_), .group_count = ARRAY_LEN(members_)         \
    }

static const struct record_member actor_members[] = {
    MEMBER(journal_entry, "pid", RECORD_INT, actor_pid),
    REQUIRED(journal_entry, "uid", RECORD_INT, actor_uid), /* 0 is somebody */
    MEMBER(journal_entry, "start", RECORD_INT, actor_start),
    MEMBER(journal_entry, "version", RECORD_TEXT, actor_version),
};

#define OWN_ENTRY_MEMBERS 2 /* the first two are the journal's own */
static const struct record_member entry_members[] = {
    REQUIRED(record_entry, "v", RECORD_UINT, version),
    REQUIRED(record_entry, "prev", RECORD_HASH, prev),
    REQUIRED(journal_entry, "seq", RECORD_UINT, seq),
    REQUIRED(journal_entry, "time", RECORD_INT, time_ms),
    MEMBER(journal_entry, "boot", RECORD_TEXT, boot),
    MEMBER(journal_entry, "mono", RECORD_INT, mono_ms),
    REQUIRED(journal_entry, "kind", RECORD_KIND, kind),
    REQUIRED(journal_entry, "name", RECORD_TEXT, name),
    MEMBER(journal_entry, "id", RECORD_TEXT, id),
    MEMBER(journal_entry, "provider", RECORD_TEXT, provider),
    MEMBER(journal_entry, "op", RECORD_TEXT, op),
    GROUP("actor", actor_members),
    MEMBER(journal_entry, "command", RECORD_TEXT, command),
    MEMBER(journal_entry, "options", RECORD_TEXT, options),
    MEMBER(journal_entry, "token", RECORD_TEXT, token),
    MEMBER(journal_entry, "event", RECORD_TEXT, event),
    MEMBER(journal_entry, "from", RECORD_TEXT, from),
    MEMBER(journal_entry, "to", RECORD_TEXT, to),
    MEMBER(journal_entry, "activity", RECORD_TEXT, activity),
    MEMBER(journal_entry, "reason", RECORD_TEXT, reason),
    MEMBER(journal_entry, "step", RECORD_TEXT, step),
    MEMBER(journal_entry, "phase", RECORD_TEXT, phase),
    MEMBER(journal_entry, "attempt", RECORD_INT, attempt),
    MEMBER(journal_entry, "code", RECORD_TEXT, code),
    MEMBER(journal_entry, "message", RECORD_TEXT, message),
    MEMBER(journal_entry, "word", RECORD_TEXT, word),
    MEMBER(journal_entry, "argc", RECORD_INT, argc),
    MEMBER(journal_entry, "bytes", RECORD_INT, bytes),
    MEMBER(journal_entry, "status", RECORD_STATUS, status),
    MEMBER(journal_entry, "signal", RECORD_INT, signal),
    MEMBER(journal_entry, "unknown", RECORD_BOOL, unknown),
    MEMBER(journal_entry, "duration_ms", RECORD_INT, duration_ms),
    MEMBER(journal_entry, "state", RECORD_TEXT, state),
    MEMBER(journal_entry, "facts", RECORD_FACTS_LENT, facts),
};
_Static_assert(offsetof(struct record_entry, entry) == 0, "one offset serves both structs");

const struct record_member *const record_entry_members = entry_members + OWN_ENTRY_MEMBERS;
const size_t record_entry_member_count = ARRAY_LEN(entry_members) - OWN_ENTRY_MEMBERS;

static const struct record_member owner_members[] = {
    MEMBER(journal_record, "pid", RECORD_PID, owner.pid),
    MEMBER(journal_record, "start", RECORD_UINT, owner.start),
    CHARS(journal_record, "boot", owner.boot),
};

static const struct record_member fold_members[] = {
    { .key = "v", .type = RECORD_VERSION_MARK, .required = true },
    { .key = "name",
      .type = RECORD_CHARS,
      .offset = offsetof(struct journal_record, name),
      .size = JOURNAL_NAME_SIZE,
      .required = true },
    CHARS(journal_record, "id", id),
    CHARS(journal_record, "provider", provider),
    { .key = "state",
      .type = RECORD_CHARS,
      .offset = offsetof(struct journal_record, state),
      .size = JOURNAL_WORD_SIZE,
      .required = true },
    CHARS(journal_record, "activity", activity),
    CHARS(journal_record, "reason", reason),
    CHARS(journal_record, "token", token),
    CHARS(journal_record, "op", op),
    CHARS(journal_record, "command", command),
    GROUP("owner", owner_members),
    CHARS(journal_record, "refused", refused),
    REQUIRED(journal_record, "seq", RECORD_UINT, seq),
    MEMBER(journal_record, "created", RECORD_INT, created_ms),
    MEMBER(journal_record, "moved", RECORD_INT, moved_ms),
    MEMBER(journal_record, "moved_mono", RECORD_INT, moved_boot_ms),
    CHARS(journal_record, "moved_boot", moved_boot),
    MEMBER(journal_record, "facts", RECORD_FACTS, facts),
};

static const struct record_member head_members[] = {
    REQUIRED(record_head, "v", RECORD_UINT, version),
    REQUIRED(record_head, "seq", RECORD_UINT, seq),
    REQUIRED(record_head, "hash", RECORD_HASH, hash),
    REQUIRED(record_head, "transaction", RECORD_UINT, transaction),
    REQUIRED(record_head, "sandboxes", RECORD_UINT, sandbox_count),
    REQUIRED(record_head, "sandbox_seqs", RECORD_UINT, sandbox_seqs),
    REQUIRED(record_head, "created", RECORD_INT, created_ms),
};

/* --- numbers ------------------------------------------------------------------------------------------- */

void record_print_number(uint8_t out[RECORD_NUMBER_SIZE], uint64_t number)
{
    for (int i = RECORD_NUMBER_SIZE - 1; i >= 0; i--, number >>= 8)
        out[i] = (uint8_t)number;
}

uint64_t record_parse_number(const void *bytes)
{
    const uint8_t *at = bytes;
    uint64_t number = 0;

    for (int i = 0; i < RECORD_NUMBER_SIZE; i++)
        number = number << 8 | at[i];
    return number;
}

/* --- packing ------------------------------------------------------------------------------------------- */

static int add_bytes(void *out, const char *bytes, size_t size)
{
    text_add(out, bytes, size);
    return 0; /* text_add() does not return when memory is exhausted: no pack call below can fail */
}

static void pack_text(msgpack_packer *p, const char *text)
{
    size_t size = strlen(text);

    msgpack_pack_str(p, size);
    msgpack_pack_str_body(p, text, size);
}

static void pack_facts(msgpack_packer *p, const struct facts *facts)
{
    msgpack_pack_map(p, facts->count);
    for (size_t i = 0; i < facts->count; i++) {
        pack_text(p, facts->items[i].key);
        pack_text(p, facts->items[i].value);
    }
}

static size_t count_present(const struct record_member *members, size_t count, const void *base)
{
    size_t present = 0;

    for (size_t i = 0; i < count; i++)
        present += !record_is_left_out(&members[i], base);
    return present;
}

bool record_is_left_out(const struct record_member *m, const void *base)
{
    const void *field = (const char *)base + m->offset;

    if (m->required)
        return false;
    switch (m->type) {
    case RECORD_UINT:
        return *(const uint64_t *)field == 0;
    case RECORD_INT:
        return *(const int64_t *)field == 0;
    case RECORD_STATUS:
        return *(const int64_t *)field == -1;
    case RECORD_PID:
        return *(const pid_t *)field == 0;
    case RECORD_BOOL:
        return !*(const bool *)field;
    case RECORD_TEXT:
        return *(const char *const *)field == NULL || **(const char *const *)field == '\0';
    case RECORD_CHARS:
        return *(const char *)field == '\0';
    case RECORD_FACTS:
        return ((const struct facts *)field)->count == 0;
    case RECORD_FACTS_LENT:
        return *(const struct facts *const *)field == NULL ||
               (*(const struct facts *const *)field)->count == 0;
    case RECORD_GROUP:
        return count_present(m->group, m->group_count, base) == 0;
    case RECORD_VERSION_MARK:
    case RECORD_KIND:
    case RECORD_HASH:
    case RECORD_TYPE_COUNT:
        break;
    }
    return false;
}

static void pack_map(msgpack_packer *p, const struct record_member *members, size_t count, const void *base);

static void pack_member(msgpack_packer *p, const struct record_member *m, const void *base)
{
    const void *field = (const char *)base + m->offset;

    switch (m->type) {
    case RECORD_VERSION_MARK:
        msgpack_pack_uint64(p, RECORD_VERSION);
        break;
    case RECORD_UINT:
        msgpack_pack_uint64(p, *(const uint64_t *)field);
        break;
    case RECORD_INT:
    case RECORD_STATUS:
        msgpack_pack_int64(p, *(const int64_t *)field);
        break;
    case RECORD_PID:
        msgpack_pack_int64(p, *(const pid_t *)field);
        break;
    case RECORD_BOOL:
        msgpack_pack_true(p); /* false is left out */
        break;
    case RECORD_TEXT:
        pack_text(p, *(const char *const *)field);
        break;
    case RECORD_CHARS:
        pack_text(p, field);
        break;
    case RECORD_KIND:
        pack_text(p, journal_kind_name(*(const enum journal_kind *)field));
        break;
    case RECORD_HASH:
        msgpack_pack_bin(p, CHAIN_HASH_SIZE);
        msgpack_pack_bin_body(p, field, CHAIN_HASH_SIZE);
        break;
    case RECORD_FACTS:
        pack_facts(p, field);
        break;
    case RECORD_FACTS_LENT:
        pack_facts(p, *(const struct facts *const *)field);
        break;
    case RECORD_GROUP:
        pack_map(p, m->group, m->group_count, base);
        break;
    case RECORD_TYPE_COUNT:
        break;
    }
}

static void pack_map(msgpack_packer *p, const struct record_member *members, size_t count, const void *base)
{
    msgpack_pack_map(p, count_present(members, count, base));
    for (size_t i = 0; i < count; i++) {
        if (record_is_left_out(&members[i], base))
            continue;
        pack_text(p, members[i].key);
        pack_member(p, &members[i], base);
    }
}

static void pack(const struct record_member *members, size_t count, const void *base, struct text *out)
{
    static const char room[RECORD_CHECK_SIZE] = { 0 };
    msgpack_packer packer;

    out->size = 0;
    text_add(out, room, sizeof(room));
    msgpack_packer_init(&packer, out, add_bytes);
    pack_map(&packer, members, count, base);
    record_print_number((uint8_t *)out->bytes,
                        chain_check(out->bytes + RECORD_CHECK_SIZE, out->size - RECORD_CHECK_SIZE));
}

int record_pack_entry(const struct record_entry *entry, struct text *out, struct error *e)
{
    pack(entry_members, ARRAY_LEN(entry_members), entry, out);
    if (out->size > JOURNAL_ENTRY_MAX)
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "what is to be recorded about '%s' is too long (%zu bytes)", entry->entry.name,
                         out->size);
    return 0;
}

void record_pack_fold(const struct journal_record *record, struct text *out)
{
    pack(fold_members, ARRAY_LEN(fold_members), record, out);
}

void record_pack_head(const struct record_head *head, struct text *out)
{
    pack(head_members, ARRAY_LEN(head_members), head, out);
}

/* --- unpacking ----------------------------------------------------------------------------------------- */

struct unpacker {
    struct reader reader;
    char
        *text; /* where strings are kept; each costs a byte of input for its header, which pays for its NUL */
};

static bool is_plain_text(const struct token *t)
{
    return t->type == TOKEN_TEXT && memchr(t->bytes, '\0', t->number) == NULL;
}

static bool copy_text(const struct token *t, char *out, size_t room)
{
    if (!is_plain_text(t) || t->number >= room)
        return false;
    memcpy(out, t->bytes, t->number);
    out[t->number] = '\0';
    return true;
}

static bool keep_text(struct unpacker *u, const struct token *t, const char **out)
{
    if (!copy_text(t, u->text, t->number + 1))
        return false;
    *out = u->text;
    u->text += t->number + 1;
    return true;
}

static bool get_int(const struct token *t, int64_t *out)
{
    if (t->type != TOKEN_NEGATIVE && (t->type != TOKEN_UINT || t->number > INT64_MAX))
        return false;
    *out = (int64_t)t->number;
    return true;
}

static bool get_pid(const struct token *t, pid_t *out)
{
    if (t->type != TOKEN_UINT || t->number > INT32_MAX)
        return false;
    *out = (pid_t)t->number;
    return true;
}

/* A kind of a newer format reads as JOURNAL_KIND_COUNT. */
static bool get_kind(const struct token *t, enum journal_kind *out)
{
    if (!is_plain_text(t))
        return false;
    for (*out = 0; *out < JOURNAL_KIND_COUNT; (*out)++) {
        const char *name = journal_kind_name(*out);

        if (strlen(name) == t->number && memcmp(name, t->bytes, t->number) == 0)
            break;
    }
    return true;
}

static bool unpack_facts(struct unpacker *u, const struct token *map, struct facts *out)
{
    struct token key, value;

    if (map->type != TOKEN_MAP || map->number > FACTS_MAX)
        return false;
    for (out->count = 0; out->count < map->number; out->count++) {
        struct fact *fact = &out->items[out->count];

        memset(fact, 0, sizeof(*fact)); /* no leftovers behind the texts */
        if (!reader_take(&u->reader, &key) || !reader_take(&u->reader, &value) ||
            !copy_text(&key, fact->key, sizeof(fact->key)) || key.number == 0 ||
            !copy_text(&value, fact->value, sizeof(fact->value)) || facts_get(out, fact->key) != NULL)
            return false;
    }
    return true;
}

static bool unpack_map(struct unpacker *u, const struct token *map, const struct record_member *members,
                       size_t count, void *base);

static bool unpack_member(struct unpacker *u, const struct token *t, const struct record_member *m,
                          void *base)
{
    void *field = (char *)base + m->offset;

    switch (m->type) {
    case RECORD_VERSION_MARK:
        return t->type == TOKEN_UINT && t->number > 0;
    case RECORD_UINT:
        *(uint64_t *)field = t->number;
        return t->type == TOKEN_UINT;
    case RECORD_INT:
    case RECORD_STATUS:
        return get_int(t, field);
    case RECORD_PID:
        return get_pid(t, field);
    case RECORD_BOOL:
        *(bool *)field = t->number == 1;
        return t->type == TOKEN_BOOL;
    case RECORD_TEXT:
        return keep_text(u, t, field);
    case RECORD_CHARS:
        return copy_text(t, field, m->size);
    case RECORD_KIND:
        return get_kind(t, field);
    case RECORD_HASH:
        if (t->type != TOKEN_BYTES || t->number != CHAIN_HASH_SIZE)
            return false;
        memcpy(field, t->bytes, CHAIN_HASH_SIZE);
        return true;
    case RECORD_FACTS:
        return unpack_facts(u, t, field);
    case RECORD_FACTS_LENT: /* the owner of the struct has put its room there */
        return unpack_facts(u, t, *(struct facts **)field);
    case RECORD_GROUP:
        return unpack_map(u, t, m->group, m->group_count, base);
    case RECORD_TYPE_COUNT:
        break;
    }
    return false;
}

/* The member of that key, COUNT when there is none. The search begins at HINT: members mostly come in the
 * order of the table, because pack_map() writes them so. */
static size_t find_member(const struct record_member *members, size_t count, size_t hint,
                          const struct token *key)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = (hint + i) % count;

        if (strlen(members[at].key) == key->number && memcmp(members[at].key, key->bytes, key->number) == 0)
            return at;
    }
    return count;
}

static bool has_required(const struct record_member *members, size_t count, uint64_t seen)
{
    for (size_t i = 0; i < count; i++)
        if (members[i].required && (seen >> i & 1) == 0)
            return false;
    return true;
}

static bool unpack_map(struct unpacker *u, const struct token *map, const struct record_member *members,
                       size_t count, void *base)
{
    struct token key, value;
    uint64_t seen = 0;
    size_t hint = 0;

    assert(count <= 64);
    if (map->type != TOKEN_MAP)
        return false;
    for (uint64_t i = 0; i < map->number; i++) {
        if (!reader_take(&u->reader, &key) || key.type != TOKEN_TEXT)
            return false;
        size_t at = find_member(members, count, hint, &key);

        if (at == count) {
            if (!reader_skip(&u->reader))
                return false;
            continue;
        }
        if ((seen >> at & 1) != 0 || !reader_take(&u->reader, &value) ||
            !unpack_member(u, &value, &members[at], base))
            return false;
        seen |= UINT64_C(1) << at;
        hint = at + 1;
    }
    return has_required(members, count, seen);
}

static bool unpack(const void *stored, size_t size, const struct record_member *members, size_t count,
                   char *text, void *base)
{
    const uint8_t *bytes = stored;
    struct token map;

    if (size <= RECORD_CHECK_SIZE || size > JOURNAL_ENTRY_MAX ||
        record_parse_number(bytes) != chain_check(bytes + RECORD_CHECK_SIZE, size - RECORD_CHECK_SIZE))
        return false;
    struct unpacker u = { .reader = { bytes + RECORD_CHECK_SIZE, bytes + size }, .text = text };

    return reader_take(&u.reader, &map) && unpack_map(&u, &map, members, count, base) &&
           u.reader.at == u.reader.end;
}

bool record_unpack_entry(const void *stored, size_t size, struct record_entry *out)
{
    out->entry = (struct journal_entry){ .status = -1, .facts = &out->facts };
    out->facts.count = 0;
    if (!unpack(stored, size, entry_members, ARRAY_LEN(entry_members), out->text, out))
        return false;
    if (out->facts.count == 0)
        out->entry.facts = NULL;
    return out->version > RECORD_VERSION ||
           (out->version == RECORD_VERSION && out->entry.kind < JOURNAL_KIND_COUNT);
}

bool record_unpack_fold(const void *stored, size_t size, struct journal_record *out)
{
    journal_record_init(out, "");
    return unpack(stored, size, fold_members, ARRAY_LEN(fold_members), NULL, out);
}

bool record_unpack_head(const void *stored, size_t size, struct record_head *out)
{
    *out = (struct record_head){ 0 };
    return unpack(stored, size, head_members, ARRAY_LEN(head_members), NULL, out);
}

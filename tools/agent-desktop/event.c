#include "tools/agent-desktop/event.h"

#include "core/text.h"
#include "store/record.h"

static struct json *print_facts(const struct facts *facts)
{
    struct json *object = json_new_object();

    for (size_t i = 0; i < facts->count; i++)
        json_put_string(object, facts->items[i].key, facts->items[i].value);
    return object;
}

static struct json *print_members(const struct record_member *members, size_t count,
                                  const struct journal_entry *entry);

static void put_member(struct json *object, const struct record_member *m, const struct journal_entry *entry)
{
    const void *field = (const char *)entry + m->offset;

    switch (m->type) {
    case RECORD_UINT:
        json_put_int(object, m->key, (int64_t) * (const uint64_t *)field);
        break;
    case RECORD_INT:
    case RECORD_STATUS:
        json_put_int(object, m->key, *(const int64_t *)field);
        break;
    case RECORD_BOOL:
        json_put_bool(object, m->key, *(const bool *)field);
        break;
    case RECORD_TEXT:
        json_put_string(object, m->key, *(const char *const *)field);
        break;
    case RECORD_KIND:
        json_put_string(object, m->key, journal_kind_name(*(const enum journal_kind *)field));
        break;
    case RECORD_FACTS_LENT:
        json_put(object, m->key, print_facts(*(const struct facts *const *)field));
        break;
    case RECORD_GROUP:
        json_put(object, m->key, print_members(m->group, m->group_count, entry));
        break;
    case RECORD_VERSION_MARK:
    case RECORD_PID:
    case RECORD_CHARS:
    case RECORD_HASH:
    case RECORD_FACTS:
    case RECORD_TYPE_COUNT:
        break; /* none of an entry's own members */
    }
}

static struct json *print_members(const struct record_member *members, size_t count,
                                  const struct journal_entry *entry)
{
    struct json *object = json_new_object();

    for (size_t i = 0; i < count; i++)
        if (!record_is_left_out(&members[i], entry))
            put_member(object, &members[i], entry);
    return object;
}

struct json *event_json(const struct journal_entry *entry)
{
    struct json *event = print_members(record_entry_members, record_entry_member_count, entry);
    char time[32];

    text_format_time(time, entry->time_ms, true);
    json_put_string(event, "time", time); /* for people: in the place of the number */
    return event;
}

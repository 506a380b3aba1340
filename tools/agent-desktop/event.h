/* tools/agent-desktop/event.h - one journal entry as `log` shows it. */
#ifndef TOOLS_AGENT_DESKTOP_EVENT_H
#define TOOLS_AGENT_DESKTOP_EVENT_H

#include "core/journal.h"
#include "core/json.h"

/* Everything that the entry has, in the order of the store's table, with the time as people write it. */
struct json *event_json(const struct journal_entry *entry);

#endif

#include "tests/doubles/memory_journal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static struct journal_record *find_record(struct memory_journal *m, const char *name)
{
    for (size_t i = 0; i < m->record_count; i++)
        if (strcmp(m->records[i].name, name) == 0)
            return &m->records[i];
    return NULL;
}

static int memory_find(void *self, const char *name, struct journal_record *out, struct error *e)
{
    const struct journal_record *found = find_record(self, name);

    (void)e;
    if (found == NULL || !journal_record_exists(found))
        return 0;
    *out = *found;
    return 1;
}

static bool guard_holds(const struct journal_guard *g, const struct journal_record *r)
{
    if (g->absent)
        return !journal_record_exists(r);
    return (g->id == NULL || strcmp(g->id, r->id) == 0) &&
           (g->state == NULL || strcmp(g->state, r->state) == 0) &&
           (g->activity == NULL || strcmp(g->activity, r->activity) == 0) &&
           (g->token == NULL || strcmp(g->token, r->token) == 0) && (g->seq == 0 || g->seq == r->seq);
}

static void remember(struct memory_journal *m, const struct journal_entry *entry)
{
    assert(m->entry_count < MEMORY_ENTRIES);
    struct memory_entry *kept = &m->entries[m->entry_count++];

    kept->kind = entry->kind;
    snprintf(kept->name, sizeof(kept->name), "%s", entry->name);
    if (entry->kind == JOURNAL_MOVE)
        snprintf(kept->what, sizeof(kept->what), "%s %s>%s", entry->event, entry->from, entry->to);
    else if (entry->kind == JOURNAL_STEP)
        snprintf(kept->what, sizeof(kept->what), "%s %s", entry->phase, entry->step);
    else if (entry->kind == JOURNAL_OP)
        snprintf(kept->what, sizeof(kept->what), "%s", entry->command);
    else if (entry->kind == JOURNAL_END)
        snprintf(kept->what, sizeof(kept->what), "%s", entry->code);
    else
        snprintf(kept->what, sizeof(kept->what), "%s", entry->event);
}

static int memory_commit(void *self, const char *name, const struct journal_guard *guard,
                         const struct journal_entry *entries, size_t count, struct journal_record *after,
                         struct error *e)
{
    struct memory_journal *m = self;
    bool fails = ++m->calls == m->fail_at;
    struct journal_record *r = find_record(m, name);

    if (fails && m->fault == FAULT_BEFORE_COMMIT)
        return error_set(e, ERROR_STORE_FULL, 0, "planned fault before commit %d", m->calls);
    if (r == NULL) {
        assert(m->record_count < MEMORY_RECORDS);
        r = &m->records[m->record_count++];
        journal_record_init(r, name);
    }
    if (!guard_holds(guard, r)) {
        if (after != NULL)
            *after = *r;
        return 0;
    }
    if (m->full && !guard->ends)
        return error_set(e, ERROR_STORE_FULL, 0, "nothing new can be begun");
    for (size_t i = 0; i < count; i++) {
        struct journal_entry entry = entries[i];

        entry.seq = m->entry_count + 1;
        entry.mono_ms = m->boot_ms;
        entry.boot = m->boot_id;
        entry.actor_pid = m->self.pid;
        entry.actor_start = (int64_t)m->self.start;
        remember(m, &entry);
        journal_fold(r, &entry);
    }
    m->commits++;
    if (after != NULL)
        *after = *r;
    if (fails)
        return error_set(e, ERROR_STORE_FULL, 0, "planned fault after commit %d", m->calls);
    return 1;
}

const struct journal_ops memory_journal_ops = { .find = memory_find, .commit = memory_commit };

#include "tools/agent-desktop/survey.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/clock.h"
#include "core/text.h"

#define THREADS_MAX  32
#define THREAD_STACK (512 * 1024)

struct survey {
    struct context *context;
    char *const *names;
    size_t count;
    survey_fn *fn;
    void *self;
    int64_t deadline_ms;
    atomic_size_t next;
    pthread_mutex_t lock; /* one journal call, or one call of FN, at a time: neither is for two threads */
};

/* --- the journal, one thread at a time ----------------------------------------------------------------- */

static int find_locked(void *self, const char *name, struct journal_record *out, struct error *e)
{
    struct survey *s = self;

    pthread_mutex_lock(&s->lock);
    int r = journal_lmdb_ops.find(s->context->journal, name, out, e);

    pthread_mutex_unlock(&s->lock);
    return r;
}

static int commit_locked(void *self, const char *name, const struct journal_guard *guard,
                         const struct journal_entry *entries, size_t count, struct journal_record *after,
                         struct error *e)
{
    struct survey *s = self;

    pthread_mutex_lock(&s->lock);
    int r = journal_lmdb_ops.commit(s->context->journal, name, guard, entries, count, after, e);

    pthread_mutex_unlock(&s->lock);
    return r;
}

static const struct journal_ops locked_ops = { .find = find_locked, .commit = commit_locked };

/* --- looking ------------------------------------------------------------------------------------------- */

static int time_left(const struct survey *s)
{
    int64_t left = s->deadline_ms - clock_mono_ms();

    if (left < 0)
        return 0;
    return left < LOOK_DEADLINE_MS ? (int)left : LOOK_DEADLINE_MS;
}

static int open_and_look(struct survey *s, const char *name, struct sandbox *sandbox, struct error *e)
{
    struct context *c = s->context;

    if (sandbox_open(sandbox, c, name, NULL, e) < 0)
        return -1;
    if (!sandbox_may_change(sandbox))
        return 0;
    return engine_look(&c->engine, &sandbox->subject, time_left(s), &sandbox->look, e);
}

static void look_at(struct survey *s, size_t index)
{
    AUTO_SANDBOX struct sandbox sandbox = SANDBOX_CLOSED;
    struct error e = { 0 };

    if (open_and_look(s, s->names[index], &sandbox, &e) < 0)
        text_clean(sandbox.look.message, sizeof(sandbox.look.message), e.message, strlen(e.message));
    if (!sandbox.look.found)
        return;
    pthread_mutex_lock(&s->lock);
    s->fn(s->self, index, &sandbox);
    pthread_mutex_unlock(&s->lock);
}

static void *look_at_some(void *self)
{
    struct survey *s = self;

    for (size_t i; (i = atomic_fetch_add(&s->next, 1)) < s->count;)
        look_at(s, i);
    return NULL;
}

/* Helpers are a matter of time, not of success: with fewer of them than wanted the work is done as well. */
static size_t start_helpers(struct survey *s, pthread_t helpers[THREADS_MAX])
{
    size_t wanted = s->count - 1 < THREADS_MAX ? s->count - 1 : THREADS_MAX, started = 0;
    pthread_attr_t attributes;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    while (started < wanted && pthread_create(&helpers[started], &attributes, look_at_some, s) == 0)
        started++;
    pthread_attr_destroy(&attributes);
    return started;
}

void survey(struct context *c, char *const *names, size_t count, survey_fn *fn, void *self)
{
    struct survey s = { .context = c, .names = names, .count = count, .fn = fn, .self = self };
    struct engine engine = c->engine;
    pthread_t helpers[THREADS_MAX];

    if (count == 0)
        return;
    s.deadline_ms = clock_mono_ms() + SURVEY_DEADLINE_MS;
    pthread_mutex_init(&s.lock, NULL);
    /* Remembered from the first call on: that one has to come before there are threads. */
    (void)engine.host->boot_id(engine.host_self);
    c->engine.journal = &locked_ops;
    c->engine.journal_self = &s;
    size_t started = start_helpers(&s, helpers);

    look_at_some(&s);
    for (size_t i = 0; i < started; i++)
        pthread_join(helpers[i], NULL);
    c->engine = engine;
    pthread_mutex_destroy(&s.lock);
}

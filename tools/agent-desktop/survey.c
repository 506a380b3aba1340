#include "tools/agent-desktop/survey.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/text.h"

#define THREADS_MAX  32
#define THREAD_STACK (512 * 1024)
#define VIEWS_MAX    8 /* providers that have them */

/* What one provider shows of all its sandboxes at once; opened by the first who needs it. */
struct view {
    const struct provider_ops *ops;
    size_t count;         /* sandboxes that are looked at through it */
    pthread_mutex_t lock; /* held while it is opened: all others wait for it */
    bool opened;
    void *view;
    struct error e; /* why there is none */
};

struct survey {
    struct context *context;
    const struct survey_subject *subjects;
    size_t *order; /* indexes of subjects */
    size_t count;
    struct view views[VIEWS_MAX];
    size_t view_count;
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

static struct view *find_view(struct survey *s, const struct provider_ops *ops)
{
    for (size_t i = 0; i < s->view_count; i++)
        if (s->views[i].ops == ops)
            return &s->views[i];
    return NULL;
}

static int use_view(struct survey *s, struct sandbox *sandbox, struct error *e)
{
    struct view *v = find_view(s, sandbox->ops);

    if (v == NULL)
        return 0;
    pthread_mutex_lock(&v->lock);
    if (!v->opened)
        (void)v->ops->view_open(&s->context->root, v->count, time_left(s), &v->view, &v->e);
    v->opened = true;
    pthread_mutex_unlock(&v->lock);
    sandbox->place.view = v->view;
    *e = v->e;
    return e->code == ERROR_NONE ? 0 : -1;
}

static int open_and_look(struct survey *s, const char *name, struct sandbox *sandbox, struct error *e)
{
    struct context *c = s->context;

    if (sandbox_open(sandbox, c, name, NULL, e) < 0)
        return -1;
    if (!sandbox_may_change(sandbox))
        return 0;
    if (use_view(s, sandbox, e) < 0)
        return -1;
    return engine_look(&c->engine, &sandbox->subject, time_left(s), &sandbox->look, e);
}

static void look_at(struct survey *s, size_t index)
{
    AUTO_SANDBOX struct sandbox sandbox = SANDBOX_CLOSED;
    struct error e = { 0 };

    if (open_and_look(s, s->subjects[index].name, &sandbox, &e) < 0)
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
        look_at(s, s->order[i]);
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

/* --- views --------------------------------------------------------------------------------------------- */

/* Counts the subjects of each provider that has views. */
static void prepare_views(struct survey *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct provider_ops *ops = s->subjects[i].ops;
        struct view *v = find_view(s, ops);

        if (v == NULL && ops->view_open != NULL && s->view_count < VIEWS_MAX) {
            v = &s->views[s->view_count++];
            v->ops = ops;
            pthread_mutex_init(&v->lock, NULL);
        }
        if (v != NULL)
            v->count++;
    }
}

/* One of each view first, so that it is opened while others are looked at; then those that need none; last
 * those that may have to wait for a view. */
static void put_in_order(struct survey *s)
{
    bool begun[VIEWS_MAX] = { false };
    unsigned char *ranks = mem_alloc(s->count);
    size_t done = 0;

    for (size_t i = 0; i < s->count; i++) {
        const struct view *v = find_view(s, s->subjects[i].ops);

        ranks[i] = v == NULL ? 1 : begun[v - s->views] ? 2 : 0;
        if (v != NULL)
            begun[v - s->views] = true;
    }
    s->order = mem_grow(NULL, s->count, sizeof(*s->order));
    for (unsigned char rank = 0; rank < 3; rank++)
        for (size_t i = 0; i < s->count; i++)
            if (ranks[i] == rank)
                s->order[done++] = i;
    free(ranks);
}

static void close_views(struct survey *s)
{
    for (size_t i = 0; i < s->view_count; i++) {
        s->views[i].ops->view_close(s->views[i].view);
        pthread_mutex_destroy(&s->views[i].lock);
    }
}

void survey(struct context *c, const struct survey_subject *subjects, size_t count, survey_fn *fn, void *self)
{
    struct survey s = { .context = c, .subjects = subjects, .count = count, .fn = fn, .self = self };
    struct engine engine = c->engine;
    pthread_t helpers[THREADS_MAX];

    if (count == 0)
        return;
    s.deadline_ms = clock_mono_ms() + SURVEY_DEADLINE_MS;
    prepare_views(&s);
    put_in_order(&s);
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
    close_views(&s);
    free(s.order);
    pthread_mutex_destroy(&s.lock);
}

/* One look at many: a project is listed for the first who needs one of it, while all others wait; then each
 * finds its own.
 *
 * A page can be asked for only when the one before has come, so the time is that of the pages one after the
 * other. A project is listed from both ends at once, until the two meet: that is half of them. Who is on
 * neither side, because others came or went meanwhile, is asked for by itself. */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "providers/vercel/vercel.h"

#define WORTH_WHILE                                                                                          \
    32 /* sandboxes: fewer are asked for one by one, side by side, in the time of one request */

struct project {
    char team[VERCEL_ID_SIZE], project[VERCEL_ID_SIZE];
    struct hosted *items; /* by name */
    size_t count;
    struct error trouble; /* why it could not be listed */
    pthread_mutex_t lock; /* over items, while it is listed */
    struct project *next;
};

struct view {
    struct credentials credentials;
    struct error trouble; /* why there are none */
    int64_t deadline_ms;  /* mono; for all that is listed */
    pthread_mutex_t lock; /* over what follows, and while a project is listed */
    struct project *projects;
};

int vercel_view_open(const struct root *root, size_t count, int deadline_ms, void **view, struct error *e)
{
    (void)root, (void)e; /* without credentials each look fails, saying so */
    *view = NULL;
    if (count <= WORTH_WHILE)
        return 0;
    struct view *v = mem_alloc(sizeof(*v));

    vercel_find_credentials(&v->credentials, &v->trouble);
    v->deadline_ms = clock_mono_ms() + deadline_ms;
    pthread_mutex_init(&v->lock, NULL);
    *view = v;
    return 0;
}

void vercel_view_close(void *view)
{
    struct view *v = view;

    if (v == NULL)
        return;
    for (struct project *p = v->projects, *next; p != NULL; p = next) {
        next = p->next;
        pthread_mutex_destroy(&p->lock);
        free(p->items);
        free(p);
    }
    credentials_done(&v->credentials);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

/* --- listing ------------------------------------------------------------------------------------------ */

struct half {
    const struct view *view;
    struct project *project;
    enum api_order order;
    struct error trouble;
};

static const struct hosted *find_seen(const struct project *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->items[i].name, name) == 0)
            return &p->items[i];
    return NULL;
}

static int add(void *self, const struct hosted *one, struct error *e)
{
    struct project *p = ((struct half *)self)->project;

    (void)e;
    pthread_mutex_lock(&p->lock);
    bool met = find_seen(p, one->name) != NULL;

    if (!met) {
        p->items = mem_grow(p->items, p->count + 1, sizeof(*p->items));
        p->items[p->count++] = *one;
    }
    pthread_mutex_unlock(&p->lock);
    return met;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct hosted *)a)->name, ((const struct hosted *)b)->name);
}

static int list_half(struct half *h)
{
    const struct view *v = h->view;
    int64_t left_ms = v->deadline_ms - clock_mono_ms();
    struct api *api;

    if (vercel_open_api(&v->credentials, &v->trouble, h->project->team, h->project->project, &api,
                        &h->trouble) < 0)
        return -1;
    int r = api_list(api, h->order, left_ms > 0 ? (int)left_ms : 0, add, h, &h->trouble);

    api_close(api);
    return r;
}

static void *list_other_half(void *self)
{
    (void)list_half(self);
    return NULL;
}

/* Either half ends where the other began or has come to, so one that came to its end is enough: also when the
 * other has failed, or could not have a thread. */
static int list(const struct view *v, struct project *p, struct error *e)
{
    struct half newest = { .view = v, .project = p, .order = API_NEWEST_FIRST };
    struct half oldest = { .view = v, .project = p, .order = API_OLDEST_FIRST };
    pthread_t helper;
    bool helped = pthread_create(&helper, NULL, list_other_half, &oldest) == 0;
    int r = list_half(&newest);

    if (helped)
        pthread_join(helper, NULL);
    if (p->count > 0)
        qsort(p->items, p->count, sizeof(*p->items), compare);
    if (r == 0 || (helped && oldest.trouble.code == ERROR_NONE))
        return 0;
    *e = newest.trouble;
    return -1;
}

static struct project *find_project(const struct view *v, const char *team, const char *project)
{
    for (struct project *p = v->projects; p != NULL; p = p->next)
        if (strcmp(p->team, team) == 0 && strcmp(p->project, project) == 0)
            return p;
    return NULL;
}

static const struct project *get_project(struct view *v, const char *team, const char *project)
{
    pthread_mutex_lock(&v->lock);
    struct project *p = find_project(v, team, project);

    if (p == NULL) {
        p = mem_alloc(sizeof(*p));
        strncpy(p->team, team, sizeof(p->team) - 1);
        strncpy(p->project, project, sizeof(p->project) - 1);
        pthread_mutex_init(&p->lock, NULL);
        (void)list(v, p, &p->trouble);
        p->next = v->projects;
        v->projects = p;
    }
    pthread_mutex_unlock(&v->lock);
    return p; /* from now on it stays as it is */
}

/* --- finding ------------------------------------------------------------------------------------------ */

/* Has the sandbox been begun again by somebody else since? */
static bool is_another(const struct facts *facts, const struct hosted *listed)
{
    const char *session = facts_get(facts, "session");

    return session != NULL && strcmp(session, listed->session) != 0;
}

/* A listing tells the sandbox's own status, which is coarse. "running" may be a session that is pending yet:
 * not the one that is recorded, when that is said to have an expiry. "stopped" may be one that failed, or was
 * aborted: not one that was seen to have ended, for that is final. If that was aborted, it is lost with its
 * snapshot. Everything else is on its way, or seldom. */
static bool is_proof(const struct facts *facts, const struct hosted *listed)
{
    switch (listed->status) {
    case HOSTED_RUNNING:
        return listed->expires_ms > 0 && !is_another(facts, listed);
    case HOSTED_STOPPED:
        return vercel_has_ended(facts, listed->session) && (listed->has_snapshot || !listed->persistent);
    default:
        return false;
    }
}

int vercel_view_find(void *view, const struct facts *facts, struct hosted *out, struct error *e)
{
    const char *team = facts_get(facts, "team"), *project = facts_get(facts, "project");
    const char *hosted = facts_get(facts, "hosted"), *id = facts_get(facts, "id");

    assert(view != NULL);
    if (team == NULL || project == NULL || hosted == NULL || id == NULL)
        return API_GONE;
    const struct project *p = get_project(view, team, project);
    struct hosted key = { .expires_ms = 0 };

    if (p->trouble.code != ERROR_NONE) {
        *e = p->trouble;
        return -1;
    }
    strncpy(key.name, hosted, sizeof(key.name) - 1);
    const struct hosted *found =
        p->count == 0 ? NULL : bsearch(&key, p->items, p->count, sizeof(*p->items), compare);

    if (found == NULL || strcmp(found->tag, id) != 0 || !is_proof(facts, found))
        return API_GONE;
    *out = *found;
    return API_FOUND;
}

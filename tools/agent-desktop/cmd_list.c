#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text.h"
#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/providers.h"
#include "tools/agent-desktop/survey.h"

struct listing {
    struct context context;
    const char *state;    /* only these; NULL: all */
    const char *provider; /* the same */
    char **items;         /* as JSON text, in the order of names; NULL: left out, or not looked at yet */
    size_t count;
    struct survey_subject *subjects; /* those that have to be looked at ... */
    size_t *indexes;                 /* ... and where in items they belong */
    size_t pending;
};

static void show(struct listing *l, size_t index, const struct reply_view *view)
{
    if (l->state != NULL && strcmp(l->state, fsm_state_name(view->place)) != 0)
        return;
    AUTO_JSON struct json *item = reply_sandbox(view, &l->context.root);

    l->items[index] = json_print(item);
}

static void add_pending(struct listing *l, const char *name, const struct provider_ops *ops)
{
    l->subjects = mem_grow(l->subjects, l->pending + 1, sizeof(*l->subjects));
    l->indexes = mem_grow(l->indexes, l->pending + 1, sizeof(*l->indexes));
    l->subjects[l->pending] = (struct survey_subject){ .name = mem_copy_text(name), .ops = ops };
    l->indexes[l->pending++] = l->count;
}

/* What cannot change by itself is shown as it is recorded. */
static int take_record(void *self, const struct journal_record *r, struct error *e)
{
    struct listing *l = self;
    const struct provider_ops *ops = provider_find(r->provider);
    struct reply_view view = { .name = r->name, .provider = r->provider, .message = "", .reason = r->reason };

    (void)e;
    if (l->provider != NULL && strcmp(l->provider, r->provider) != 0)
        return 0;
    view.place = fsm_parse_place(r->state, r->activity);
    view.known = sandbox_find_known(ops, r);
    view.created_ms = r->created_ms;
    l->items = mem_grow(l->items, l->count + 1, sizeof(*l->items));
    l->items[l->count] = NULL;
    if (sandbox_record_may_change(ops, r))
        add_pending(l, r->name, ops);
    else
        show(l, l->count, &view);
    l->count++;
    return 0;
}

static void take_look(void *self, size_t index, const struct sandbox *s)
{
    struct listing *l = self;
    struct reply_view view = sandbox_view(s);

    show(l, l->indexes[index], &view);
}

static int read_options(struct listing *l, const struct args *args, struct error *e)
{
    l->state = args_value(args, "state");
    l->provider = args_value(args, "provider");
    if (l->provider != NULL && provider_choose(l->provider, e) == NULL)
        return -1;
    if (l->state == NULL || fsm_parse_state(l->state) != FSM_NONE)
        return 0;
    return error_set(e, ERROR_INVALID_ARGS, 0,
                     "--state: '%s' is none of working, needs_setup, running, stopped, broken", l->state);
}

static int collect(struct listing *l, struct error *e)
{
    struct context *c = &l->context;

    if (context_open(c, CONTEXT_READ, e) < 0 || journal_each_record(c->journal, take_record, l, e) < 0)
        return -1;
    if (l->pending == 0)
        return 0;
    if (context_upgrade(c, CONTEXT_WRITE, e) < 0)
        return -1;
    survey(c, l->subjects, l->pending, take_look, l);
    return 0;
}

static void print_listing(const struct listing *l, struct reply *reply)
{
    AUTO_JSON struct json *nothing = json_new_object();

    reply_open_list(reply, "sandboxes");
    for (size_t i = 0; i < l->count; i++)
        if (l->items[i] != NULL)
            reply_add_item(reply, l->items[i]);
    reply_close_list(reply, nothing);
}

static void listing_done(struct listing *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->items[i]);
    for (size_t i = 0; i < l->pending; i++)
        free(l->subjects[i].name);
    free(l->items);
    free(l->subjects);
    free(l->indexes);
    context_close(&l->context);
}

int cmd_list(const struct args *args, struct reply *reply, struct error *e)
{
    struct listing l = { .context = CONTEXT_CLOSED };
    int failed = read_options(&l, args, e);

    if (failed == 0)
        failed = collect(&l, e);
    if (failed == 0)
        print_listing(&l, reply);
    listing_done(&l);
    return failed;
}

#include <stdio.h>

#include "core/mem.h"
#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/context.h"
#include "tools/agent-desktop/providers.h"

#define FREE_NAME_TRIES 1000

/* "desktop", or the first "desktop-N" that no sandbox has. */
static int find_free_name(struct context *c, char out[JOURNAL_NAME_SIZE], struct error *e)
{
    struct journal_record record;

    snprintf(out, JOURNAL_NAME_SIZE, "desktop");
    for (int n = 2; n < FREE_NAME_TRIES; n++) {
        int found = journal_lmdb_ops.find(c->journal, out, &record, e);

        if (found <= 0)
            return found;
        snprintf(out, JOURNAL_NAME_SIZE, "desktop-%d", n);
    }
    return 0;
}

static int describe(struct context *c, const struct provider_ops *ops, struct json **out, struct error *e)
{
    struct provider_host_report report = { .state = PROVIDER_NONE };
    char name[JOURNAL_NAME_SIZE] = "";

    if (ops->inspect_host(&c->root, &report, e) < 0)
        return -1;
    if (report.state == PROVIDER_READY && find_free_name(c, name, e) < 0)
        return -1;
    *out = reply_provider(ops->name, &report, name);
    return 0;
}

static int describe_all(struct context *c, struct json **out, struct error *e)
{
    AUTO_JSON struct json *data = json_new_object();
    struct json *providers = json_new_array(), *one;

    json_put(data, "providers", providers);
    for (const struct provider_ops *const *p = provider_list(); *p != NULL; p++) {
        if (describe(c, *p, &one, e) < 0)
            return -1;
        json_add(providers, one);
    }
    *out = steal(&data);
    return 0;
}

int cmd_install(const struct args *args, struct reply *reply, struct error *e)
{
    const char *name = args->positional[0];
    const struct provider_ops *ops = name == NULL ? NULL : provider_choose(name, e);
    AUTO_CONTEXT struct context c = CONTEXT_CLOSED;

    if ((name != NULL && ops == NULL) || context_open(&c, CONTEXT_READ, e) < 0)
        return -1;
    return ops == NULL ? describe_all(&c, &reply->data, e) : describe(&c, ops, &reply->data, e);
}

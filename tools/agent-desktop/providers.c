#include "tools/agent-desktop/providers.h"

#include "core/text.h"

#define PROVIDERS_MAX 8

const struct provider_ops *provider_choose(const char *name, struct error *e)
{
    const struct provider_ops *ops = provider_find(name == NULL ? provider_default_name() : name);
    const char *names[PROVIDERS_MAX];
    struct text all = { 0 };
    size_t count = 0;

    if (ops != NULL)
        return ops;
    for (const struct provider_ops *const *p = provider_list(); *p != NULL && count < PROVIDERS_MAX; p++) {
        names[count++] = (*p)->name;
        text_print(&all, "%s%s", all.size == 0 ? "" : ", ", (*p)->name);
    }
    const char *nearest = name == NULL ? NULL : text_find_nearest(name, names, count);

    error_set(e, ERROR_PROVIDER_NOT_FOUND, 0, "there is no provider '%s'%s%s%s; this build has: %s",
              name == NULL ? provider_default_name() : name, nearest == NULL ? "" : " (did you mean '",
              nearest == NULL ? "" : nearest, nearest == NULL ? "" : "'?)", text_get(&all));
    text_done(&all);
    return NULL;
}

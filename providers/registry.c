#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include <sys/utsname.h>

#include "providers/linux/linux.h"
#include "providers/macos/macos.h"
#include "providers/provider.h"
#include "providers/vercel/vercel.h"

static const struct provider_ops *const providers[] = { &linux_ops, &macos_ops, &vercel_ops, NULL };

/* What every provider must have; what may be absent is said in provider.h. */
static bool is_complete(const struct provider_ops *p)
{
    return p->name != NULL && p->summary != NULL && p->inspect_host != NULL && p->create_options != NULL &&
           p->start_options != NULL && p->open != NULL && p->close != NULL && p->observe != NULL &&
           p->exec != NULL && p->plan[OPERATION_CREATE].steps != NULL &&
           p->plan[OPERATION_START].steps != NULL && p->plan[OPERATION_STOP].steps != NULL &&
           p->plan[OPERATION_REMOVE].steps != NULL &&
           p->can_clone == (p->plan[OPERATION_CLONE].steps != NULL) &&
           (p->view_open == NULL) == (p->view_close == NULL);
}

const struct provider_ops *const *provider_list(void)
{
    for (size_t i = 0; providers[i] != NULL; i++)
        assert(is_complete(providers[i]));
    return providers;
}

const struct provider_ops *provider_find(const char *name)
{
    for (const struct provider_ops *const *p = provider_list(); *p != NULL; p++)
        if (strcmp((*p)->name, name) == 0)
            return *p;
    return NULL;
}

const char *provider_default_name(void)
{
    static const struct {
        const char *system, *provider; /* as uname(2) names it */
    } defaults[] = { { "Linux", "linux" }, { "Darwin", "macos" } };
    struct utsname name;

    for (size_t i = 0; uname(&name) == 0 && i < ARRAY_LEN(defaults); i++)
        if (strcmp(name.sysname, defaults[i].system) == 0)
            return defaults[i].provider;
    return providers[0]->name;
}

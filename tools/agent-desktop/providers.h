/* tools/agent-desktop/providers.h - choosing a provider by what a command line says. */
#ifndef TOOLS_AGENT_DESKTOP_PROVIDERS_H
#define TOOLS_AGENT_DESKTOP_PROVIDERS_H

#include "core/error.h"
#include "providers/provider.h"

/* The provider of that name, this system's for NULL. NULL with PROVIDER_NOT_FOUND that names the nearest. */
const struct provider_ops *provider_choose(const char *name, struct error *e);

#endif

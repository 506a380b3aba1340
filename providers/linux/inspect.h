/* providers/linux/inspect.h - is this host fit for linux sandboxes? Checked by doing: a forked child makes
 * the namespaces, a procfs and an overlay on the state root's file system. All findings at once, each with
 * its fix. */
#ifndef PROVIDERS_LINUX_INSPECT_H
#define PROVIDERS_LINUX_INSPECT_H

#include "providers/provider.h"

/* provider_ops.inspect_host. READY or UNAVAILABLE: linux has nothing to install. READY may come with a
 * message about what is not as good as it could be. */
int linux_inspect_host(const struct root *root, struct provider_host_report *out, struct error *e);

#endif

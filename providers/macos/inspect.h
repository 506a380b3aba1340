/* providers/macos/inspect.h - is this a Mac that can run macOS guests, and is the VM host built? */
#ifndef PROVIDERS_MACOS_INSPECT_H
#define PROVIDERS_MACOS_INSPECT_H

#include "fsm/step.h"
#include "providers/provider.h"

/* provider_ops.inspect_host. */
int macos_inspect_host(const struct root *root, struct provider_host_report *out, struct error *e);

/* plan[OPERATION_INSTALL]: write-files, build-vmhost, build-helper. Their handle is the const struct
 * provider_place * itself (without a name). */
extern const struct step macos_install_steps[];

#endif

/* providers/macos/pin.h - the guest's host key: written into its stopped disk, and pinned. */
#ifndef PROVIDERS_MACOS_PIN_H
#define PROVIDERS_MACOS_PIN_H

#include <stdbool.h>

#include "providers/macos/macos.h"

/* A fresh key into the disk; its public half goes to OUTPUTS as "hostkey", and to known_hosts. *written is
 * false, and nothing is changed, when the guest has no key to be replaced: Remote Login was never on. */
int pin_write(struct macos_vm *vm, struct facts *outputs, bool *written, struct error *e);

/* known_hosts, for people: `ssh -o UserKnownHostsFile=... -o HostKeyAlias=NAME`. The fact is what counts, so
 * a failure is nobody's. */
void pin_publish(const struct macos_vm *vm, const char *blob);

#endif

/* providers/macos/options.h - what --set accepts for a macOS guest. */
#ifndef PROVIDERS_MACOS_OPTIONS_H
#define PROVIDERS_MACOS_OPTIONS_H

#include "providers/provider.h"

extern const struct provider_option macos_create_options[]; /* ipsw, user */
extern const struct provider_option macos_start_options[];  /* title */

/* provider_ops.check_create: exactly one source, and the account's name. */
int macos_check_create(void *self, struct facts *facts, struct error *e);

#endif

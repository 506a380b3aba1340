/* providers/linux/options.h - what --set accepts for a linux sandbox. */
#ifndef PROVIDERS_LINUX_OPTIONS_H
#define PROVIDERS_LINUX_OPTIONS_H

#include "providers/provider.h"

extern const struct provider_option linux_create_options[]; /* screen, net */
extern const struct provider_option linux_start_options[];  /* none */

/* provider_ops.check_create: records the defaults of what is not set, so that a later build with other
 * defaults does not change an old sandbox. A clone comes with its source's values. */
int linux_check_create(void *self, struct facts *facts, struct error *e);

#endif

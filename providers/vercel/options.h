/* providers/vercel/options.h - the --set options of hosted sandboxes, and the body of the request that they
 * make. */
#ifndef PROVIDERS_VERCEL_OPTIONS_H
#define PROVIDERS_VERCEL_OPTIONS_H

#include "core/facts.h"
#include "core/json.h"
#include "providers/provider.h"

#define VERCEL_TAGS_MAX 5 /* of a sandbox, ours among them (the service's documentation) */

extern const struct provider_option vercel_create_options[], vercel_start_options[];

/* Fills what is not given: image (unless runtime, snapshot or from is), timeout, persistent. INVALID_ARGS for
 * what does not go together. */
int vercel_check_create(void *self, struct facts *facts, struct error *e);

/* The body of a create, or of a fork (CLONE: only what is given for it), without projectId: NAME, what
 * "set.*" of FACTS says, the unrecorded options ("env.KEY=VALUE", "tag.KEY=VALUE", NULL-terminated), the tags
 * of the source (NULL: none) and above them ours, with ID. May hold secrets, which json_free() frees and does
 * not overwrite. */
struct json *vercel_print_body(const struct facts *facts, char *const *unrecorded, bool clone,
                               const char *name, const char *id, const struct json *source_tags);

/* Was an image asked for that has a desktop? With runtime= there is none to look for. */
bool vercel_wants_desktop(const struct facts *facts);

#endif

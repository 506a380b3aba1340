/* tools/agent-desktop/settings.h - the --set options, checked against a provider's table before anything is
 * done. */
#ifndef TOOLS_AGENT_DESKTOP_SETTINGS_H
#define TOOLS_AGENT_DESKTOP_SETTINGS_H

#include "core/facts.h"
#include "core/text.h"
#include "providers/provider.h"
#include "tools/agent-desktop/args.h"

#define SETTING_FROM   "from" /* --set from=SANDBOX: any provider that can clone has it */
#define SETTING_PREFIX "set." /* facts that are options begin with it */

#define SETTING_UNRECORDED_MAX (64 * 1024) /* bytes of the key, and of the value, of an unrecorded one */

struct settings {       /* starts as { 0 }; settings_done() */
    struct facts facts; /* "set.KEY" as the provider's check wrote it; with set.from */
    const char *source; /* the value of from; NULL when it is not given */
    char **unrecorded; /* "KEY=VALUE" for provider_place.unrecorded, NULL-terminated; NULL: none. These copies
                        * settings_done() overwrites; the provider's request holds others while it is made */
    size_t unrecorded_count;
    struct text recorded; /* the options for the journal: "screen=1280x800 net=none env.LANG" */
    size_t recorded_not;  /* how many it had no room for */
};

/* Reads every --set of ARGS by the rows of OPTIONS. Fails with INVALID_ARGS that names the key and what is
 * accepted: an unknown key, one given twice, a missing '=', a value that the row's check rejects. Either way
 * the values of unrecorded options, and of keys that OPTIONS does not have, are overwritten in ARGS, which
 * means in argv: nobody can read them there afterwards. To be called before a fork, and as soon as the
 * provider is known. */
int settings_read(const struct provider_ops *ops, const struct provider_option *options, bool with_from,
                  const struct args *args, struct settings *out, struct error *e);

/* The options of a clone: the source's where none is given here. GIVEN: what settings_read() read; OUT holds
 * that already, and the provider's defaults. false when there are too many. */
bool settings_inherit(const struct facts *given, const struct facts *source, struct facts *out);

/* Options of one start end with it: each key of OPTIONS that is not in OUT, and is no option of create, is
 * removed from what is recorded. */
bool settings_forget(const struct provider_ops *ops, struct facts *out);

void settings_done(struct settings *s);
#define AUTO_SETTINGS __attribute__((cleanup(settings_done)))

#endif

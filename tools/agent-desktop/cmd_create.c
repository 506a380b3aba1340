#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/lock.h"
#include "core/text.h"
#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/operate.h"
#include "tools/agent-desktop/providers.h"
#include "tools/agent-desktop/settings.h"

#define SOURCE_LOCK_WAIT_MS 1000 /* as for the op lock of the sandbox itself */

/* Is the source there, this provider's, and at rest? The way out of its state is what would also have to come
 * before its removal: a stop. */
static int check_source(const struct sandbox *source, const struct provider_ops *ops, struct reply *reply,
                        struct error *e)
{
    enum fsm_place place = source->look.place;

    if (source->ops != ops)
        return error_set(e, ERROR_INVALID_ARGS, 0, "--set from: '%s' belongs to the %s provider, not to %s",
                         source->place.name, source->provider, ops->name);
    if (fsm_is_cloneable(place))
        return 0;
    sandbox_fail(source, reply, fsm_find_next_after_refusal(place, source->look.known, EV_REMOVE));
    return error_set(e, ERROR_INVALID_STATE, 0,
                     "cannot clone '%s' while it is %s; a clone needs a stopped source", source->place.name,
                     fsm_place_name(place));
}

/* Shares the source's op lock, so that nothing starts or removes it while it is copied. */
static int lock_source(struct operate *o, struct sandbox *source, struct error *e)
{
    char file[NAME_MAX_LENGTH + sizeof(".op")];

    snprintf(file, sizeof(file), "%s.op", source->place.name);
    int taken = lock_take(o->context.root.locks, file, LOCK_SHARED, SOURCE_LOCK_WAIT_MS, &o->source_lock, e);

    if (taken < 0)
        return -1;
    int current = taken == 0 ? 0 : sandbox_is_current(source, &o->context, e);

    if (current == 0)
        return error_set(e, ERROR_SANDBOX_BUSY, 0, "another command is working on the source '%s'",
                         source->place.name);
    return current < 0 ? -1 : 0;
}

/* The provider does not take the source. Where its state is why, the source's next command leads out of it;
 * else the source may have failed to be seen, or is none that any command can make fit. */
static int fail_check(const struct sandbox *source, struct reply *reply, struct error *e)
{
    if (e->code == ERROR_INVALID_STATE)
        sandbox_fail(source, reply, fsm_find_next(source->look.place, source->look.known));
    else
        sandbox_fail_look(source, reply, NEXT_NONE, e);
    return -1;
}

/* Everything about the source of a clone: looked at, locked, its options taken over. */
static int claim_source(struct operate *o, const struct settings *given, struct facts *facts,
                        struct reply *reply, struct error *e)
{
    AUTO_SANDBOX struct sandbox source = SANDBOX_CLOSED;

    if (root_check_name(given->source, e) < 0)
        return -1;
    if (sandbox_see(&source, &o->context, given->source, e) < 0) {
        sandbox_fail_look(&source, reply, NEXT_NONE, e);
        return -1;
    }
    if (check_source(&source, o->sandbox.ops, reply, e) < 0)
        return -1;
    if (operate_check_host(o, e) < 0 || operate_upgrade(o, e) < 0)
        return operate_fail(o, reply, e);
    if (lock_source(o, &source, e) < 0) {
        sandbox_fail(&source, reply, (struct fsm_next){ NEXT_STATUS, false });
        return -1;
    }
    if (!settings_inherit(&given->facts, &source.look.record.facts, facts))
        return error_set(e, ERROR_INVALID_ARGS, 0, "'%s' has too many options to take over", given->source);
    o->source_facts = source.look.record.facts;
    o->sandbox.place.source = given->source;
    o->sandbox.place.source_facts = &o->source_facts;
    o->event = EV_CLONE;
    o->operation = OPERATION_CLONE;
    if (o->sandbox.ops->check_clone != NULL && o->sandbox.ops->check_clone(o->sandbox.handle, e) < 0)
        return fail_check(&source, reply, e);
    return 0;
}

/* Whatever lies in the new sandbox's place is somebody's: it is neither taken over nor removed. */
static int check_place(const struct operate *o, struct reply *reply, struct error *e)
{
    const struct root *root = &o->context.root;
    const char *name = o->sandbox.place.name;
    struct stat st;

    if (root->sandboxes < 0 || fstatat(root->sandboxes, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    sandbox_fail(&o->sandbox, reply, (struct fsm_next){ NEXT_CREATE, true });
    return error_set(e, ERROR_SANDBOX_EXISTS, 0,
                     "'%s/sandboxes/%s' is in the way, and no sandbox: move it away", root->path, name);
}

/* What must hold before anything is done for a name that is free. */
static int prepare(struct operate *o, const struct settings *given, struct facts *facts, struct reply *reply,
                   struct error *e)
{
    const struct provider_ops *ops = o->sandbox.ops;

    if (check_place(o, reply, e) < 0)
        return -1;
    if (ops->check_create != NULL && ops->check_create(o->sandbox.handle, facts, e) < 0)
        return operate_fail(o, reply, e);
    return given->source == NULL ? 0 : claim_source(o, given, facts, reply, e);
}

int cmd_create(const struct args *args, struct reply *reply, struct error *e)
{
    AUTO_OPERATE struct operate o = OPERATE_CLOSED;
    AUTO_SETTINGS struct settings given = { 0 };
    const char *provider = args_value(args, "provider");
    const struct provider_ops *ops = provider_choose(provider, e);

    o.command = args->command;
    o.event = EV_CREATE;
    o.operation = OPERATION_CREATE;
    o.needs_host = true;
    if (ops == NULL || root_check_name(args->positional[0], e) < 0 || operate_read_wait(&o, args, e) < 0 ||
        settings_read(ops, ops->create_options, ops->can_clone, args, &given, e) < 0)
        return -1;
    if (operate_open(&o, args->positional[0], ops->name, CONTEXT_READ, e) < 0)
        return operate_fail(&o, reply, e);
    struct facts facts = given.facts;

    o.sandbox.place.unrecorded = given.unrecorded;

    if (o.sandbox.look.found) { /* to be refused, and recorded as that: whatever else is wrong */
        if (operate_upgrade(&o, e) < 0)
            return operate_fail(&o, reply, e);
    } else if (prepare(&o, &given, &facts, reply, e) < 0) {
        return -1;
    }
    o.facts = &facts;
    o.options = given.recorded.bytes;
    return operate_run(&o, reply, e);
}

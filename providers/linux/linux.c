#include "providers/linux/linux.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"
#include "providers/home.h"
#include "providers/linux/inspect.h"
#include "providers/linux/options.h"
#include "providers/linux/session.h"

#define GRACE_MS 5000

/* "/" as a home is what accounts get that are not meant to be used: nothing can be mounted over it. */
static bool is_usable_home(const char *home)
{
    return home != NULL && home[0] == '/' && strcmp(home, "/") != 0;
}

static bool copy_field(char *out, size_t room, const char *value)
{
    int size = snprintf(out, room, "%s", value);

    return size > 0 && (size_t)size < room;
}

int linux_user_find(struct linux_user *out, struct error *e)
{
    const struct passwd *entry;

    *out = (struct linux_user){ .uid = geteuid(), .gid = getegid() };
    errno = 0;
    entry = getpwuid(out->uid);
    if (entry == NULL)
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, errno, "The user id %u has no passwd entry.",
                         out->uid);
    if (!is_usable_home(entry->pw_dir) || !copy_field(out->home, sizeof(out->home), entry->pw_dir))
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0, "The user '%s' has no home directory.",
                         entry->pw_name);
    if (!copy_field(out->name, sizeof(out->name), entry->pw_name))
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0, "The user id %u has no usable name.", out->uid);
    if (entry->pw_shell == NULL || !copy_field(out->shell, sizeof(out->shell), entry->pw_shell))
        copy_field(out->shell, sizeof(out->shell), "/bin/sh"); /* passwd(5): an empty field means that */
    return 0;
}

int linux_sandbox_open_dir(struct linux_sandbox *s, struct error *e)
{
    return home_open(s->place->root, s->place->name, &s->dir, e);
}

static int linux_open(const struct provider_place *place, void **self, struct error *e)
{
    struct linux_sandbox *s = mem_alloc(sizeof(*s));

    (void)e;
    s->place = place;
    s->dir = -1;
    snprintf(s->path, sizeof(s->path), "%s/sandboxes/%s", place->root->path, place->name);
    *self = s;
    return 0;
}

static void linux_close(void *self)
{
    struct linux_sandbox *s = self;

    if (s == NULL)
        return;
    session_start_free(s->starting);
    util_close_fd(&s->dir);
    free(s);
}

const struct provider_ops linux_ops = {
    .name = "linux",
    .summary = "a desktop of its own over this system's files",
    .inspect_host = linux_inspect_host,
    .create_options = linux_create_options,
    .start_options = linux_start_options,
    .can_clone = true,
    .open = linux_open,
    .close = linux_close,
    .check_create = linux_check_create,
    .plan = {
        [OPERATION_CREATE] = { .steps = linux_create_steps, .grace_ms = -1 },
        [OPERATION_CLONE] = { .steps = linux_clone_steps, .grace_ms = GRACE_MS },
        [OPERATION_START] = { .steps = linux_start_steps, .grace_ms = GRACE_MS, .bound_ms = LINUX_START_BOUND_MS },
        [OPERATION_STOP] = { .steps = linux_stop_steps, .grace_ms = GRACE_MS },
        [OPERATION_REMOVE] = { .steps = linux_remove_steps, .grace_ms = -1 },
    },
    .observe = linux_observe,
    .exec = linux_exec,
};

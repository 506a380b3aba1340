#include "providers/linux/obstacles.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does the first line of a file of /proc start with TEXT? */
static int starts_with(const char *path, const char *text)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    char bytes[16];
    ssize_t size = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

    return size >= (ssize_t)strlen(text) && memcmp(bytes, text, strlen(text)) == 0;
}

static int is_switched_off(void)
{
    return starts_with("/proc/sys/kernel/unprivileged_userns_clone", "0");
}

static int is_restricted_by_apparmor(void)
{
    return geteuid() != 0 && starts_with("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1");
}

/* Containers filter system calls and say so in no common place: a marker file, or a filter on ourselves. */
static int is_in_container(void)
{
    FILE *status;
    char line[128];
    int mode = 0;

    if (access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0)
        return 1;
    status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(line, sizeof(line), status) != NULL)
        if (strncmp(line, "Seccomp:", strlen("Seccomp:")) == 0)
            mode = (int)strtol(line + strlen("Seccomp:"), NULL, 10);
    if (status != NULL)
        fclose(status);
    return mode != 0;
}

/* The first row that fits wins. */
static const struct obstacle obstacles[] = {
    { .stages = OBSTACLE_CLONE,
      .sys = { EINVAL },
      .message = "This kernel is built without user namespaces (CONFIG_USER_NS)." },
    { .stages = OBSTACLE_CLONE,
      .sys = { ENOSPC, EUSERS },
      .message = "The limit on user namespaces is reached (user.max_user_namespaces).",
      .fix = "sudo sysctl -w user.max_user_namespaces=15000" },
    { .stages = OBSTACLE_CLONE,
      .sys = { EPERM },
      .applies = is_switched_off,
      .message = "User namespaces are switched off for ordinary users (kernel.unprivileged_userns_clone).",
      .fix = "sudo sysctl -w kernel.unprivileged_userns_clone=1" },
    /* With this restriction clone() succeeds, and whatever needs a capability fails after it. */
    { .stages = OBSTACLE_CLONE | OBSTACLE_MAP | OBSTACLE_MOUNT | OBSTACLE_PROC,
      .sys = { EPERM, EACCES },
      .applies = is_restricted_by_apparmor,
      .message = "AppArmor keeps ordinary users' programs from using user namespaces; this program needs a "
                 "profile that allows it.",
      .fix = "printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile agent-desktop %s "
             "flags=(unconfined) {\\n  userns,\\n}\\n' {binary} | sudo tee /etc/apparmor.d/agent-desktop "
             ">/dev/null && sudo apparmor_parser -r /etc/apparmor.d/agent-desktop" },
    { .stages = OBSTACLE_CLONE,
      .sys = { EPERM },
      .applies = is_in_container,
      .message = "This container forbids namespaces: start it with --security-opt seccomp=unconfined." },
    { .stages = OBSTACLE_CLONE,
      .sys = { EPERM },
      .message =
          "User namespaces are not permitted here; inside a chroot they never are: run outside of it." },
    { .stages = OBSTACLE_PROC,
      .sys = { EPERM },
      .message = "Parts of /proc are covered here, as in a container: start it with --security-opt "
                 "unmask=/proc/* (podman) or systempaths=unconfined (Docker)." },
};

static int fits(const struct obstacle *o, enum obstacle_stage stage, int sys)
{
    if ((o->stages & (unsigned)stage) == 0 || (sys != o->sys[0] && sys != o->sys[1]))
        return 0;
    return o->applies == NULL || o->applies();
}

static const char *stage_name(enum obstacle_stage stage)
{
    switch (stage) {
    case OBSTACLE_CLONE:
        return "new namespaces";
    case OBSTACLE_MAP:
        return "the id map of a user namespace";
    case OBSTACLE_MOUNT:
        return "a mount in a mount namespace";
    case OBSTACLE_PROC:
        return "a /proc of its own";
    }
    return "namespaces";
}

bool obstacle_is_refusal(int sys)
{
    static const int refusals[] = { EPERM, EACCES, ENOSYS, ENODEV, EINVAL, EOPNOTSUPP };

    for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
        if (sys == refusals[i])
            return true;
    return false;
}

int obstacle_set_error(enum obstacle_stage stage, int sys, struct error *e)
{
    for (size_t i = 0; i < ARRAY_LEN(obstacles); i++)
        if (fits(&obstacles[i], stage, sys)) /* 0: the errno would only repeat it in worse words */
            return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0, "%s", obstacles[i].message);
    if (obstacle_is_refusal(sys))
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, sys, "This host does not allow %s",
                         stage_name(stage));
    return error_set_errno(e, ERROR_ACTION_FAILED, sys, "cannot make %s", stage_name(stage));
}

const struct obstacle *obstacle_find(const struct error *e)
{
    for (size_t i = 0; i < ARRAY_LEN(obstacles); i++)
        if (strcmp(obstacles[i].message, e->message) == 0)
            return &obstacles[i];
    return NULL;
}

/* providers/linux/services.h - the desktop's processes: a table of what is started, what each needs before,
 * how it tells that it is ready, and what its end means.
 *
 * For the supervisor: nothing blocks, nothing is allocated, nothing sleeps. A service is started as soon as
 * what it needs is there; what takes a conversation (the two probes of the accessibility bus) runs in a
 * forked child that reports one line. */
#ifndef PROVIDERS_LINUX_SERVICES_H
#define PROVIDERS_LINUX_SERVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/error.h"
#include "providers/linux/linux.h"

enum service_id {
    SERVICE_BUS,
    SERVICE_DISPLAY,
    SERVICE_ACCESSIBILITY,
    SERVICE_ADDRESS,
    SERVICE_WINDOW_MANAGER,
    SERVICE_REGISTRY,
    SERVICE_COUNT
};

#define SERVICES_ENVIRONMENT_MAX 32
#define SERVICES_LINE_SIZE       512

struct service_state {
    pid_t pid; /* 0: does not run */
    bool started;
    int starts;
    int line_fd; /* where its line is to arrive; -1 */
    int log_fd;
    size_t line_size;
    char line[SERVICES_LINE_SIZE];
};

struct services {
    const struct linux_user *user;
    const char *screen;
    const char *lang;
    unsigned have;   /* what is ready: bits of services.c */
    int display;     /* number */
    int reservation; /* a socket whose name keeps other sandboxes off this display */
    char launcher[256];
    char accessibility[256]; /* address of the accessibility bus */
    struct service_state states[SERVICE_COUNT];
    char *environment[SERVICES_ENVIRONMENT_MAX]; /* of every program inside, ended by NULL */
    char environment_bytes[8192];
};

/* Makes the logs in LOG_DIR and the X cookie, chooses a display. USER, SCREEN and LANG are lent. */
int services_init(struct services *s, const struct linux_user *user, const char *screen, const char *lang,
                  int log_dir, struct error *e);

/* Starts what can be started now. */
int services_start(struct services *s, struct error *e);

/* To be called when states[ID].line_fd is readable. -1: the desktop cannot be made. */
int services_read(struct services *s, enum service_id id, struct error *e);

/* A child ended: 1 when it was a service and the desktop goes on (perhaps with another try), 0 when it was
 * none, -1 when this ends the desktop: *e names the service and its log. */
int services_reaped(struct services *s, pid_t pid, int wait_status, struct error *e);

/* The desktop answers: the buses, the display, the accessibility registry. */
bool services_ready(const struct services *s);

/* After the bound: names the first service that is not ready. Always -1. */
int services_set_overdue(const struct services *s, int bound_ms, struct error *e);

#endif

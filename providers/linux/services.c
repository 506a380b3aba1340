#include "providers/linux/services.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/util.h"
#include "providers/linux/dbus.h"
#include "providers/linux/program.h"

enum { HAVE_BUS = 1, HAVE_DISPLAY = 2, HAVE_ADDRESS = 4, HAVE_REGISTRY = 8, HAVE_ALL = 15 };

#define BUS_ADDRESS    "unix:path=/run/user/%u/bus"
#define AUTHORITY_FILE "/run/agent-desktop/Xauthority"
#define LAUNCHER_FILE  "/usr/share/dbus-1/services/org.a11y.Bus.service"
#define LINE_FD        3   /* of a service: where it writes the line that says it is ready */
#define DISPLAY_FIRST  100 /* below: X servers of people */
#define DISPLAY_LAST   9999
#define DISPLAY_TRIES  8
#define RESTARTS_MAX   3
#define PROBE_LIMIT_MS LINUX_START_BOUND_MS
#define ACCESSIBILITY  "org.a11y.Bus"
#define COOKIE_NAME    "MIT-MAGIC-COOKIE-1"
#define COOKIE_SIZE    16
#define STATUS_NOT_RUN 127 /* of a child whose program could not be executed */
#define EXPAND_ROOM    512

enum service_end {
    END_IS_FATAL,   /* the desktop cannot do without, and it cannot be repaired */
    END_IS_RETRIED, /* started again, a few times */
    END_IS_USUAL    /* a probe: ends when it has told its line */
};

typedef int probe_fn(const struct services *s, struct dbus *d, int64_t deadline_ms, char *answer, size_t room,
                     struct error *e);

/* Words of command lines and the environment are templates, see expand(). */
struct service {
    const char *name;
    const char *log;
    unsigned needs, gives; /* gives: with its line */
    enum service_end end;
    const char *const *argv; /* or: */
    probe_fn *probe;
    int (*take_line)(struct services *s, const char *line, struct error *e);
};

static const char *const bus_argv[] = { "dbus-daemon",        "--session",  "--nofork",
                                        "--nopidfile",        "--nosyslog", "--address=" BUS_ADDRESS,
                                        "--print-address=%f", NULL };

/* -noreset: the server would start anew whenever its last client leaves. The abstract socket stays on: libxcb
 * tries it first, so it must be ours. */
static const char *const display_argv[] = { "Xvfb",      ":%d",          "-screen",    "0",  "%sx24",
                                            "-auth",     AUTHORITY_FILE, "-displayfd", "%f", "-noreset",
                                            "-nolisten", "tcp",          NULL };

static const char *const accessibility_argv[] = { "%L", "--launch-immediately", "--a11y=1", NULL };
static const char *const window_manager_argv[] = { "openbox", "--sm-disable", NULL };

static probe_fn probe_address, probe_registry;
static int take_display(struct services *s, const char *line, struct error *e);
static int take_address(struct services *s, const char *line, struct error *e);

/* The accessibility bus is started while X still starts, so without DISPLAY; probe_registry hands that in
 * later. Nobody waits for the window manager. */
static const struct service services[] = {
    [SERVICE_BUS] = { .name = "the session bus", .log = "dbus.log", .gives = HAVE_BUS, .argv = bus_argv },
    [SERVICE_DISPLAY] = { .name = "the X server",
                          .log = "xvfb.log",
                          .gives = HAVE_DISPLAY,
                          .argv = display_argv,
                          .take_line = take_display },
    [SERVICE_ACCESSIBILITY] = { .name = "the accessibility bus",
                                .log = "at-spi.log",
                                .needs = HAVE_BUS,
                                .argv = accessibility_argv },
    [SERVICE_ADDRESS] = { .name = "the address of the accessibility bus",
                          .log = "at-spi.log",
                          .needs = HAVE_BUS,
                          .gives = HAVE_ADDRESS,
                          .end = END_IS_USUAL,
                          .probe = probe_address,
                          .take_line = take_address },
    [SERVICE_WINDOW_MANAGER] = { .name = "the window manager",
                                 .log = "openbox.log",
                                 .needs = HAVE_BUS | HAVE_DISPLAY | HAVE_ADDRESS,
                                 .end = END_IS_RETRIED,
                                 .argv = window_manager_argv },
    [SERVICE_REGISTRY] = { .name = "the accessibility registry",
                           .log = "at-spi.log",
                           .needs = HAVE_BUS | HAVE_DISPLAY | HAVE_ADDRESS,
                           .gives = HAVE_REGISTRY,
                           .end = END_IS_USUAL,
                           .probe = probe_registry },
};
_Static_assert(ARRAY_LEN(services) == SERVICE_COUNT, "each service has a row");

/* What every program inside starts with; nothing is inherited. NO_AT_BRIDGE and GTK_A11Y=none, which empty
 * the accessibility tree, cannot get in. AT_SPI_BUS_ADDRESS beats the root window's property, which a second
 * bus could overwrite. */
static const struct {
    unsigned needs;
    const char *text;
} environment[] = {
    { 0, "HOME=%h" },
    { 0, "USER=%n" },
    { 0, "LOGNAME=%n" },
    { 0, "SHELL=%S" },
    { 0, "PATH=/run/agent-desktop/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:"
         "/usr/local/games:/usr/games" },
    { 0, "LANG=%l" },
    { 0, "XDG_RUNTIME_DIR=/run/user/%u" },
    { 0, "DBUS_SESSION_BUS_ADDRESS=" BUS_ADDRESS },
    { HAVE_DISPLAY, "DISPLAY=:%d" },
    { 0, "XAUTHORITY=" AUTHORITY_FILE },
    { HAVE_ADDRESS, "AT_SPI_BUS_ADDRESS=%a" },
    { 0, "XDG_SESSION_TYPE=x11" },
    { 0, "XDG_CURRENT_DESKTOP=Openbox" },
    { 0, "GDK_BACKEND=x11" },
    { 0, "QT_QPA_PLATFORM=xcb" },
    { 0, "QT_LINUX_ACCESSIBILITY_ALWAYS_ON=1" },
    { 0, "QT_ACCESSIBILITY=1" },
    { 0, "GNOME_ACCESSIBILITY=1" },
    { 0, "ACCESSIBILITY_ENABLED=1" },
    { 0, "LIBGL_ALWAYS_SOFTWARE=1" },
    { 0, "GSK_RENDERER=cairo" },
};
_Static_assert(ARRAY_LEN(environment) < SERVICES_ENVIRONMENT_MAX, "and a NULL");

/* --- templates ----------------------------------------------------------------------------------- */

static const char *expand_letter(const struct services *s, char letter, char number[16])
{
    switch (letter) {
    case 'a':
        return s->accessibility;
    case 'd':
        snprintf(number, 16, "%d", s->display);
        return number;
    case 'f':
        snprintf(number, 16, "%d", LINE_FD);
        return number;
    case 'h':
        return s->user->home;
    case 'l':
        return s->lang;
    case 'L':
        return s->launcher;
    case 'n':
        return s->user->name;
    case 's':
        return s->screen;
    case 'S':
        return s->user->shell;
    case 'u':
        snprintf(number, 16, "%u", (unsigned)s->user->uid);
        return number;
    default:
        return "%"; /* a template of ours, and the tests expand them all */
    }
}

/* Writes TEXT with its %x replaced; the size with the NUL, 0 when it does not fit. */
static size_t expand(const struct services *s, const char *text, char *out, size_t room)
{
    size_t size = 0;

    for (; *text != '\0'; text++) {
        char number[16];
        char plain[2] = { *text, '\0' };
        const char *piece = *text == '%' ? expand_letter(s, *++text, number) : plain;
        size_t n = strlen(piece);

        if (n >= room - size)
            return 0;
        memcpy(out + size, piece, n);
        size += n;
    }
    out[size] = '\0';
    return size + 1;
}

static int make_environment(struct services *s, struct error *e)
{
    size_t count = 0, used = 0;

    for (size_t i = 0; i < ARRAY_LEN(environment); i++) {
        char *at = s->environment_bytes + used;
        size_t size;

        if ((environment[i].needs & ~s->have) != 0)
            continue;
        size = expand(s, environment[i].text, at, sizeof(s->environment_bytes) - used);
        if (size == 0)
            return error_set(e, ERROR_ACTION_FAILED, 0, "the environment of the sandbox is too long");
        s->environment[count++] = at;
        used += size;
    }
    s->environment[count] = NULL;
    return 0;
}

/* --- the display --------------------------------------------------------------------------------- */

/* Without a network namespace of its own, a sandbox shares the abstract names of sockets with the host, and
 * so the numbers of displays. A name of ours, bound for life, settles them among sandboxes; whether any
 * other X server is there is asked by connecting, since binding that name could get in its way. */
static bool reserve_display(struct services *s, int number)
{
    struct sockaddr_un ours = { .sun_family = AF_UNIX }, theirs = { .sun_family = AF_UNIX };
    int n = snprintf(ours.sun_path + 1, sizeof(ours.sun_path) - 1, "agent-desktop/display-%d", number);
    int m = snprintf(theirs.sun_path + 1, sizeof(theirs.sun_path) - 1, "/tmp/.X11-unix/X%d", number);
    AUTO_CLOSE int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t ours_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    socklen_t theirs_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)m);

    if (probe < 0 || fd < 0 || bind(fd, (struct sockaddr *)&ours, ours_size) < 0)
        return false;
    if (connect(probe, (struct sockaddr *)&theirs, theirs_size) == 0 || errno != ECONNREFUSED)
        return false;
    util_close_fd(&s->reservation);
    s->reservation = steal_fd(&fd);
    s->display = number;
    return true;
}

static int choose_display(struct services *s, int first, struct error *e)
{
    for (int number = first; number <= DISPLAY_LAST; number++)
        if (reserve_display(s, number))
            return 0;
    return error_set(e, ERROR_LIMIT_REACHED, 0, "no number for an X display is free");
}

/* One entry of Xauthority(5), big-endian: family "wild" (any host, whatever its name becomes), the display's
 * number, the kind of cookie, the cookie. */
static int write_authority(const struct services *s, struct error *e)
{
    char number[16];
    unsigned char bytes[128] = { 0xff, 0xff, 0, 0 };
    size_t size = 4, n = (size_t)snprintf(number, sizeof(number), "%d", s->display);
    const struct {
        const void *bytes;
        size_t size;
    } parts[] = { { number, n }, { COOKIE_NAME, sizeof(COOKIE_NAME) - 1 }, { NULL, COOKIE_SIZE } };

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        bytes[size++] = 0;
        bytes[size++] = (unsigned char)parts[i].size;
        if (parts[i].bytes != NULL)
            memcpy(bytes + size, parts[i].bytes, parts[i].size);
        else if (getrandom(bytes + size, parts[i].size, 0) != (ssize_t)parts[i].size)
            return error_set(e, ERROR_ACTION_FAILED, errno, "cannot make the X cookie");
        size += parts[i].size;
    }
    AUTO_CLOSE int fd = open(AUTHORITY_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || file_write_all(fd, bytes, size) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot write " AUTHORITY_FILE);
    return 0;
}

static int take_display(struct services *s, const char *line, struct error *e)
{
    if (strtol(line, NULL, 10) != s->display)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the X server took display :%.16s instead of :%d", line,
                         s->display);
    return 0;
}

/* --- the accessibility bus ----------------------------------------------------------------------- */

/* Its launcher lies in a directory that differs between distributions; its D-Bus service file names it. */
static int find_launcher(struct services *s, struct error *e)
{
    char text[2048];
    AUTO_CLOSE int fd = open(LAUNCHER_FILE, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    const char *at;

    if (n < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno,
                         "at-spi2-core is missing: cannot read " LAUNCHER_FILE);
    text[n] = '\0';
    at = strstr(text, "\nExec=");
    if (at == NULL || sscanf(at, "\nExec=%255s", s->launcher) != 1)
        return error_set(e, ERROR_ACTION_FAILED, 0, LAUNCHER_FILE " does not say what to run");
    return 0;
}

static int probe_address(const struct services *s, struct dbus *d, int64_t deadline_ms, char *answer,
                         size_t room, struct error *e)
{
    const struct dbus_call call = {
        ACCESSIBILITY, "/org/a11y/bus", ACCESSIBILITY, "GetAddress", NULL, false
    };
    char address[EXPAND_ROOM];
    int r;

    /* Waiting, not calling right away: a call would make the bus start a second launcher. */
    if (expand(s, BUS_ADDRESS, address, sizeof(address)) == 0 || dbus_open(d, address, deadline_ms, e) < 0 ||
        dbus_wait_name(d, ACCESSIBILITY, e) < 0)
        return -1;
    r = dbus_call(d, &call, answer, room, e);
    return r == 0 ? error_set(e, ERROR_ACTION_FAILED, 0, "the accessibility bus answered %s", answer) : r;
}

static int take_address(struct services *s, const char *line, struct error *e)
{
    if (line[0] == '\0' || strlen(line) >= sizeof(s->accessibility))
        return error_set(e, ERROR_ACTION_FAILED, 0, "the accessibility bus has no usable address");
    memcpy(s->accessibility, line, strlen(line) + 1);
    return 0;
}

/* Programs that a bus starts get its environment, which was made before DISPLAY was known: hand it all in. */
static int update_activation(const struct services *s, struct dbus *d, struct error *e)
{
    const char *words[2 * SERVICES_ENVIRONMENT_MAX];
    char copy[sizeof(s->environment_bytes)];
    char answer[256];
    size_t count = 0;
    const struct dbus_call call = { "org.freedesktop.DBus",
                                    "/org/freedesktop/DBus",
                                    "org.freedesktop.DBus",
                                    "UpdateActivationEnvironment",
                                    words,
                                    true };
    int r;

    memcpy(copy, s->environment_bytes, sizeof(copy));
    for (size_t i = 0; s->environment[i] != NULL; i++) {
        char *name = copy + (s->environment[i] - s->environment_bytes);
        char *value = strchr(name, '=');

        *value = '\0';
        words[count++] = name;
        words[count++] = value + 1;
    }
    words[count] = NULL;
    r = dbus_call(d, &call, answer, sizeof(answer), e);
    return r == 0 ? error_set(e, ERROR_ACTION_FAILED, 0, "a bus refused the environment: %s", answer) : r;
}

static int probe_registry(const struct services *s, struct dbus *d, int64_t deadline_ms, char *answer,
                          size_t room, struct error *e)
{
    const struct dbus_call ping = { "org.a11y.atspi.Registry",
                                    "/org/a11y/atspi/accessible/root",
                                    "org.freedesktop.DBus.Peer",
                                    "Ping",
                                    NULL,
                                    false };
    char address[EXPAND_ROOM];
    int r;

    if (expand(s, BUS_ADDRESS, address, sizeof(address)) == 0 || dbus_open(d, address, deadline_ms, e) < 0 ||
        update_activation(s, d, e) < 0)
        return -1;
    dbus_close(d);
    if (dbus_open(d, s->accessibility, deadline_ms, e) < 0 || update_activation(s, d, e) < 0)
        return -1;
    r = dbus_call(d, &ping, answer, room, e);
    return r == 0 ? error_set(e, ERROR_ACTION_FAILED, 0, "the accessibility registry answered %s", answer)
                  : r;
}

/* --- processes ----------------------------------------------------------------------------------- */

/* The probe's line: '+' and the answer, or '-' and why there is none. */
static _Noreturn void run_probe(const struct services *s, probe_fn *probe)
{
    struct dbus d = { .fd = -1 };
    struct error e = { 0 };
    char answer[SERVICES_LINE_SIZE - 2] = "";
    int r = probe(s, &d, clock_mono_ms() + PROBE_LIMIT_MS, answer, sizeof(answer), &e);

    dprintf(LINE_FD, "%c%.*s\n", r < 0 ? '-' : '+', (int)sizeof(answer), r < 0 ? e.message : answer);
    _exit(r < 0);
}

static _Noreturn void run_program(const struct services *s, const struct service *service)
{
    char *argv[16];
    char bytes[ARRAY_LEN(argv)][EXPAND_ROOM];
    size_t count = 0;

    for (; service->argv[count] != NULL && count + 1 < ARRAY_LEN(argv); count++) {
        if (expand(s, service->argv[count], bytes[count], sizeof(bytes[count])) == 0)
            _exit(STATUS_NOT_RUN);
        argv[count] = bytes[count];
    }
    argv[count] = NULL;
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(program_execute(argv, s->environment)));
    _exit(STATUS_NOT_RUN);
}

/* LINE: where the service tells its line; -1 when it tells none. */
static _Noreturn void run_child(const struct services *s, enum service_id id, int line)
{
    const int streams[3] = { STDIN_FILENO, s->states[id].log_fd, s->states[id].log_fd };

    if ((line >= 0 && dup2(line, LINE_FD) < 0) || program_prepare(streams, s->user->home) < 0)
        _exit(STATUS_NOT_RUN);
    if (services[id].probe == NULL)
        run_program(s, &services[id]);
    close_range(LINE_FD + 1, ~0u, 0); /* no exec will: the run lock must not live longer than PID 1 */
    run_probe(s, services[id].probe);
}

static int start_one(struct services *s, enum service_id id, struct error *e)
{
    struct service_state *state = &s->states[id];
    int ends[2] = { -1, -1 };
    AUTO_CLOSE int line = -1;

    if (services[id].gives != 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot make a pipe for %s", services[id].name);
    state->line_fd = ends[0];
    state->line_size = 0;
    line = ends[1];
    state->pid = fork();
    if (state->pid == 0)
        run_child(s, id, line);
    if (state->pid < 0) {
        state->pid = 0;
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot start %s", services[id].name);
    }
    state->started = true;
    state->starts++;
    return 0;
}

int services_start(struct services *s, struct error *e)
{
    for (enum service_id id = 0; id < SERVICE_COUNT; id++)
        if (!s->states[id].started && (services[id].needs & ~s->have) == 0 && start_one(s, id, e) < 0)
            return -1;
    return 0;
}

static int take_line(struct services *s, enum service_id id, struct error *e)
{
    const struct service *service = &services[id];
    const char *line = s->states[id].line;

    if (service->probe != NULL && *line++ != '+')
        return error_set(e, ERROR_ACTION_FAILED, 0, "%s cannot be reached: %s; see log/%s", service->name,
                         line, service->log);
    if (service->take_line != NULL && service->take_line(s, line, e) < 0)
        return -1;
    s->have |= service->gives;
    return make_environment(s, e);
}

int services_read(struct services *s, enum service_id id, struct error *e)
{
    struct service_state *state = &s->states[id];
    ssize_t n =
        read(state->line_fd, state->line + state->line_size, sizeof(state->line) - 1 - state->line_size);
    char *end;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    state->line_size += n > 0 ? (size_t)n : 0;
    state->line[state->line_size] = '\0';
    end = strchr(state->line, '\n');
    if (n > 0 && end == NULL && state->line_size < sizeof(state->line) - 1)
        return 0;
    util_close_fd(&state->line_fd);
    state->line_fd = -1;
    if (end == NULL)
        return 0; /* it ended, or will be overdue; its end says more than a closed pipe */
    *end = '\0';
    return take_line(s, id, e);
}

static int set_ended(const struct services *s, enum service_id id, int wait_status, struct error *e)
{
    const struct service *service = &services[id];
    const char *when = s->have == HAVE_ALL ? "" : " before the desktop was ready";

    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == STATUS_NOT_RUN)
        return error_set(e, ERROR_ACTION_FAILED, 0, "%s could not be run; see log/%s", service->name,
                         service->log);
    if (WIFSIGNALED(wait_status))
        return error_set(e, ERROR_ACTION_FAILED, 0, "%s was ended by signal %d%s; see log/%s", service->name,
                         WTERMSIG(wait_status), when, service->log);
    return error_set(e, ERROR_ACTION_FAILED, 0, "%s ended with status %d%s; see log/%s", service->name,
                     WEXITSTATUS(wait_status), when, service->log);
}

/* A server that cannot have its display (some other program was faster) is given the next one. */
static int retry_display(struct services *s, int wait_status, struct error *e)
{
    if ((s->have & HAVE_DISPLAY) != 0 || s->states[SERVICE_DISPLAY].starts >= DISPLAY_TRIES ||
        (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == STATUS_NOT_RUN))
        return set_ended(s, SERVICE_DISPLAY, wait_status, e);
    if (choose_display(s, s->display + 1, e) < 0 || write_authority(s, e) < 0)
        return -1;
    s->states[SERVICE_DISPLAY].started = false;
    return services_start(s, e);
}

static int end_of(struct services *s, enum service_id id, int wait_status, struct error *e)
{
    struct service_state *state = &s->states[id];

    if (state->line_fd >= 0 && services_read(s, id, e) < 0) /* the line may have come just before the end */
        return -1;
    util_close_fd(&state->line_fd);
    state->line_fd = -1;
    if (id == SERVICE_DISPLAY)
        return retry_display(s, wait_status, e);
    if (services[id].end == END_IS_USUAL && (s->have & services[id].gives) != 0)
        return 0;
    if (services[id].end == END_IS_RETRIED && state->starts <= RESTARTS_MAX) {
        state->started = false;
        return services_start(s, e);
    }
    return services[id].end == END_IS_RETRIED && s->have == HAVE_ALL ? 0 : set_ended(s, id, wait_status, e);
}

int services_reaped(struct services *s, pid_t pid, int wait_status, struct error *e)
{
    for (enum service_id id = 0; id < SERVICE_COUNT; id++) {
        if (s->states[id].pid != pid)
            continue;
        s->states[id].pid = 0;
        return end_of(s, id, wait_status, e) < 0 ? -1 : 1;
    }
    return 0;
}

bool services_ready(const struct services *s)
{
    return s->have == HAVE_ALL;
}

int services_set_overdue(const struct services *s, int bound_ms, struct error *e)
{
    enum service_id id = 0;

    while (id < SERVICE_REGISTRY && (services[id].gives & ~s->have) == 0)
        id++;
    return error_set(e, ERROR_TIMEOUT, 0, "%s was not ready within %d s; see log/%s", services[id].name,
                     bound_ms / 1000, services[id].log);
}

int services_init(struct services *s, const struct linux_user *user, const char *screen, const char *lang,
                  int log_dir, struct error *e)
{
    *s = (struct services){ .user = user, .screen = screen, .lang = lang, .reservation = -1 };
    for (enum service_id id = 0; id < SERVICE_COUNT; id++) {
        struct service_state *state = &s->states[id];

        state->line_fd = -1;
        state->log_fd = openat(log_dir, services[id].log,
                               O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (state->log_fd < 0)
            return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot write log/%s", services[id].log);
    }
    if (find_launcher(s, e) < 0 || choose_display(s, DISPLAY_FIRST, e) < 0 || write_authority(s, e) < 0)
        return -1;
    return make_environment(s, e);
}

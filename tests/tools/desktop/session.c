#include "tests/tools/desktop/session.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/util.h"

#define FIRST_DISPLAY 140 /* far from those of people, and of sandboxes */
#define LAST_DISPLAY  160
#define READY_MS      10000

/* Starts it with the descriptor READY (-1: none) as 3. */
static pid_t start(struct session *s, int ready, const char *const argv[])
{
    const pid_t pid = fork();

    if (pid == 0) {
        const int null = open("/dev/null", O_RDWR);

        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        if (ready >= 0)
            dup2(ready, 3);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    if (pid > 0)
        s->daemons[s->count++] = pid;
    return pid;
}

/* A whole line: the X server writes its end apart, and gives up when nobody reads that. */
static bool read_line(int fd, char *out, size_t room)
{
    for (size_t size = 0; size + 1 < room; size++) {
        if (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, READY_MS) != 1 ||
            read(fd, &out[size], 1) != 1)
            return false;
        if (out[size] == '\n') {
            out[size] = '\0';
            return true;
        }
    }
    return false;
}

/* As start(), then waits for a line, in OUT: the daemon is ready. */
static bool start_and_read(struct session *s, const char *const argv[], char *out, size_t room)
{
    int ends[2];
    bool ready;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    start(s, ends[1], argv);
    close(ends[1]);
    ready = read_line(ends[0], out, room);
    close(ends[0]);
    if (ready)
        return true;
    kill(s->daemons[--s->count], SIGKILL);
    waitpid(s->daemons[s->count], NULL, 0);
    return false;
}

static bool start_display(struct session *s)
{
    char name[16], number[16];

    for (int display = FIRST_DISPLAY; display < LAST_DISPLAY; display++) {
        snprintf(name, sizeof name, ":%d", display);
        if (!start_and_read(s,
                            (const char *const[]){ "Xvfb", name, "-screen", "0", "1280x800x24", "-noreset",
                                                   "-nolisten", "tcp", "-displayfd", "3", NULL },
                            number, sizeof number))
            continue;
        setenv("DISPLAY", name, 1);
        return true;
    }
    return false;
}

static bool start_bus(struct session *s)
{
    char address[128], argument[160];

    snprintf(argument, sizeof argument, "--address=unix:path=%s/bus", s->dir);
    if (!start_and_read(s,
                        (const char *const[]){ "dbus-daemon", "--session", "--nofork", "--nopidfile",
                                               "--nosyslog", argument, "--print-address=3", NULL },
                        address, sizeof address))
        return false;
    setenv("DBUS_SESSION_BUS_ADDRESS", address, 1);
    return true;
}

/* Its directory differs between distributions; the service file that activates it says where it is. */
static bool find_launcher(char *out, size_t room)
{
    FILE *file = fopen("/usr/share/dbus-1/services/org.a11y.Bus.service", "re");
    bool found = false;
    char line[256];

    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "Exec=", 5) == 0) {
            line[strcspn(line, " \n")] = '\0';
            found = snprintf(out, room, "%s", line + 5) < (int)room;
        }
    if (file != NULL)
        fclose(file);
    return found;
}

static void set_environment(const struct session *s)
{
    static const char *const unset[] = { "NO_AT_BRIDGE", "GTK_A11Y",    "AT_SPI_BUS_ADDRESS",
                                         "XAUTHORITY",   "GTK_MODULES", "WAYLAND_DISPLAY" };
    static const struct {
        const char *name, *value;
    } set[] = { { "GDK_BACKEND", "x11" },
                { "GSK_RENDERER", "cairo" },
                { "LIBGL_ALWAYS_SOFTWARE", "1" },
                { "LC_ALL", "C.UTF-8" } };
    char root[128];

    for (size_t i = 0; i < ARRAY_LEN(unset); i++)
        unsetenv(unset[i]);
    for (size_t i = 0; i < ARRAY_LEN(set); i++)
        setenv(set[i].name, set[i].value, 1);
    snprintf(root, sizeof root, "%s/root", s->dir);
    setenv("HOME", s->dir, 1);
    setenv("XDG_RUNTIME_DIR", s->dir, 1);
    setenv("AGENT_DESKTOP_HOME", root, 1);
}

const char *session_start(struct session *s)
{
    char launcher[256];

    *s = (struct session){ .dir = "/tmp/test-desktop-XXXXXX" };
    if (mkdtemp(s->dir) == NULL)
        return "no directory below /tmp";
    set_environment(s);
    if (!start_display(s))
        return "no Xvfb";
    if (!start_bus(s))
        return "no dbus-daemon";
    if (!find_launcher(launcher, sizeof launcher) ||
        start(s, -1, (const char *const[]){ launcher, "--launch-immediately", "--a11y=1", NULL }) < 0)
        return "no at-spi2-core";
    if (start(s, -1, (const char *const[]){ "openbox", "--sm-disable", NULL }) < 0)
        return "no openbox";
    return NULL;
}

/* What was launched is nobody's child; its environment names this session's directory. */
static bool belongs_to(const struct session *s, const char *pid)
{
    AUTO_FREE char *bytes = NULL;
    AUTO_CLOSE int fd = -1;
    char path[300];
    const size_t room = 1 << 17;
    ssize_t size;

    snprintf(path, sizeof path, "/proc/%s/environ", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    bytes = calloc(1, room);
    size = fd < 0 || bytes == NULL ? -1 : read(fd, bytes, room);
    return size > 0 && memmem(bytes, (size_t)size, s->dir, strlen(s->dir)) != NULL;
}

static void kill_launched(const struct session *s)
{
    DIR *proc = opendir("/proc");

    for (struct dirent *d; proc != NULL && (d = readdir(proc)) != NULL;) {
        const pid_t pid = (pid_t)atoi(d->d_name);

        if (pid > 1 && pid != getpid() && belongs_to(s, d->d_name))
            kill(pid, SIGKILL);
    }
    if (proc != NULL)
        closedir(proc);
}

void session_stop(struct session *s)
{
    struct error e = { 0 };
    const char *name = strrchr(s->dir, '/');
    AUTO_CLOSE int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (size_t i = s->count; i-- > 0;)
        kill(s->daemons[i], SIGTERM);
    kill_launched(s);
    for (size_t i = 0; i < s->count; i++)
        waitpid(s->daemons[i], NULL, 0);
    file_remove_tree(tmp, name + 1, &e);
}

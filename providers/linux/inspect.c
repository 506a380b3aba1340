#include "providers/linux/inspect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/text.h"
#include "providers/linux/linux.h"
#include "providers/linux/mounts.h"
#include "providers/linux/namespace.h"
#include "providers/linux/obstacles.h"

#define KERNEL_MAJOR 5 /* mount_setattr(2) came with 5.12 */
#define KERNEL_MINOR 12

#define TRIAL_LIMIT_MS 2000 /* provider_ops.inspect_host promises no more */

struct findings {
    bool unavailable;
    struct text message;
    const char *obstacle_fix; /* NULL: there is none */
    struct text packages;     /* what is missing, each name with a blank before it */
    size_t missing;           /* parts of the desktop */
};

static void add_finding(struct findings *f, const char *sentence)
{
    text_print(&f->message, "%s%s", f->message.size > 0 ? " " : "", sentence);
}

static void add_obstacle(struct findings *f, const char *sentence)
{
    f->unavailable = true;
    add_finding(f, sentence);
}

/* ---- the distribution ---- */

enum distribution { DISTRIBUTION_DEBIAN, DISTRIBUTION_FEDORA, DISTRIBUTION_ARCH, DISTRIBUTION_COUNT };

static const char *const install_commands[] = {
    [DISTRIBUTION_DEBIAN] = "sudo apt-get install --no-install-recommends",
    [DISTRIBUTION_FEDORA] = "sudo dnf install",
    [DISTRIBUTION_ARCH] = "sudo pacman -S --needed",
};
_Static_assert(ARRAY_LEN(install_commands) == DISTRIBUTION_COUNT, "each distribution has a command");

/* By ID or a word of ID_LIKE, os-release(5). */
static enum distribution find_distribution_word(const char *word)
{
    static const struct {
        const char *id;
        enum distribution distribution;
    } rows[] = {
        { "debian", DISTRIBUTION_DEBIAN }, { "ubuntu", DISTRIBUTION_DEBIAN },
        { "fedora", DISTRIBUTION_FEDORA }, { "rhel", DISTRIBUTION_FEDORA },
        { "centos", DISTRIBUTION_FEDORA }, { "arch", DISTRIBUTION_ARCH },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].id, word) == 0)
            return rows[i].distribution;
    return DISTRIBUTION_COUNT;
}

static enum distribution parse_os_release(char *content)
{
    enum distribution found = DISTRIBUTION_COUNT;
    char *rest = NULL;

    for (char *line = strtok_r(content, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        char *words = strchr(line, '=');
        char *next = NULL;

        if (strncmp(line, "ID=", 3) != 0 && strncmp(line, "ID_LIKE=", 8) != 0)
            continue;
        for (char *word = strtok_r(words + 1, "\"' ", &next); word != NULL && found == DISTRIBUTION_COUNT;
             word = strtok_r(NULL, "\"' ", &next))
            found = find_distribution_word(word);
    }
    return found;
}

/* DISTRIBUTION_COUNT when it is none that we know. */
static enum distribution find_distribution(void)
{
    static const char *const paths[] = { "/etc/os-release", "/usr/lib/os-release" };

    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        AUTO_FREE char *real = realpath(paths[i], NULL); /* the first is a link to the second */
        AUTO_FREE char *content = NULL;
        struct error ignored = { 0 };
        size_t size;

        if (real != NULL && file_read(AT_FDCWD, real, 65536, &content, &size, &ignored) == 1)
            return parse_os_release(content);
    }
    return DISTRIBUTION_COUNT;
}

/* ---- the desktop's parts ---- */

struct part {
    const char *name; /* for the message */
    bool (*is_there)(const char *what);
    const char *what;
    const char *packages[DISTRIBUTION_COUNT];
};

/* Where programs are looked for inside: the caller's PATH does not get in. */
static bool has_program(const char *name)
{
    static const char *const dirs[] = { "/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                        "/usr/bin",        "/sbin",          "/bin" };

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        AUTO_FREE char *path = mem_print("%s/%s", dirs[i], name);

        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* A D-Bus service file whose Exec= program is there: its directory differs between distributions. */
static bool has_service(const char *path)
{
    AUTO_FREE char *content = NULL;
    struct error ignored = { 0 };
    char program[256];
    const char *exec;
    size_t size;

    if (file_read(AT_FDCWD, path, 65536, &content, &size, &ignored) != 1)
        return false;
    exec = strstr(content, "\nExec=");
    return exec != NULL && sscanf(exec, "\nExec=%255s", program) == 1 && access(program, X_OK) == 0;
}

static bool is_font(const char *name)
{
    static const char *const endings[] = { ".ttf", ".otf", ".ttc", ".pfb", ".pcf.gz" };
    size_t size = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(endings); i++)
        if (size > strlen(endings[i]) && strcmp(name + size - strlen(endings[i]), endings[i]) == 0)
            return true;
    return false;
}

/* Fonts lie at most DEPTH directories deep, as in truetype/dejavu/; ends at the first. */
static bool has_font_below(const char *dir, int depth)
{
    DIR *stream = opendir(dir);
    const struct dirent *entry;
    bool found = false;

    while (stream != NULL && !found && (entry = readdir(stream)) != NULL) {
        AUTO_FREE char *path = mem_print("%s/%s", dir, entry->d_name);

        found = is_font(entry->d_name) ||
                (entry->d_name[0] != '.' && depth > 0 && has_font_below(path, depth - 1));
    }
    if (stream != NULL)
        closedir(stream);
    return found;
}

static bool has_font(const char *dir)
{
    return has_font_below(dir, 3) || has_font_below("/usr/local/share/fonts", 3);
}

static const struct part parts[] = {
    { "Xvfb", has_program, "Xvfb", { "xvfb", "xorg-x11-server-Xvfb", "xorg-server-xvfb" } },
    { "dbus-daemon", has_program, "dbus-daemon", { "dbus-daemon", "dbus-daemon", "dbus" } },
    { "at-spi-bus-launcher",
      has_service,
      "/usr/share/dbus-1/services/org.a11y.Bus.service",
      { "at-spi2-core", "at-spi2-core", "at-spi2-core" } },
    { "at-spi2-registryd",
      has_service,
      "/usr/share/dbus-1/accessibility-services/org.a11y.atspi.Registry.service",
      { "at-spi2-core", "at-spi2-core", "at-spi2-core" } },
    { "openbox (the window manager)", has_program, "openbox", { "openbox", "openbox", "openbox" } },
    { "any font", has_font, "/usr/share/fonts", { "fonts-dejavu-core", "dejavu-sans-fonts", "ttf-dejavu" } },
};

static void add_package(struct findings *f, const char *package)
{
    AUTO_FREE char *word = mem_print(" %s", package);

    if (strstr(text_get(&f->packages), word) == NULL)
        text_add_string(&f->packages, word);
}

static void inspect_desktop(struct findings *f, enum distribution distribution)
{
    struct text names = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (parts[i].is_there(parts[i].what))
            continue;
        text_print(&names, "%s%s", names.size > 0 ? ", " : "", parts[i].name);
        f->missing++;
        if (distribution < DISTRIBUTION_COUNT)
            add_package(f, parts[i].packages[distribution]);
    }
    if (f->missing > 0) {
        AUTO_FREE char *sentence =
            mem_print("The desktop needs what is not installed: %s.", text_get(&names));

        add_obstacle(f, sentence);
    }
    text_done(&names);
}

/* ---- kernel and user ---- */

/* 1 when sandboxes can be tried on this kernel at all. */
static int inspect_kernel(struct findings *f)
{
    struct utsname name;
    unsigned major = 0, minor = 0;
    AUTO_FREE char *sentence = NULL;

    if (uname(&name) < 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2)
        return 1; /* the trial will tell */
    if (major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR))
        return 1;
    sentence =
        mem_print("Linux %d.%d or newer is needed, this is %s.", KERNEL_MAJOR, KERNEL_MINOR, name.release);
    add_obstacle(f, sentence);
    return 0;
}

static void inspect_user(struct findings *f)
{
    struct linux_user user;
    struct error e = { 0 };

    if (linux_user_find(&user, &e) < 0)
        add_obstacle(f, e.message);
}

/* ---- the trial ---- */

enum overlay_verdict {
    OVERLAY_WORKS = 0,
    OVERLAY_NOT_HERE,
    OVERLAY_NO_MODULE,
    OVERLAY_FAILS,
    OVERLAY_NOT_TRIED
};

struct trial {
    int sandboxes; /* where upper layers will be; -1: nothing was ever created */
    enum overlay_verdict overlay;
};

static enum overlay_verdict try_overlay(int sandboxes)
{
    struct error e = { 0 };
    int works;

    if (sandboxes < 0)
        return OVERLAY_NOT_TRIED;
    works = mounts_try_overlay(sandboxes, &e);
    if (works >= 0)
        return works > 0 ? OVERLAY_WORKS : OVERLAY_NOT_HERE;
    return e.sys == ENODEV ? OVERLAY_NO_MODULE : OVERLAY_FAILS;
}

/* The overlay first: it needs the host's /proc, which the other two cover. */
static int trial_enter(void *self, struct error *e)
{
    struct trial *t = self;

    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return obstacle_set_error(OBSTACLE_MOUNT, errno, e);
    t->overlay = try_overlay(t->sandboxes);
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return obstacle_set_error(OBSTACLE_PROC, errno, e);
    if (mount("trial", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m") < 0)
        return obstacle_set_error(OBSTACLE_MOUNT, errno, e);
    return 0;
}

static int trial_run(void *self)
{
    const struct trial *t = self;

    return (int)t->overlay; /* the exit status is all that has to come back */
}

static void add_overlay_finding(struct findings *f, enum overlay_verdict verdict)
{
    static const struct {
        const char *sentence, *fix;
    } rows[] = {
        [OVERLAY_NOT_HERE] = { "System directories will be read-only inside: the state root's file system "
                               "cannot hold an overlay's upper layer; set AGENT_DESKTOP_HOME to a directory "
                               "on another.",
                               NULL },
        [OVERLAY_NO_MODULE] = { "System directories will be read-only inside: the kernel's overlay module is "
                                "not loaded.",
                                "sudo modprobe overlay" },
        [OVERLAY_FAILS] = { "System directories will be read-only inside: overlays do not work here.", NULL },
        [OVERLAY_NOT_TRIED] = { NULL, NULL },
    };

    if (rows[verdict].sentence == NULL)
        return;
    add_finding(f, rows[verdict].sentence);
    if (f->obstacle_fix == NULL)
        f->obstacle_fix = rows[verdict].fix;
}

static void inspect_namespaces(struct findings *f, const struct root *root)
{
    struct trial trial = { .sandboxes = root->sandboxes, .overlay = OVERLAY_NOT_TRIED };
    struct namespace_request request = {
        .limit_ms = TRIAL_LIMIT_MS, .enter = trial_enter, .run = trial_run, .self = &trial
    };
    struct error e = { 0 };
    pid_t pid;
    int status = 0;

    if (namespace_spawn(&request, &pid, &e) < 0) {
        const struct obstacle *known = obstacle_find(&e);

        f->obstacle_fix = known == NULL ? NULL : known->fix;
        add_obstacle(f, e.message);
        return;
    }
    if (RETRY_EINTR(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) &&
        WEXITSTATUS(status) <= OVERLAY_NOT_TRIED)
        add_overlay_finding(f, (enum overlay_verdict)WEXITSTATUS(status));
}

/* ---- the report ---- */

static void add_own_path(struct text *t)
{
    char path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);

    path[size < 0 ? 0 : size] = '\0';
    text_add_shell_word(t, path);
}

/* TEMPLATE as it is to be run here: "{binary}" is this program, and root needs no sudo, which small systems
 * do not even have. */
static void expand_fix(struct text *out, const char *template)
{
    while (*template != '\0') {
        if (strncmp(template, "{binary}", strlen("{binary}")) == 0) {
            add_own_path(out);
            template += strlen("{binary}");
        } else if (geteuid() == 0 && strncmp(template, "sudo ", strlen("sudo ")) == 0) {
            template += strlen("sudo ");
        } else {
            text_add(out, template ++, 1);
        }
    }
}

/* The fix that settles most findings. */
static void choose_fix(const struct findings *f, enum distribution distribution, struct text *out)
{
    bool can_install = distribution < DISTRIBUTION_COUNT && f->packages.size > 0;

    if (can_install && (f->obstacle_fix == NULL || f->missing > 1)) {
        expand_fix(out, install_commands[distribution]);
        text_add_string(out, text_get(&f->packages));
    } else if (f->obstacle_fix != NULL) {
        expand_fix(out, f->obstacle_fix);
    }
}

int linux_inspect_host(const struct root *root, struct provider_host_report *out, struct error *e)
{
    enum distribution distribution = find_distribution();
    struct findings f = { 0 };
    struct text fix = { 0 };

    (void)e; /* whatever cannot be found out is a finding */
    if (inspect_kernel(&f))
        inspect_namespaces(&f, root);
    inspect_user(&f);
    inspect_desktop(&f, distribution);
    choose_fix(&f, distribution, &fix);
    out->state = f.unavailable ? PROVIDER_UNAVAILABLE : PROVIDER_READY;
    snprintf(out->message, sizeof(out->message), "%s",
             f.message.size > 0 ? text_get(&f.message) : "This host can run linux sandboxes.");
    snprintf(out->fix, sizeof(out->fix), "%s", text_get(&fix));
    text_done(&fix);
    text_done(&f.packages);
    text_done(&f.message);
    return 0;
}

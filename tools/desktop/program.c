#include "tools/desktop/program.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/text.h"
#include "tools/desktop/entry.h"

#define ENTRY_SUFFIX ".desktop"
#define ENTRY_MAX    (1 << 20) /* bytes of a .desktop file; LibreOffice's are 20 kB */
#define PATH_DEFAULT "/usr/local/bin:/usr/bin:/bin:/usr/games"
#define DATA_DEFAULT "/usr/local/share:/usr/share"

const char *program_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

static bool is_program(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

/* An absolute path of FILE as a shell would find it; free() it. NULL when there is none. */
static char *find_file(const char *file)
{
    const char *path = getenv("PATH");

    if (strchr(file, '/') != NULL)
        return is_program(file) ? realpath(file, NULL) : NULL;
    if (file[0] == '\0')
        return NULL;
    for (const char *p = path != NULL && path[0] != '\0' ? path : PATH_DEFAULT; *p != '\0';) {
        const size_t length = strcspn(p, ":");
        AUTO_FREE char *candidate = mem_print("%.*s/%s", (int)length, p, file);

        if (p[0] == '/' && is_program(candidate))
            return steal(&candidate);
        p += length + (p[length] == ':');
    }
    return NULL;
}

/* .desktop files */

/* Calls VISIT for every .desktop file, the first directory first, until it says true; then true. */
typedef bool entry_visitor(const char *id, const struct entry *entry, void *self);

static bool visit_file(int dir, const char *file, entry_visitor *visit, void *self)
{
    AUTO_FREE char *bytes = NULL, *id = NULL;
    struct entry entry = { 0 };
    struct error ignored = { 0 }; /* an entry that cannot be read is not installed */
    const char *suffix = strrchr(file, '.');
    size_t size;
    bool stop;

    if (suffix == NULL || strcmp(suffix, ENTRY_SUFFIX) != 0 ||
        file_read(dir, file, ENTRY_MAX, &bytes, &size, &ignored) <= 0 || !entry_parse(bytes, &entry))
        return false;
    id = strndup(file, (size_t)(suffix - file));
    stop = visit(id, &entry, self);
    entry_done(&entry);
    return stop;
}

static bool visit_directory(const char *path, entry_visitor *visit, void *self)
{
    DIR *dir = opendir(path);
    bool stop = false;

    if (dir == NULL)
        return false;
    for (struct dirent *d; !stop && (d = readdir(dir)) != NULL;)
        stop = visit_file(dirfd(dir), d->d_name, visit, self);
    closedir(dir);
    return stop;
}

static bool visit_entries(entry_visitor *visit, void *self)
{
    const char *dirs = getenv("XDG_DATA_DIRS"), *home = getenv("HOME");
    AUTO_FREE char *own = mem_print("%s/.local/share/applications", home == NULL ? "" : home);

    if (visit_directory(own, visit, self))
        return true;
    for (const char *p = dirs != NULL && dirs[0] != '\0' ? dirs : DATA_DEFAULT; *p != '\0';) {
        const size_t length = strcspn(p, ":");
        AUTO_FREE char *path = mem_print("%.*s/applications", (int)length, p);

        if (visit_directory(path, visit, self))
            return true;
        p += length + (p[length] == ':');
    }
    return false;
}

static const char *last_part(const char *id)
{
    const char *dot = strrchr(id, '.');

    return dot == NULL ? id : dot + 1;
}

struct search {
    const char *wanted; /* without ".desktop" */
    struct program *out;
};

static bool take_entry(const char *id, const struct entry *entry, void *self)
{
    struct search *search = self;
    const char *const names[] = { id, last_part(id), entry->name };
    bool wanted = false;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        wanted = wanted || strcasecmp(names[i], search->wanted) == 0;
    if (!wanted)
        return false;

    AUTO_FREE char *file = find_file(entry->argv[0]);

    if (file == NULL) /* left over from a program that was removed */
        return false;
    program_add_argument(search->out, file);
    for (size_t i = 1; i < entry->argc; i++)
        program_add_argument(search->out, entry->argv[i]);
    search->out->name = mem_copy_text(entry->name);
    return true;
}

int program_find(const char *app, struct program *out)
{
    AUTO_FREE char *file = find_file(app), *wanted = mem_copy_text(app);
    char *suffix = strrchr(wanted, '.');

    *out = (struct program){ 0 };
    if (file != NULL) {
        program_add_argument(out, file);
        out->name = mem_copy_text(program_base_name(app));
        return 1;
    }
    if (strchr(app, '/') != NULL)
        return 0;
    if (suffix != NULL && strcmp(suffix, ENTRY_SUFFIX) == 0)
        *suffix = '\0';
    return visit_entries(take_entry, &(struct search){ wanted, out });
}

void program_add_argument(struct program *program, const char *argument)
{
    program->argv = mem_grow(program->argv, program->argc + 2, sizeof program->argv[0]);
    program->argv[program->argc++] = mem_copy_text(argument);
    program->argv[program->argc] = NULL;
}

void program_done(struct program *program)
{
    for (size_t i = 0; i < program->argc; i++)
        free(program->argv[i]);
    free(program->argv);
    free(program->name);
    *program = (struct program){ 0 };
}

struct names {
    char **items;
    size_t count;
};

static bool take_names(const char *id, const struct entry *entry, void *self)
{
    struct names *names = self;

    names->items = mem_grow(names->items, names->count + 2, sizeof names->items[0]);
    names->items[names->count++] = mem_copy_text(program_base_name(entry->argv[0]));
    names->items[names->count++] = mem_copy_text(id);
    return false;
}

char *program_find_near(const char *app)
{
    struct names names = { 0 };
    const char *near;
    char *copy;

    visit_entries(take_names, &names);
    near = text_find_nearest(app, (const char *const *)names.items, names.count);
    copy = near == NULL ? NULL : mem_copy_text(near);
    for (size_t i = 0; i < names.count; i++)
        free(names.items[i]);
    free(names.items);
    return copy;
}

/* Processes */

static bool is_interpreter(const char *file)
{
    static const char *const interpreters[] = { "python", "perl", "gjs",  "node",
                                                "ruby",   "bash", "dash", "java" };

    for (size_t i = 0; i < ARRAY_LEN(interpreters); i++)
        if (strncmp(file, interpreters[i], strlen(interpreters[i])) == 0)
            return true;
    return false;
}

static bool is_named(const char *path, const char *app, const struct program *program)
{
    const char *file = program_base_name(path);

    return strcasecmp(file, program_base_name(app)) == 0 ||
           (program != NULL && strcmp(file, program_base_name(program->argv[0])) == 0);
}

/* The first words of its command line, each ended by a NUL; proc_pid_cmdline(5). */
static size_t read_command(pid_t pid, char *out, size_t room)
{
    char path[64];
    AUTO_CLOSE int fd = -1;
    ssize_t size;

    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    size = fd < 0 ? -1 : read(fd, out, room - 1);
    out[size < 0 ? 0 : size] = '\0';
    return size < 0 ? 0 : (size_t)size;
}

bool program_is_run_by(pid_t pid, const char *app, const struct program *program)
{
    char link[64], executable[PATH_MAX] = "", command[2 * PATH_MAX];
    const size_t size = pid <= 0 ? 0 : read_command(pid, command, sizeof command);

    if (size == 0)
        return false;
    snprintf(link, sizeof link, "/proc/%d/exe", (int)pid);
    if (readlink(link, executable, sizeof executable - 1) > 0 && is_named(executable, app, program))
        return true;
    if (is_named(command, app, program))
        return true;

    const char *script = command + strlen(command) + 1;

    return is_interpreter(program_base_name(executable)) && script < command + size &&
           is_named(script, app, program);
}

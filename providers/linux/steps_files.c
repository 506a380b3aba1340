#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/process.h"
#include "core/text.h"
#include "providers/home.h"
#include "providers/linux/leftovers.h"
#include "providers/linux/linux.h"
#include "providers/linux/namespace.h"
#include "providers/linux/session.h"
#include "providers/linux/tree.h"

#define HOSTS_MAX (1u << 20)

static int sandboxes_of(const struct linux_sandbox *s)
{
    return s->place->root->sandboxes;
}

static enum step_result step_of(int result)
{
    return result < 0 ? STEP_FAILED : STEP_DONE;
}

/* ---- the directories of a sandbox ---- */

/* An ordinary user can create nothing in a directory that only the lower layer has: it belongs to root,
 * whose id is not mapped, and its copy-up fails with EOVERFLOW. A directory that the upper layer has too
 * takes its owner from there. */
static const struct directory {
    const char *path;
    mode_t mode;
} directories[] = {
    /* parents first */
    { "upper", 0700 },
    { "home", 0700 },
    { "vartmp", 01777 },
    { "log", 0700 },
    { "root", 0700 },
    { "upper/etc", 0755 },
    { "upper/opt", 0755 },
    { "upper/srv", 0755 },
    { "upper/usr", 0755 },
    { "upper/usr/local", 0755 },
    { "upper/usr/local/bin", 0755 },
    { "upper/usr/local/lib", 0755 },
    { "upper/usr/local/share", 0755 },
    { "upper/var", 0755 },
    { "upper/var/cache", 0755 },
    { "upper/var/lib", 0755 },
    { "upper/var/lib/dbus", 0755 },
    { "upper/var/log", 0755 },
    { "upper/var/spool", 0755 },
};

/* A link on the host (say /srv -> var/srv) must not be covered by a directory. */
static bool is_other_on_host(const char *path)
{
    struct stat st;

    if (strncmp(path, "upper/", strlen("upper/")) != 0)
        return false;
    return lstat(path + strlen("upper"), &st) == 0 && !S_ISDIR(st.st_mode);
}

/* Opens PATH below DIR component by component: a guest may have put links anywhere in its layers. -1 with
 * errno. */
static int open_below(int dir, const char *path)
{
    AUTO_FREE char *copy = mem_copy_text(path);
    AUTO_CLOSE int fd = file_open_dir(dir, ".");
    char *rest = NULL;

    for (char *part = strtok_r(copy, "/", &rest); fd >= 0 && part != NULL;
         part = strtok_r(NULL, "/", &rest)) {
        int next = file_open_dir(fd, part);

        close(fd);
        fd = next;
    }
    return steal_fd(&fd);
}

/* What the guest put in its place, a whiteout maybe, stays. */
static int make_directory(int dir, const struct directory *d, struct error *e)
{
    const char *slash = strrchr(d->path, '/');
    const char *name = slash == NULL ? d->path : slash + 1;
    AUTO_FREE char *above =
        slash == NULL ? mem_copy_text(".") : mem_print("%.*s", (int)(slash - d->path), d->path);
    AUTO_CLOSE int parent = open_below(dir, above);
    AUTO_CLOSE int made = -1;

    if (parent < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return 0;
    if (parent < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open '%s'", above);
    if (mkdirat(parent, name, d->mode) < 0)
        return errno == EEXIST ? 0
                               : error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot make '%s'", d->path);
    made = file_open_dir(parent, name);
    if (made < 0 || fchmod(made, d->mode) < 0) /* the umask applied to mkdir */
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot set the mode of '%s'", d->path);
    return 0;
}

static int make_directories(int dir, struct error *e)
{
    for (size_t i = 0; i < ARRAY_LEN(directories); i++)
        if (!is_other_on_host(directories[i].path) && make_directory(dir, &directories[i], e) < 0)
            return -1;
    return 0;
}

/* ---- who the sandbox is ---- */

static int write_file(int dir, const char *name, const char *content, struct error *e)
{
    AUTO_CLOSE int fd = -1;

    if (file_remove_tree(dir, name, e) < 0) /* whatever it was */
        return -1;
    fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || file_write_all(fd, content, strlen(content)) < 0 || fchmod(fd, 0644) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot write '%s'", name);
    return 0;
}

/* The sandbox's own hosts file when it is a clone, else the host's. */
static char *read_hosts(int etc)
{
    struct error ignored = { 0 };
    char *content = NULL;
    size_t size;

    if (file_read(etc, "hosts", HOSTS_MAX, &content, &size, &ignored) == 1 ||
        file_read(AT_FDCWD, "/etc/hosts", HOSTS_MAX, &content, &size, &ignored) == 1)
        return content;
    return mem_copy_text("127.0.0.1 localhost\n::1 localhost\n");
}

/* sudo and others complain when the host name has no address: 127.0.1.1 is its, as Debian does it. */
static int write_hosts(int etc, const char *name, struct error *e)
{
    AUTO_FREE char *old = read_hosts(etc);
    struct text hosts = { 0 };
    char *rest = NULL;
    int result;

    for (char *line = strtok_r(old, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, "127.0.1.1", strlen("127.0.1.1")) != 0)
            text_print(&hosts, "%s\n", line);
    text_print(&hosts, "127.0.1.1 %s\n", name);
    result = write_file(etc, "hosts", text_get(&hosts), e);
    text_done(&hosts);
    return result;
}

static int write_machine_id(int dir, int etc, struct error *e)
{
    AUTO_CLOSE int dbus = open_below(dir, "upper/var/lib/dbus");
    char high[17], low[17], id[40];

    util_random_id(high);
    util_random_id(low);
    snprintf(id, sizeof(id), "%s%s\n", high, low);
    if (write_file(etc, "machine-id", id, e) < 0)
        return -1;
    if (dbus < 0) /* the guest put something else in its place */
        return 0;
    return write_file(dbus, "machine-id", id, e);
}

/* A clone is a new machine: all of it is written anew. */
static int write_identity(int dir, const char *name, struct error *e)
{
    AUTO_CLOSE int etc = open_below(dir, "upper/etc");
    char hostname[NAME_MAX_LENGTH + 2];

    if (etc < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open 'upper/etc'");
    snprintf(hostname, sizeof(hostname), "%s\n", name);
    if (write_file(etc, "hostname", hostname, e) < 0 || write_hosts(etc, name, e) < 0)
        return -1;
    return write_machine_id(dir, etc, e);
}

/* One syncfs() for some 25 new files and directories: as many fsync() calls would each be a flush. */
static int make_durable(const struct linux_sandbox *s, struct error *e)
{
    if (syncfs(s->dir) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot sync the sandbox's files");
    return 0;
}

/* ---- create ---- */

static enum step_result create_directories(void *self, struct step_context *c, struct error *e)
{
    struct linux_sandbox *s = self;
    bool ran_before = c->resumed || c->attempt > 1 || s->dir >= 0;

    leftovers_sweep(sandboxes_of(s));
    if (home_make(s->place->root, s->place->name, ran_before, &s->dir, e) < 0)
        return STEP_FAILED;
    return step_of(make_directories(s->dir, e));
}

static enum step_result create_identity(void *self, struct step_context *c, struct error *e)
{
    struct linux_sandbox *s = self;
    int found = linux_sandbox_open_dir(s, e);

    (void)c;
    if (found == 0)
        error_set(e, ERROR_ACTION_FAILED, 0, "'%s' is gone", s->path);
    if (found <= 0 || write_identity(s->dir, s->place->name, e) < 0)
        return STEP_FAILED;
    return step_of(make_durable(s, e));
}

/* The last: before it, the directory's own name is not durable. */
static enum step_result create_publish(void *self, struct step_context *c, struct error *e)
{
    const struct linux_sandbox *s = self;

    (void)c;
    return step_of(file_sync_dir(sandboxes_of(s), e));
}

const struct step linux_create_steps[] = {
    { "directories", create_directories, true },
    { "identity", create_identity, true },
    { "publish", create_publish, true },
    { 0 },
};

/* ---- clone ---- */

static const char *const copied[] = { "upper", "home", "vartmp" };

struct clone {
    int from, to;
    const char *source;
    int64_t free_before;
};

static void copy_name(char out[LEFTOVER_NAME_SIZE], const char *token)
{
    snprintf(out, LEFTOVER_NAME_SIZE, ".tmp-%s", token);
}

static int64_t free_bytes(int dir)
{
    struct statvfs fs;

    return fstatvfs(dir, &fs) < 0 ? 0 : (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}

/* "cannot write x" does not help on a full disk; how much is missing does. */
static int explain_full(const struct clone *c, struct error *e)
{
    struct error ignored = { 0 };
    int64_t needed = 0;

    for (size_t i = 0; i < ARRAY_LEN(copied); i++)
        if (tree_measure(c->from, copied[i], &needed, &ignored) < 0)
            return -1;
    *e = (struct error){ 0 };
    return error_set(e, ERROR_STORE_FULL, 0, "No space to copy '%s': %lld MB needed, %lld MB free.",
                     c->source, (long long)(needed / 1000000 + 1), (long long)(c->free_before / 1000000));
}

static int copy_trees(void *self, struct error *e)
{
    const struct clone *c = self;

    for (size_t i = 0; i < ARRAY_LEN(copied); i++)
        if (tree_copy(c->from, c->to, copied[i], e) < 0)
            return e->code == ERROR_STORE_FULL ? explain_full(c, e) : -1;
    return 0;
}

static int open_source(const struct linux_sandbox *s, struct error *e)
{
    int fd = file_open_dir(sandboxes_of(s), s->place->source);

    return fd < 0 ? error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open the files of '%s'",
                                    s->place->source)
                  : fd;
}

static int copy_source(struct linux_sandbox *s, const char *name, struct error *e)
{
    AUTO_CLOSE int from = open_source(s, e);
    struct clone clone = { .from = from, .source = s->place->source };

    if (from < 0 || session_wait_remains(s->place->source_facts, e) < 0)
        return -1;
    clone.to = s->dir = leftover_make(sandboxes_of(s), name, e);
    if (s->dir < 0)
        return -1;
    clone.free_before = free_bytes(s->dir);
    if (namespace_run_with_files(copy_trees, &clone, e) < 0)
        return -1;
    return make_directories(s->dir, e);
}

static enum step_result clone_copy(void *self, struct step_context *c, struct error *e)
{
    struct linux_sandbox *s = self;
    struct error ignored = { 0 };
    char name[LEFTOVER_NAME_SIZE];

    assert(s->place->source != NULL);
    copy_name(name, c->token);
    util_close_fd(&s->dir);
    s->dir = -1;
    leftovers_sweep(sandboxes_of(s));
    if (copy_source(s, name, e) == 0)
        return STEP_DONE;
    leftover_remove(sandboxes_of(s), name, &ignored); /* not until the next sweep: it may fill the disk */
    return STEP_FAILED;
}

static enum step_result clone_identity(void *self, struct step_context *c, struct error *e)
{
    struct linux_sandbox *s = self;

    (void)c;
    if (s->dir < 0) {
        error_set(e, ERROR_ACTION_FAILED, 0, "the copy was interrupted");
        return STEP_FAILED;
    }
    if (write_identity(s->dir, s->place->name, e) < 0)
        return STEP_FAILED;
    return step_of(make_durable(s, e));
}

/* Appears whole or not at all. Never over something that is there. */
static enum step_result clone_publish(void *self, struct step_context *c, struct error *e)
{
    const struct linux_sandbox *s = self;
    int dir = sandboxes_of(s);
    char name[LEFTOVER_NAME_SIZE];

    copy_name(name, c->token);
    if (!home_is_named(dir, s->place->name, s->dir) &&
        renameat2(dir, name, dir, s->place->name, RENAME_NOREPLACE) < 0) {
        if (errno == EEXIST)
            error_set(e, ERROR_SANDBOX_EXISTS, 0, "'%s' exists already", s->path);
        else
            error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot rename the copy to '%s'", s->path);
        return STEP_FAILED;
    }
    flock(s->dir, LOCK_UN); /* no leftover any more */
    return step_of(file_sync_dir(dir, e));
}

const struct step linux_clone_steps[] = {
    { "copy", clone_copy, true },
    { "identity", clone_identity, true },
    { "publish", clone_publish, true },
    { 0 },
};

/* ---- remove ---- */

static enum step_result remove_set_aside(void *self, struct step_context *c, struct error *e)
{
    struct linux_sandbox *s = self;
    const struct root *root = s->place->root;

    if (session_wait_remains(c->facts, e) < 0 || home_claim(root, s->place->name, &s->dir, e) < 0)
        return STEP_FAILED;
    return step_of(home_set_aside(root, s->place->name, c->token, e));
}

static enum step_result remove_delete(void *self, struct step_context *c, struct error *e)
{
    const struct linux_sandbox *s = self;

    return step_of(home_delete(s->place->root, c->token, leftover_remove, e));
}

const struct step linux_remove_steps[] = {
    { "set-aside", remove_set_aside, false },
    { "delete", remove_delete, false },
    { 0 },
};

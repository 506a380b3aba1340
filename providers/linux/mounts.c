#include "providers/linux/mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/text.h"
#include "providers/linux/leftovers.h"
#include "providers/linux/mountinfo.h"
#include "providers/linux/namespace.h"
#include "providers/linux/obstacles.h"

/* How it is done. The new root R is a small tmpfs on sandboxes/<name>/root, and the working directory is
 * sandboxes/<name>: so all paths given to mount(2) are relative and of our own making. Nothing has to be
 * escaped in overlay's options, their length does not grow with the state root's path, and /proc/mounts
 * inside tells nothing about the host. What lies below a layer that the guest can write (HOME below /var,
 * the state root) is looked up with openat2(RESOLVE_IN_ROOT): a link planted by the guest leads nowhere. */

struct builder {
    const struct mounts_request *request;
    bool privileged;           /* still the host's root: overlayfs lets us take what has mounts below it */
    bool no_overlay;           /* the state root's file system cannot hold an upper layer */
    struct mountinfo host;     /* as it was before */
    char state_root[PATH_MAX]; /* resolved */
    int root;                  /* R, O_PATH */
    struct text read_only;     /* "/usr, /etc": bound instead of overlaid */
};

/* The directories of the host that are seen inside. Not /home, /root, /mnt, /media, nor what else an
 * administrator keeps at the top. */
static const char *const system_dirs[] = { "usr",  "etc", "var",   "opt",   "srv",   "bin",
                                           "sbin", "lib", "lib32", "lib64", "libx32" };

#define OVERLAY_SCRATCH "work"

/* ---- small parts ---- */

static int fail(int sys, const char *what, const char *path, struct error *e)
{
    return error_set_errno(e, ERROR_ACTION_FAILED, sys, "cannot %s '%s' for the sandbox", what, path);
}

/* A mount: the host may be one that does not have it or allow it. */
static int fail_mount(const char *what, const char *path, struct error *e)
{
    return obstacle_is_refusal(errno)
               ? error_set(e, ERROR_PROVIDER_UNAVAILABLE, errno, "cannot %s '%s' for the sandbox", what, path)
               : fail(errno, what, path, e);
}

/* The path of an open directory or file, as this process's mount namespace names it. */
static int find_path(int fd, char out[PATH_MAX])
{
    char link[64];
    ssize_t size;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    size = readlink(link, out, PATH_MAX - 1);
    if (size < 0)
        return -1;
    out[size] = '\0';
    return 0;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* A descriptor from before clone(2) belongs to the old mount namespace, where nothing may be mounted: so
 * into the directory by its path, and a check that it is the one that is meant. */
static int change_to(int dir, const char *path, struct error *e)
{
    struct stat wanted, here;

    if (chdir(path) < 0 || fstat(dir, &wanted) < 0 || stat(".", &here) < 0)
        return fail(errno, "enter", path, e);
    if (!is_same_file(&wanted, &here))
        return fail(0, "find", path, e);
    return 0;
}

static int open_in_root(const struct builder *b, const char *path)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

    return (int)RETRY_EINTR(syscall(SYS_openat2, b->root, path, &how, sizeof(how)));
}

static int open_or_make_in_root(const struct builder *b, int parent, const char *path)
{
    int fd = open_in_root(b, path);

    if (fd >= 0 || errno != ENOENT)
        return fd;
    if (mkdirat(parent, strrchr(path, '/') + 1, 0755) < 0)
        return -1;
    return open_in_root(b, path);
}

/* Opens the directory PATH (absolute) in R, making what is missing of it. -1 with errno. */
static int make_in_root(const struct builder *b, const char *path)
{
    AUTO_CLOSE int dir = open_in_root(b, "/");
    AUTO_FREE char *part = mem_copy_text(path);

    for (char *end = part; dir >= 0 && end != NULL;) {
        int next;

        end = strchr(end + 1, '/');
        if (end != NULL)
            *end = '\0';
        next = open_or_make_in_root(b, dir, part);
        if (end != NULL)
            *end = '/';
        close(dir);
        dir = next;
    }
    return steal_fd(&dir);
}

/* Mounts what is at SOURCE, with everything mounted below it, on TARGET ("" for the descriptor itself).
 * The attributes are set before it is visible: nothing ever appears writable. -1 with errno. */
static int bind(const char *source, uint64_t attributes, int target_dir, const char *target)
{
    struct mount_attr attr = { .attr_set = attributes };
    AUTO_CLOSE int tree =
        open_tree(AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW);

    if (tree < 0)
        return -1;
    if (attributes != 0 && mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        return -1;
    return move_mount(tree, "", target_dir, target, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

/* ---- the new root ---- */

/* Slave, not private: what the host unmounts goes away here too, and nothing of ours leaks out. */
static int leave_host(struct builder *b, struct error *e)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return obstacle_set_error(OBSTACLE_MOUNT, errno, e);
    return change_to(b->request->sandbox_dir, b->request->sandbox_path, e);
}

static int make_root(struct builder *b, struct error *e)
{
    if (mkdir("root", 0700) < 0 && errno != EEXIST)
        return fail(errno, "make", "root", e);
    if (mount("root", "root", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m") < 0)
        return errno == ENOTDIR ? error_set(e, ERROR_ACTION_FAILED, 0, "'%s/root' is not a directory",
                                            b->request->sandbox_path)
                                : obstacle_set_error(OBSTACLE_MOUNT, errno, e);
    b->root = open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return b->root < 0 ? fail(errno, "open", "/", e) : 0;
}

static int copy_link(const char *name, struct error *e)
{
    char target[PATH_MAX];
    AUTO_FREE char *from = mem_print("/%s", name);
    AUTO_FREE char *to = mem_print("root/%s", name);
    ssize_t size = readlink(from, target, sizeof(target) - 1);

    if (size < 0)
        return fail(errno, "read the link", from, e);
    target[size] = '\0';
    return symlink(target, to) < 0 ? fail(errno, "make the link", from, e) : 0;
}

/* "/bin -> usr/bin" and others: HOME may lie behind one. */
static int copy_top_links(struct builder *b, struct error *e)
{
    DIR *top = opendir("/");
    const struct dirent *entry;
    struct stat st;
    int result = 0;

    (void)b;
    if (top == NULL)
        return fail(errno, "read", "/", e);
    while (result == 0 && (entry = readdir(top)) != NULL)
        if (fstatat(dirfd(top), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
            result = copy_link(entry->d_name, e);
    closedir(top);
    return result;
}

/* ---- the host's directories ---- */

/* A work directory must be empty and of its own for every mount; the kernel leaves a directory of mode 000
 * in it. */
static int remake_scratch(struct builder *b, struct error *e)
{
    int dir = b->request->sandbox_dir;

    if (file_remove_tree(dir, OVERLAY_SCRATCH, e) < 0)
        return -1;
    return mkdirat(dir, OVERLAY_SCRATCH, 0700) < 0 ? fail(errno, "make", OVERLAY_SCRATCH, e) : 0;
}

/* Without userxattr the mount of an ordinary user succeeds, and removing a directory later fails with EIO.
 * index, xino: not needed, and each warns in the kernel's log. redirect_dir=off keeps upper/ complete in
 * itself, so that it can be copied. */
static const char *overlay_options(bool privileged)
{
    return privileged ? "redirect_dir=off,metacopy=off,index=off,xino=off" : "userxattr,index=off,xino=off";
}

static int mount_overlay(const char *lower, const char *upper, const char *work, const char *target,
                         bool privileged)
{
    AUTO_FREE char *options =
        mem_print("lowerdir=%s,upperdir=%s,workdir=%s,%s", lower, upper, work, overlay_options(privileged));

    return mount("overlay", target, "overlay", MS_NODEV, options);
}

/* An ordinary user's overlay cannot take a directory with mounts below it (they are locked to it), nor one
 * that its own upper layer lies in; each try would be a line in the kernel's log. */
static bool may_overlay(const struct builder *b, const char *path)
{
    if (b->no_overlay)
        return false;
    return b->privileged ||
           (!mountinfo_has_below(&b->host, path) && !mountinfo_contains(path, b->state_root));
}

/* 1 when NAME is settled: mounted, or hidden by what the guest put in its place; 0 when this host cannot. */
static int try_overlay(const struct builder *b, const char *name, struct error *e)
{
    AUTO_FREE char *lower = mem_print("/%s", name);
    AUTO_FREE char *upper = mem_print("upper/%s", name);
    AUTO_FREE char *work = mem_print(OVERLAY_SCRATCH "/%s", name);
    AUTO_FREE char *target = mem_print("root/%s", name);
    struct stat st;

    if ((mkdir(upper, 0755) < 0 && errno != EEXIST) || lstat(upper, &st) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot make '%s'", upper);
    if (!S_ISDIR(st.st_mode))
        return 1;
    if (mkdir(work, 0700) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot make '%s'", work);
    return mount_overlay(lower, upper, work, target, b->privileged) == 0;
}

static int bind_system_dir(struct builder *b, const char *name, struct error *e)
{
    AUTO_FREE char *source = mem_print("/%s", name);

    if (bind(source, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, b->root, name) < 0)
        return fail_mount("mount", source, e);
    text_print(&b->read_only, "%s%s", b->read_only.size > 0 ? ", " : "", source);
    return 0;
}

static int add_system_dir(struct builder *b, const char *name, struct error *e)
{
    AUTO_FREE char *path = mem_print("/%s", name);
    AUTO_FREE char *target = mem_print("root/%s", name);
    struct stat st;

    if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0; /* a link has been copied */
    if (mkdir(target, 0755) < 0)
        return fail(errno, "make", path, e);
    if (may_overlay(b, path)) {
        int settled = try_overlay(b, name, e);

        if (settled != 0)
            return settled < 0 ? -1 : 0;
        b->no_overlay = true;
    }
    return bind_system_dir(b, name, e);
}

static int add_system_dirs(struct builder *b, struct error *e)
{
    for (size_t i = 0; i < ARRAY_LEN(system_dirs); i++)
        if (add_system_dir(b, system_dirs[i], e) < 0)
            return -1;
    return 0;
}

/* ---- what is new inside ---- */

struct fresh_mount {
    const char *target; /* in R; its directory is made */
    const char *type;
    unsigned long flags;
    const char *data;
    bool optional; /* not every kernel has it */
};

static const struct fresh_mount fresh_mounts[] = {
    /* in this order */
    { "root/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false },
    { "root/dev", "tmpfs", MS_NOSUID, "mode=755,size=1m", false },
    /* no gid=5: that group is not mapped for an ordinary user, and the mount would fail */
    { "root/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620", false },
    { "root/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777", false },
    { "root/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true },
    { "root/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755", false },
    { "root/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777", false },
};

static int mount_fresh(const struct fresh_mount *m, struct error *e)
{
    const char *inside = m->target + strlen("root");

    if (mkdir(m->target, 0755) < 0)
        return fail(errno, "make", inside, e);
    if (mount(m->type, m->target, m->type, m->flags, m->data) == 0)
        return 0;
    if (m->optional && errno == ENODEV)
        return 0;
    return strcmp(m->type, "proc") == 0 ? obstacle_set_error(OBSTACLE_PROC, errno, e)
                                        : fail_mount("mount", inside, e);
}

static int add_fresh_mounts(struct builder *b, struct error *e)
{
    (void)b;
    for (size_t i = 0; i < ARRAY_LEN(fresh_mounts); i++)
        if (mount_fresh(&fresh_mounts[i], e) < 0)
            return -1;
    return 0;
}

static int add_directories(struct builder *b, struct error *e)
{
    static const struct {
        const char *path;
        mode_t mode;
    } rows[] = {
        { "root/run/user", 0755 },          { "root/run/lock", 01777 },
        { "root/run/agent-desktop", 0755 }, { "root/run/agent-desktop/bin", 0755 },
        { "root/tmp/.X11-unix", 01777 },    { "root/tmp/.ICE-unix", 01777 },
    };
    AUTO_FREE char *runtime = mem_print("root/run/user/%u", b->request->user->uid);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (mkdir(rows[i].path, rows[i].mode) < 0)
            return fail(errno, "make", rows[i].path + strlen("root"), e);
    return mkdir(runtime, 0700) < 0 ? fail(errno, "make", "/run/user", e) : 0;
}

/* mknod(2) of a device is not allowed in a user namespace; a bind of the host's is. */
static int add_devices(struct builder *b, struct error *e)
{
    static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
    static const struct {
        const char *path, *target;
    } links[] = {
        { "root/dev/fd", "/proc/self/fd" },       { "root/dev/stdin", "/proc/self/fd/0" },
        { "root/dev/stdout", "/proc/self/fd/1" }, { "root/dev/stderr", "/proc/self/fd/2" },
        { "root/dev/ptmx", "pts/ptmx" },
    };

    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        AUTO_FREE char *source = mem_print("/dev/%s", nodes[i]);
        AUTO_FREE char *target = mem_print("root/dev/%s", nodes[i]);
        AUTO_CLOSE int made = open(target, O_CREAT | O_EXCL | O_CLOEXEC, 0666);

        if (made < 0 || bind(source, 0, b->root, target + strlen("root/")) < 0)
            return fail_mount("mount", source, e);
    }
    for (size_t i = 0; i < ARRAY_LEN(links); i++)
        if (symlink(links[i].target, links[i].path) < 0)
            return fail(errno, "make the link", links[i].path + strlen("root"), e);
    return 0;
}

/* Inside as uid 0 one still is the owner of these files, and they change or show the whole host. */
static int protect_proc(struct builder *b, struct error *e)
{
    static const char *const read_only[] = { "sys", "irq", "bus", "fs", "sysrq-trigger" };
    static const char *const hidden[] = { "kcore", "keys", "timer_list", "kallsyms" };

    if (b->request->user->uid != 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(read_only); i++) {
        AUTO_FREE char *path = mem_print("root/proc/%s", read_only[i]);

        if (bind(path, MOUNT_ATTR_RDONLY, AT_FDCWD, path) < 0 && errno != ENOENT)
            return fail_mount("protect", path + strlen("root"), e);
    }
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
        AUTO_FREE char *path = mem_print("root/proc/%s", hidden[i]);

        if (bind("/dev/null", 0, AT_FDCWD, path) < 0 && errno != ENOENT)
            return fail_mount("protect", path + strlen("root"), e);
    }
    return 0;
}

/* Of the host: a sysfs of its own would need a network namespace of its own. */
static int add_sys(struct builder *b, struct error *e)
{
    const uint64_t attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;

    if (mkdir("root/sys", 0555) < 0 || bind("/sys", attributes, b->root, "sys") < 0)
        return fail_mount("mount", "/sys", e);
    return 0;
}

/* ---- the sandbox's own files ---- */

static int add_home(struct builder *b, struct error *e)
{
    const char *home = b->request->user->home;
    AUTO_CLOSE int target = make_in_root(b, home);

    if (target < 0 || bind("home", MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, target, "") < 0)
        return fail_mount("mount the home directory", home, e);
    return 0;
}

static bool is_read_only(const struct builder *b, const char *path)
{
    AUTO_CLOSE int fd = open_in_root(b, path);
    struct statvfs fs;

    return fd >= 0 && fstatvfs(fd, &fs) == 0 && (fs.f_flag & ST_RDONLY) != 0;
}

/* The host's /var/tmp, like its /tmp, holds files of the same user that are nobody's business inside: state
 * roots among them. */
static int add_vartmp(struct builder *b, struct error *e)
{
    AUTO_CLOSE int target = open_in_root(b, "/var/tmp");

    if (target < 0 && errno == ENOENT)
        return 0;
    if (target < 0 || bind("vartmp", MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, target, "") < 0)
        return fail_mount("mount", "/var/tmp", e);
    return 0;
}

/* A clone is a new machine even where /etc is the host's. */
static int add_identity(struct builder *b, struct error *e)
{
    static const char *const names[] = { "hostname", "hosts", "machine-id" };

    if (!is_read_only(b, "/etc"))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO_FREE char *source = mem_print("upper/etc/%s", names[i]);
        AUTO_FREE char *path = mem_print("/etc/%s", names[i]);
        AUTO_CLOSE int target = open_in_root(b, path);

        if (target >= 0 && bind(source, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, target, "") < 0 &&
            errno != ENOENT)
            return fail_mount("mount", path, e);
    }
    return 0;
}

/* /etc/resolv.conf often leads into /run, which is new inside. The directory is bound, since the file is
 * replaced by rename; not for a file directly in /run, since that directory holds the host's sockets. The
 * resolver's own may lie beside its file, and a read-only mount keeps nobody from connecting: harmless where
 * the network is the host's anyway, and only there. */
static int add_resolver(struct builder *b, struct error *e)
{
    AUTO_FREE char *path = realpath("/etc/resolv.conf", NULL);
    AUTO_CLOSE int target = -1;
    char *slash = path == NULL ? NULL : strrchr(path, '/');

    if (b->request->own_network || path == NULL || !mountinfo_contains("/run", path) ||
        slash == path + strlen("/run"))
        return 0;
    *slash = '\0';
    target = make_in_root(b, path);
    if (target < 0 || bind(path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, target, "") < 0)
        return fail_mount("mount", path, e);
    return 0;
}

static int add_binary(struct builder *b, struct error *e)
{
    static const char target[] = "root/run/agent-desktop/bin/agent-desktop";
    char path[PATH_MAX];
    struct stat wanted, there;

    if (find_path(b->request->binary, path) < 0 || fstat(b->request->binary, &wanted) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot find this program's own file");
    if (stat(path, &there) < 0 || !is_same_file(&wanted, &there))
        return error_set(e, ERROR_ACTION_FAILED, 0, "this program's file was replaced while it ran");
    AUTO_CLOSE int made = open(target, O_CREAT | O_EXCL | O_CLOEXEC, 0755);

    if (made < 0 || bind(path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, AT_FDCWD, target) < 0)
        return fail_mount("mount", path, e);
    return 0;
}

/* ---- hiding the state root ---- */

static int hide(void *self, const char *path, struct error *e)
{
    const struct builder *b = self;
    AUTO_CLOSE int target = open_in_root(b, path);
    struct stat st;
    char name[64];

    if (target < 0) /* not seen inside: the usual case */
        return errno == ENOENT || errno == ENOTDIR ? 0 : fail(errno, "hide", path, e);
    if (fstat(target, &st) < 0)
        return fail(errno, "hide", path, e);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", target);
    if (S_ISDIR(st.st_mode) ? mount("hidden", name, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=755") < 0
                            : bind("/dev/null", MOUNT_ATTR_RDONLY, target, "") < 0)
        return fail_mount("hide", path, e);
    return 0;
}

/* The guest runs as the same user: ctl, the journal and the keys of all sandboxes would be its own. */
static int hide_state_root(struct builder *b, struct error *e)
{
    return mountinfo_each_alias(&b->host, b->state_root, hide, b, e);
}

/* ---- the end ---- */

static int change_root(struct builder *b, struct error *e)
{
    struct mount_attr read_only = { .attr_set = MOUNT_ATTR_RDONLY };

    (void)b;
    if (mount_setattr(AT_FDCWD, "root", 0, &read_only, sizeof(read_only)) < 0)
        return fail_mount("protect", "/", e);
    /* The old root lands on top of the new one and is taken off again: no directory for it is needed. */
    if (chdir("root") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0)
        return fail_mount("change to", "/", e);
    return 0;
}

static int (*const parts[])(struct builder *b, struct error *e) = {
    leave_host,      make_root,    copy_top_links, remake_scratch,  add_system_dirs, add_fresh_mounts,
    add_directories, add_devices,  protect_proc,   add_sys,         add_home,        add_vartmp,
    add_identity,    add_resolver, add_binary,     hide_state_root, change_root,
};

static int build(struct builder *b, struct error *e)
{
    if (realpath(b->request->root_path, b->state_root) == NULL)
        return fail(errno, "find", b->request->root_path, e);
    if (mountinfo_read(&b->host, e) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i](b, e) < 0)
            return -1;
    return 0;
}

static void write_note(const struct builder *b, char *note, size_t size)
{
    if (b->read_only.size == 0)
        snprintf(note, size, "%s", "");
    else
        snprintf(note, size, "read-only inside: %s (%s)", text_get(&b->read_only),
                 b->no_overlay ? "the state root's file system cannot hold an overlay"
                               : "the host has mounts or the state root below");
}

int mounts_enter(const struct mounts_request *request, char *note, size_t note_size, struct error *e)
{
    struct builder b = { .request = request, .privileged = namespace_is_privileged(), .root = -1 };
    mode_t mask = umask(0); /* modes are meant as they stand here */
    int result = build(&b, e);

    umask(mask);
    if (result == 0)
        write_note(&b, note, note_size);
    mountinfo_done(&b.host);
    text_done(&b.read_only);
    util_close_fd(&b.root);
    return result;
}

/* ---- the try ---- */

static int try_in(int scratch, struct error *e)
{
    static const char *const names[] = { "lower", "upper", "work", "merged" };
    char path[PATH_MAX];

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (mkdirat(scratch, names[i], 0700) < 0)
            return error_set_errno(e, ERROR_INTERNAL, errno, "cannot make a directory in the state root");
    if (find_path(scratch, path) < 0)
        return error_set(e, ERROR_INTERNAL, errno, "cannot find the state root");
    if (change_to(scratch, path, e) < 0)
        return -1;
    if (mount_overlay("lower", "upper", "work", "merged", namespace_is_privileged()) < 0)
        return errno == EINVAL || errno == EOPNOTSUPP
                   ? 0
                   : error_set(e, ERROR_PROVIDER_UNAVAILABLE, errno, "cannot mount an overlay");
    return umount2("merged", MNT_DETACH) < 0
               ? error_set(e, ERROR_INTERNAL, errno, "cannot unmount the overlay that was tried")
               : 1;
}

int mounts_try_overlay(int dir, struct error *e)
{
    AUTO_CLOSE int scratch = -1;
    char id[17], name[LEFTOVER_NAME_SIZE];
    int result;

    util_random_id(id);
    snprintf(name, sizeof(name), ".tmp-%s", id);
    scratch = leftover_make(dir, name, e); /* a sweep removes it should we die here */
    if (scratch < 0)
        return -1;
    result = try_in(scratch, e);
    return file_remove_tree(dir, name, e) < 0 ? -1 : result;
}

#include "providers/linux/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/copy.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/text.h"

/* Descriptors held for the path from the top to where the walk is: more levels are closed, and opened
 * again through ".." on the way back, so that no depth of a guest's making exhausts them. */
#define LEVELS_OPEN 32

struct level {
    int from, to; /* -1 when closed; TO is always -1 in a walk that only measures */
    struct stat st;
    struct text below; /* names of the directories in it, each with its NUL */
    size_t next;       /* the one to enter next */
    size_t path_size;  /* of the walk's path before this level's name */
};

struct walk;

typedef int visit_fn(struct walk *w, const struct level *l, const char *name, const struct stat *st,
                     struct error *e);

struct link_target { /* a file with several names: where its first copy is */
    dev_t dev;       /* a subvolume has inode numbers of its own */
    ino_t ino;
    char *path; /* NULL: a free slot */
};

struct walk {
    visit_fn *visit;  /* for everything but directories that are entered */
    bool copies;      /* make directories in the target, too */
    int to;           /* copies: where the top's copy is made */
    struct text path; /* of the deepest level, from the top's name on */
    struct level *levels;
    size_t depth, room;
    size_t first_open; /* levels from here to depth are open */

    struct link_target *links; /* hash table, open addressing; a power of two in size */
    size_t link_count, link_room;
    struct copy data;
    int64_t bytes; /* measured */
};

static int fail_at(const struct walk *w, int sys, const char *what, const char *name, struct error *e)
{
    return error_set_errno(e, ERROR_ACTION_FAILED, sys, "cannot %s '%s%s%s'", what, text_get(&w->path),
                           w->path.size > 0 && name[0] != '\0' ? "/" : "", name);
}

/* ---- attributes ---- */

/* Marks by which overlayfs finds the lower file again: untrue for a copy, and made anew when needed. */
static bool is_stale_in_copy(const char *xattr)
{
    static const char *const names[] = { "overlay.origin", "overlay.impure", "overlay.uuid",
                                         "overlay.nlink" };
    const char *rest = strchr(xattr, '.');

    for (size_t i = 0; rest != NULL && i < ARRAY_LEN(names); i++)
        if (strcmp(rest + 1, names[i]) == 0)
            return true;
    return false;
}

/* A label or capability that only the administrator may set is no reason not to copy. */
static bool may_lose(const char *xattr, int sys)
{
    return (sys == EPERM || sys == EOPNOTSUPP) &&
           (strncmp(xattr, "security.", 9) == 0 || strncmp(xattr, "trusted.", 8) == 0);
}

static int copy_xattr(int from, int to, const char *name)
{
    ssize_t size = fgetxattr(from, name, NULL, 0);
    AUTO_FREE char *value = size <= 0 ? NULL : mem_alloc((size_t)size);

    if (size > 0)
        size = fgetxattr(from, name, value, (size_t)size);
    if (size < 0)
        return may_lose(name, errno) ? 0 : -1;
    if (fsetxattr(to, name, size == 0 ? "" : value, (size_t)size, 0) < 0)
        return may_lose(name, errno) ? 0 : -1;
    return 0;
}

static int copy_xattrs(int from, int to)
{
    ssize_t size = flistxattr(from, NULL, 0);
    AUTO_FREE char *names = size <= 0 ? NULL : mem_alloc((size_t)size + 1);

    if (size > 0)
        size = flistxattr(from, names, (size_t)size);
    if (size < 0)
        return errno == EOPNOTSUPP ? 0 : -1;
    for (const char *name = names; name != NULL && name < names + size; name += strlen(name) + 1)
        if (!is_stale_in_copy(name) && copy_xattr(from, to, name) < 0)
            return -1;
    return 0;
}

/* An ordinary user's copy belongs to the user, as everything in the sandbox does: other owners are not even
 * mapped where this runs. */
static int copy_owner(int dir, const char *name, int flags, const struct stat *st)
{
    if (geteuid() != 0)
        return 0;
    return fchownat(dir, name, st->st_uid, st->st_gid, flags);
}

/* Owner first: it takes away set-id bits and capabilities. Times last: the others change them. */
static int copy_attributes(int from, int to, const struct stat *st)
{
    const struct timespec times[] = { st->st_atim, st->st_mtim };

    if (copy_owner(to, "", AT_EMPTY_PATH, st) < 0 || copy_xattrs(from, to) < 0)
        return -1;
    return fchmod(to, st->st_mode & 07777) < 0 ? -1 : futimens(to, times);
}

/* ---- hard links ---- */

static struct link_target *link_slot(const struct walk *w, dev_t dev, ino_t ino)
{
    size_t at = (size_t)((uint64_t)ino * 0x9E3779B97F4A7C15u >> 32) & (w->link_room - 1);

    while (w->links[at].path != NULL && (w->links[at].ino != ino || w->links[at].dev != dev))
        at = (at + 1) & (w->link_room - 1);
    return &w->links[at];
}

static void grow_links(struct walk *w)
{
    struct link_target *old = w->links;
    size_t count = w->link_room;

    w->link_room = count > 0 ? count * 2 : 64;
    w->links = mem_alloc(w->link_room * sizeof(*w->links));
    for (size_t i = 0; i < count; i++)
        if (old[i].path != NULL)
            *link_slot(w, old[i].dev, old[i].ino) = old[i];
    free(old);
}

/* The slot of a file with several names: free when this is the first that is met. */
static struct link_target *find_link(struct walk *w, const struct stat *st)
{
    if ((w->link_count + 1) * 2 > w->link_room)
        grow_links(w);
    return link_slot(w, st->st_dev, st->st_ino);
}

static void remember_link(struct walk *w, struct link_target *link, const struct stat *st, const char *name)
{
    *link = (struct link_target){ st->st_dev, st->st_ino, mem_print("%s/%s", text_get(&w->path), name) };
    w->link_count++;
}

/* 1 when NAME is another name of a file that is copied already and was linked; 0 when it is to be copied
 * (the path of a very deep first copy can be too long to link by). */
static int link_copy(struct walk *w, const struct level *l, const char *name, const struct stat *st,
                     struct error *e)
{
    struct link_target *link;

    if (st->st_nlink < 2)
        return 0;
    link = find_link(w, st);
    if (link->path == NULL) {
        remember_link(w, link, st, name);
        return 0;
    }
    if (linkat(w->to, link->path, l->to, name, 0) == 0)
        return 1;
    return errno == ENAMETOOLONG || errno == EMLINK ? 0 : fail_at(w, errno, "link", name, e);
}

/* ---- one entry ---- */

static int copy_regular(struct walk *w, const struct level *l, const char *name, struct error *e)
{
    AUTO_CLOSE int from = openat(l->from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    AUTO_CLOSE int to = -1;
    struct stat st;

    if (from < 0 || fstat(from, &st) < 0)
        return fail_at(w, errno, "open", name, e);
    to = openat(l->to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return fail_at(w, errno, "make", name, e);
    if (copy_data(&w->data, from, to, st.st_size) < 0 || copy_attributes(from, to, &st) < 0)
        return fail_at(w, errno, "copy", name, e);
    return 0;
}

static int copy_symlink(const struct level *l, const char *name)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat(l->from, name, target, sizeof(target) - 1);

    if (size < 0)
        return -1;
    target[size] = '\0';
    return symlinkat(target, l->to, name);
}

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* Links, fifos, whiteouts: what needs no descriptor. */
static int copy_node(struct walk *w, const struct level *l, const char *name, const struct stat *st,
                     struct error *e)
{
    const struct timespec times[] = { st->st_atim, st->st_mtim };
    int made = S_ISLNK(st->st_mode) ? copy_symlink(l, name) : mknodat(l->to, name, st->st_mode, st->st_rdev);

    if (made < 0 || copy_owner(l->to, name, AT_SYMLINK_NOFOLLOW, st) < 0)
        return fail_at(w, errno, "make", name, e);
    if (!S_ISLNK(st->st_mode) && fchmodat(l->to, name, st->st_mode & 07777, 0) < 0)
        return fail_at(w, errno, "make", name, e);
    if (utimensat(l->to, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_at(w, errno, "make", name, e);
    return 0;
}

static int copy_entry(struct walk *w, const struct level *l, const char *name, const struct stat *st,
                      struct error *e)
{
    int linked;

    if (S_ISDIR(st->st_mode)) /* something is mounted on it */
        return mkdirat(l->to, name, 0755) < 0 ? fail_at(w, errno, "make", name, e) : 0;
    if (!S_ISREG(st->st_mode) && !S_ISLNK(st->st_mode) && !S_ISFIFO(st->st_mode) && !is_whiteout(st))
        return 0;
    linked = link_copy(w, l, name, st, e);
    if (linked != 0)
        return linked < 0 ? -1 : 0;
    return S_ISREG(st->st_mode) ? copy_regular(w, l, name, e) : copy_node(w, l, name, st, e);
}

static int measure_entry(struct walk *w, const struct level *l, const char *name, const struct stat *st,
                         struct error *e)
{
    (void)l;
    (void)e;
    if (st->st_nlink > 1 && !S_ISDIR(st->st_mode)) {
        struct link_target *link = find_link(w, st);

        if (link->path != NULL)
            return 0;
        remember_link(w, link, st, name);
    }
    w->bytes += (int64_t)st->st_blocks * 512;
    return 0;
}

/* ---- the walk ---- */

static void close_level(struct level *l)
{
    util_close_fd(&l->from);
    util_close_fd(&l->to);
    l->from = l->to = -1;
}

static void walk_done(struct walk *w)
{
    for (size_t i = 0; i < w->depth; i++) {
        close_level(&w->levels[i]);
        text_done(&w->levels[i].below);
    }
    for (size_t i = 0; i < w->link_room; i++)
        free(w->links[i].path);
    free(w->levels);
    free(w->links);
    copy_done(&w->data);
    text_done(&w->path);
}

/* A bind mount of the same file system has the same st_dev: only statx(2) tells. */
static bool is_mount_point(int dir, const char *name)
{
    struct statx stx;

    return statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &stx) == 0 &&
           (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

static int read_entry(struct walk *w, struct level *l, const char *name, struct error *e)
{
    struct stat st;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    if (fstatat(l->from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_at(w, errno, "look at", name, e);
    if (S_ISDIR(st.st_mode) && !is_mount_point(l->from, name)) {
        text_add(&l->below, name, strlen(name) + 1);
        return 0;
    }
    return w->visit(w, l, name, &st, e);
}

/* Visits all of a directory but its directories, and notes those. */
static int read_level(struct walk *w, struct level *l, struct error *e)
{
    int fd = dup(l->from); /* shares the position: nobody else reads through it */
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int result = 0;

    if (stream == NULL) {
        util_close_fd(&fd);
        return fail_at(w, errno, "read", "", e);
    }
    for (errno = 0; result == 0 && (entry = readdir(stream)) != NULL; errno = 0)
        result = read_entry(w, l, entry->d_name, e);
    if (result == 0 && errno != 0)
        result = fail_at(w, errno, "read", "", e);
    closedir(stream);
    return result;
}

static struct level *push_level(struct walk *w, const char *name)
{
    struct level *l;

    if (w->depth == w->room) {
        w->room = w->room > 0 ? w->room * 2 : LEVELS_OPEN;
        w->levels = mem_grow(w->levels, w->room, sizeof(*w->levels));
    }
    l = &w->levels[w->depth++];
    *l = (struct level){ .from = -1, .to = -1, .path_size = w->path.size };
    text_print(&w->path, "%s%s", w->path.size > 0 ? "/" : "", name);
    if (w->depth - w->first_open > LEVELS_OPEN)
        close_level(&w->levels[w->first_open++]);
    return l;
}

/* Enters NAME of the directory FROM, whose copy goes into the directory TO. */
static int enter(struct walk *w, int from, int to, const char *name, struct error *e)
{
    struct level *l = push_level(w, name);

    l->from = file_open_dir(from, name);
    if (l->from < 0 || fstat(l->from, &l->st) < 0)
        return fail_at(w, errno, "open", "", e);
    if (w->copies) {
        if (mkdirat(to, name, 0700) < 0)
            return fail_at(w, errno, "make", "", e);
        l->to = file_open_dir(to, name);
        if (l->to < 0)
            return fail_at(w, errno, "open the copy of", "", e);
    }
    w->bytes += (int64_t)l->st.st_blocks * 512;
    return read_level(w, l, e);
}

static int enter_next(struct walk *w, struct level *l, struct error *e)
{
    AUTO_FREE char *name = mem_copy_text(l->below.bytes + l->next); /* the levels move when they grow */

    l->next += strlen(name) + 1;
    return enter(w, l->from, l->to, name, e);
}

static int reopen_above(struct walk *w, struct error *e)
{
    const struct level *l = &w->levels[w->depth - 1];
    struct level *above = &w->levels[w->depth - 2];
    struct stat st;

    above->from = file_open_dir(l->from, "..");
    if (w->copies)
        above->to = file_open_dir(l->to, "..");
    if (above->from < 0 || (w->copies && above->to < 0) || fstat(above->from, &st) < 0)
        return fail_at(w, errno, "leave", "", e);
    if (st.st_dev != above->st.st_dev || st.st_ino != above->st.st_ino)
        return fail_at(w, 0, "find the directory above", "", e);
    w->first_open = w->depth - 2;
    return 0;
}

static int leave(struct walk *w, struct error *e)
{
    struct level *l = &w->levels[w->depth - 1];

    if (w->depth > 1 && w->depth - 1 == w->first_open && reopen_above(w, e) < 0)
        return -1;
    if (w->copies && copy_attributes(l->from, l->to, &l->st) < 0)
        return fail_at(w, errno, "finish", "", e);
    close_level(l);
    text_done(&l->below);
    w->path.size = l->path_size;
    w->path.bytes[w->path.size] = '\0';
    w->depth--;
    return 0;
}

static int walk_tree(struct walk *w, int from, const char *name, struct error *e)
{
    if (enter(w, from, w->to, name, e) < 0)
        return -1;
    while (w->depth > 0) {
        struct level *l = &w->levels[w->depth - 1];

        if ((l->next < l->below.size ? enter_next(w, l, e) : leave(w, e)) < 0)
            return -1;
    }
    return 0;
}

int tree_copy(int from, int to, const char *name, struct error *e)
{
    struct walk w = { .visit = copy_entry, .copies = true, .to = to };
    int result = walk_tree(&w, from, name, e);

    walk_done(&w);
    return result;
}

int tree_measure(int from, const char *name, int64_t *bytes, struct error *e)
{
    struct walk w = { .visit = measure_entry, .to = -1 };
    int result = walk_tree(&w, from, name, e);

    *bytes += w.bytes;
    walk_done(&w);
    return result;
}

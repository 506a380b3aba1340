#include "providers/linux/mountinfo.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/mem.h"

#define MOUNTINFO_MAX (64u << 20) /* some 300,000 mounts: more than fs.mount-max (100,000) allows */

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

/* Blanks, tabs, newlines and backslashes come as a backslash and three octal digits. In place. */
static char *unescape(char *field)
{
    char *to = field;

    for (const char *from = field; *from != '\0'; from++) {
        if (from[0] == '\\' && is_octal(from[1]) && is_octal(from[2]) && is_octal(from[3])) {
            *to++ = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
            from += 3;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return field;
}

/* "36 35 98:0 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw" */
static bool parse_line(char *line, struct mountinfo_entry *out)
{
    char *rest = NULL;
    char *id = strtok_r(line, " ", &rest);
    char *parent = strtok_r(NULL, " ", &rest);
    char *device = strtok_r(NULL, " ", &rest);
    char *root = strtok_r(NULL, " ", &rest);
    char *point = strtok_r(NULL, " ", &rest);

    if (id == NULL || parent == NULL || device == NULL || root == NULL || point == NULL)
        return false;
    if (sscanf(device, "%u:%u", &out->major, &out->minor) != 2)
        return false;
    out->root = unescape(root);
    out->point = unescape(point);
    return true;
}

void mountinfo_parse(struct mountinfo *out, const char *text)
{
    size_t room = 0;
    char *rest = NULL;

    *out = (struct mountinfo){ .bytes = mem_copy_text(text) };
    for (char *line = strtok_r(out->bytes, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        if (out->count == room) {
            room = room > 0 ? room * 2 : 64;
            out->items = mem_grow(out->items, room, sizeof(*out->items));
        }
        if (parse_line(line, &out->items[out->count]))
            out->count++;
    }
}

int mountinfo_read(struct mountinfo *out, struct error *e)
{
    AUTO_FREE char *text = NULL;
    size_t size;
    int found = file_read(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &text, &size, e);

    if (found < 0)
        return -1;
    if (found == 0)
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0, "/proc is not mounted");
    mountinfo_parse(out, text);
    return 0;
}

void mountinfo_done(struct mountinfo *m)
{
    free(m->items);
    free(m->bytes);
    *m = (struct mountinfo){ 0 };
}

/* What follows DIR in PATH: "" for DIR itself, "/x" for what is below it, NULL when PATH is elsewhere. */
static const char *path_below(const char *dir, const char *path)
{
    size_t size = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

    if (strncmp(dir, path, size) != 0 || (path[size] != '/' && path[size] != '\0'))
        return NULL;
    return strcmp(path + size, "/") == 0 ? "" : path + size;
}

bool mountinfo_contains(const char *dir, const char *path)
{
    return path_below(dir, path) != NULL;
}

bool mountinfo_has_below(const struct mountinfo *m, const char *dir)
{
    for (size_t i = 0; i < m->count; i++) {
        const char *rest = path_below(dir, m->items[i].point);

        if (rest != NULL && rest[0] != '\0')
            return true;
    }
    return false;
}

/* The mount PATH lies on: the longest mount point above it, the last one of several on the same. */
static const struct mountinfo_entry *find_mount(const struct mountinfo *m, const char *path)
{
    const struct mountinfo_entry *best = NULL;

    for (size_t i = 0; i < m->count; i++)
        if (mountinfo_contains(m->items[i].point, path) &&
            (best == NULL || strlen(m->items[i].point) >= strlen(best->point)))
            best = &m->items[i];
    return best;
}

/* DIR and REST as one path, "/" standing for no directory at all. */
static char *join(const char *dir, const char *rest)
{
    if (strcmp(dir, "/") != 0)
        return mem_print("%s%s", dir, rest);
    return mem_copy_text(rest[0] == '\0' ? "/" : rest);
}

int mountinfo_each_alias(const struct mountinfo *m, const char *path,
                         int (*fn)(void *self, const char *alias, struct error *e), void *self,
                         struct error *e)
{
    const struct mountinfo_entry *home = find_mount(m, path);
    AUTO_FREE char *inner = NULL; /* PATH within its file system */

    if (home == NULL) /* a chroot hides the mount of its root */
        return fn(self, path, e);
    inner = join(home->root, path_below(home->point, path));
    for (size_t i = 0; i < m->count; i++) {
        const struct mountinfo_entry *x = &m->items[i];
        AUTO_FREE char *alias = NULL;

        if (x->major != home->major || x->minor != home->minor)
            continue;
        if (mountinfo_contains(x->root, inner))
            alias = join(x->point, path_below(x->root, inner));
        else if (mountinfo_contains(inner, x->root))
            alias = mem_copy_text(x->point);
        if (alias != NULL && fn(self, alias, e) < 0)
            return -1;
    }
    return 0;
}

/* providers/linux/mountinfo.h - the mounts this process sees: /proc/self/mountinfo, proc_pid_mountinfo(5). */
#ifndef PROVIDERS_LINUX_MOUNTINFO_H
#define PROVIDERS_LINUX_MOUNTINFO_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

struct mountinfo_entry {
    unsigned major, minor; /* of the superblock: the same for all subvolumes of a btrfs */
    char *root;            /* which directory of the file system is mounted; lent by the list */
    char *point;           /* where */
};

struct mountinfo {                 /* { 0 } is an empty list; mountinfo_done() frees */
    struct mountinfo_entry *items; /* in the order of mounting: a later one covers an earlier one */
    size_t count;
    char *bytes;
};

int mountinfo_read(struct mountinfo *out, struct error *e);

/* TEXT in the format of mountinfo; lines that are not in it are skipped. */
void mountinfo_parse(struct mountinfo *out, const char *text);
void mountinfo_done(struct mountinfo *m);

/* Is PATH below DIR or DIR itself? Both absolute, with no "." or ".." and no slash at the end. */
bool mountinfo_contains(const char *dir, const char *path);

/* Is anything mounted strictly below DIR? */
bool mountinfo_has_below(const struct mountinfo *m, const char *dir);

/* Every path by which the directory PATH (resolved), or a part of it, can be reached: PATH itself, and
 * through bind mounts and further mounts of its file system. FN's -1 ends the walk and is returned. */
int mountinfo_each_alias(const struct mountinfo *m, const char *path,
                         int (*fn)(void *self, const char *alias, struct error *e), void *self,
                         struct error *e);

#endif

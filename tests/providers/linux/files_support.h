/* tests/providers/linux/files_support.h - for the tests of namespaces, mounts and files: a state root of its
 * own, a second run as an ordinary user, and a shell inside a sandbox's tree. */
#ifndef TESTS_PROVIDERS_LINUX_FILES_SUPPORT_H
#define TESTS_PROVIDERS_LINUX_FILES_SUPPORT_H

#include <stdbool.h>
#include <sys/types.h>

#include "core/root.h"
#include "providers/linux/linux.h"

/* Runs GROUP as whoever this is and, when that is root, once more as nobody. The number of failures. */
int support_run_as_both(int (*group)(void));

/* Skips the running test, with the reason, where the host allows no namespaces. */
void support_need_namespaces(void);

/* A state root below PARENT ("/tmp"), owned by the caller; ends with support_root_remove(). */
struct root support_root_make(const char *parent);
void support_root_remove(struct root *root);

/* Runs FN in a forked child (so that its mounts, ids and limits end with it) as USER_ID; in a private mount
 * namespace after PREPARE as root. True when FN returned true. */
bool support_in_child(bool (*prepare)(void *self), bool (*fn)(void *self), void *self, uid_t user_id);

#define SUPPORT_NOBODY 65534u

/* The handle of a sandbox at ROOT, as provider_ops.open() gives it. PLACE is filled and must stay. */
struct linux_sandbox support_sandbox(struct provider_place *place, const struct root *root, const char *name,
                                     const char *source);

/* Runs STEPS one after the other; fails with the first error. */
int support_run_steps(const struct step *steps, struct linux_sandbox *s, const struct facts *facts,
                      struct error *e);

/* Runs SCRIPT with sh in a tree that mounts_enter() built for ROOT's sandbox NAME; what it printed (free()
 * it), NULL when the tree could not be built: then *e says why. NOTE has 256 bytes. */
char *support_run_inside(const struct root *root, const char *name, const char *script, char *note,
                         struct error *e);

/* printf-like path, content; false with a message on failure. */
bool support_write(int dir, const char *path, const char *content);
bool support_exists(int dir, const char *path);
char *support_read(int dir, const char *path); /* NULL when absent; free() it */

#endif

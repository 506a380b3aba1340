/* providers/macos/share.h - vm/share/: what the guest mounts, read-only, at "/Volumes/My Shared Files"
 * (R-408). */
#ifndef PROVIDERS_MACOS_SHARE_H
#define PROVIDERS_MACOS_SHARE_H

#include "providers/macos/macos.h"
#include "providers/remote/exec.h"

#define SHARE_PROGRAMS_COUNT 2

struct share_paths { /* of this build, on this host */
    char self[ROOT_PATH_MAX];
    char helper[ROOT_PATH_MAX];
};

/* The programs that a guest has too, this one first. Without the Command Line Tools the helper may not be
 * built: a guest that is set up keeps the one it has. */
int share_find_programs(const struct macos_vm *vm, struct share_paths *paths,
                        struct remote_file out[SHARE_PROGRAMS_COUNT], size_t *count, struct error *e);

/* Makes the folder's files what this build has; what is right already is not touched. WITH_HELPER: a setup is
 * to come, which needs it: PLATFORM_NOT_SUPPORTED when it is not built. */
int share_write(struct macos_vm *vm, int vm_dir, bool with_helper, struct error *e);

#endif

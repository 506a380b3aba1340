/* providers/macos/files.h - the files this build writes for the provider, and what is built from
 * them.
 *
 *   providers/macos/<hash>/         provider.sh, vmhost.swift, vmhost.entitlements, guest-setup.sh,
 *                                   agent-desktop-macos-helper.swift; <hash> is of their contents
 *   providers/macos/vmhost-<hash>/  vmhost, signed, and its build log; <hash> is of its sources
 *   providers/macos/helper-<hash>/  agent-desktop-macos-helper and its build log; the same
 *
 * Written atomically (a directory of a temporary name, renamed), never changed in place; a damaged one is
 * noticed and written anew. */
#ifndef PROVIDERS_MACOS_FILES_H
#define PROVIDERS_MACOS_FILES_H

#include <stdbool.h>

#include "core/error.h"
#include "core/root.h"
#include "providers/embedded.h"

enum macos_file {
    FILE_PROVIDER_SH,
    FILE_VMHOST_SWIFT,
    FILE_VMHOST_ENTITLEMENTS,
    FILE_GUEST_SETUP_SH,
    FILE_HELPER_SWIFT,
    MACOS_FILE_COUNT
};

extern const struct embedded macos_files[MACOS_FILE_COUNT];

/* Opens providers/macos/ and makes it if it is missing; the root must be open for writing. The descriptor, or
 * -1. */
int files_open_home(const struct root *root, struct error *e);

/* Absolute paths. Both make sure that the files are there and whole. */
int files_ensure(const struct root *root, char out[ROOT_PATH_MAX], struct error *e);
int files_path(const struct root *root, enum macos_file file, char out[ROOT_PATH_MAX], struct error *e);

enum macos_built { BUILT_VMHOST, BUILT_HELPER, MACOS_BUILT_COUNT };

#define FILES_BUILD_LOG   "build.log" /* beside the program */
#define FILES_FOLDER_SIZE 64          /* "vmhost-", 32 hex digits, NUL, and room */

/* The program's own name, and that of its directory below providers/macos/. */
const char *files_program(enum macos_built which);
void files_folder(enum macos_built which, char out[FILES_FOLDER_SIZE]);

/* Absolute path of what is, or would be, built from this build's sources: whether it is there is another
 * matter. */
void files_built_path(const struct root *root, enum macos_built which, char out[ROOT_PATH_MAX]);

/* Is it there? It was put there whole and with a good signature; whether it still has that is asked by
 * macos_inspect_host(). Never makes anything; a root that does not exist has none. */
bool files_is_built(const struct root *root, enum macos_built which);

#endif

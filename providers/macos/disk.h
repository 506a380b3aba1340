/* providers/macos/disk.h - a stopped guest's disk, opened on the host for a moment.
 *
 * attach (raw, nothing mounted), find the Data volume of exactly that disk, mount it privately with owners
 * ignored, write, unmount, detach. One disk at a time for the whole state root: clones carry equal UUIDs. */
#ifndef PROVIDERS_MACOS_DISK_H
#define PROVIDERS_MACOS_DISK_H

#include <stdbool.h>

#include "core/error.h"
#include "core/root.h"
#include "providers/remote/keys.h"

/* Rewrites the guest's Ed25519 host key in place, both halves, and removes the RSA and ECDSA ones, of which a
 * clone would share its source's. *written is false when the guest has none yet: Remote Login was never on. A
 * disk that is busy is tried again for 5 s. Errors: SANDBOX_BUSY (in use), ACTION_FAILED (FileVault, no Data
 * volume, ...). */
int disk_write_host_key(const struct root *root, int op_lock, const char *disk_path,
                        const struct keys_pair *key, bool *written, struct error *e);

/* What a killed command left attached of this disk is detached; for rm, start and clone. */
int disk_release(const struct root *root, int op_lock, const char *disk_path, struct error *e);

#endif

/* providers/remote/sync.h - the copies that the guest has of files of the host's: which they should be, and
 * how they get there. */
#ifndef PROVIDERS_REMOTE_SYNC_H
#define PROVIDERS_REMOTE_SYNC_H

#include <stdint.h>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"
#include "providers/remote/exec.h"

/* The SHA-1 of the host's file. ACTION_FAILED when it cannot be read. */
int sync_hash(const struct remote_file *file, uint8_t sum[HASH_SHA1_SIZE], struct error *e);

/* Copies it into the guest's REMOTE_BIN: under a name of its own, compared, renamed. Two at once do not
 * disturb each other, and one that is interrupted leaves the old file. */
int sync_upload(struct ssh *s, const struct remote_file *file, const uint8_t sum[HASH_SHA1_SIZE],
                int deadline_ms, const struct ssh_cancel *cancel, struct error *e);

/* The command line for it, which any login shell understands: SUM in hexadecimal digits, ID in lower case
 * ones. The line "ID done" in its output means that the file is there. */
void sync_print_command(struct text *out, const char *name, const char *sum, const char *id);

#endif

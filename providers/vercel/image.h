/* providers/vercel/image.h - the build files of the desktop image, carried as data and written under
 * providers/vercel/<hash>/ (R-110, R-502): Dockerfile and agent-desktop-run. Nothing of ours runs them: a
 * person builds the image and pushes it.
 *
 * Each is replaced at once, never changed in place; <hash> is of their names and contents, so that a build
 * with other files has another directory. */
#ifndef PROVIDERS_VERCEL_IMAGE_H
#define PROVIDERS_VERCEL_IMAGE_H

#include <stdbool.h>

#include "core/error.h"
#include "core/root.h"
#include "fsm/step.h"
#include "providers/embedded.h"

#define IMAGE_PATH_SIZE  (ROOT_PATH_MAX + 64)
#define IMAGE_FILE_COUNT 2

extern const struct embedded image_files[IMAGE_FILE_COUNT];

void image_path(const struct root *root,
                char out[IMAGE_PATH_SIZE]);                /* of the directory of this build's files */
bool image_is_written(const struct root *root);            /* whole, with the content of this build */
int image_write(const struct root *root, struct error *e); /* durable; nothing when it is */

/* OPERATION_INSTALL; the handle is a const struct provider_place *. */
extern const struct step vercel_install_steps[];

/* provider_ops.inspect_host: unavailable without credentials that the service takes (and the fix), missing
 * until the files are written, ready. An error when the service did not say: that proves nothing. */
struct provider_host_report;
int vercel_inspect_host(const struct root *root, struct provider_host_report *out, struct error *e);

#endif

/* tools/desktop/png.h - pixels to a PNG file's bytes; hides libpng. */
#ifndef TOOLS_DESKTOP_PNG_H
#define TOOLS_DESKTOP_PNG_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

struct image {
    uint32_t width, height;
    uint8_t *rgb; /* 3 bytes a pixel, rows from the top without padding; free() */
};

/* The PNG in *bytes; free() it. */
int png_encode(const struct image *image, char **bytes, size_t *size, struct error *e);

#endif

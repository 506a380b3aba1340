/* tools/desktop/rect.h - a rectangle on the screen, in pixels, from the top left corner. */
#ifndef TOOLS_DESKTOP_RECT_H
#define TOOLS_DESKTOP_RECT_H

struct json;

struct rect {
    int x, y, width, height;
};

/* As member KEY: {x, y, width, height}. */
void rect_put(struct json *object, const char *key, const struct rect *rect);

#endif

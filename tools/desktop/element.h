/* tools/desktop/element.h - from an application's name to its elements, and from a ref back to exactly one.
 *
 * A ref remembers the bus, the application's and the element's names on it, the object path, the role and
 * the name. All of them must still hold: an application that was started anew, an element that was
 * replaced, a button that means something else by now are stale. */
#ifndef TOOLS_DESKTOP_ELEMENT_H
#define TOOLS_DESKTOP_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "tools/desktop/a11y.h"
#include "tools/desktop/program.h"

struct json;
struct x11;

/* The application that APP, or PROGRAM (may be NULL), names: by its accessible name or by what its process
 * runs. Of several the one that came last; NULL when none is there. Lent by APPS. */
const struct a11y_app *element_find_app(const struct a11y_apps *apps, const char *app,
                                        const struct program *program);

/* What snapshots_save() keeps; element_add() each in the order of their numbers. */
struct json *element_new_record(const struct a11y *a, const struct a11y_app *app);
void element_add(struct json *record, const struct a11y_node *node);

struct element { /* element_done() when done; { 0 } is none */
    struct a11y *a11y;
    struct a11y_apps apps;
    const struct a11y_app *app;   /* in apps */
    struct a11y_tree tree;        /* the element alone, as it is now */
    const struct a11y_node *node; /* in tree */
};

/* INVALID_ARGS for a malformed ref; STALE_REF. */
int element_resolve(const char *text, struct element *out, struct error *e);
void element_done(struct element *element);
#define AUTO_ELEMENT __attribute__((cleanup(element_done)))

struct offset { /* from what the toolkit tells to the screen */
    bool known;
    int x, y;
};

/* For all that is in the application's WINDOW. Not known when the window manager does not list it, or X is
 * NULL; always known, and 0, for a toolkit that tells places on the screen. */
struct offset element_find_offset(const struct a11y_app *app, const struct a11y_node *window, struct x11 *x);

/* As members `ref`, `role`, `name`?. */
void element_put(struct json *data, const char *ref, const struct a11y_node *node);

#endif

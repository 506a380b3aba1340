/* tools/desktop/a11y.h - applications and their elements, read and acted on over the accessibility bus.
 *
 * The only user of libatspi and libdbus. libatspi finds and opens the bus; the calls then go over its
 * connection directly, because libatspi asks for one property at a time and waits for each: 240 ms for
 * gnome-calculator's 96 elements, where questions sent together take 70 ms. The protocol is at-spi2-core's,
 * https://gitlab.gnome.org/GNOME/at-spi2-core/-/tree/main/xml.
 *
 * An element is addressed by its application's unique bus name and its object path. Bus names are never
 * reused while one bus lives, so with a11y_bus_id() they are unique for good. */
#ifndef TOOLS_DESKTOP_A11Y_H
#define TOOLS_DESKTOP_A11Y_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"
#include "tools/desktop/rect.h"

#define A11Y_NODES_MAX 5000
#define A11Y_DEPTH_MAX 64
#define A11Y_READ_MS   5000 /* for a whole tree */
#define A11Y_CALL_MS   2000 /* for questions sent together; an application that is slower hangs */

struct a11y; /* opaque: the connection */

enum a11y_interface {
    A11Y_ACTION,
    A11Y_COMPONENT,
    A11Y_EDITABLE_TEXT,
    A11Y_TEXT,
    A11Y_VALUE,
    A11Y_INTERFACE_COUNT
};

enum a11y_state { /* those that this program asks for; the numbers are AT-SPI's */
                  A11Y_STATE_ACTIVE = 1,
                  A11Y_STATE_DEFUNCT = 6,
                  A11Y_STATE_EDITABLE = 7,
                  A11Y_STATE_ENABLED = 8,
                  A11Y_STATE_FOCUSABLE = 11,
                  A11Y_STATE_SENSITIVE = 24,
                  A11Y_STATE_SHOWING = 25,
                  A11Y_STATE_VISIBLE = 30,
                  A11Y_STATE_COUNT = 44
};

/* How an application's toolkit departs from the others. */
struct a11y_toolkit {
    const char *name;       /* as the application's root says */
    bool window_coords;     /* knows positions in its window only (GTK 4) */
    bool visible_only;      /* says VISIBLE where others say SHOWING (GTK 4) */
    bool length_in_letters; /* InsertText counts UTF-16 units, others bytes (Qt) */
};

struct a11y_app {
    char *bus, *path; /* of its root */
    char *name;       /* "" when it has none */
    pid_t pid;        /* 0 when the bus does not know */
    const struct a11y_toolkit *toolkit;
};

struct a11y_apps { /* in the order they came to the desktop; { 0 } is none */
    struct a11y_app *items;
    size_t count;
};

struct a11y_node {
    char *bus, *path;
    char *name;          /* cut at A11Y_NAME_MAX bytes */
    char *text;          /* content, NULL when there is none to show; never a password's */
    char *role;          /* NULL: it did not answer, and nothing else of it is known */
    char *action;        /* what a click means here, NULL when nothing */
    int action_index;    /* of that */
    int action_count;    /* all that it has */
    uint64_t states;     /* bit per state */
    unsigned interfaces; /* bit per a11y_interface */
    bool has_value;
    double value;
    bool has_bounds;
    struct rect bounds; /* on the screen, or in the window with toolkit.window_coords */
    unsigned depth;
    size_t parent;      /* index; its own for the root */
    size_t first_child; /* children are neighbours */
    size_t child_count;
};

#define A11Y_NAME_MAX 1000
#define A11Y_TEXT_MAX 4000 /* characters */

struct a11y_tree {           /* { 0 } is empty */
    struct a11y_node *nodes; /* [0] is the root; parents come before their children */
    size_t count;
    bool truncated; /* a limit was met or an element did not answer in time */
};

/* PLATFORM_NOT_SUPPORTED when there is no library or no bus. Lives as long as the process: libatspi has
 * no way to end it. */
int a11y_open(struct a11y **out, struct error *e);
void a11y_close(struct a11y **a); /* frees what is ours; NULL inside is fine */
#define AUTO_A11Y __attribute__((cleanup(a11y_close)))

const char *a11y_bus_id(const struct a11y *a);

int a11y_list_apps(struct a11y *a, struct a11y_apps *out, struct error *e);
void a11y_apps_done(struct a11y_apps *apps);

/* The tree below APP's root. ACTIONS also finds what can be clicked of what is not focusable, at the price of
 * more questions. DEPTH_MAX: 0 is the root alone. TIMEOUT when the application does not answer. */
int a11y_read_tree(struct a11y *a, const struct a11y_app *app, bool actions, unsigned depth_max,
                   struct a11y_tree *out, struct error *e);
void a11y_tree_done(struct a11y_tree *tree);

/* The element of APP at this address, alone in *out. 1; 0 when there is none (any more); -1. */
int a11y_read_element(struct a11y *a, const struct a11y_app *app, const char *bus, const char *path,
                      struct a11y_tree *out, struct error *e);

/* The window that the element is in, alone in *out: 1, 0, -1 as a11y_read_element(). */
int a11y_read_window(struct a11y *a, const struct a11y_app *app, const struct a11y_node *node,
                     struct a11y_tree *out, struct error *e);

bool a11y_has_state(const struct a11y_node *node, enum a11y_state state);
bool a11y_has_interface(const struct a11y_node *node, enum a11y_interface interface);
const char *a11y_state_name(unsigned state); /* NULL for numbers that AT-SPI does not have */

/* Each acts, and is ACTION_FAILED when the application refuses, TIMEOUT when it does not answer. An
 * application that ends instead of answering has done what was asked (a dialog's OK): that is success. */
int a11y_do_action(struct a11y *a, const struct a11y_node *node, struct error *e);
int a11y_grab_focus(struct a11y *a, const struct a11y_node *node, struct error *e);

/* As a person types: replaces the selection, else inserts at the caret, and leaves the caret behind. TEXT
 * is in no error's message. */
int a11y_insert_text(struct a11y *a, const struct a11y_app *app, const struct a11y_node *node,
                     const char *text, struct error *e);

#endif

/* tools/desktop/x11.h - windows, pixels, pointer and keys of the X display; hides libxcb.
 *
 * Windows are those that the window manager lists (_NET_CLIENT_LIST), as EWMH describes them. */
#ifndef TOOLS_DESKTOP_X11_H
#define TOOLS_DESKTOP_X11_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"
#include "tools/desktop/png.h"
#include "tools/desktop/rect.h"

struct x11; /* opaque: the connection */

#define X11_TITLE_SIZE 256

struct x11_window {
    uint32_t id;
    pid_t pid;                  /* 0 when it does not say */
    char title[X11_TITLE_SIZE]; /* UTF-8, cut */
    struct rect bounds;         /* of its content: no frame, no shadow that it draws itself */
};

/* PLATFORM_NOT_SUPPORTED without a library, DISPLAY, or a server that answers and lets us in. */
int x11_open(struct x11 **out, struct error *e);
void x11_close(struct x11 **x); /* NULL inside is fine */
#define AUTO_X11 __attribute__((cleanup(x11_close)))

bool x11_has_window_manager(struct x11 *x);

/* All windows, in the order they were mapped; free(*out). */
size_t x11_list_windows(struct x11 *x, struct x11_window **out);

/* PID's window of this title, else its last one. */
bool x11_find_window(struct x11 *x, pid_t pid, const char *title, struct x11_window *out);

/* Asks the window manager to show, raise and focus it, and waits at most WAIT_MS until it says so. */
bool x11_activate(struct x11 *x, uint32_t window, int wait_ms);

/* A copy of the whole screen. */
int x11_read_screen(struct x11 *x, struct image *out, struct error *e);

/* The first button, pressed and released there (XTEST). */
int x11_click(struct x11 *x, int at_x, int at_y, struct error *e);

/* Keys for each character of TEXT (valid UTF-8), to whatever has the focus. Characters that the keyboard
 * lacks are put on its unused keys, and stay there: clients look up what a key means when they get to the
 * event, which may be after this process has ended. ACTION_FAILED when there are not enough of those,
 * before any key is sent. TEXT is in no error's message. */
int x11_type(struct x11 *x, const char *text, struct error *e);

#endif

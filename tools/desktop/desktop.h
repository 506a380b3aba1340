/* tools/desktop/desktop.h - the commands that act on the desktop this process runs in.
 *
 * One function per command: options in, the reply's `data` out. Elements are read and acted on through
 * AT-SPI, windows and pixels through X11; both live behind libraries that are opened on first use, so
 * that no other command pays for them. A missing library, display or accessibility bus is
 * PLATFORM_NOT_SUPPORTED and names what is missing. Where the helper for macOS lies beside this program
 * (helper.h), launch and snapshot are the helper's and do not return; elsewhere than on Linux nothing else is
 * supported.
 *
 * Snapshots are kept in the state root (core/root.h) of the machine this runs on: snapshots/<id>.json,
 * the newest DESKTOP_SNAPSHOTS_MAX of them. A ref names one element of one snapshot; it acts on exactly
 * that element or is STALE_REF, never on another one.
 *
 * Every function returns 0 with *data (the caller's: json_free()) or -1 with *e, *data untouched. */
#ifndef TOOLS_DESKTOP_DESKTOP_H
#define TOOLS_DESKTOP_DESKTOP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

#define DESKTOP_TIMEOUT_MS     10000  /* of launch --activate */
#define DESKTOP_TIMEOUT_MS_MAX 300000 /* no guest command lasts longer */
#define DESKTOP_SNAPSHOTS_MAX  32

struct json;

struct desktop_launch {
    const char *app;         /* accessible name, program on PATH, absolute path, .desktop id or Name= */
    const char *const *args; /* with any, it is always started: they could not reach one that runs */
    size_t arg_count;
    bool activate;  /* wait for its window and give it the focus */
    int timeout_ms; /* 0: DESKTOP_TIMEOUT_MS; only with activate */
};

/* Starts the application, or focuses it when it runs already; the started one outlives this process.
 * `app`, `pid`, `started`, and `window` {id?, title, active, bounds?} when there is one.
 * APP_NOT_FOUND; TIMEOUT (it runs, its window did not come); ACTION_FAILED (it cannot be executed, or ended
 * without a window). What it prints goes to logs/<program>.log in the state root. */
int desktop_launch(const struct desktop_launch *options, struct json **data, struct error *e);

struct desktop_snapshot {
    const char *app;
    bool interactive; /* only what can be acted on, and the windows it is in */
};

/* `app`, `pid`, `snapshot_id`, `count`, `truncated`? (the tree was too large or too slow to be read
 * whole), `tree`: {ref, role, name?, states, bounds?, text?, value?, children?}. APP_NOT_FOUND when it
 * does not run. Text of password fields is left out. */
int desktop_snapshot(const struct desktop_snapshot *options, struct json **data, struct error *e);

struct desktop_click {
    const char *ref; /* "@<snapshot_id>:e<number>" */
};

/* The element's own action, the focus for a text field, else the pointer at its centre. `ref`, `role`,
 * `name`?, `method` ("action", "focus" or "pointer"), `action`?. INVALID_ARGS for a malformed ref,
 * STALE_REF when its snapshot or element is gone or changed. */
int desktop_click(const struct desktop_click *options, struct json **data, struct error *e);

struct desktop_type {
    const char *ref;
    const char *text; /* UTF-8; never in a reply, an error or a log */
};

/* Inserts at the caret, or sends keys to the element when it has no editable text. `ref`, `role`, `name`?,
 * `method` ("text" or "keys"), `characters`. Errors as desktop_click(). */
int desktop_type(const struct desktop_type *options, struct json **data, struct error *e);

struct desktop_screenshot {
    const char *out; /* a relative path is below the working directory; replaced atomically */
};

/* `path` (absolute), `width`, `height` of the PNG. */
int desktop_screenshot(const struct desktop_screenshot *options, struct json **data, struct error *e);

#endif

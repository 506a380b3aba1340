#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/process.h"
#include "core/root.h"
#include "tools/desktop/desktop.h"
#include "tools/desktop/element.h"
#include "tools/desktop/helper.h"
#include "tools/desktop/spawn.h"
#include "tools/desktop/x11.h"

#define POLL_MS      20
#define FOCUS_MS     3000 /* for the window manager; an application may refuse the focus for good */
#define HALF_MS      1500 /* from a window to its tree, or the other way round; what takes longer has none */
#define HAND_OVER_MS 2000 /* from the end of what was started to the window of who it handed over to */
#define LOGS         "logs"

struct launch {
    const struct desktop_launch *options;
    struct program program; /* { 0 } when nothing of that name can be started */
    struct x11 *x;
    struct a11y *a;     /* NULL when the desktop has no accessibility bus: windows are still found by X11 */
    pid_t pid;          /* of what was started, else of what was running; 0: none yet */
    pid_t session;      /* of what was started; 0: it was running */
    char *name;         /* accessible name; NULL when it has none */
    int64_t half_since; /* when its window was first seen by one side, tree or X11; 0: not yet */
    int64_t gone_since; /* when what was started was first seen to have ended; 0: not yet */
};

struct window { /* free(title) */
    bool found;
    uint32_t id; /* 0: not among the window manager's */
    char *title;
    bool has_bounds;
    struct rect bounds;
    bool active;
};

/* Which process */

static bool is_started_here(const struct launch *l, pid_t pid)
{
    return l->session != 0 && pid > 0 && (pid == l->pid || getsid(pid) == l->session);
}

static bool is_gone(struct launch *l)
{
    struct process_id id;

    if (l->session == 0)
        return false;
    if (l->gone_since == 0 && process_read(l->pid, &id) < 0)
        l->gone_since = clock_mono_ms();
    return l->gone_since != 0;
}

static const struct program *program_or_null(const struct launch *l)
{
    return l->program.argc > 0 ? &l->program : NULL;
}

/* The one that was started; when that has ended, who it handed over to (one instance per desktop is common);
 * when none was started, the one that runs. */
static const struct a11y_app *choose_app(struct launch *l, const struct a11y_apps *apps)
{
    for (size_t i = apps->count; i-- > 0;)
        if (is_started_here(l, apps->items[i].pid))
            return &apps->items[i];
    return l->session == 0 || is_gone(l) ? element_find_app(apps, l->options->app, program_or_null(l)) : NULL;
}

static bool is_wanted_window(struct launch *l, const struct x11_window *window)
{
    if (l->session != 0 && !is_gone(l))
        return is_started_here(l, window->pid);
    return program_is_run_by(window->pid, l->options->app, program_or_null(l));
}

/* Which window */

/* The application's active window, else the first one that is showing. */
static const struct a11y_node *choose_frame(const struct a11y_tree *tree)
{
    const struct a11y_node *chosen = NULL;

    for (size_t i = 1; i < tree->count; i++) {
        const struct a11y_node *node = &tree->nodes[i];

        if (node->role == NULL || !a11y_has_state(node, A11Y_STATE_SHOWING))
            continue;
        if (chosen == NULL || a11y_has_state(node, A11Y_STATE_ACTIVE))
            chosen = node;
    }
    return chosen;
}

static void describe_frame(struct launch *l, const struct a11y_app *app, const struct a11y_node *frame,
                           struct window *out)
{
    const char *title = frame->name == NULL ? "" : frame->name;
    struct x11_window window;

    *out = (struct window){ .found = true, .title = mem_copy_text(title) };
    if (x11_find_window(l->x, app->pid, title, &window)) {
        out->id = window.id;
        out->bounds = window.bounds;
        out->has_bounds = true;
    } else if (!app->toolkit->window_coords) {
        out->bounds = frame->bounds;
        out->has_bounds = frame->has_bounds;
    }
}

/* By the accessibility bus. false when the application is not there (yet), or does not answer. */
static bool find_accessible(struct launch *l, struct window *out)
{
    struct error ignored = { 0 }; /* asked again at the next turn */
    struct a11y_apps apps = { 0 };
    struct a11y_tree tree = { 0 };
    const struct a11y_app *app = NULL;

    if (l->a == NULL || a11y_list_apps(l->a, &apps, &ignored) < 0)
        return false;
    app = choose_app(l, &apps);
    if (app != NULL) {
        free(l->name);
        l->name = mem_copy_text(app->name);
        l->pid = app->pid > 0 ? app->pid : l->pid;
        if (a11y_read_tree(l->a, app, false, 1, &tree, &ignored) == 0 && choose_frame(&tree) != NULL)
            describe_frame(l, app, choose_frame(&tree), out);
    }
    a11y_tree_done(&tree);
    a11y_apps_done(&apps);
    return app != NULL;
}

/* By X11 alone: programs without a tree. */
static bool find_bare(struct launch *l, struct window *out)
{
    AUTO_FREE struct x11_window *windows = NULL;
    const size_t count = x11_list_windows(l->x, &windows);

    for (size_t i = count; i-- > 0;) {
        if (!is_wanted_window(l, &windows[i]))
            continue;
        l->pid = windows[i].pid;
        *out = (struct window){ .found = true,
                                .id = windows[i].id,
                                .title = mem_copy_text(windows[i].title),
                                .has_bounds = true,
                                .bounds = windows[i].bounds };
        return true;
    }
    return false;
}

/* Is the application there? And its window, in *out, when it has one. */
static bool find_running(struct launch *l, struct window *out)
{
    return find_accessible(l, out) || find_bare(l, out);
}

/* A window counts when both sides show it: a snapshot must find what was waited for, and the window manager
 * must be able to focus it. When one side does not come, the other has to do (xterm has no tree). */
static bool find_window(struct launch *l, struct window *out)
{
    struct window seen = { 0 };
    const bool has_tree = find_accessible(l, &seen);
    const bool complete = has_tree ? seen.id != 0 : l->a == NULL;

    if (!seen.found && (has_tree || !find_bare(l, &seen)))
        return false;
    if (l->half_since == 0)
        l->half_since = clock_mono_ms();
    if (!complete && clock_mono_ms() - l->half_since < HALF_MS) {
        free(seen.title);
        return false;
    }
    free(out->title);
    *out = seen;
    return true;
}

static int wait_window(struct launch *l, struct window *out, struct error *e)
{
    const int limit = l->options->timeout_ms > 0 ? l->options->timeout_ms : DESKTOP_TIMEOUT_MS;
    const int64_t deadline = clock_mono_ms() + limit;
    const char *missing = "no window manager on the display";

    while (!x11_has_window_manager(l->x) || !find_window(l, out)) {
        const int64_t now = clock_mono_ms();

        if (is_gone(l) && now - l->gone_since > HAND_OVER_MS)
            return error_set(e, ERROR_ACTION_FAILED, 0,
                             "'%.64s' ended without showing a window; its output is in " LOGS
                             "/%.64s.log of the state root",
                             l->options->app, program_base_name(l->program.argv[0]));
        if (now >= deadline) {
            if (x11_has_window_manager(l->x))
                missing = "no window";
            if (l->session == 0) { /* nothing was started: waiting again does no harm */
                e->delivery = DELIVERY_NOT_DELIVERED;
                e->retry = RETRY_SAFE;
            }
            return error_set(e, ERROR_TIMEOUT, 0, "'%.64s' (pid %d): %s after %d ms", l->options->app,
                             (int)l->pid, missing, limit);
        }
        clock_sleep_ms(POLL_MS);
    }
    return 0;
}

/* Starting */

static int open_log(const char *program, int *out, struct error *e)
{
    AUTO_FREE char *file = mem_print("%s.log", program);
    struct root root;

    if (root_open(ROOT_WRITE, &root, e) < 0)
        return -1;

    AUTO_CLOSE int dir = file_make_dir(root.dir, LOGS, 0700, e);
    AUTO_CLOSE int fd = -1;

    root_close(&root);
    if (dir < 0)
        return -1;
    fd = openat(dir, file, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fchmod(fd, 0600) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open " LOGS "/%s", file);
    *out = steal_fd(&fd);
    return 0;
}

static int set_not_installed(const char *app, struct error *e)
{
    AUTO_FREE char *near = program_find_near(app);

    if (near != NULL)
        return error_set(e, ERROR_APP_NOT_FOUND, 0, "no application '%.64s' is installed; did you mean '%s'?",
                         app, near);
    return error_set(e, ERROR_APP_NOT_FOUND, 0,
                     "no application '%.64s' is installed: neither a program on PATH nor a .desktop file",
                     app);
}

static int start(struct launch *l, struct error *e)
{
    AUTO_CLOSE int output = -1;

    if (l->program.argc == 0)
        return set_not_installed(l->options->app, e);
    for (size_t i = 0; i < l->options->arg_count; i++)
        program_add_argument(&l->program, l->options->args[i]);
    if (open_log(program_base_name(l->program.argv[0]), &output, e) < 0)
        return -1;
    return spawn_detached(l->program.argv, output, &l->pid, &l->session, e);
}

/* The command */

static int open_desktop(struct launch *l, struct error *e)
{
    struct error no_bus = { 0 };

    if (x11_open(&l->x, e) < 0)
        return -1;
    if (a11y_open(&l->a, &no_bus) < 0)
        log_debug("launch: %s", no_bus.message);
    return 0;
}

static int run(struct launch *l, struct window *window, struct error *e)
{
    if (open_desktop(l, e) < 0)
        return -1;
    program_find(l->options->app, &l->program);
    if ((l->options->arg_count > 0 || !find_running(l, window)) && start(l, e) < 0)
        return -1;
    if (l->options->activate && (window->id == 0 || !x11_has_window_manager(l->x)) &&
        wait_window(l, window, e) < 0)
        return -1;
    if (window->found && window->id != 0)
        window->active = x11_activate(l->x, window->id, FOCUS_MS);
    return 0;
}

static struct json *new_data(const struct launch *l, const struct window *window)
{
    const char *known = l->name != NULL && l->name[0] != '\0' ? l->name : l->program.name;
    struct json *data = json_new_object(), *w;

    json_put_string(data, "app", known != NULL ? known : l->options->app);
    json_put_int(data, "pid", l->pid);
    json_put_bool(data, "started", l->session != 0);
    if (!window->found)
        return data;
    w = json_new_object();
    if (window->id != 0)
        json_put_int(w, "id", window->id);
    json_put_string(w, "title", window->title);
    json_put_bool(w, "active", window->active);
    if (window->has_bounds)
        rect_put(w, "bounds", &window->bounds);
    json_put(data, "window", w);
    return data;
}

int desktop_launch(const struct desktop_launch *options, struct json **data, struct error *e)
{
    struct launch l = { .options = options };
    struct window window = { 0 };
    int result;

    if (helper_launch(options, e) < 0)
        return -1;
    result = run(&l, &window, e);
    if (result == 0)
        *data = new_data(&l, &window);
    free(window.title);
    free(l.name);
    program_done(&l.program);
    a11y_close(&l.a);
    x11_close(&l.x);
    return result;
}

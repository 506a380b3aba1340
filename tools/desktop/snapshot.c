#include <stdio.h>
#include <stdlib.h>

#include "core/json.h"
#include "core/mem.h"
#include "core/text.h"
#include "tools/desktop/desktop.h"
#include "tools/desktop/element.h"
#include "tools/desktop/helper.h"
#include "tools/desktop/ref.h"
#include "tools/desktop/snapshots.h"
#include "tools/desktop/x11.h"

#define WINDOW_DEPTH 1 /* below the application */

static int set_app_not_found(const struct a11y_apps *apps, const char *app, struct error *e)
{
    const char **names = mem_alloc((apps->count + 1) * sizeof names[0]);
    struct text list = { 0 };
    const char *near;

    for (size_t i = 0; i < apps->count; i++) {
        names[i] = apps->items[i].name;
        text_print(&list, "%s'%s'", i == 0 ? "" : ", ", names[i]);
    }
    near = text_find_nearest(app, names, apps->count);
    e->suggestion = "Start it with `agent-desktop launch APP --activate`, or use the name of a running one.";
    if (near != NULL)
        error_set(e, ERROR_APP_NOT_FOUND, 0, "no application '%.64s' is running; did you mean '%s'?", app,
                  near);
    else
        error_set(e, ERROR_APP_NOT_FOUND, 0, "no application '%.64s' is running; running: %s", app,
                  apps->count == 0 ? "none" : text_get(&list));
    text_done(&list);
    free(names);
    return -1;
}

/* The accessible name first: the .desktop files need not be read then. */
static const struct a11y_app *find_app(const struct a11y_apps *apps, const char *app)
{
    const struct a11y_app *found = element_find_app(apps, app, NULL);
    struct program program;

    if (found != NULL || program_find(app, &program) == 0)
        return found;
    found = element_find_app(apps, app, &program);
    program_done(&program);
    return found;
}

/* Makes places in windows places on the screen, or forgets them. */
static void place_on_screen(const struct a11y_app *app, struct a11y_tree *tree)
{
    AUTO_X11 struct x11 *x = NULL;
    AUTO_FREE struct offset *offsets = mem_alloc(tree->count * sizeof offsets[0]); /* of each node */
    struct error no_display = { 0 };

    if (!app->toolkit->window_coords)
        return;
    x11_open(&x, &no_display);
    for (size_t i = 0; i < tree->count; i++) {
        struct a11y_node *node = &tree->nodes[i];

        if (node->depth > WINDOW_DEPTH)
            offsets[i] = offsets[node->parent];
        else if (node->depth == WINDOW_DEPTH)
            offsets[i] = element_find_offset(app, node, x);
        node->has_bounds = node->has_bounds && offsets[i].known;
        node->bounds.x += offsets[i].x;
        node->bounds.y += offsets[i].y;
    }
}

struct output {
    const struct a11y_app *app;
    const struct a11y_tree *tree;
    bool *shown; /* of each node */
    bool interactive;
    struct json *record;
    struct ref ref; /* of the node that was put last */
};

static void find_shown(struct output *out)
{
    for (size_t i = 0; i < out->tree->count; i++) {
        const struct a11y_node *node = &out->tree->nodes[i];

        out->shown[i] =
            node->depth == 0 || a11y_has_state(node, A11Y_STATE_SHOWING) ||
            (out->app->toolkit->visible_only && out->shown[node->parent] &&
             a11y_has_state(node, A11Y_STATE_VISIBLE) && node->bounds.width > 0 && node->bounds.height > 0);
    }
}

static bool can_be_acted_on(const struct output *out, size_t index)
{
    const struct a11y_node *node = &out->tree->nodes[index];

    return out->shown[index] &&
           (a11y_has_state(node, A11Y_STATE_SENSITIVE) || a11y_has_state(node, A11Y_STATE_ENABLED)) &&
           (node->action != NULL || a11y_has_state(node, A11Y_STATE_FOCUSABLE) ||
            a11y_has_state(node, A11Y_STATE_EDITABLE));
}

static void put_states(struct json *object, uint64_t states)
{
    struct json *list = json_new_array();

    for (unsigned i = 0; i < A11Y_STATE_COUNT; i++)
        if ((states >> i & 1) != 0)
            json_add_string(list, a11y_state_name(i));
    json_put(object, "states", list);
}

static struct json *new_object(struct output *out, const struct a11y_node *node)
{
    struct json *object = json_new_object();
    char ref[REF_SIZE], value[32];

    out->ref.number++;
    ref_format(&out->ref, ref);
    element_add(out->record, node);
    element_put(object, ref, node);
    put_states(object, node->states);
    if (node->has_bounds)
        rect_put(object, "bounds", &node->bounds);
    if (node->text != NULL && node->text[0] != '\0')
        json_put_string(object, "text", node->text);
    if (node->has_value) {
        snprintf(value, sizeof value, "%.15g", node->value);
        json_put_string(object, "value", value);
    }
    return object;
}

/* What is below a node that is left out goes to the nearest one above that is not. */
static void put_children(struct output *out, size_t index, struct json *list)
{
    const struct a11y_node *node = &out->tree->nodes[index];

    for (size_t i = node->first_child; i < node->first_child + node->child_count; i++) {
        const struct a11y_node *child = &out->tree->nodes[i];

        if (child->role == NULL)
            continue;
        if (out->interactive && child->depth > WINDOW_DEPTH && !can_be_acted_on(out, i)) {
            put_children(out, i, list);
            continue;
        }

        struct json *object = new_object(out, child), *below = json_new_array();

        put_children(out, i, below);
        if (json_count(below) > 0)
            json_put(object, "children", below);
        else
            json_free(below);
        json_add(list, object);
    }
}

static struct json *put_tree(struct output *out)
{
    struct json *root, *list = json_new_array();

    out->shown = mem_alloc(out->tree->count * sizeof out->shown[0]);
    find_shown(out);
    root = new_object(out, &out->tree->nodes[0]);
    put_children(out, 0, list);
    json_put(root, "children", list);
    free(out->shown);
    return root;
}

static int take_snapshot(struct a11y *a, const struct a11y_app *app, struct a11y_tree *tree, bool interactive,
                         struct json **data, struct error *e)
{
    AUTO_JSON struct json *record = element_new_record(a, app);
    AUTO_JSON struct json *root = NULL;
    struct output out = { .app = app, .tree = tree, .interactive = interactive, .record = record };

    snapshots_new_id(out.ref.snapshot);
    place_on_screen(app, tree);
    root = put_tree(&out);
    if (snapshots_save(out.ref.snapshot, record, e) < 0)
        return -1;
    *data = json_new_object();
    json_put_string(*data, "app", app->name);
    json_put_int(*data, "pid", app->pid);
    json_put_string(*data, "snapshot_id", out.ref.snapshot);
    json_put_int(*data, "count", (int64_t)out.ref.number);
    if (tree->truncated)
        json_put_bool(*data, "truncated", true);
    json_put(*data, "tree", steal(&root));
    return 0;
}

static int snapshot(const struct desktop_snapshot *options, struct json **data, struct error *e)
{
    AUTO_A11Y struct a11y *a = NULL;
    struct a11y_apps apps = { 0 };
    struct a11y_tree tree = { 0 };
    const struct a11y_app *app;
    int result = -1;

    if (a11y_open(&a, e) < 0 || a11y_list_apps(a, &apps, e) < 0)
        return -1;
    app = find_app(&apps, options->app);
    if (app == NULL)
        set_app_not_found(&apps, options->app, e);
    else if (a11y_read_tree(a, app, options->interactive, A11Y_DEPTH_MAX, &tree, e) == 0)
        result = take_snapshot(a, app, &tree, options->interactive, data, e);
    a11y_tree_done(&tree);
    a11y_apps_done(&apps);
    return result;
}

int desktop_snapshot(const struct desktop_snapshot *options, struct json **data, struct error *e)
{
    if (helper_snapshot(options, e) == 0 && snapshot(options, data, e) == 0)
        return 0;
    e->delivery = DELIVERY_NOT_DELIVERED; /* looking changes nothing, whatever the code */
    e->retry = RETRY_SAFE;
    return -1;
}

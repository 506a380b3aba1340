#include "tools/desktop/element.h"

#include <string.h>
#include <strings.h>

#include "core/json.h"
#include "tools/desktop/ref.h"
#include "tools/desktop/snapshots.h"
#include "tools/desktop/x11.h"

#define RECORD_VERSION 1

/* Applications */

static bool is_meant(const struct a11y_app *candidate, const char *app, const struct program *program)
{
    return strcasecmp(candidate->name, app) == 0 ||
           (program != NULL && strcasecmp(candidate->name, program_base_name(program->argv[0])) == 0) ||
           program_is_run_by(candidate->pid, app, program);
}

const struct a11y_app *element_find_app(const struct a11y_apps *apps, const char *app,
                                        const struct program *program)
{
    for (size_t i = apps->count; i-- > 0;)
        if (is_meant(&apps->items[i], app, program))
            return &apps->items[i];
    return NULL;
}

/* What a snapshot keeps */

struct json *element_new_record(const struct a11y *a, const struct a11y_app *app)
{
    struct json *record = json_new_object();

    json_put_int(record, "v", RECORD_VERSION);
    json_put_string(record, "bus_id", a11y_bus_id(a));
    json_put_string(record, "app", app->bus);
    json_put(record, "elements", json_new_array());
    return record;
}

void element_add(struct json *record, const struct a11y_node *node)
{
    struct json *element = json_new_object();

    json_put_string(element, "bus", node->bus);
    json_put_string(element, "path", node->path);
    json_put_string(element, "role", node->role);
    json_put_string(element, "name", node->name);
    json_add(json_get(record, "elements"), element);
}

/* And back */

static int stale(const char *ref, const char *why, struct error *e)
{
    return error_set(e, ERROR_STALE_REF, 0, "%s is stale: %s", ref, why);
}

static bool same(const char *kept, const char *now)
{
    return strcmp(kept == NULL ? "" : kept, now == NULL ? "" : now) == 0;
}

static int find_element(struct element *element, const char *ref, const struct json *kept,
                        const struct json *record, struct error *e)
{
    const char *app = json_get_string(record, "app"), *bus = json_get_string(kept, "bus"),
               *path = json_get_string(kept, "path");
    int found;

    if (!same(json_get_string(record, "bus_id"), a11y_bus_id(element->a11y)))
        return stale(ref, "the desktop was started anew", e);
    if (a11y_list_apps(element->a11y, &element->apps, e) < 0)
        return -1;
    for (size_t i = 0; i < element->apps.count; i++)
        if (same(app, element->apps.items[i].bus))
            element->app = &element->apps.items[i];
    if (element->app == NULL || bus == NULL || path == NULL)
        return stale(ref, "its application has ended", e);
    found = a11y_read_element(element->a11y, element->app, bus, path, &element->tree, e);
    if (found < 0)
        return -1;
    if (found == 0)
        return stale(ref, "its element is gone", e);
    element->node = &element->tree.nodes[0];
    if (!same(json_get_string(kept, "role"), element->node->role) ||
        !same(json_get_string(kept, "name"), element->node->name))
        return stale(ref, "its element has changed", e);
    return 0;
}

int element_resolve(const char *text, struct element *out, struct error *e)
{
    AUTO_ELEMENT struct element element = { 0 };
    AUTO_JSON struct json *record = NULL;
    const struct json *kept;
    struct ref ref;
    int found;

    if (ref_parse(text, &ref, e) < 0)
        return -1;
    found = snapshots_load(ref.snapshot, &record, e);
    if (found < 0)
        return -1;
    if (found == 0 || json_get_int(record, "v", 0) != RECORD_VERSION)
        return stale(text, "its snapshot is not kept any more", e);
    kept = json_at(json_get(record, "elements"), ref.number - 1);
    if (kept == NULL)
        return stale(text, "its snapshot has no such element", e);
    if (a11y_open(&element.a11y, e) < 0 || find_element(&element, text, kept, record, e) < 0)
        return -1;
    *out = element;
    element = (struct element){ 0 };
    return 0;
}

void element_done(struct element *element)
{
    a11y_tree_done(&element->tree);
    a11y_apps_done(&element->apps);
    a11y_close(&element->a11y);
    *element = (struct element){ 0 };
}

/* GTK 4 counts from inside of the border that it draws around its windows where there is no compositor; the
 * border is as wide on either side, and not told. */
struct offset element_find_offset(const struct a11y_app *app, const struct a11y_node *window, struct x11 *x)
{
    struct x11_window shown;

    if (!app->toolkit->window_coords)
        return (struct offset){ .known = true };
    if (x == NULL || window->name == NULL || !x11_find_window(x, app->pid, window->name, &shown))
        return (struct offset){ 0 };
    return (struct offset){
        .known = true,
        .x = shown.bounds.x + (shown.bounds.width - window->bounds.width) / 2,
        .y = shown.bounds.y + (shown.bounds.height - window->bounds.height) / 2,
    };
}

void element_put(struct json *data, const char *ref, const struct a11y_node *node)
{
    json_put_string(data, "ref", ref);
    json_put_string(data, "role", node->role);
    json_put_string(data, "name", node->name != NULL && node->name[0] != '\0' ? node->name : NULL);
}

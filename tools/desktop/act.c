#include <string.h>

#include "core/json.h"
#include "core/text.h"
#include "tools/desktop/desktop.h"
#include "tools/desktop/element.h"
#include "tools/desktop/x11.h"

#define RAISE_MS 1000 /* for the window manager to bring a window to the front */

static int refuse(const struct element *element, const char *why, struct error *e)
{
    e->delivery = DELIVERY_NOT_DELIVERED;
    e->retry = RETRY_SAFE;
    return error_set(e, ERROR_ACTION_FAILED, 0, "%s '%.64s' %s", element->node->role,
                     element->node->name == NULL ? "" : element->node->name, why);
}

static bool has_any_state(const struct a11y_node *node, enum a11y_state one, enum a11y_state other)
{
    return a11y_has_state(node, one) || a11y_has_state(node, other);
}

static bool is_shown(const struct element *element)
{
    return a11y_has_state(element->node, A11Y_STATE_SHOWING) ||
           (element->app->toolkit->visible_only && a11y_has_state(element->node, A11Y_STATE_VISIBLE));
}

enum raised { RAISED, NOT_LISTED, NOT_RAISED };

/* The element's window, in front of the others and focused; *OFFSET is then valid. One that the window
 * manager does not list is a menu's, in front already, or there is no window manager. */
static enum raised raise_window(const struct element *element, struct x11 *x, struct offset *offset)
{
    struct a11y_tree window = { 0 };
    struct error gone = { 0 };
    struct x11_window shown;
    enum raised raised = NOT_LISTED;

    *offset = (struct offset){ 0 };
    if (a11y_read_window(element->a11y, element->app, element->node, &window, &gone) == 1 &&
        window.nodes[0].name != NULL && x11_find_window(x, element->app->pid, window.nodes[0].name, &shown)) {
        raised = x11_activate(x, shown.id, RAISE_MS) ? RAISED : NOT_RAISED;
        *offset = element_find_offset(element->app, &window.nodes[0], x);
    }
    a11y_tree_done(&window);
    return raised;
}

/* Pointer and keys reach whatever is in front, so this makes sure that it is the element's window. */
static int click_pointer(const struct element *element, struct x11 *x, struct error *e)
{
    const struct rect *bounds = &element->node->bounds;
    struct offset offset;
    enum raised raised;

    if (!is_shown(element) || !element->node->has_bounds || bounds->width == 0 || bounds->height == 0)
        return refuse(element, "has no action, and no place on the screen to click at", e);
    raised = raise_window(element, x, &offset);
    if (raised == NOT_RAISED)
        return refuse(element, "has no action, and its window does not come to the front", e);
    if (raised == NOT_LISTED && element->app->toolkit->window_coords)
        return refuse(element, "has no action, and its window is not on the screen", e);
    return x11_click(x, bounds->x + bounds->width / 2 + offset.x, bounds->y + bounds->height / 2 + offset.y,
                     e);
}

static int open_and_click(const struct element *element, struct error *e)
{
    AUTO_X11 struct x11 *x = NULL;

    return x11_open(&x, e) < 0 ? -1 : click_pointer(element, x, e);
}

enum click_method { CLICK_ACTION, CLICK_FOCUS, CLICK_POINTER };

static const char *const click_method_names[] = {
    [CLICK_ACTION] = "action",
    [CLICK_FOCUS] = "focus",
    [CLICK_POINTER] = "pointer",
};

/* The action of a text field is to submit it, which is not what a click on it does. */
static enum click_method choose_method(const struct a11y_node *node)
{
    if (a11y_has_state(node, A11Y_STATE_EDITABLE))
        return CLICK_FOCUS;
    return node->action != NULL ? CLICK_ACTION : CLICK_POINTER;
}

static int click_by(enum click_method method, const struct element *element, struct error *e)
{
    switch (method) {
    case CLICK_ACTION:
        return a11y_do_action(element->a11y, element->node, e);
    case CLICK_FOCUS:
        return a11y_grab_focus(element->a11y, element->node, e);
    case CLICK_POINTER:
        return open_and_click(element, e);
    }
    return -1;
}

int desktop_click(const struct desktop_click *options, struct json **data, struct error *e)
{
    AUTO_ELEMENT struct element element = { 0 };
    enum click_method method;

    if (element_resolve(options->ref, &element, e) < 0)
        return -1;
    if (!has_any_state(element.node, A11Y_STATE_SENSITIVE, A11Y_STATE_ENABLED))
        return refuse(&element, "is disabled", e);
    method = choose_method(element.node);
    if (click_by(method, &element, e) < 0)
        return -1;
    *data = json_new_object();
    element_put(*data, options->ref, element.node);
    json_put_string(*data, "method", click_method_names[method]);
    if (method == CLICK_ACTION)
        json_put_string(*data, "action", element.node->action);
    return 0;
}

static int type_keys(const struct element *element, const char *text, struct error *e)
{
    AUTO_X11 struct x11 *x = NULL;
    struct offset offset;
    struct error refused = { 0 };

    if (x11_open(&x, e) < 0)
        return -1;
    if (raise_window(element, x, &offset) != RAISED)
        return refuse(element, "takes keys only, and its window does not get the focus", e);
    if (a11y_grab_focus(element->a11y, element->node, &refused) < 0 && click_pointer(element, x, e) < 0)
        return -1;
    return x11_type(x, text, e);
}

static int64_t count_characters(const char *text)
{
    int64_t count = 0;

    for (; *text != '\0'; text++)
        count += (*text & 0xc0) != 0x80; /* all but UTF-8's continuation bytes */
    return count;
}

int desktop_type(const struct desktop_type *options, struct json **data, struct error *e)
{
    AUTO_ELEMENT struct element element = { 0 };
    bool as_text;

    if (!text_is_utf8(options->text, strlen(options->text)))
        return error_set(e, ERROR_INVALID_ARGS, 0, "the text to type is not UTF-8");
    if (element_resolve(options->ref, &element, e) < 0)
        return -1;
    if (!has_any_state(element.node, A11Y_STATE_SENSITIVE, A11Y_STATE_ENABLED))
        return refuse(&element, "is disabled", e);
    as_text = a11y_has_interface(element.node, A11Y_EDITABLE_TEXT);
    if (as_text && !a11y_has_state(element.node, A11Y_STATE_EDITABLE))
        return refuse(&element, "cannot be written to", e);
    if ((as_text ? a11y_insert_text(element.a11y, element.app, element.node, options->text, e)
                 : type_keys(&element, options->text, e)) < 0)
        return -1;
    *data = json_new_object();
    element_put(*data, options->ref, element.node);
    json_put_string(*data, "method", as_text ? "text" : "keys");
    json_put_int(*data, "characters", count_characters(options->text));
    return 0;
}

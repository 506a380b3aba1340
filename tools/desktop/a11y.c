#include "tools/desktop/a11y.h"

#include <atspi/atspi.h>
#include <dbus/dbus.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/library.h"
#include "core/mem.h"

#define REGISTRY_NAME "org.a11y.atspi.Registry"
#define ROOT_PATH     "/org/a11y/atspi/accessible/root"
#define NULL_PATH     "/org/a11y/atspi/null" /* where a toolkit must name an element and has none */
#define ACCESSIBLE    "org.a11y.atspi.Accessible"
#define ACTION        "org.a11y.atspi.Action"
#define APPLICATION   "org.a11y.atspi.Application"
#define COMPONENT     "org.a11y.atspi.Component"
#define EDITABLE_TEXT "org.a11y.atspi.EditableText"
#define TEXT          "org.a11y.atspi.Text"
#define VALUE         "org.a11y.atspi.Value"
#define PROPERTIES    "org.freedesktop.DBus.Properties"

#define BATCH_MAX       32 /* elements asked about at once: far below the bus's limit of open questions */
#define CLICK_NAMES_MAX 4  /* actions of one element whose names are looked at; a click is among the first */

_Static_assert(A11Y_STATE_ACTIVE == (int)ATSPI_STATE_ACTIVE, "");
_Static_assert(A11Y_STATE_DEFUNCT == (int)ATSPI_STATE_DEFUNCT, "");
_Static_assert(A11Y_STATE_EDITABLE == (int)ATSPI_STATE_EDITABLE, "");
_Static_assert(A11Y_STATE_ENABLED == (int)ATSPI_STATE_ENABLED, "");
_Static_assert(A11Y_STATE_FOCUSABLE == (int)ATSPI_STATE_FOCUSABLE, "");
_Static_assert(A11Y_STATE_SENSITIVE == (int)ATSPI_STATE_SENSITIVE, "");
_Static_assert(A11Y_STATE_SHOWING == (int)ATSPI_STATE_SHOWING, "");
_Static_assert(A11Y_STATE_VISIBLE == (int)ATSPI_STATE_VISIBLE, "");

static const char *const state_names[] = {
    [ATSPI_STATE_ACTIVE] = "active",
    [ATSPI_STATE_ARMED] = "armed",
    [ATSPI_STATE_BUSY] = "busy",
    [ATSPI_STATE_CHECKED] = "checked",
    [ATSPI_STATE_COLLAPSED] = "collapsed",
    [ATSPI_STATE_DEFUNCT] = "defunct",
    [ATSPI_STATE_EDITABLE] = "editable",
    [ATSPI_STATE_ENABLED] = "enabled",
    [ATSPI_STATE_EXPANDABLE] = "expandable",
    [ATSPI_STATE_EXPANDED] = "expanded",
    [ATSPI_STATE_FOCUSABLE] = "focusable",
    [ATSPI_STATE_FOCUSED] = "focused",
    [ATSPI_STATE_HAS_TOOLTIP] = "has_tooltip",
    [ATSPI_STATE_HORIZONTAL] = "horizontal",
    [ATSPI_STATE_ICONIFIED] = "iconified",
    [ATSPI_STATE_MODAL] = "modal",
    [ATSPI_STATE_MULTI_LINE] = "multi_line",
    [ATSPI_STATE_MULTISELECTABLE] = "multiselectable",
    [ATSPI_STATE_OPAQUE] = "opaque",
    [ATSPI_STATE_PRESSED] = "pressed",
    [ATSPI_STATE_RESIZABLE] = "resizable",
    [ATSPI_STATE_SELECTABLE] = "selectable",
    [ATSPI_STATE_SELECTED] = "selected",
    [ATSPI_STATE_SENSITIVE] = "sensitive",
    [ATSPI_STATE_SHOWING] = "showing",
    [ATSPI_STATE_SINGLE_LINE] = "single_line",
    [ATSPI_STATE_STALE] = "stale",
    [ATSPI_STATE_TRANSIENT] = "transient",
    [ATSPI_STATE_VERTICAL] = "vertical",
    [ATSPI_STATE_VISIBLE] = "visible",
    [ATSPI_STATE_MANAGES_DESCENDANTS] = "manages_descendants",
    [ATSPI_STATE_INDETERMINATE] = "indeterminate",
    [ATSPI_STATE_REQUIRED] = "required",
    [ATSPI_STATE_TRUNCATED] = "truncated",
    [ATSPI_STATE_ANIMATED] = "animated",
    [ATSPI_STATE_INVALID_ENTRY] = "invalid_entry",
    [ATSPI_STATE_SUPPORTS_AUTOCOMPLETION] = "supports_autocompletion",
    [ATSPI_STATE_SELECTABLE_TEXT] = "selectable_text",
    [ATSPI_STATE_IS_DEFAULT] = "is_default",
    [ATSPI_STATE_VISITED] = "visited",
    [ATSPI_STATE_CHECKABLE] = "checkable",
    [ATSPI_STATE_HAS_POPUP] = "has_popup",
    [ATSPI_STATE_READ_ONLY] = "read_only",
};

static const char *const interface_names[] = {
    [A11Y_ACTION] = ACTION, [A11Y_COMPONENT] = COMPONENT, [A11Y_EDITABLE_TEXT] = EDITABLE_TEXT,
    [A11Y_TEXT] = TEXT,     [A11Y_VALUE] = VALUE,
};
_Static_assert(ARRAY_LEN(interface_names) == A11Y_INTERFACE_COUNT, "each interface has a name");

/* The first row is every toolkit without one. GTK 3 calls itself "gtk". */
static const struct a11y_toolkit toolkits[] = {
    { .name = "" },
    { .name = "GTK", .window_coords = true, .visible_only = true },
    { .name = "Qt", .length_in_letters = true },
};

/* What a toolkit calls a click, the best first. */
static const char *const click_names[] = { "click", "press", "activate", "toggle", "jump" };

struct libatspi {
    __typeof__(atspi_get_a11y_bus) *atspi_get_a11y_bus;
    __typeof__(atspi_role_get_name) *atspi_role_get_name;
    __typeof__(g_free) *g_free;
    __typeof__(dbus_connection_get_server_id) *dbus_connection_get_server_id;
    __typeof__(dbus_connection_send_with_reply) *dbus_connection_send_with_reply;
    __typeof__(dbus_pending_call_cancel) *dbus_pending_call_cancel;
    __typeof__(dbus_pending_call_get_completed) *dbus_pending_call_get_completed;
    __typeof__(dbus_connection_dispatch) *dbus_connection_dispatch;
    __typeof__(dbus_connection_read_write) *dbus_connection_read_write;
    __typeof__(dbus_free) *dbus_free;
    __typeof__(dbus_message_append_args_valist) *dbus_message_append_args_valist;
    __typeof__(dbus_message_get_error_name) *dbus_message_get_error_name;
    __typeof__(dbus_message_get_type) *dbus_message_get_type;
    __typeof__(dbus_message_iter_get_arg_type) *dbus_message_iter_get_arg_type;
    __typeof__(dbus_message_iter_get_basic) *dbus_message_iter_get_basic;
    __typeof__(dbus_message_iter_init) *dbus_message_iter_init;
    __typeof__(dbus_message_iter_next) *dbus_message_iter_next;
    __typeof__(dbus_message_iter_recurse) *dbus_message_iter_recurse;
    __typeof__(dbus_message_new_method_call) *dbus_message_new_method_call;
    __typeof__(dbus_message_unref) *dbus_message_unref;
    __typeof__(dbus_pending_call_block) *dbus_pending_call_block;
    __typeof__(dbus_pending_call_steal_reply) *dbus_pending_call_steal_reply;
    __typeof__(dbus_pending_call_unref) *dbus_pending_call_unref;
    __typeof__(dbus_validate_bus_name) *dbus_validate_bus_name;
    __typeof__(dbus_validate_path) *dbus_validate_path;
};

static const struct library_symbol symbols[] = {
    LIBRARY_SYMBOL(libatspi, atspi_get_a11y_bus),
    LIBRARY_SYMBOL(libatspi, atspi_role_get_name),
    LIBRARY_SYMBOL(libatspi, g_free),
    LIBRARY_SYMBOL(libatspi, dbus_connection_get_server_id),
    LIBRARY_SYMBOL(libatspi, dbus_connection_send_with_reply),
    LIBRARY_SYMBOL(libatspi, dbus_pending_call_cancel),
    LIBRARY_SYMBOL(libatspi, dbus_pending_call_get_completed),
    LIBRARY_SYMBOL(libatspi, dbus_connection_dispatch),
    LIBRARY_SYMBOL(libatspi, dbus_connection_read_write),
    LIBRARY_SYMBOL(libatspi, dbus_free),
    LIBRARY_SYMBOL(libatspi, dbus_message_append_args_valist),
    LIBRARY_SYMBOL(libatspi, dbus_message_get_error_name),
    LIBRARY_SYMBOL(libatspi, dbus_message_get_type),
    LIBRARY_SYMBOL(libatspi, dbus_message_iter_get_arg_type),
    LIBRARY_SYMBOL(libatspi, dbus_message_iter_get_basic),
    LIBRARY_SYMBOL(libatspi, dbus_message_iter_init),
    LIBRARY_SYMBOL(libatspi, dbus_message_iter_next),
    LIBRARY_SYMBOL(libatspi, dbus_message_iter_recurse),
    LIBRARY_SYMBOL(libatspi, dbus_message_new_method_call),
    LIBRARY_SYMBOL(libatspi, dbus_message_unref),
    LIBRARY_SYMBOL(libatspi, dbus_pending_call_block),
    LIBRARY_SYMBOL(libatspi, dbus_pending_call_steal_reply),
    LIBRARY_SYMBOL(libatspi, dbus_pending_call_unref),
    LIBRARY_SYMBOL(libatspi, dbus_validate_bus_name),
    LIBRARY_SYMBOL(libatspi, dbus_validate_path),
};
_Static_assert(ARRAY_LEN(symbols) == sizeof(struct libatspi) / sizeof(void (*)(void)),
               "each one is looked up");

struct a11y {
    struct libatspi lib;
    DBusConnection *bus; /* libatspi's */
    char *bus_id;
    int64_t deadline; /* for the answers to what was asked last */
};

/* The bus */

/* Without any of these libdbus would start a bus of its own, and with it a second, empty desktop. */
static bool bus_is_named(void)
{
    static const char *const variables[] = { "AT_SPI_BUS_ADDRESS", "DBUS_SESSION_BUS_ADDRESS" };
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    AUTO_FREE char *socket = runtime == NULL ? NULL : mem_print("%s/bus", runtime);

    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        const char *value = getenv(variables[i]);

        if (value != NULL && value[0] != '\0')
            return true;
    }
    return socket != NULL && access(socket, F_OK) == 0;
}

static int find_bus(struct a11y *a, struct error *e)
{
    char *id;

    if (library_open("libatspi.so.0", "libatspi2.0-0", symbols, ARRAY_LEN(symbols), &a->lib, e) < 0)
        return -1;
    a->bus = a->lib.atspi_get_a11y_bus();
    id = a->bus == NULL ? NULL : a->lib.dbus_connection_get_server_id(a->bus);
    if (id == NULL)
        return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0,
                         "the accessibility bus does not answer (is at-spi2-core installed?)");
    a->bus_id = mem_copy_text(id);
    a->lib.dbus_free(id);
    return 0;
}

int a11y_open(struct a11y **out, struct error *e)
{
    AUTO_A11Y struct a11y *a = NULL;

    if (!bus_is_named())
        return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0,
                         "there is no accessibility bus here: neither AT_SPI_BUS_ADDRESS nor "
                         "DBUS_SESSION_BUS_ADDRESS is set");
    a = mem_alloc(sizeof *a);
    if (find_bus(a, e) < 0)
        return -1;
    *out = steal(&a);
    return 0;
}

void a11y_close(struct a11y **a)
{
    if (*a == NULL)
        return;
    free((*a)->bus_id);
    free(*a);
    *a = NULL;
}

const char *a11y_bus_id(const struct a11y *a)
{
    return a->bus_id;
}

/* Questions and answers. A question that cannot even be sent reads as one without an answer. */

/* The arguments are libdbus's pairs of type and address, ended by DBUS_TYPE_INVALID. */
static DBusPendingCall *ask(struct a11y *a, const char *bus, const char *path, const char *interface,
                            const char *method, int first_type, ...)
{
    DBusMessage *message = a->lib.dbus_message_new_method_call(bus, path, interface, method);
    DBusPendingCall *pending = NULL;
    va_list args;

    if (message == NULL)
        return NULL;
    va_start(args, first_type);
    if (a->lib.dbus_message_append_args_valist(message, first_type, args))
        a->lib.dbus_connection_send_with_reply(a->bus, message, &pending, A11Y_CALL_MS);
    va_end(args);
    a->lib.dbus_message_unref(message);
    a->deadline = clock_mono_ms() + A11Y_CALL_MS;
    return pending;
}

static DBusPendingCall *ask_property(struct a11y *a, const char *bus, const char *path, const char *interface,
                                     const char *property)
{
    return ask(a, bus, path, PROPERTIES, "Get", DBUS_TYPE_STRING, &interface, DBUS_TYPE_STRING, &property,
               DBUS_TYPE_INVALID);
}

/* Has the answer come? Waits for nothing. */
static bool is_answered(struct a11y *a, DBusPendingCall *pending)
{
    a->lib.dbus_connection_read_write(a->bus, 0);
    while (a->lib.dbus_connection_dispatch(a->bus) == DBUS_DISPATCH_DATA_REMAINS)
        ;
    return a->lib.dbus_pending_call_get_completed(pending);
}

/* Waits; the reply, an error among them, or NULL. libdbus counts A11Y_CALL_MS anew for each wait: of several
 * that were asked together, only the first may take that long. */
static DBusMessage *wait_reply(struct a11y *a, DBusPendingCall *pending)
{
    DBusMessage *reply = NULL;

    if (pending == NULL)
        return NULL;
    if (clock_mono_ms() >= a->deadline && !is_answered(a, pending)) {
        a->lib.dbus_pending_call_cancel(pending);
    } else {
        a->lib.dbus_pending_call_block(pending);
        reply = a->lib.dbus_pending_call_steal_reply(pending);
    }
    a->lib.dbus_pending_call_unref(pending);
    return reply;
}

static void drop_reply(struct a11y *a, DBusMessage *reply) /* NULL is fine */
{
    if (reply != NULL)
        a->lib.dbus_message_unref(reply);
}

/* Positions IT on the first argument of a good reply, inside the variant when it is one. */
static bool open_reply(struct a11y *a, DBusMessage *reply, DBusMessageIter *it)
{
    DBusMessageIter outer;

    if (reply == NULL || a->lib.dbus_message_get_type(reply) != DBUS_MESSAGE_TYPE_METHOD_RETURN ||
        !a->lib.dbus_message_iter_init(reply, &outer))
        return false;
    if (a->lib.dbus_message_iter_get_arg_type(&outer) == DBUS_TYPE_VARIANT)
        a->lib.dbus_message_iter_recurse(&outer, it);
    else
        *it = outer;
    return true;
}

static bool is_silent(struct a11y *a, DBusMessage *reply)
{
    return reply == NULL || (a->lib.dbus_message_get_type(reply) == DBUS_MESSAGE_TYPE_ERROR &&
                             strcmp(a->lib.dbus_message_get_error_name(reply), DBUS_ERROR_NO_REPLY) == 0);
}

static bool take_basic(struct a11y *a, DBusMessageIter *it, int type, void *out)
{
    if (a->lib.dbus_message_iter_get_arg_type(it) != type)
        return false;
    a->lib.dbus_message_iter_get_basic(it, out);
    a->lib.dbus_message_iter_next(it);
    return true;
}

/* Lent by the reply; NULL when the value is not text. */
static const char *take_text(struct a11y *a, DBusMessageIter *it)
{
    const int type = a->lib.dbus_message_iter_get_arg_type(it);
    const char *text = NULL;

    if (type == DBUS_TYPE_STRING || type == DBUS_TYPE_OBJECT_PATH)
        take_basic(a, it, type, &text);
    return text;
}

/* One answer that is a text, a number; the fallback when there is none. */
static char *get_text(struct a11y *a, DBusPendingCall *pending)
{
    DBusMessage *reply = wait_reply(a, pending);
    DBusMessageIter it;
    const char *text = open_reply(a, reply, &it) ? take_text(a, &it) : NULL;
    char *copy = mem_copy_text(text == NULL ? "" : text);

    drop_reply(a, reply);
    return copy;
}

static int32_t get_int(struct a11y *a, DBusPendingCall *pending, int type, int32_t fallback)
{
    DBusMessage *reply = wait_reply(a, pending);
    DBusMessageIter it;
    int32_t value = fallback; /* an unsigned one is read into the same four bytes */

    if (open_reply(a, reply, &it))
        take_basic(a, &it, type, &value);
    drop_reply(a, reply);
    return value;
}

/* An element's address, (so), from a list of such: 1, 0 at the end. */
static bool take_address(struct a11y *a, DBusMessageIter *list, const char **bus, const char **path)
{
    DBusMessageIter pair;

    while (a->lib.dbus_message_iter_get_arg_type(list) == DBUS_TYPE_STRUCT) {
        a->lib.dbus_message_iter_recurse(list, &pair);
        a->lib.dbus_message_iter_next(list);
        *bus = take_text(a, &pair);
        *path = take_text(a, &pair);
        if (*bus != NULL && *path != NULL && (*bus)[0] != '\0' && strcmp(*path, NULL_PATH) != 0)
            return true;
    }
    return false;
}

/* Applications */

static const struct a11y_toolkit *find_toolkit(const char *name)
{
    for (size_t i = 1; i < ARRAY_LEN(toolkits); i++)
        if (strcmp(toolkits[i].name, name) == 0)
            return &toolkits[i];
    return &toolkits[0];
}

static void add_app(struct a11y_apps *apps, const char *bus, const char *path)
{
    apps->items = mem_grow(apps->items, apps->count + 1, sizeof apps->items[0]);
    apps->items[apps->count++] = (struct a11y_app){
        .bus = mem_copy_text(bus),
        .path = mem_copy_text(path),
        .toolkit = &toolkits[0],
    };
}

/* Asks all applications before it waits for the first, so that one that hangs costs A11Y_CALL_MS, once. */
static void describe_apps(struct a11y *a, struct a11y_apps *apps)
{
    struct questions {
        DBusPendingCall *name, *toolkit, *pid;
    } *asked = mem_alloc(apps->count * sizeof *asked + 1);

    for (size_t i = 0; i < apps->count; i++) {
        const struct a11y_app *app = &apps->items[i];
        const char *bus = app->bus;

        asked[i].name = ask_property(a, app->bus, app->path, ACCESSIBLE, "Name");
        asked[i].toolkit = ask_property(a, app->bus, app->path, APPLICATION, "ToolkitName");
        asked[i].pid = ask(a, DBUS_SERVICE_DBUS, DBUS_PATH_DBUS, DBUS_INTERFACE_DBUS,
                           "GetConnectionUnixProcessID", DBUS_TYPE_STRING, &bus, DBUS_TYPE_INVALID);
    }
    for (size_t i = 0; i < apps->count; i++) {
        AUTO_FREE char *toolkit = NULL;

        apps->items[i].name = get_text(a, asked[i].name);
        toolkit = get_text(a, asked[i].toolkit);
        apps->items[i].toolkit = find_toolkit(toolkit);
        apps->items[i].pid = get_int(a, asked[i].pid, DBUS_TYPE_UINT32, 0);
    }
    free(asked);
}

int a11y_list_apps(struct a11y *a, struct a11y_apps *out, struct error *e)
{
    DBusMessage *reply =
        wait_reply(a, ask(a, REGISTRY_NAME, ROOT_PATH, ACCESSIBLE, "GetChildren", DBUS_TYPE_INVALID));
    struct a11y_apps apps = { 0 };
    DBusMessageIter it, list;
    const char *bus, *path;
    const bool answered = open_reply(a, reply, &it);

    if (answered && a->lib.dbus_message_iter_get_arg_type(&it) == DBUS_TYPE_ARRAY) {
        a->lib.dbus_message_iter_recurse(&it, &list);
        while (take_address(a, &list, &bus, &path))
            add_app(&apps, bus, path);
    }
    drop_reply(a, reply);
    if (!answered)
        return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0,
                         "the accessibility bus has no registry (is at-spi2-core installed?)");
    describe_apps(a, &apps);
    *out = apps;
    return 0;
}

void a11y_apps_done(struct a11y_apps *apps)
{
    for (size_t i = 0; i < apps->count; i++) {
        free(apps->items[i].bus);
        free(apps->items[i].path);
        free(apps->items[i].name);
    }
    free(apps->items);
    *apps = (struct a11y_apps){ 0 };
}

/* Elements: the same few questions about each, a batch of elements at a time, level by level. */

struct reading {
    struct a11y *a;
    const struct a11y_app *app;
    struct a11y_tree *tree;
    bool actions;
    unsigned depth_max;
    int64_t deadline;
    bool silent; /* somebody did not answer in time */
};

struct question {
    const char *interface, *method; /* a property of the interface when method is NULL */
    const char *property;
    enum { NO_ARGUMENTS, ONE_COORD_TYPE, A_TEXT_RANGE } arguments;
    bool (*applies)(const struct reading *r, const struct a11y_node *node); /* NULL: always */
    void (*take)(struct reading *r, size_t index, DBusMessageIter *it);
};

bool a11y_has_state(const struct a11y_node *node, enum a11y_state state)
{
    return (node->states >> state & 1) != 0;
}

bool a11y_has_interface(const struct a11y_node *node, enum a11y_interface interface)
{
    return (node->interfaces >> interface & 1) != 0;
}

const char *a11y_state_name(unsigned state)
{
    return state < ARRAY_LEN(state_names) ? state_names[state] : NULL;
}

/* A copy of at most MAX bytes, cut between characters: continuation bytes are 10xxxxxx. */
static char *copy_cut(const char *text, size_t max)
{
    size_t size = strnlen(text, max + 1);

    if (size > max)
        for (size = max; size > 0 && ((unsigned char)text[size] & 0xc0) == 0x80;)
            size--;

    char *copy = mem_alloc(size + 1);

    memcpy(copy, text, size);
    return copy;
}

static void take_role(struct reading *r, size_t index, DBusMessageIter *it)
{
    struct a11y *a = r->a;
    uint32_t role;

    if (!take_basic(a, it, DBUS_TYPE_UINT32, &role))
        return;

    char *name = a->lib.atspi_role_get_name((AtspiRole)role);

    r->tree->nodes[index].role = mem_copy_text(name == NULL ? "unknown" : name);
    a->lib.g_free(name);
}

static void take_name(struct reading *r, size_t index, DBusMessageIter *it)
{
    const char *name = take_text(r->a, it);

    if (name != NULL)
        r->tree->nodes[index].name = copy_cut(name, A11Y_NAME_MAX);
}

static void take_states(struct reading *r, size_t index,
                        DBusMessageIter *it) /* two words, the low one first */
{
    uint32_t words[2] = { 0 };
    DBusMessageIter list;

    if (r->a->lib.dbus_message_iter_get_arg_type(it) != DBUS_TYPE_ARRAY)
        return;
    r->a->lib.dbus_message_iter_recurse(it, &list);
    for (size_t i = 0; i < ARRAY_LEN(words) && take_basic(r->a, &list, DBUS_TYPE_UINT32, &words[i]); i++)
        ;
    r->tree->nodes[index].states = (uint64_t)words[1] << 32 | words[0];
}

static void take_interfaces(struct reading *r, size_t index, DBusMessageIter *it)
{
    DBusMessageIter list;
    const char *name;

    if (r->a->lib.dbus_message_iter_get_arg_type(it) != DBUS_TYPE_ARRAY)
        return;
    r->a->lib.dbus_message_iter_recurse(it, &list);
    while ((name = take_text(r->a, &list)) != NULL)
        for (unsigned i = 0; i < A11Y_INTERFACE_COUNT; i++)
            if (strcmp(name, interface_names[i]) == 0)
                r->tree->nodes[index].interfaces |= 1U << i;
}

/* Items of closed menus are at INT_MIN, and elements that were never laid out have a negative size. */
static void take_extents(struct reading *r, size_t index, DBusMessageIter *it)
{
    struct a11y_node *node = &r->tree->nodes[index];
    int32_t values[4];
    DBusMessageIter list;

    if (r->a->lib.dbus_message_iter_get_arg_type(it) != DBUS_TYPE_STRUCT)
        return;
    r->a->lib.dbus_message_iter_recurse(it, &list);
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        if (!take_basic(r->a, &list, DBUS_TYPE_INT32, &values[i]))
            return;
    if (values[0] == INT32_MIN || values[1] == INT32_MIN || values[2] < 0 || values[3] < 0)
        return;
    node->bounds = (struct rect){ values[0], values[1], values[2], values[3] };
    node->has_bounds = true;
}

static void add_node(struct a11y_tree *tree, const char *bus, const char *path, size_t parent, unsigned depth)
{
    tree->nodes = mem_grow(tree->nodes, tree->count + 1, sizeof tree->nodes[0]);
    tree->nodes[tree->count++] = (struct a11y_node){
        .bus = mem_copy_text(bus),
        .path = mem_copy_text(path),
        .action_index = -1,
        .parent = parent,
        .depth = depth,
    };
}

static void take_children(struct reading *r, size_t index, DBusMessageIter *it)
{
    const unsigned depth = r->tree->nodes[index].depth + 1;
    const char *bus, *path;
    DBusMessageIter list;

    if (r->a->lib.dbus_message_iter_get_arg_type(it) != DBUS_TYPE_ARRAY)
        return;
    r->a->lib.dbus_message_iter_recurse(it, &list);
    r->tree->nodes[index].first_child = r->tree->count;
    while (take_address(r->a, &list, &bus, &path)) {
        if (r->tree->count == A11Y_NODES_MAX || depth > A11Y_DEPTH_MAX) {
            r->tree->truncated = true;
            return;
        }
        add_node(r->tree, bus, path, index, depth);
        r->tree->nodes[index].child_count++;
    }
}

static bool wants_children(const struct reading *r, const struct a11y_node *node)
{
    return node->depth < r->depth_max;
}

/* Elsewhere the name is the text: asking for a label's would double the tree's size. */
static bool wants_text(const struct reading *r, const struct a11y_node *node)
{
    static const char *const roles[] = { "text", "entry", "terminal", "paragraph" };

    (void)r;
    if (node->role == NULL || !a11y_has_interface(node, A11Y_TEXT) ||
        strcmp(node->role, "password text") == 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (strcmp(node->role, roles[i]) == 0)
            return true;
    return a11y_has_state(node, A11Y_STATE_EDITABLE) || node->name == NULL || node->name[0] == '\0';
}

static void take_content(struct reading *r, size_t index, DBusMessageIter *it)
{
    const char *text = take_text(r->a, it);

    if (text != NULL)
        r->tree->nodes[index].text = mem_copy_text(text);
}

static bool wants_value(const struct reading *r, const struct a11y_node *node)
{
    (void)r;
    return a11y_has_interface(node, A11Y_VALUE);
}

static void take_value(struct reading *r, size_t index, DBusMessageIter *it)
{
    struct a11y_node *node = &r->tree->nodes[index];

    node->has_value = take_basic(r->a, it, DBUS_TYPE_DOUBLE, &node->value);
}

/* To know what can be acted on it is enough that an element is focusable; which action a click is only
 * matters for the element that is read alone. */
static bool wants_actions(const struct reading *r, const struct a11y_node *node)
{
    return r->actions && a11y_has_interface(node, A11Y_ACTION) &&
           (r->depth_max == 0 || !a11y_has_state(node, A11Y_STATE_FOCUSABLE));
}

static void take_action_count(struct reading *r, size_t index, DBusMessageIter *it)
{
    int32_t count;

    if (take_basic(r->a, it, DBUS_TYPE_INT32, &count))
        r->tree->nodes[index].action_count = count;
}

static const struct question first_questions[] = {
    { .interface = ACCESSIBLE, .method = "GetRole", .take = take_role },
    { .interface = ACCESSIBLE, .method = "GetState", .take = take_states },
    { .interface = ACCESSIBLE, .method = "GetInterfaces", .take = take_interfaces },
    { .interface = ACCESSIBLE, .property = "Name", .take = take_name },
    { .interface = ACCESSIBLE, .method = "GetChildren", .applies = wants_children, .take = take_children },
    { .interface = COMPONENT, .method = "GetExtents", .arguments = ONE_COORD_TYPE, .take = take_extents },
};

static const struct question second_questions[] = {
    /* those that depend on the answers to the first */
    { .interface = TEXT,
      .method = "GetText",
      .arguments = A_TEXT_RANGE,
      .applies = wants_text,
      .take = take_content },
    { .interface = VALUE, .property = "CurrentValue", .applies = wants_value, .take = take_value },
    { .interface = ACTION, .property = "NActions", .applies = wants_actions, .take = take_action_count },
};

#define QUESTIONS_MAX ARRAY_LEN(first_questions)
_Static_assert(ARRAY_LEN(second_questions) <= QUESTIONS_MAX, "a batch has room for either");

static DBusPendingCall *ask_question(struct reading *r, const struct question *q,
                                     const struct a11y_node *node)
{
    const uint32_t coords =
        r->app->toolkit->window_coords ? ATSPI_COORD_TYPE_WINDOW : ATSPI_COORD_TYPE_SCREEN;
    const int32_t start = 0, end = A11Y_TEXT_MAX;

    if (q->method == NULL)
        return ask_property(r->a, node->bus, node->path, q->interface, q->property);
    switch (q->arguments) {
    case ONE_COORD_TYPE:
        return ask(r->a, node->bus, node->path, q->interface, q->method, DBUS_TYPE_UINT32, &coords,
                   DBUS_TYPE_INVALID);
    case A_TEXT_RANGE:
        return ask(r->a, node->bus, node->path, q->interface, q->method, DBUS_TYPE_INT32, &start,
                   DBUS_TYPE_INT32, &end, DBUS_TYPE_INVALID);
    case NO_ARGUMENTS:
        break;
    }
    return ask(r->a, node->bus, node->path, q->interface, q->method, DBUS_TYPE_INVALID);
}

static void take_reply(struct reading *r, const struct question *q, size_t index, DBusPendingCall *pending)
{
    DBusMessage *reply;
    DBusMessageIter it;

    if (pending == NULL) /* not asked */
        return;
    reply = wait_reply(r->a, pending);
    if (is_silent(r->a, reply))
        r->silent = true;
    if (open_reply(r->a, reply, &it))
        q->take(r, index, &it);
    drop_reply(r->a, reply);
}

/* Every question about the elements [from, to), all sent before the first answer is waited for. */
static void ask_all(struct reading *r, const struct question *questions, size_t count, size_t from, size_t to)
{
    DBusPendingCall *pending[BATCH_MAX][QUESTIONS_MAX] = { 0 };

    for (size_t i = from; i < to; i++)
        for (size_t q = 0; q < count; q++)
            if (questions[q].applies == NULL || questions[q].applies(r, &r->tree->nodes[i]))
                pending[i - from][q] = ask_question(r, &questions[q], &r->tree->nodes[i]);
    for (size_t i = from; i < to; i++)
        for (size_t q = 0; q < count; q++)
            take_reply(r, &questions[q], i, pending[i - from][q]);
}

static int named_actions(const struct a11y_node *node)
{
    return node->action_count < CLICK_NAMES_MAX ? node->action_count : CLICK_NAMES_MAX;
}

/* GetActions would tell all at once, but translated. */
static void ask_action_names(struct reading *r, size_t from, size_t to)
{
    DBusPendingCall *pending[BATCH_MAX][CLICK_NAMES_MAX] = { 0 };

    for (size_t i = from; i < to; i++)
        for (int32_t k = 0; k < named_actions(&r->tree->nodes[i]); k++)
            pending[i - from][k] = ask(r->a, r->tree->nodes[i].bus, r->tree->nodes[i].path, ACTION, "GetName",
                                       DBUS_TYPE_INT32, &k, DBUS_TYPE_INVALID);
    for (size_t i = from; i < to; i++) {
        struct a11y_node *node = &r->tree->nodes[i];
        size_t best = ARRAY_LEN(click_names);

        for (int k = 0; k < named_actions(node); k++) {
            AUTO_FREE char *name = get_text(r->a, pending[i - from][k]);

            for (size_t c = 0; c < best; c++) {
                if (strcasecmp(name, click_names[c]) != 0)
                    continue;
                best = c;
                free(node->action);
                node->action = steal(&name);
                node->action_index = k;
                break;
            }
        }
    }
}

static void ask_first(struct reading *r, size_t from, size_t to)
{
    ask_all(r, first_questions, ARRAY_LEN(first_questions), from, to);
}

static void ask_second(struct reading *r, size_t from, size_t to)
{
    ask_all(r, second_questions, ARRAY_LEN(second_questions), from, to);
}

/* A pass over all nodes, those included that it adds; each has only as many waits as there are batches. */
static void read_nodes(struct reading *r)
{
    static void (*const passes[])(struct reading *, size_t, size_t) = { ask_first, ask_second,
                                                                        ask_action_names };

    for (size_t pass = 0; pass < ARRAY_LEN(passes); pass++)
        for (size_t from = 0, to; from < r->tree->count; from = to) {
            to = r->tree->count - from > BATCH_MAX ? from + BATCH_MAX : r->tree->count;
            if (r->silent || clock_mono_ms() > r->deadline) {
                r->tree->truncated = true;
                return;
            }
            passes[pass](r, from, to);
        }
}

/* Of questions only: nothing was done. */
static int set_silent_error(const struct a11y_app *app, struct error *e)
{
    e->delivery = DELIVERY_NOT_DELIVERED;
    e->retry = RETRY_SAFE;
    return error_set(e, ERROR_TIMEOUT, 0, "%.64s does not answer over the accessibility bus",
                     app->name[0] == '\0' ? "the application" : app->name);
}

int a11y_read_tree(struct a11y *a, const struct a11y_app *app, bool actions, unsigned depth_max,
                   struct a11y_tree *out, struct error *e)
{
    struct a11y_tree tree = { 0 };
    struct reading r = {
        .a = a,
        .app = app,
        .tree = &tree,
        .actions = actions,
        .depth_max = depth_max,
        .deadline = clock_mono_ms() + A11Y_READ_MS,
    };

    add_node(&tree, app->bus, app->path, 0, 0);
    read_nodes(&r);
    if (tree.nodes[0].role == NULL) {
        a11y_tree_done(&tree);
        return set_silent_error(app, e);
    }
    *out = tree;
    return 0;
}

int a11y_read_element(struct a11y *a, const struct a11y_app *app, const char *bus, const char *path,
                      struct a11y_tree *out, struct error *e)
{
    struct a11y_tree tree = { 0 };
    struct reading r = {
        .a = a,
        .app = app,
        .tree = &tree,
        .actions = true,
        .deadline = clock_mono_ms() + A11Y_READ_MS,
    };

    /* The address comes from a file; libdbus ends the process when it is given a malformed one. */
    if (!a->lib.dbus_validate_bus_name(bus, NULL) || !a->lib.dbus_validate_path(path, NULL))
        return 0;
    add_node(&tree, bus, path, 0, 0);
    read_nodes(&r);
    if (tree.nodes[0].role == NULL || a11y_has_state(&tree.nodes[0], A11Y_STATE_DEFUNCT)) {
        a11y_tree_done(&tree);
        return r.silent ? set_silent_error(app, e) : 0;
    }
    *out = tree;
    return 1;
}

void a11y_tree_done(struct a11y_tree *tree)
{
    for (size_t i = 0; i < tree->count; i++) {
        struct a11y_node *node = &tree->nodes[i];

        free(node->bus);
        free(node->path);
        free(node->name);
        free(node->text);
        free(node->role);
        free(node->action);
    }
    free(tree->nodes);
    *tree = (struct a11y_tree){ 0 };
}

/* The parent's address of the element at *path, which it replaces; false at the top. */
static bool climb(struct a11y *a, const char *bus, char **path)
{
    DBusMessage *reply = wait_reply(a, ask_property(a, bus, *path, ACCESSIBLE, "Parent"));
    DBusMessageIter it, pair;
    const char *parent = NULL;

    if (open_reply(a, reply, &it) && a->lib.dbus_message_iter_get_arg_type(&it) == DBUS_TYPE_STRUCT) {
        a->lib.dbus_message_iter_recurse(&it, &pair);
        if (take_text(a, &pair) != NULL)
            parent = take_text(a, &pair);
    }

    const bool found = parent != NULL && strcmp(parent, ROOT_PATH) != 0 && strcmp(parent, NULL_PATH) != 0;

    if (found) {
        free(*path);
        *path = mem_copy_text(parent);
    }
    drop_reply(a, reply);
    return found;
}

int a11y_read_window(struct a11y *a, const struct a11y_app *app, const struct a11y_node *node,
                     struct a11y_tree *out, struct error *e)
{
    AUTO_FREE char *path = mem_copy_text(node->path);

    for (int depth = 0; depth < A11Y_DEPTH_MAX && climb(a, node->bus, &path); depth++)
        ;
    return a11y_read_element(a, app, node->bus, path, out, e);
}

/* Acting */

static bool is_on_bus(struct a11y *a, const char *bus)
{
    DBusMessage *reply = wait_reply(a, ask(a, DBUS_SERVICE_DBUS, DBUS_PATH_DBUS, DBUS_INTERFACE_DBUS,
                                           "NameHasOwner", DBUS_TYPE_STRING, &bus, DBUS_TYPE_INVALID));
    DBusMessageIter it;
    dbus_bool_t owned = TRUE;

    if (open_reply(a, reply, &it))
        take_basic(a, &it, DBUS_TYPE_BOOLEAN, &owned);
    drop_reply(a, reply);
    return owned;
}

/* Waits for the yes or no to WHAT. */
static int finish(struct a11y *a, const struct a11y_node *node, DBusPendingCall *pending, const char *what,
                  struct error *e)
{
    DBusMessage *reply = wait_reply(a, pending);
    const bool silent = is_silent(a, reply);
    dbus_bool_t done = FALSE;
    DBusMessageIter it;

    if (open_reply(a, reply, &it))
        take_basic(a, &it, DBUS_TYPE_BOOLEAN, &done);
    drop_reply(a, reply);
    if (done || (silent && pending != NULL && !is_on_bus(a, node->bus)))
        return 0;
    if (silent)
        return error_set(e, ERROR_TIMEOUT, 0, "the application did not answer: %s", what);
    return error_set(e, ERROR_ACTION_FAILED, 0, "the application refused: %s", what);
}

int a11y_do_action(struct a11y *a, const struct a11y_node *node, struct error *e)
{
    const int32_t index = node->action_index;

    return finish(
        a, node,
        ask(a, node->bus, node->path, ACTION, "DoAction", DBUS_TYPE_INT32, &index, DBUS_TYPE_INVALID),
        node->action, e);
}

int a11y_grab_focus(struct a11y *a, const struct a11y_node *node, struct error *e)
{
    return finish(a, node, ask(a, node->bus, node->path, COMPONENT, "GrabFocus", DBUS_TYPE_INVALID), "focus",
                  e);
}

/* Code points, or UTF-16 units, in valid UTF-8: every lead byte is one, one of four bytes is a pair. */
static int32_t count_units(const char *text, bool utf16)
{
    int32_t count = 0;

    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++)
        count += ((*p & 0xc0) != 0x80) + (utf16 && *p >= 0xf0);
    return count;
}

/* Deletes what is selected and says where the caret is then; -1 when there is nothing to know. */
static int32_t clear_selection(struct a11y *a, const struct a11y_node *node)
{
    const int32_t first = 0;
    int32_t start = -1, end = -1;
    DBusMessage *reply = wait_reply(
        a, ask(a, node->bus, node->path, TEXT, "GetSelection", DBUS_TYPE_INT32, &first, DBUS_TYPE_INVALID));
    DBusMessageIter it;

    if (open_reply(a, reply, &it) && take_basic(a, &it, DBUS_TYPE_INT32, &start))
        take_basic(a, &it, DBUS_TYPE_INT32, &end);
    drop_reply(a, reply);
    if (start < 0 || end <= start)
        return get_int(a, ask_property(a, node->bus, node->path, TEXT, "CaretOffset"), DBUS_TYPE_INT32, -1);

    reply = wait_reply(a, ask(a, node->bus, node->path, EDITABLE_TEXT, "DeleteText", DBUS_TYPE_INT32, &start,
                              DBUS_TYPE_INT32, &end, DBUS_TYPE_INVALID));
    drop_reply(a, reply);
    return start;
}

int a11y_insert_text(struct a11y *a, const struct a11y_app *app, const struct a11y_node *node,
                     const char *text, struct error *e)
{
    const int32_t length = app->toolkit->length_in_letters ? count_units(text, true) : (int32_t)strlen(text);
    int32_t at = clear_selection(a, node), after;
    DBusMessage *reply;

    if (at < 0)
        at = get_int(a, ask_property(a, node->bus, node->path, TEXT, "CharacterCount"), DBUS_TYPE_INT32, 0);
    if (finish(a, node,
               ask(a, node->bus, node->path, EDITABLE_TEXT, "InsertText", DBUS_TYPE_INT32, &at,
                   DBUS_TYPE_STRING, &text, DBUS_TYPE_INT32, &length, DBUS_TYPE_INVALID),
               "text", e) < 0)
        return -1;

    /* Toolkits differ in whether an insertion moves the caret. One that will not be moved is no failure. */
    after = at + count_units(text, app->toolkit->length_in_letters);
    reply = wait_reply(
        a, ask(a, node->bus, node->path, TEXT, "SetCaretOffset", DBUS_TYPE_INT32, &after, DBUS_TYPE_INVALID));
    drop_reply(a, reply);
    return 0;
}

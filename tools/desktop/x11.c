#include "tools/desktop/x11.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <xcb/xcb.h>
#include <xcb/xcbext.h>

#include "core/clock.h"
#include "core/library.h"
#include "core/mem.h"
#include "core/text.h"

#define KEYSYM_RETURN    0xff0d
#define KEYSYM_TAB       0xff09
#define KEYSYM_UNICODE   0x01000000U /* added to a code point above Latin-1: X protocol, appendix A */
#define SHIFT_KEYSYM     0xffe1
#define PROPERTY_WORDS   4096 /* longest property that is read: 4096 windows, 16 kB of title */
#define EWMH_FROM_PAGER  2    /* source of a request that window managers do not take for focus stealing */
#define POLL_MS          5
#define ASK_AGAIN_MS     200
#define XTEST_FAKE_INPUT 2 /* minor opcode; XTEST 2.2 */

enum atom {
    ATOM_NET_ACTIVE_WINDOW,
    ATOM_NET_CLIENT_LIST,
    ATOM_NET_SUPPORTING_WM_CHECK,
    ATOM_NET_WM_NAME,
    ATOM_NET_WM_PID,
    ATOM_GTK_FRAME_EXTENTS,
    ATOM_COUNT
};

static const char *const atom_names[] = {
    [ATOM_NET_ACTIVE_WINDOW] = "_NET_ACTIVE_WINDOW",
    [ATOM_NET_CLIENT_LIST] = "_NET_CLIENT_LIST",
    [ATOM_NET_SUPPORTING_WM_CHECK] = "_NET_SUPPORTING_WM_CHECK",
    [ATOM_NET_WM_NAME] = "_NET_WM_NAME",
    [ATOM_NET_WM_PID] = "_NET_WM_PID",
    [ATOM_GTK_FRAME_EXTENTS] = "_GTK_FRAME_EXTENTS",
};
_Static_assert(ARRAY_LEN(atom_names) == ATOM_COUNT, "each atom has a name");

struct libxcb {
    __typeof__(xcb_connect) *xcb_connect;
    __typeof__(xcb_connection_has_error) *xcb_connection_has_error;
    __typeof__(xcb_disconnect) *xcb_disconnect;
    __typeof__(xcb_get_setup) *xcb_get_setup;
    __typeof__(xcb_setup_roots_iterator) *xcb_setup_roots_iterator;
    __typeof__(xcb_screen_next) *xcb_screen_next;
    __typeof__(xcb_screen_allowed_depths_iterator) *xcb_screen_allowed_depths_iterator;
    __typeof__(xcb_depth_next) *xcb_depth_next;
    __typeof__(xcb_depth_visuals_iterator) *xcb_depth_visuals_iterator;
    __typeof__(xcb_visualtype_next) *xcb_visualtype_next;
    __typeof__(xcb_setup_pixmap_formats) *xcb_setup_pixmap_formats;
    __typeof__(xcb_setup_pixmap_formats_length) *xcb_setup_pixmap_formats_length;
    __typeof__(xcb_intern_atom) *xcb_intern_atom;
    __typeof__(xcb_intern_atom_reply) *xcb_intern_atom_reply;
    __typeof__(xcb_get_property) *xcb_get_property;
    __typeof__(xcb_get_property_reply) *xcb_get_property_reply;
    __typeof__(xcb_get_property_value) *xcb_get_property_value;
    __typeof__(xcb_get_property_value_length) *xcb_get_property_value_length;
    __typeof__(xcb_get_geometry) *xcb_get_geometry;
    __typeof__(xcb_get_geometry_reply) *xcb_get_geometry_reply;
    __typeof__(xcb_translate_coordinates) *xcb_translate_coordinates;
    __typeof__(xcb_translate_coordinates_reply) *xcb_translate_coordinates_reply;
    __typeof__(xcb_send_event) *xcb_send_event;
    __typeof__(xcb_get_image) *xcb_get_image;
    __typeof__(xcb_get_image_reply) *xcb_get_image_reply;
    __typeof__(xcb_get_image_data) *xcb_get_image_data;
    __typeof__(xcb_get_image_data_length) *xcb_get_image_data_length;
    __typeof__(xcb_query_extension) *xcb_query_extension;
    __typeof__(xcb_query_extension_reply) *xcb_query_extension_reply;
    __typeof__(xcb_send_request) *xcb_send_request;
    __typeof__(xcb_get_keyboard_mapping) *xcb_get_keyboard_mapping;
    __typeof__(xcb_get_keyboard_mapping_reply) *xcb_get_keyboard_mapping_reply;
    __typeof__(xcb_get_keyboard_mapping_keysyms) *xcb_get_keyboard_mapping_keysyms;
    __typeof__(xcb_change_keyboard_mapping) *xcb_change_keyboard_mapping;
    __typeof__(xcb_get_input_focus) *xcb_get_input_focus;
    __typeof__(xcb_get_input_focus_reply) *xcb_get_input_focus_reply;
};

static const struct library_symbol symbols[] = {
    LIBRARY_SYMBOL(libxcb, xcb_connect),
    LIBRARY_SYMBOL(libxcb, xcb_connection_has_error),
    LIBRARY_SYMBOL(libxcb, xcb_disconnect),
    LIBRARY_SYMBOL(libxcb, xcb_get_setup),
    LIBRARY_SYMBOL(libxcb, xcb_setup_roots_iterator),
    LIBRARY_SYMBOL(libxcb, xcb_screen_next),
    LIBRARY_SYMBOL(libxcb, xcb_screen_allowed_depths_iterator),
    LIBRARY_SYMBOL(libxcb, xcb_depth_next),
    LIBRARY_SYMBOL(libxcb, xcb_depth_visuals_iterator),
    LIBRARY_SYMBOL(libxcb, xcb_visualtype_next),
    LIBRARY_SYMBOL(libxcb, xcb_setup_pixmap_formats),
    LIBRARY_SYMBOL(libxcb, xcb_setup_pixmap_formats_length),
    LIBRARY_SYMBOL(libxcb, xcb_intern_atom),
    LIBRARY_SYMBOL(libxcb, xcb_intern_atom_reply),
    LIBRARY_SYMBOL(libxcb, xcb_get_property),
    LIBRARY_SYMBOL(libxcb, xcb_get_property_reply),
    LIBRARY_SYMBOL(libxcb, xcb_get_property_value),
    LIBRARY_SYMBOL(libxcb, xcb_get_property_value_length),
    LIBRARY_SYMBOL(libxcb, xcb_get_geometry),
    LIBRARY_SYMBOL(libxcb, xcb_get_geometry_reply),
    LIBRARY_SYMBOL(libxcb, xcb_translate_coordinates),
    LIBRARY_SYMBOL(libxcb, xcb_translate_coordinates_reply),
    LIBRARY_SYMBOL(libxcb, xcb_send_event),
    LIBRARY_SYMBOL(libxcb, xcb_get_image),
    LIBRARY_SYMBOL(libxcb, xcb_get_image_reply),
    LIBRARY_SYMBOL(libxcb, xcb_get_image_data),
    LIBRARY_SYMBOL(libxcb, xcb_get_image_data_length),
    LIBRARY_SYMBOL(libxcb, xcb_query_extension),
    LIBRARY_SYMBOL(libxcb, xcb_query_extension_reply),
    LIBRARY_SYMBOL(libxcb, xcb_send_request),
    LIBRARY_SYMBOL(libxcb, xcb_get_keyboard_mapping),
    LIBRARY_SYMBOL(libxcb, xcb_get_keyboard_mapping_reply),
    LIBRARY_SYMBOL(libxcb, xcb_get_keyboard_mapping_keysyms),
    LIBRARY_SYMBOL(libxcb, xcb_change_keyboard_mapping),
    LIBRARY_SYMBOL(libxcb, xcb_get_input_focus),
    LIBRARY_SYMBOL(libxcb, xcb_get_input_focus_reply),
};
_Static_assert(ARRAY_LEN(symbols) == sizeof(struct libxcb) / sizeof(void (*)(void)), "each one is looked up");

struct x11 {
    struct libxcb lib;
    xcb_connection_t *connection;
    const xcb_screen_t *screen;
    xcb_atom_t atoms[ATOM_COUNT];
};

/* The connection */

static const xcb_screen_t *find_screen(const struct libxcb *lib, xcb_connection_t *connection, int number)
{
    xcb_screen_iterator_t it = lib->xcb_setup_roots_iterator(lib->xcb_get_setup(connection));

    while (number-- > 0 && it.rem > 1)
        lib->xcb_screen_next(&it);
    return it.data;
}

static void intern_atoms(struct x11 *x)
{
    xcb_intern_atom_cookie_t asked[ATOM_COUNT];

    for (size_t i = 0; i < ATOM_COUNT; i++)
        asked[i] = x->lib.xcb_intern_atom(x->connection, 0, (uint16_t)strlen(atom_names[i]), atom_names[i]);
    for (size_t i = 0; i < ATOM_COUNT; i++) {
        AUTO_FREE xcb_intern_atom_reply_t *reply =
            x->lib.xcb_intern_atom_reply(x->connection, asked[i], NULL);

        x->atoms[i] = reply == NULL ? (xcb_atom_t)XCB_ATOM_NONE : reply->atom;
    }
}

int x11_open(struct x11 **out, struct error *e)
{
    AUTO_X11 struct x11 *x = NULL;
    const char *display = getenv("DISPLAY");
    int screen = 0;

    if (display == NULL || display[0] == '\0')
        return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0, "there is no display here: DISPLAY is not set");
    x = mem_alloc(sizeof *x);
    if (library_open("libxcb.so.1", "libxcb1", symbols, ARRAY_LEN(symbols), &x->lib, e) < 0)
        return -1;
    x->connection = x->lib.xcb_connect(NULL, &screen);
    if (x->lib.xcb_connection_has_error(x->connection) != 0)
        return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0,
                         "display '%.64s' does not answer or does not let this user in", display);
    x->screen = find_screen(&x->lib, x->connection, screen);
    intern_atoms(x);
    *out = steal(&x);
    return 0;
}

void x11_close(struct x11 **x)
{
    if (*x == NULL)
        return;
    if ((*x)->connection != NULL)
        (*x)->lib.xcb_disconnect((*x)->connection);
    free(*x);
    *x = NULL;
}

/* The server answers in order: with this reply, all before it has been done. */
static bool synchronise(struct x11 *x)
{
    AUTO_FREE xcb_get_input_focus_reply_t *reply =
        x->lib.xcb_get_input_focus_reply(x->connection, x->lib.xcb_get_input_focus(x->connection), NULL);

    return reply != NULL;
}

/* Windows */

/* Up to MAX 32-bit items of a window's property; how many there are. */
static size_t read_words(struct x11 *x, xcb_window_t window, enum atom property, uint32_t *out, size_t max)
{
    AUTO_FREE xcb_get_property_reply_t *reply =
        x->lib.xcb_get_property_reply(x->connection,
                                      x->lib.xcb_get_property(x->connection, 0, window, x->atoms[property],
                                                              XCB_GET_PROPERTY_TYPE_ANY, 0, (uint32_t)max),
                                      NULL);
    size_t count;

    if (reply == NULL || reply->format != 32)
        return 0;
    count = (size_t)x->lib.xcb_get_property_value_length(reply) / sizeof out[0];
    memcpy(out, x->lib.xcb_get_property_value(reply), count * sizeof out[0]);
    return count;
}

static void read_title(struct x11 *x, xcb_window_t window, char title[X11_TITLE_SIZE])
{
    const xcb_atom_t names[] = { x->atoms[ATOM_NET_WM_NAME], XCB_ATOM_WM_NAME };

    title[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(names) && title[0] == '\0'; i++) {
        AUTO_FREE xcb_get_property_reply_t *reply = x->lib.xcb_get_property_reply(
            x->connection,
            x->lib.xcb_get_property(x->connection, 0, window, names[i], XCB_GET_PROPERTY_TYPE_ANY, 0,
                                    PROPERTY_WORDS),
            NULL);

        if (reply != NULL && reply->format == 8)
            text_clean(title, X11_TITLE_SIZE, x->lib.xcb_get_property_value(reply),
                       (size_t)x->lib.xcb_get_property_value_length(reply));
    }
}

/* GTK draws its windows' shadows inside of them, and says how wide they are: left, right, top, bottom. */
static void cut_shadow(struct x11 *x, xcb_window_t window, struct rect *bounds)
{
    uint32_t edge[4];

    if (read_words(x, window, ATOM_GTK_FRAME_EXTENTS, edge, ARRAY_LEN(edge)) != ARRAY_LEN(edge))
        return;
    bounds->x += (int)edge[0];
    bounds->y += (int)edge[2];
    bounds->width -= (int)(edge[0] + edge[1]);
    bounds->height -= (int)(edge[2] + edge[3]);
}

/* false when the window is gone. */
static bool read_window(struct x11 *x, xcb_window_t id, struct x11_window *out)
{
    const xcb_get_geometry_cookie_t size_asked = x->lib.xcb_get_geometry(x->connection, id);
    const xcb_translate_coordinates_cookie_t place_asked =
        x->lib.xcb_translate_coordinates(x->connection, id, x->screen->root, 0, 0);
    AUTO_FREE xcb_get_geometry_reply_t *size = x->lib.xcb_get_geometry_reply(x->connection, size_asked, NULL);
    AUTO_FREE xcb_translate_coordinates_reply_t *place =
        x->lib.xcb_translate_coordinates_reply(x->connection, place_asked, NULL);
    uint32_t pid = 0;

    if (size == NULL || place == NULL)
        return false;
    *out =
        (struct x11_window){ .id = id, .bounds = { place->dst_x, place->dst_y, size->width, size->height } };
    read_words(x, id, ATOM_NET_WM_PID, &pid, 1);
    out->pid = (pid_t)pid;
    read_title(x, id, out->title);
    cut_shadow(x, id, &out->bounds);
    return true;
}

size_t x11_list_windows(struct x11 *x, struct x11_window **out)
{
    AUTO_FREE uint32_t *ids = mem_alloc(PROPERTY_WORDS * sizeof ids[0]);
    const size_t listed = read_words(x, x->screen->root, ATOM_NET_CLIENT_LIST, ids, PROPERTY_WORDS);
    struct x11_window *windows = mem_alloc((listed + 1) * sizeof windows[0]);
    size_t count = 0;

    for (size_t i = 0; i < listed; i++)
        count += read_window(x, ids[i], &windows[count]);
    *out = windows;
    return count;
}

bool x11_find_window(struct x11 *x, pid_t pid, const char *title, struct x11_window *out)
{
    AUTO_FREE struct x11_window *windows = NULL;
    const struct x11_window *found = NULL;
    const size_t count = x11_list_windows(x, &windows);
    char wanted[X11_TITLE_SIZE];

    text_clean(wanted, sizeof wanted, title, strlen(title));
    for (size_t i = count; i-- > 0;) {
        if (windows[i].pid != pid)
            continue;
        if (found == NULL || strcmp(windows[i].title, wanted) == 0)
            found = &windows[i];
        if (strcmp(found->title, wanted) == 0)
            break;
    }
    if (found == NULL)
        return false;
    *out = *found;
    return true;
}

/* EWMH: the root names a window that names itself; a name left behind by a dead manager does not. */
bool x11_has_window_manager(struct x11 *x)
{
    uint32_t named = 0, self = 0;

    read_words(x, x->screen->root, ATOM_NET_SUPPORTING_WM_CHECK, &named, 1);
    return named != 0 && read_words(x, named, ATOM_NET_SUPPORTING_WM_CHECK, &self, 1) == 1 && self == named;
}

static bool is_active(struct x11 *x, uint32_t window)
{
    uint32_t active = 0;

    read_words(x, x->screen->root, ATOM_NET_ACTIVE_WINDOW, &active, 1);
    return active == window;
}

bool x11_activate(struct x11 *x, uint32_t window, int wait_ms)
{
    const int64_t deadline = clock_mono_ms() + wait_ms;
    int64_t ask_at = 0;
    const xcb_client_message_event_t event = {
        .response_type = XCB_CLIENT_MESSAGE,
        .format = 32,
        .window = window,
        .type = x->atoms[ATOM_NET_ACTIVE_WINDOW],
        .data.data32 = { EWMH_FROM_PAGER, XCB_CURRENT_TIME },
    };
    char bytes[32] = { 0 }; /* the size of every event on the wire */

    memcpy(bytes, &event, sizeof event);
    do {
        if (clock_mono_ms() >= deadline)
            return false;
        if (clock_mono_ms() >=
            ask_at) { /* again: the window manager drops what it hears before it has the window */
            x->lib.xcb_send_event(x->connection, 0, x->screen->root,
                                  XCB_EVENT_MASK_SUBSTRUCTURE_REDIRECT | XCB_EVENT_MASK_SUBSTRUCTURE_NOTIFY,
                                  bytes);
            ask_at = clock_mono_ms() + ASK_AGAIN_MS;
        }
        clock_sleep_ms(POLL_MS);
    } while (!is_active(x, window));
    return true;
}

/* Pixels */

struct layout { /* how the server stores a pixel of the screen */
    unsigned bytes, pad_bits;
    bool big_endian;
    uint32_t masks[3]; /* red, green, blue */
};

static bool find_masks(struct x11 *x, uint32_t masks[3])
{
    const struct libxcb *lib = &x->lib;

    for (xcb_depth_iterator_t d = lib->xcb_screen_allowed_depths_iterator(x->screen); d.rem > 0;
         lib->xcb_depth_next(&d))
        for (xcb_visualtype_iterator_t v = lib->xcb_depth_visuals_iterator(d.data); v.rem > 0;
             lib->xcb_visualtype_next(&v))
            if (v.data->visual_id == x->screen->root_visual) {
                masks[0] = v.data->red_mask;
                masks[1] = v.data->green_mask;
                masks[2] = v.data->blue_mask;
                return masks[0] != 0 && masks[1] != 0 && masks[2] != 0; /* 0: colours are in a palette */
            }
    return false;
}

static bool find_layout(struct x11 *x, struct layout *out)
{
    const xcb_setup_t *setup = x->lib.xcb_get_setup(x->connection);
    const xcb_format_t *formats = x->lib.xcb_setup_pixmap_formats(setup);

    for (int i = 0; i < x->lib.xcb_setup_pixmap_formats_length(setup); i++) {
        if (formats[i].depth != x->screen->root_depth)
            continue;
        out->bytes = formats[i].bits_per_pixel / 8;
        out->pad_bits = formats[i].scanline_pad;
        out->big_endian = setup->image_byte_order == XCB_IMAGE_ORDER_MSB_FIRST;
        return out->bytes >= 2 && out->bytes <= 4 && find_masks(x, out->masks);
    }
    return false;
}

static uint8_t scale_channel(uint32_t pixel, uint32_t mask)
{
    const unsigned shift = (unsigned)__builtin_ctz(mask);

    return (uint8_t)((uint64_t)((pixel & mask) >> shift) * 255 / (mask >> shift));
}

static void convert_row(const struct layout *l, const uint8_t *from, uint32_t width, uint8_t *to)
{
    for (uint32_t column = 0; column < width; column++, from += l->bytes) {
        uint32_t pixel = 0;

        for (unsigned i = 0; i < l->bytes; i++)
            pixel |= (uint32_t)from[i] << 8 * (l->big_endian ? l->bytes - 1 - i : i);
        for (unsigned channel = 0; channel < 3; channel++)
            *to++ = scale_channel(pixel, l->masks[channel]);
    }
}

int x11_read_screen(struct x11 *x, struct image *out, struct error *e)
{
    const uint16_t width = x->screen->width_in_pixels, height = x->screen->height_in_pixels;
    struct layout layout;

    if (!find_layout(x, &layout))
        return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0, "the display is not a true colour one");

    AUTO_FREE xcb_get_image_reply_t *reply =
        x->lib.xcb_get_image_reply(x->connection,
                                   x->lib.xcb_get_image(x->connection, XCB_IMAGE_FORMAT_Z_PIXMAP,
                                                        x->screen->root, 0, 0, width, height, UINT32_MAX),
                                   NULL);
    const size_t row_bits = (size_t)width * layout.bytes * 8;
    const size_t row_bytes = (row_bits + layout.pad_bits - 1) / layout.pad_bits * layout.pad_bits / 8;

    if (reply == NULL || (size_t)x->lib.xcb_get_image_data_length(reply) < row_bytes * height)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the display did not give a picture of itself");
    *out = (struct image){ width, height, mem_alloc((size_t)width * height * 3) };
    for (size_t row = 0; row < height; row++)
        convert_row(&layout, x->lib.xcb_get_image_data(reply) + row * row_bytes, width,
                    out->rgb + row * (size_t)width * 3);
    return 0;
}

/* Pointer and keys, by the XTEST extension. Its one request is written out here rather than opening
 * libxcb-xtest for it: xtestproto 2.2. */

struct fake_input {
    uint8_t major, minor;
    uint16_t length;
    uint8_t type, detail;
    uint8_t pad0[2];
    uint32_t time; /* 0: now */
    uint32_t root;
    uint8_t pad1[8];
    int16_t x, y;
    uint8_t pad2[7];
    uint8_t device;
};
_Static_assert(sizeof(struct fake_input) == 36, "as on the wire");

static int find_xtest(struct x11 *x, uint8_t *opcode, struct error *e)
{
    static const char name[] = "XTEST";
    AUTO_FREE xcb_query_extension_reply_t *reply = x->lib.xcb_query_extension_reply(
        x->connection, x->lib.xcb_query_extension(x->connection, sizeof name - 1, name), NULL);

    if (reply == NULL || !reply->present)
        return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0, "the display has no XTEST extension");
    *opcode = reply->major_opcode;
    return 0;
}

static void send_input(struct x11 *x, uint8_t opcode, uint8_t type, uint8_t detail, int at_x, int at_y)
{
    struct fake_input input = {
        .minor = XTEST_FAKE_INPUT,
        .type = type,
        .detail = detail,
        .root = x->screen->root,
        .x = (int16_t)at_x,
        .y = (int16_t)at_y,
    };
    const xcb_protocol_request_t request = { .count = 1, .opcode = opcode, .isvoid = 1 };
    struct iovec parts[3] = { [2] = { &input, sizeof input } }; /* xcb writes into the two before */

    x->lib.xcb_send_request(x->connection, 0, parts + 2, &request);
}

static int flush_input(struct x11 *x, struct error *e)
{
    if (synchronise(x))
        return 0;
    return error_set(e, ERROR_ACTION_FAILED, 0, "the display was closed");
}

/* Before anything is sent. */
static int refuse(const char *why, struct error *e)
{
    e->delivery = DELIVERY_NOT_DELIVERED;
    e->retry = RETRY_SAFE;
    return error_set(e, ERROR_ACTION_FAILED, 0, "%s", why);
}

int x11_click(struct x11 *x, int at_x, int at_y, struct error *e)
{
    uint8_t opcode;

    if (at_x < 0 || at_y < 0 || at_x >= x->screen->width_in_pixels || at_y >= x->screen->height_in_pixels)
        return refuse("the element is outside of the screen", e);
    if (find_xtest(x, &opcode, e) < 0)
        return -1;
    send_input(x, opcode, XCB_MOTION_NOTIFY, 0, at_x, at_y);
    send_input(x, opcode, XCB_BUTTON_PRESS, XCB_BUTTON_INDEX_1, 0, 0);
    send_input(x, opcode, XCB_BUTTON_RELEASE, XCB_BUTTON_INDEX_1, 0, 0);
    return flush_input(x, e);
}

struct keyboard {
    xcb_get_keyboard_mapping_reply_t *reply; /* free() */
    xcb_keysym_t *symbols;                   /* per_key for each key, in the reply */
    unsigned first, count, per_key;
    uint8_t shift; /* keycode, 0 when there is none */
};

struct stroke {
    uint8_t key; /* 0: not on the keyboard */
    bool shifted;
};

static struct stroke find_stroke(const struct keyboard *k, xcb_keysym_t symbol)
{
    for (unsigned column = 0; column < 2 && column < k->per_key; column++)
        for (unsigned key = 0; key < k->count; key++)
            if (k->symbols[key * k->per_key + column] == symbol)
                return (struct stroke){ (uint8_t)(k->first + key), column == 1 };
    return (struct stroke){ 0 };
}

static int read_keyboard(struct x11 *x, struct keyboard *out, struct error *e)
{
    const xcb_setup_t *setup = x->lib.xcb_get_setup(x->connection);
    const uint8_t count = (uint8_t)(setup->max_keycode - setup->min_keycode + 1);
    struct keyboard k = { .first = setup->min_keycode, .count = count };

    k.reply = x->lib.xcb_get_keyboard_mapping_reply(
        x->connection, x->lib.xcb_get_keyboard_mapping(x->connection, setup->min_keycode, count), NULL);
    if (k.reply == NULL || k.reply->keysyms_per_keycode == 0) {
        free(k.reply);
        return refuse("the display has no keyboard", e);
    }
    k.symbols = x->lib.xcb_get_keyboard_mapping_keysyms(k.reply);
    k.per_key = k.reply->keysyms_per_keycode;
    k.shift = find_stroke(&k, SHIFT_KEYSYM).key;
    *out = k;
    return 0;
}

static bool is_unused(const struct keyboard *k, unsigned key)
{
    for (unsigned column = 0; column < k->per_key; column++)
        if (k->symbols[key * k->per_key + column] != XCB_NO_SYMBOL)
            return false;
    return true;
}

/* Puts SYMBOL on a key that has none, on every level of it, so that no modifier changes its meaning. */
static bool add_symbol(struct x11 *x, struct keyboard *k, xcb_keysym_t symbol)
{
    for (unsigned key = 0; key < k->count; key++) {
        xcb_keysym_t *levels = &k->symbols[(size_t)key * k->per_key];

        if (!is_unused(k, key))
            continue;
        for (unsigned column = 0; column < k->per_key; column++)
            levels[column] = symbol;
        x->lib.xcb_change_keyboard_mapping(x->connection, 1, (uint8_t)(k->first + key), (uint8_t)k->per_key,
                                           levels);
        return true;
    }
    return false;
}

/* The next character of valid UTF-8 as a keysym; 0 at the end. */
static xcb_keysym_t next_keysym(const char **text)
{
    const unsigned char *p = (const unsigned char *)*text;
    const unsigned length = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
    uint32_t point = length == 1 ? *p : *p & (0x7fU >> length);

    if (*p == '\0')
        return 0;
    for (unsigned i = 1; i < length; i++)
        point = point << 6 | (p[i] & 0x3fU);
    *text += length;
    if (point == '\n')
        return KEYSYM_RETURN;
    if (point == '\t')
        return KEYSYM_TAB;
    return point < 0x100 ? point : KEYSYM_UNICODE + point;
}

static bool add_missing(struct x11 *x, struct keyboard *k, const char *text)
{
    for (xcb_keysym_t symbol; (symbol = next_keysym(&text)) != 0;)
        if (find_stroke(k, symbol).key == 0 && !add_symbol(x, k, symbol))
            return false;
    return true;
}

static void press_keys(struct x11 *x, const struct keyboard *k, uint8_t opcode, const char *text)
{
    for (xcb_keysym_t symbol; (symbol = next_keysym(&text)) != 0;) {
        const struct stroke stroke = find_stroke(k, symbol);

        if (stroke.shifted)
            send_input(x, opcode, XCB_KEY_PRESS, k->shift, 0, 0);
        send_input(x, opcode, XCB_KEY_PRESS, stroke.key, 0, 0);
        send_input(x, opcode, XCB_KEY_RELEASE, stroke.key, 0, 0);
        if (stroke.shifted)
            send_input(x, opcode, XCB_KEY_RELEASE, k->shift, 0, 0);
    }
}

int x11_type(struct x11 *x, const char *text, struct error *e)
{
    struct keyboard keyboard;
    uint8_t opcode;
    bool complete;

    if (find_xtest(x, &opcode, e) < 0 || read_keyboard(x, &keyboard, e) < 0)
        return -1;
    complete = add_missing(x, &keyboard, text);
    if (complete)
        press_keys(x, &keyboard, opcode, text);
    free(keyboard.reply);
    if (!complete)
        return refuse("the keyboard lacks more of the text's characters than it has unused keys", e);
    return flush_input(x, e);
}

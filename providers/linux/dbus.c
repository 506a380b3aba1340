#include "providers/linux/dbus.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/util.h"

/* Message types and header fields: D-Bus Specification, "Message Format". */
enum { TYPE_CALL = 1, TYPE_RETURN = 2, TYPE_ERROR = 3, TYPE_SIGNAL = 4 };
enum {
    FIELD_PATH = 1,
    FIELD_INTERFACE = 2,
    FIELD_MEMBER = 3,
    FIELD_ERROR_NAME = 4,
    FIELD_REPLY_SERIAL = 5,
    FIELD_DESTINATION = 6,
    FIELD_SIGNATURE = 8
};

#define NATIVE_ORDER (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 'l' : 'B')
#define FIXED_HEADER 16

static const char bus_name[] = "org.freedesktop.DBus";
static const char bus_path[] = "/org/freedesktop/DBus";

/* --- bytes on the socket ------------------------------------------------------------------------- */

static int wait_for(struct dbus *d, short events, struct error *e)
{
    struct pollfd p = { .fd = d->fd, .events = events };

    for (;;) {
        int64_t left = d->deadline_ms - clock_mono_ms();
        int n = poll(&p, 1, left > 0 ? (int)left : 0);

        if (n > 0)
            return 0;
        if (n == 0)
            return error_set(e, ERROR_TIMEOUT, 0, "the bus did not answer in time");
        if (errno != EINTR)
            return error_set(e, ERROR_ACTION_FAILED, errno, "cannot wait for the bus");
    }
}

static int send_all(struct dbus *d, const void *bytes, size_t size, struct error *e)
{
    const char *at = bytes;

    while (size > 0) {
        ssize_t n = send(d->fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return error_set(e, ERROR_ACTION_FAILED, errno, "cannot send to the bus");
        if (n < 0 && wait_for(d, POLLOUT, e) < 0)
            return -1;
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

static int receive_all(struct dbus *d, void *bytes, size_t size, struct error *e)
{
    char *at = bytes;

    while (size > 0) {
        ssize_t n = recv(d->fd, at, size, MSG_DONTWAIT);

        if (n == 0)
            return error_set(e, ERROR_ACTION_FAILED, 0, "the bus hung up");
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return error_set(e, ERROR_ACTION_FAILED, errno, "cannot read from the bus");
        if (n < 0 && wait_for(d, POLLIN, e) < 0)
            return -1;
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

/* --- writing a message --------------------------------------------------------------------------- */

struct writer {
    unsigned char *bytes;
    size_t size;
    bool full;
};

static void put(struct writer *w, const void *bytes, size_t size)
{
    if (w->full || size > DBUS_MESSAGE_MAX - w->size) {
        w->full = true;
        return;
    }
    memcpy(w->bytes + w->size, bytes, size);
    w->size += size;
}

static void put_byte(struct writer *w, unsigned char byte)
{
    put(w, &byte, 1);
}

static void put_padding(struct writer *w, size_t alignment)
{
    while (!w->full && w->size % alignment != 0)
        put_byte(w, 0);
}

static void put_u32(struct writer *w, uint32_t value)
{
    put_padding(w, 4);
    put(w, &value, sizeof(value));
}

static void put_string(struct writer *w, const char *string)
{
    size_t size = strlen(string);

    put_u32(w, (uint32_t)size);
    put(w, string, size + 1);
}

static void put_signature(struct writer *w, const char *signature)
{
    put_byte(w, (unsigned char)strlen(signature));
    put(w, signature, strlen(signature) + 1);
}

static void put_field(struct writer *w, unsigned char code, const char *signature, const char *value)
{
    if (value == NULL)
        return;
    put_padding(w, 8);
    put_byte(w, code);
    put_signature(w, signature);
    if (signature[0] == 'g')
        put_signature(w, value);
    else
        put_string(w, value);
}

/* Fills a length in after what it counts was written. */
static void set_u32(struct writer *w, size_t at, uint32_t value)
{
    if (!w->full)
        memcpy(w->bytes + at, &value, sizeof(value));
}

static void put_dictionary(struct writer *w, const char *const *strings)
{
    size_t length_at, start;

    put_padding(w, 4);
    length_at = w->size;
    put_u32(w, 0);
    put_padding(w, 8); /* belongs to the first entry: not counted, and there even when there is none */
    start = w->size;
    for (; strings[0] != NULL && strings[1] != NULL; strings += 2) {
        put_padding(w, 8);
        put_string(w, strings[0]);
        put_string(w, strings[1]);
    }
    set_u32(w, length_at, (uint32_t)(w->size - start));
}

/* A signature of COUNT strings; no call here has more arguments. */
static const char *strings_signature(const char *const *strings)
{
    static const char most[] = "ssss";
    size_t count = 0;

    while (strings != NULL && strings[count] != NULL && count < sizeof(most) - 1)
        count++;
    return count == 0 ? NULL : most + sizeof(most) - 1 - count;
}

/* The message in d->bytes; its size, 0 when it is too long. */
static size_t write_call(struct dbus *d, const struct dbus_call *call)
{
    struct writer w = { .bytes = d->bytes };
    const unsigned char start[4] = { NATIVE_ORDER, TYPE_CALL, 0, 1 };
    size_t fields_at, body_at;

    put(&w, start, sizeof(start));
    put_u32(&w, 0); /* length of the body */
    put_u32(&w, ++d->serial);
    put_u32(&w, 0); /* length of the header fields */
    fields_at = w.size;
    put_field(&w, FIELD_PATH, "o", call->path);
    put_field(&w, FIELD_INTERFACE, "s", call->interface);
    put_field(&w, FIELD_MEMBER, "s", call->member);
    put_field(&w, FIELD_DESTINATION, "s", call->destination);
    put_field(&w, FIELD_SIGNATURE, "g", call->dictionary ? "a{ss}" : strings_signature(call->strings));
    set_u32(&w, 12, (uint32_t)(w.size - fields_at));
    put_padding(&w, 8);
    body_at = w.size;
    if (call->dictionary)
        put_dictionary(&w, call->strings);
    else
        for (size_t i = 0; call->strings != NULL && call->strings[i] != NULL; i++)
            put_string(&w, call->strings[i]);
    set_u32(&w, 4, (uint32_t)(w.size - body_at));
    return w.full ? 0 : w.size;
}

/* --- reading one --------------------------------------------------------------------------------- */

struct message {
    unsigned char type;
    uint32_t reply_serial;
    const char *member, *error_name, *signature; /* lent by d->bytes; never NULL */
    const unsigned char *body;
    size_t body_size;
};

struct reader {
    const unsigned char *bytes;
    size_t at, end;
    bool bad;
};

static void skip_padding(struct reader *r, size_t alignment)
{
    r->at = (r->at + alignment - 1) / alignment * alignment;
}

static const unsigned char *get(struct reader *r, size_t size)
{
    const unsigned char *bytes = r->bytes + r->at;

    if (r->bad || r->at > r->end || size > r->end - r->at) {
        r->bad = true;
        return NULL;
    }
    r->at += size;
    return bytes;
}

static unsigned char get_byte(struct reader *r)
{
    const unsigned char *byte = get(r, 1);

    return byte == NULL ? 0 : *byte;
}

static uint32_t get_u32(struct reader *r)
{
    const unsigned char *bytes;
    uint32_t value = 0;

    skip_padding(r, 4);
    bytes = get(r, sizeof(value));
    if (bytes != NULL)
        memcpy(&value, bytes, sizeof(value));
    return value;
}

/* SIZE bytes and their NUL. */
static const char *get_text(struct reader *r, size_t size)
{
    const unsigned char *bytes = get(r, size + 1);

    if (bytes == NULL || bytes[size] != '\0') {
        r->bad = true;
        return "";
    }
    return (const char *)bytes;
}

static const char *get_string(struct reader *r)
{
    uint32_t size = get_u32(r);

    return get_text(r, size);
}

static const char *get_signature(struct reader *r)
{
    unsigned char size = get_byte(r);

    return get_text(r, size);
}

/* One header field: a byte and a variant. Other types than these four do not occur in header fields. */
static void read_field(struct reader *r, struct message *m)
{
    unsigned char code;
    const char *signature, *text = "";
    uint32_t number = 0;

    skip_padding(r, 8);
    code = get_byte(r);
    signature = get_signature(r);
    if (strcmp(signature, "s") == 0 || strcmp(signature, "o") == 0)
        text = get_string(r);
    else if (strcmp(signature, "g") == 0)
        text = get_signature(r);
    else if (strcmp(signature, "u") == 0)
        number = get_u32(r);
    else
        r->bad = true;
    if (code == FIELD_MEMBER)
        m->member = text;
    else if (code == FIELD_ERROR_NAME)
        m->error_name = text;
    else if (code == FIELD_SIGNATURE)
        m->signature = text;
    else if (code == FIELD_REPLY_SERIAL)
        m->reply_serial = number;
}

static int receive_message(struct dbus *d, struct message *m, struct error *e)
{
    uint32_t body, fields;
    size_t header;
    struct reader r = { .bytes = d->bytes, .at = FIXED_HEADER };

    *m = (struct message){ .member = "", .error_name = "", .signature = "" };
    if (receive_all(d, d->bytes, FIXED_HEADER, e) < 0)
        return -1;
    memcpy(&body, d->bytes + 4, sizeof(body));
    memcpy(&fields, d->bytes + 12, sizeof(fields));
    if (d->bytes[0] != NATIVE_ORDER || fields > DBUS_MESSAGE_MAX - 64 ||
        body > DBUS_MESSAGE_MAX - 64 - fields)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the bus sent a message that cannot be read");
    header = (FIXED_HEADER + (size_t)fields + 7) / 8 * 8;
    if (receive_all(d, d->bytes + FIXED_HEADER, header - FIXED_HEADER + body, e) < 0)
        return -1;
    m->type = d->bytes[1];
    m->body = d->bytes + header;
    m->body_size = body;
    r.end = FIXED_HEADER + fields;
    while (!r.bad && r.at < r.end)
        read_field(&r, m);
    if (r.bad)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the bus sent a damaged message");
    return 0;
}

/* --- connecting ---------------------------------------------------------------------------------- */

static int unescape(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c == '\0' ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);

    return at == NULL ? -1 : (int)(at - digits);
}

/* The value of KEY ("path=") in one address of the list, unescaped (%2f) into OUT. Its length, 0 if absent.
 */
static size_t address_value(const char *address, const char *key, char *out, size_t room)
{
    const char *end = address + strcspn(address, ";");
    size_t size = 0;

    while (address < end && strncmp(address, key, strlen(key)) != 0)
        address += strcspn(address, ",;") + 1;
    if (address >= end)
        return 0;
    for (address += strlen(key); *address != '\0' && strchr(",;", *address) == NULL; address++) {
        int high = *address == '%' ? unescape(address[1]) : -1;
        int low = high >= 0 ? unescape(address[2]) : -1;

        if (size + 1 >= room)
            return 0;
        out[size++] = low >= 0 ? (char)(high * 16 + low) : *address;
        address += low >= 0 ? 2 : 0;
    }
    out[size] = '\0';
    return size;
}

/* KEYS: "path=/run/x,guid=...". A path ends with its NUL byte, an abstract name begins with one. */
static bool parse_unix(const char *keys, struct sockaddr_un *out, socklen_t *size)
{
    size_t n = address_value(keys, "path=", out->sun_path, sizeof(out->sun_path));

    if (n == 0) {
        out->sun_path[0] = '\0';
        n = address_value(keys, "abstract=", out->sun_path + 1, sizeof(out->sun_path) - 1);
    }
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    return n > 0;
}

static bool parse_address(const char *list, struct sockaddr_un *out, socklen_t *size)
{
    for (const char *at = list; *at != '\0'; at += *at == ';') {
        if (strncmp(at, "unix:", 5) == 0 && parse_unix(at + 5, out, size))
            return true;
        at += strcspn(at, ";");
    }
    return false;
}

static int receive_line(struct dbus *d, char *line, size_t room, struct error *e)
{
    size_t have = 0;

    do {
        if (have + 1 >= room)
            return error_set(e, ERROR_ACTION_FAILED, 0, "the bus sent an endless line");
        if (receive_all(d, line + have, 1, e) < 0)
            return -1;
    } while (line[have++] != '\n');
    line[have] = '\0';
    return 0;
}

static int authenticate(struct dbus *d, struct error *e)
{
    char digits[16], line[256];
    int size;

    snprintf(digits, sizeof(digits), "%u", (unsigned)geteuid());
    size = snprintf(line, sizeof(line), "%cAUTH EXTERNAL ", '\0'); /* a NUL byte opens every connection */
    for (const char *c = digits; *c != '\0'; c++)
        size += snprintf(line + size, sizeof(line) - (size_t)size, "%02x", (unsigned)*c);
    size += snprintf(line + size, sizeof(line) - (size_t)size, "\r\n");
    if (send_all(d, line, (size_t)size, e) < 0 || receive_line(d, line, sizeof(line), e) < 0)
        return -1;
    if (strncmp(line, "OK ", 3) != 0)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the bus refused the user");
    return send_all(d, "BEGIN\r\n", 7, e);
}

static int connect_bus(struct dbus *d, const char *address, struct error *e)
{
    struct sockaddr_un peer = { .sun_family = AF_UNIX };
    const struct dbus_call hello = { bus_name, bus_path, bus_name, "Hello", NULL, false };
    char own_name[64];
    socklen_t size;
    int r;

    if (!parse_address(address, &peer, &size))
        return error_set(e, ERROR_ACTION_FAILED, 0, "bus address '%s' is none of a unix socket", address);
    if (connect(d->fd, (struct sockaddr *)&peer, size) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot connect to the bus at '%s'", address);
    if (authenticate(d, e) < 0)
        return -1;
    r = dbus_call(d, &hello, own_name, sizeof(own_name), e);
    return r == 0 ? error_set(e, ERROR_ACTION_FAILED, 0, "the bus answered %s", own_name) : r;
}

int dbus_open(struct dbus *d, const char *address, int64_t deadline_ms, struct error *e)
{
    d->serial = 0;
    d->deadline_ms = deadline_ms;
    d->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (d->fd < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot make a socket");
    if (connect_bus(d, address, e) < 0) {
        dbus_close(d);
        return -1;
    }
    return 0;
}

void dbus_close(struct dbus *d)
{
    util_close_fd(&d->fd);
    d->fd = -1;
}

int dbus_call(struct dbus *d, const struct dbus_call *call, char *out, size_t room, struct error *e)
{
    size_t size = write_call(d, call);
    struct message m;

    if (size == 0)
        return error_set(e, ERROR_INTERNAL, 0, "the call of %s is too long", call->member);
    if (send_all(d, d->bytes, size, e) < 0)
        return -1;
    do {
        if (receive_message(d, &m, e) < 0)
            return -1;
    } while (m.reply_serial != d->serial || (m.type != TYPE_RETURN && m.type != TYPE_ERROR));
    if (m.type == TYPE_ERROR) {
        snprintf(out, room, "%s", m.error_name);
        return 0;
    }
    if (m.signature[0] == 's') {
        struct reader r = { .bytes = m.body, .end = m.body_size };
        const char *text = get_string(&r);

        snprintf(out, room, "%s", text);
        return 1;
    }
    out[0] = '\0';
    return 1;
}

static int has_owner(struct dbus *d, const char *name, struct error *e)
{
    const char *const arguments[] = { name, NULL };
    const struct dbus_call call = { bus_name, bus_path, bus_name, "GetNameOwner", arguments, false };
    char owner[64];

    return dbus_call(d, &call, owner, sizeof(owner), e);
}

int dbus_wait_name(struct dbus *d, const char *name, struct error *e)
{
    char rule[256], answer[64];
    const char *const arguments[] = { rule, NULL };
    const struct dbus_call watch = { bus_name, bus_path, bus_name, "AddMatch", arguments, false };
    struct message m;
    int r;

    snprintf(rule, sizeof(rule), "type='signal',sender='%s',member='NameOwnerChanged',arg0='%s'", bus_name,
             name);
    r = dbus_call(d, &watch, answer, sizeof(answer), e);
    if (r <= 0)
        return r < 0 ? -1 : error_set(e, ERROR_ACTION_FAILED, 0, "the bus answered %s", answer);
    /* Asked after the watch stands, and again after every change: nothing is missed between the two. */
    while ((r = has_owner(d, name, e)) == 0) {
        do {
            if (receive_message(d, &m, e) < 0)
                return -1;
        } while (m.type != TYPE_SIGNAL || strcmp(m.member, "NameOwnerChanged") != 0);
    }
    return r < 0 ? -1 : 0;
}

#include "providers/macos/leases.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "core/util.h"

#define ETHERNET       1 /* the hardware type in front of an address: RFC 1700 */
#define BYTES_MAX      32
#define HEX_DIGITS_MAX 15 /* of an expiry: what fits an int64_t; the server writes 8 */

struct slice { /* of the file's text */
    const char *at;
    size_t size;
};

struct hardware { /* "TYPE,BYTE:BYTE:...", all in hex */
    uint8_t type;
    uint8_t bytes[BYTES_MAX];
    size_t count;
};

/* A block with all that counts. Clients without a MAC, which have another type and more bytes, are blocks
 * too: they can hold an address. */
struct block {
    char address[46];
    struct hardware hardware;
    int64_t expires_s;
};

/* ---- values ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* At most DIGITS hex digits from the start of S. How many there were; they are taken off. */
static size_t take_hex(struct slice *s, size_t digits, int64_t *out)
{
    size_t n = 0;

    for (*out = 0; n < digits && n < s->size && hex_digit(s->at[n]) >= 0; n++)
        *out = *out * 16 + hex_digit(s->at[n]);
    s->at += n;
    s->size -= n;
    return n;
}

static bool take_char(struct slice *s, char c)
{
    if (s->size == 0 || s->at[0] != c)
        return false;
    s->at++;
    s->size--;
    return true;
}

/* One or two digits each, with colons between; the server leaves leading zeros out. */
static bool parse_bytes(struct slice s, uint8_t *out, size_t room, size_t *count)
{
    int64_t byte;

    *count = 0;
    do {
        if (*count == room || take_hex(&s, 2, &byte) == 0)
            return false;
        out[(*count)++] = (uint8_t)byte;
    } while (take_char(&s, ':'));
    return s.size == 0;
}

static bool parse_hardware(struct slice s, struct hardware *out)
{
    int64_t type;

    if (take_hex(&s, 2, &type) == 0 || !take_char(&s, ','))
        return false;
    out->type = (uint8_t)type;
    return parse_bytes(s, out->bytes, sizeof(out->bytes), &out->count);
}

/* "0x6a1c4f00": seconds since 1970. */
static bool parse_expiry(struct slice s, int64_t *out)
{
    if (take_char(&s, '0') && !take_char(&s, 'x') && !take_char(&s, 'X'))
        return false;
    return take_hex(&s, HEX_DIGITS_MAX, out) > 0 && s.size == 0;
}

/* The address as inet_ntop(3) writes it. */
static bool parse_address(struct slice s, char out[46])
{
    struct in_addr address;
    char text[INET_ADDRSTRLEN];

    if (s.size >= sizeof(text))
        return false;
    memcpy(text, s.at, s.size);
    text[s.size] = '\0';
    return inet_pton(AF_INET, text, &address) == 1 && inet_ntop(AF_INET, &address, out, 46) != NULL;
}

bool lease_parse_mac(const char *text, uint8_t out[6])
{
    size_t count;
    uint8_t bytes[6];

    if (!parse_bytes((struct slice){ text, strlen(text) }, bytes, sizeof(bytes), &count) ||
        count != sizeof(bytes))
        return false;
    memcpy(out, bytes, sizeof(bytes));
    return true;
}

/* ---- blocks ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next line without blanks around it; false at the end. A last line without an end counts. */
static bool take_line(struct slice *file, struct slice *line)
{
    const char *end;

    if (file->size == 0)
        return false;
    end = memchr(file->at, '\n', file->size);
    line->at = file->at;
    line->size = end != NULL ? (size_t)(end - file->at) : file->size;
    file->at += line->size + (end != NULL);
    file->size -= line->size + (end != NULL);
    while (line->size > 0 && is_blank(line->at[0]))
        line->at++, line->size--;
    while (line->size > 0 && is_blank(line->at[line->size - 1]))
        line->size--;
    return true;
}

static bool is_char(struct slice line, char c)
{
    return line.size == 1 && line.at[0] == c;
}

/* Is it this key's? Then S becomes the value. */
static bool take_key(struct slice *s, const char *key)
{
    size_t length = strlen(key);

    if (s->size <= length || memcmp(s->at, key, length) != 0 || s->at[length] != '=')
        return false;
    s->at += length + 1;
    s->size -= length + 1;
    return true;
}

enum { HAS_ADDRESS = 1, HAS_HARDWARE = 2, HAS_EXPIRY = 4, HAS_ALL = 7 };

static unsigned read_member(struct slice line, struct block *b)
{
    if (take_key(&line, "ip_address"))
        return parse_address(line, b->address) ? HAS_ADDRESS : 0;
    if (take_key(&line, "hw_address"))
        return parse_hardware(line, &b->hardware) ? HAS_HARDWARE : 0;
    if (take_key(&line, "lease"))
        return parse_expiry(line, &b->expires_s) ? HAS_EXPIRY : 0;
    return 0;
}

/* The next whole block; false at the end. One that is not closed before the next begins, or at the end of the
 * file, or that lacks a member that can be read, is passed over. */
static bool take_block(struct slice *file, struct block *b)
{
    struct slice line;
    bool inside = false;
    unsigned has = 0;

    while (take_line(file, &line)) {
        if (is_char(line, '{')) {
            inside = true;
            has = 0;
        } else if (is_char(line, '}')) {
            if (inside && has == HAS_ALL)
                return true;
            inside = false;
        } else if (inside) {
            has |= read_member(line, b);
        }
    }
    return false;
}

/* ---- looking one up ---- */

static bool is_of(const struct block *b, const uint8_t mac[6])
{
    return b->hardware.type == ETHERNET && b->hardware.count == 6 && memcmp(b->hardware.bytes, mac, 6) == 0;
}

/* Whoever has been dead for long may still have a block: only the living share an address. */
static bool is_shared(struct slice file, const uint8_t mac[6], int64_t now_s, const char *address)
{
    struct block b;

    while (take_block(&file, &b))
        if (!is_of(&b, mac) && b.expires_s > now_s && strcmp(b.address, address) == 0)
            return true;
    return false;
}

bool lease_find(const char *bytes, size_t size, const uint8_t mac[6], int64_t now_s, struct lease *out)
{
    struct slice file = { bytes, size }, rest = file;
    struct block b, best = { .expires_s = -1 };

    /* The newest is the one that ends last; of equals the first, which the server has written last. */
    while (take_block(&rest, &b))
        if (is_of(&b, mac) && b.expires_s > best.expires_s)
            best = b;
    if (best.expires_s < 0)
        return false;
    *out = (struct lease){ .expires_s = best.expires_s, .live = best.expires_s > now_s };
    snprintf(out->address, sizeof(out->address), "%s", best.address);
    out->shared = is_shared(file, mac, now_s, best.address);
    return true;
}

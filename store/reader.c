#include "store/reader.h"

#include <assert.h>

#include "core/util.h"

/* What follows a first byte from 0xc0 to 0xdf: a big-endian number of WIDTH bytes, then, for what has a
 * payload, EXTRA bytes and as many as the number says. */
struct form {
    uint8_t type;
    uint8_t width;
    uint8_t extra;
    bool has_payload;
};

#define FORM_FIRST 0xc0
static const struct form forms[] = {
    [0xc0 - FORM_FIRST] = { .type = TOKEN_NIL },
    [0xc1 - FORM_FIRST] = { .type = TOKEN_NONE },
    [0xc2 - FORM_FIRST] = { .type = TOKEN_BOOL },
    [0xc3 - FORM_FIRST] = { .type = TOKEN_BOOL },
    [0xc4 - FORM_FIRST] = { .type = TOKEN_BYTES, .width = 1, .has_payload = true },
    [0xc5 - FORM_FIRST] = { .type = TOKEN_BYTES, .width = 2, .has_payload = true },
    [0xc6 - FORM_FIRST] = { .type = TOKEN_BYTES, .width = 4, .has_payload = true },
    [0xc7 - FORM_FIRST] = { .type = TOKEN_EXTENSION, .width = 1, .extra = 1, .has_payload = true },
    [0xc8 - FORM_FIRST] = { .type = TOKEN_EXTENSION, .width = 2, .extra = 1, .has_payload = true },
    [0xc9 - FORM_FIRST] = { .type = TOKEN_EXTENSION, .width = 4, .extra = 1, .has_payload = true },
    [0xca - FORM_FIRST] = { .type = TOKEN_FLOAT, .extra = 4, .has_payload = true },
    [0xcb - FORM_FIRST] = { .type = TOKEN_FLOAT, .extra = 8, .has_payload = true },
    [0xcc - FORM_FIRST] = { .type = TOKEN_UINT, .width = 1 },
    [0xcd - FORM_FIRST] = { .type = TOKEN_UINT, .width = 2 },
    [0xce - FORM_FIRST] = { .type = TOKEN_UINT, .width = 4 },
    [0xcf - FORM_FIRST] = { .type = TOKEN_UINT, .width = 8 },
    [0xd0 - FORM_FIRST] = { .type = TOKEN_NEGATIVE, .width = 1 },
    [0xd1 - FORM_FIRST] = { .type = TOKEN_NEGATIVE, .width = 2 },
    [0xd2 - FORM_FIRST] = { .type = TOKEN_NEGATIVE, .width = 4 },
    [0xd3 - FORM_FIRST] = { .type = TOKEN_NEGATIVE, .width = 8 },
    [0xd4 - FORM_FIRST] = { .type = TOKEN_EXTENSION, .extra = 1 + 1, .has_payload = true },
    [0xd5 - FORM_FIRST] = { .type = TOKEN_EXTENSION, .extra = 1 + 2, .has_payload = true },
    [0xd6 - FORM_FIRST] = { .type = TOKEN_EXTENSION, .extra = 1 + 4, .has_payload = true },
    [0xd7 - FORM_FIRST] = { .type = TOKEN_EXTENSION, .extra = 1 + 8, .has_payload = true },
    [0xd8 - FORM_FIRST] = { .type = TOKEN_EXTENSION, .extra = 1 + 16, .has_payload = true },
    [0xd9 - FORM_FIRST] = { .type = TOKEN_TEXT, .width = 1, .has_payload = true },
    [0xda - FORM_FIRST] = { .type = TOKEN_TEXT, .width = 2, .has_payload = true },
    [0xdb - FORM_FIRST] = { .type = TOKEN_TEXT, .width = 4, .has_payload = true },
    [0xdc - FORM_FIRST] = { .type = TOKEN_ARRAY, .width = 2 },
    [0xdd - FORM_FIRST] = { .type = TOKEN_ARRAY, .width = 4 },
    [0xde - FORM_FIRST] = { .type = TOKEN_MAP, .width = 2 },
    [0xdf - FORM_FIRST] = { .type = TOKEN_MAP, .width = 4 },
};
_Static_assert(ARRAY_LEN(forms) == 32, "0xc0 to 0xdf");

static size_t left(const struct reader *r)
{
    return (size_t)(r->end - r->at);
}

static bool take_payload(struct reader *r, uint64_t size, struct token *out)
{
    if (size > left(r))
        return false;
    out->bytes = r->at;
    r->at += size;
    return true;
}

/* Sign-extends a number of WIDTH bytes; one that is not negative after all is like any other. */
static void extend_sign(struct token *t, unsigned width)
{
    unsigned bits = width * 8;

    assert(bits > 0 && bits <= 64);
    if ((t->number >> (bits - 1) & 1) == 0)
        t->type = TOKEN_UINT;
    else if (bits < 64)
        t->number |= ~UINT64_C(0) << bits;
}

static bool take_form(struct reader *r, uint8_t first, struct token *out)
{
    const struct form *form = &forms[first - FORM_FIRST];

    out->type = (enum token_type)form->type;
    if (form->type == TOKEN_NONE || form->width > left(r))
        return false;
    for (unsigned i = 0; i < form->width; i++)
        out->number = out->number << 8 | *r->at++;
    if (form->type == TOKEN_NEGATIVE)
        extend_sign(out, form->width);
    if (form->type == TOKEN_BOOL)
        out->number = first & 1;
    return !form->has_payload || take_payload(r, out->number + form->extra, out);
}

bool reader_take(struct reader *r, struct token *out)
{
    *out = (struct token){ .type = TOKEN_NONE };
    if (r->at == r->end)
        return false;
    uint8_t first = *r->at++;

    if (first <= 0x7f) {
        *out = (struct token){ .type = TOKEN_UINT, .number = first };
        return true;
    }
    if (first >= 0xe0) {
        *out = (struct token){ .type = TOKEN_NEGATIVE, .number = first };
        extend_sign(out, 1);
        return true;
    }
    if (first >= FORM_FIRST)
        return take_form(r, first, out);
    if (first >= 0xa0) {
        *out = (struct token){ .type = TOKEN_TEXT, .number = first & 0x1f };
        return take_payload(r, out->number, out);
    }
    *out = (struct token){ .type = first >= 0x90 ? TOKEN_ARRAY : TOKEN_MAP, .number = first & 0x0f };
    return true;
}

bool reader_skip(struct reader *r)
{
    struct token t;

    for (uint64_t open = 1; open > 0; open--) {
        if (!reader_take(r, &t))
            return false;
        if (t.type == TOKEN_ARRAY || t.type == TOKEN_MAP)
            open += t.type == TOKEN_MAP ? 2 * t.number : t.number;
        if (open - 1 > left(r)) /* each value takes a byte or more */
            return false;
    }
    return true;
}

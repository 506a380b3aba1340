#include "tools/desktop/ref.h"

#include <stdio.h>
#include <string.h>

#define DIGITS_MAX 6 /* more than a snapshot has elements; keeps the arithmetic below any overflow */

static int malformed(const char *text, struct error *e)
{
    e->suggestion = "Use a ref as `snapshot` printed it, for example @1a2b3c4d:e5.";
    return error_set(e, ERROR_INVALID_ARGS, 0, "'%.64s' is not a ref", text);
}

int ref_parse(const char *text, struct ref *out, struct error *e)
{
    struct ref ref = { 0 };
    const size_t id_length = REF_SNAPSHOT_SIZE - 1;
    const char *digits;

    if (text[0] != '@' || strspn(text + 1, "0123456789abcdef") != id_length)
        return malformed(text, e);
    memcpy(ref.snapshot, text + 1, id_length);
    digits = text + 1 + id_length;
    if (digits[0] != ':' || digits[1] != 'e')
        return malformed(text, e);
    digits += 2;

    const size_t count = strspn(digits, "0123456789");

    if (count == 0 || count > DIGITS_MAX || digits[count] != '\0' || digits[0] == '0')
        return malformed(text, e);
    for (size_t i = 0; i < count; i++)
        ref.number = ref.number * 10 + (size_t)(digits[i] - '0');
    *out = ref;
    return 0;
}

void ref_format(const struct ref *ref, char out[REF_SIZE])
{
    snprintf(out, REF_SIZE, "@%s:e%zu", ref->snapshot, ref->number);
}

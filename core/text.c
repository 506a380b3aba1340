#include "core/text.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/mem.h"

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

#define MS_PER_S   INT64_C(1000)
#define MS_PER_MIN (60 * MS_PER_S)
#define MS_PER_H   (60 * MS_PER_MIN)
#define MS_PER_DAY (24 * MS_PER_H)

/* What four digits of a year can say: 0000-01-01 to the end of 9999. */
#define TIME_MIN_MS INT64_C(-62167219200000)
#define TIME_MAX_MS INT64_C(253402300799999)

/* ---- the growing buffer ---- */

void text_done(struct text *t)
{
    free(t->bytes);
    *t = (struct text){ 0 };
}

static void reserve(struct text *t, size_t more)
{
    size_t room = t->room > 0 ? t->room : 64;

    if (more > SIZE_MAX / 2 - t->size)
        mem_exhausted();
    if (t->bytes != NULL && t->room > t->size + more)
        return;
    while (room <= t->size + more)
        room *= 2;
    t->bytes = mem_grow(t->bytes, room, 1);
    t->room = room;
}

void text_add(struct text *t, const char *bytes, size_t size)
{
    reserve(t, size);
    if (size > 0)
        memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
    t->bytes[t->size] = '\0';
}

void text_add_string(struct text *t, const char *string)
{
    text_add(t, string, strlen(string));
}

void text_print(struct text *t, const char *format, ...)
{
    va_list args, again;
    int length;

    va_start(args, format);
    va_copy(again, args);
    length = vsnprintf(NULL, 0, format, args);
    if (length > 0) {
        reserve(t, (size_t)length);
        vsnprintf(t->bytes + t->size, (size_t)length + 1, format, again);
        t->size += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

const char *text_get(const struct text *t)
{
    return t->bytes != NULL ? t->bytes : "";
}

/* ---- UTF-8 ---- */

/* RFC 3629 section 4: what the first byte says about the length, and the range of the second byte, which
 * is where overlong forms, surrogates and values above U+10FFFF show. */
static const struct {
    unsigned char first_min, first_max;
    unsigned char second_min, second_max;
    unsigned char size;
} utf8_forms[] = {
    { 0x00, 0x7F, 0x00, 0x00, 1 }, { 0xC2, 0xDF, 0x80, 0xBF, 2 }, { 0xE0, 0xE0, 0xA0, 0xBF, 3 },
    { 0xE1, 0xEC, 0x80, 0xBF, 3 }, { 0xED, 0xED, 0x80, 0x9F, 3 }, { 0xEE, 0xEF, 0x80, 0xBF, 3 },
    { 0xF0, 0xF0, 0x90, 0xBF, 4 }, { 0xF1, 0xF3, 0x80, 0xBF, 4 }, { 0xF4, 0xF4, 0x80, 0x8F, 4 },
};

static bool is_tail(const unsigned char *bytes, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if ((bytes[i] & 0xC0) != 0x80)
            return false;
    return true;
}

size_t text_char_size(const char *bytes, size_t size)
{
    const unsigned char *b = (const unsigned char *)bytes;

    if (size == 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(utf8_forms); i++) {
        if (b[0] < utf8_forms[i].first_min || b[0] > utf8_forms[i].first_max)
            continue;
        if (utf8_forms[i].size == 1)
            return 1;
        if (size < utf8_forms[i].size || b[1] < utf8_forms[i].second_min || b[1] > utf8_forms[i].second_max)
            return 0;
        return is_tail(b, 2, utf8_forms[i].size) ? utf8_forms[i].size : 0;
    }
    return 0;
}

bool text_is_utf8(const char *bytes, size_t size)
{
    for (size_t at = 0, step; at < size; at += step) {
        step = (unsigned char)bytes[at] <= 0x7F ? 1 : text_char_size(bytes + at, size - at);
        if (step == 0)
            return false;
    }
    return true;
}

/* C0, DEL and C1 (U+0080 to U+009F): what a terminal may obey. */
static bool is_control(const char *bytes, size_t size)
{
    const unsigned char *b = (const unsigned char *)bytes;

    if (size == 1)
        return b[0] < 0x20 || b[0] == 0x7F;
    return size == 2 && b[0] == 0xC2 && b[1] < 0xA0;
}

size_t text_clean(char *out, size_t room, const char *bytes, size_t size)
{
    size_t used = 0;

    assert(room > 0);
    for (size_t at = 0, step; at < size; at += step) {
        const char *from = bytes + at;
        size_t length;

        step = length = text_char_size(from, size - at);
        if (length == 0 || is_control(from, length)) {
            step = length > 0 ? length : 1;
            from = REPLACEMENT;
            length = sizeof(REPLACEMENT) - 1;
        }
        if (used + length >= room)
            break;
        memcpy(out + used, from, length);
        used += length;
    }
    out[used] = '\0';
    return used;
}

/* ---- shell words ---- */

void text_add_shell_word(struct text *t, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%+,-";

    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        text_add_string(t, word);
        return;
    }
    text_add_string(t, "'");
    for (;;) {
        size_t length = strcspn(word, "'");

        text_add(t, word, length);
        word += length;
        if (*word == '\0')
            break;
        text_add_string(t, "'\\''"); /* a quote cannot stand inside quotes: close, one escaped, open */
        word++;
    }
    text_add_string(t, "'");
}

/* ---- times ---- */

void text_format_time(char out[32], int64_t wall_ms, bool with_ms)
{
    int64_t ms = wall_ms < TIME_MIN_MS ? TIME_MIN_MS : wall_ms > TIME_MAX_MS ? TIME_MAX_MS : wall_ms;
    int64_t part = ((ms % MS_PER_S) + MS_PER_S) % MS_PER_S; /* towards the past, before 1970 too */
    time_t seconds = (time_t)((ms - part) / MS_PER_S);
    struct tm tm = { 0 };
    char fraction[8] = "", date[16];

    gmtime_r(&seconds, &tm);
    if (with_ms)
        snprintf(fraction, sizeof(fraction), ".%03u", (unsigned int)(part % MS_PER_S));
    strftime(date, sizeof(date), "-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 32, "%04u%s%sZ", (unsigned int)(tm.tm_year + 1900) % 10000, date,
             fraction); /* %Y pads not */
}

/* Reads exactly COUNT digits and moves *at behind them. */
static bool take_digits(const char **at, size_t count, int *out)
{
    int value = 0;

    for (size_t i = 0; i < count; i++) {
        if ((*at)[i] < '0' || (*at)[i] > '9')
            return false;
        value = value * 10 + ((*at)[i] - '0');
    }
    *at += count;
    *out = value;
    return true;
}

static bool take_char(const char **at, const char *accepted)
{
    if (**at == '\0' || strchr(accepted, **at) == NULL)
        return false;
    (*at)++;
    return true;
}

static bool take_date(const char **at, int64_t *day_ms)
{
    int year, month, day;
    struct tm tm = { 0 };

    if (!take_digits(at, 4, &year) || !take_char(at, "-") || !take_digits(at, 2, &month) ||
        !take_char(at, "-") || !take_digits(at, 2, &day))
        return false;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    tm.tm_mday = day;
    *day_ms = (int64_t)timegm(&tm) * MS_PER_S;
    /* timegm() turns a 30 February into 2 March: then it is none */
    return tm.tm_mon == month - 1 && tm.tm_mday == day;
}

static bool take_fraction(const char **at, int64_t *ms)
{
    int64_t unit = MS_PER_S / 10;

    if (!take_char(at, "."))
        return true;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9'; (*at)++, unit /= 10)
        *ms += (**at - '0') * unit;
    return true;
}

static bool take_clock(const char **at, int64_t *ms)
{
    int hour, minute, second;

    if (!take_digits(at, 2, &hour) || !take_char(at, ":") || !take_digits(at, 2, &minute) ||
        !take_char(at, ":") || !take_digits(at, 2, &second))
        return false;
    if (hour > 23 || minute > 59 || second > 60) /* 60: a leap second */
        return false;
    *ms = hour * MS_PER_H + minute * MS_PER_MIN + second * MS_PER_S;
    return take_fraction(at, ms);
}

static bool take_zone(const char **at, int64_t *offset_ms)
{
    bool west = **at == '-';
    int hour, minute;

    *offset_ms = 0;
    if (take_char(at, "Zz"))
        return true;
    if (!take_char(at, "+-") || !take_digits(at, 2, &hour) || !take_char(at, ":") ||
        !take_digits(at, 2, &minute) || hour > 23 || minute > 59)
        return false;
    *offset_ms = hour * MS_PER_H + minute * MS_PER_MIN;
    if (west)
        *offset_ms = -*offset_ms;
    return true;
}

static bool parse_rfc3339(const char *text, int64_t *out_ms)
{
    int64_t day, clock, offset;

    if (!take_date(&text, &day) || !take_char(&text, "Tt ") || !take_clock(&text, &clock) ||
        !take_zone(&text, &offset) || *text != '\0')
        return false;
    *out_ms = day + clock - offset;
    return true;
}

static bool parse_age(const char *text, int64_t *out_ms)
{
    static const struct {
        char letter;
        int64_t ms;
    } units[] = { { 's', MS_PER_S }, { 'm', MS_PER_MIN }, { 'h', MS_PER_H }, { 'd', MS_PER_DAY } };
    size_t digits = strspn(text, "0123456789");
    int64_t count;

    if (digits == 0 || digits > 9 || text[digits] == '\0' || text[digits + 1] != '\0')
        return false;
    count = strtoll(text, NULL, 10);
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (units[i].letter != text[digits])
            continue;
        *out_ms = count * units[i].ms;
        return true;
    }
    return false;
}

int text_parse_time(const char *text, int64_t now_ms, int64_t *out_ms, struct error *e)
{
    int64_t age_ms;

    if (parse_rfc3339(text, out_ms))
        return 0;
    if (!parse_age(text, &age_ms))
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "'%s' is not a time such as 2026-11-29T16:34:13Z or 15m (s, m, h, d ago)", text);
    *out_ms = now_ms - age_ms;
    return 0;
}

/* ---- numbers ---- */

/* Thousandths, rounded up, so that a value above 0 or above the limit stays there. False when it is no
 * decimal number or is far above MAX_S. */
static bool parse_thousandths(const char *text, int max_s, int64_t *out)
{
    const char *at = text;
    int64_t whole = 0, part = 0, unit = MS_PER_S / 10;
    bool more = false;

    for (; *at >= '0' && *at <= '9' && whole <= max_s; at++)
        whole = whole * 10 + (*at - '0');
    if (at == text)
        return false;
    if (*at == '.') {
        if (at[1] == '\0')
            return false;
        for (at++; *at >= '0' && *at <= '9'; at++, unit /= 10) {
            part += (*at - '0') * unit;
            more = more || (unit == 0 && *at != '0');
        }
    }
    *out = whole * MS_PER_S + part + (more ? 1 : 0);
    return *at == '\0';
}

int text_parse_seconds(const char *text, const char *what, int max_s, int *out_ms, struct error *e)
{
    int64_t ms;

    assert(max_s > 0 && max_s <= INT32_MAX / MS_PER_S);
    if (!parse_thousandths(text, max_s, &ms) || ms == 0 || ms > max_s * MS_PER_S)
        return error_set(e, ERROR_INVALID_ARGS, 0, "%s '%s' is not a number of seconds above 0 and up to %d",
                         what, text, max_s);
    *out_ms = (int)ms;
    return 0;
}

int text_parse_int(const char *text, const char *what, int64_t min, int64_t max, int64_t *out,
                   struct error *e)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    long long value;

    /* strtoll() alone would take blanks, a plus and an empty text */
    errno = 0;
    value = strtoll(text, NULL, 10);
    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0' || errno != 0 || value < min ||
        value > max)
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "%s '%s' is not a whole number from %" PRId64 " to %" PRId64, what, text, min, max);
    *out = value;
    return 0;
}

/* ---- the nearest word ---- */

#define WORD_MAX 64 /* longer ones are no misspelt words of ours */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edit distance with neighbours swapped as one edit ("stpo"): the most common slip of all. */
static size_t edit_distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t rows[3][WORD_MAX + 1]; /* the row before the last, the last, the current one; in turn */

    for (size_t j = 0; j <= b_size; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t *current = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

        current[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);

            current[j] = min_size(replaced, min_size(last[j], current[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                current[j] = min_size(current[j], before[j - 2] + 1);
        }
    }
    return rows[a_size % 3][b_size];
}

const char *text_find_nearest(const char *word, const char *const *words, size_t count)
{
    size_t size = strlen(word), best = SIZE_MAX;
    const char *nearest = NULL;

    if (size > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t other = strlen(words[i]), longer = other > size ? other : size, distance;

        if (other > WORD_MAX)
            continue;
        distance = edit_distance(word, size, words[i], other);
        if (distance * 3 > longer || distance >= best)
            continue;
        best = distance;
        nearest = words[i];
    }
    return nearest;
}

#include "tools/agent-desktop/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define RECORDED_MAX 8192 /* bytes of all options in one journal entry: it has other members */
#define KEY_SHOWN    64   /* bytes of a key in a message: what is said about it is to be read, too */

static const struct provider_option from_option = { .key = SETTING_FROM,
                                                    .value = "SANDBOX",
                                                    .help = "copy this stopped sandbox" };

struct reading {
    const struct provider_ops *ops;
    const struct provider_option *options;
    bool with_from;
    struct settings *out;
};

static bool is_prefix(const struct provider_option *row)
{
    return row->key[strlen(row->key) - 1] == '.';
}

static const struct provider_option *find_row(const struct reading *r, const char *key)
{
    if (r->with_from && strcmp(key, from_option.key) == 0)
        return &from_option;
    for (const struct provider_option *row = r->options; row->key != NULL; row++) {
        size_t size = strlen(row->key);

        if (is_prefix(row) ? strncmp(row->key, key, size) == 0 && key[size] != '\0'
                           : strcmp(row->key, key) == 0)
            return row;
    }
    return NULL;
}

/* "screen=WIDTHxHEIGHT, net=none, from=SANDBOX" */
static void print_accepted(const struct reading *r, struct text *out)
{
    for (const struct provider_option *row = r->options; row->key != NULL; row++)
        text_print(out, "%s%s%s=%s", out->size == 0 ? "" : ", ", row->key, is_prefix(row) ? "NAME" : "",
                   row->value);
    if (r->with_from)
        text_print(out, "%s%s=%s", out->size == 0 ? "" : ", ", from_option.key, from_option.value);
    if (out->size == 0)
        text_add_string(out, "none");
}

static int reject(const struct reading *r, const char *problem, const char *what, struct error *e)
{
    struct text accepted = { 0 };

    print_accepted(r, &accepted);
    error_set(e, ERROR_INVALID_ARGS, 0, "--set %.*s: %s; the %s provider accepts here: %s", KEY_SHOWN, what,
              problem, r->ops->name, text_get(&accepted));
    text_done(&accepted);
    return -1;
}

static int check_by_row(const struct provider_option *row, const char *key, const char *value,
                        char out[FACT_VALUE_SIZE], struct error *e)
{
    struct error cause = { 0 };

    if (row->check(value, out, &cause) == 0)
        return 0;
    return error_set(e, cause.code, 0, "--set %.*s: %s", KEY_SHOWN, key,
                     cause.message); /* its errno is in there */
}

/* What is recorded for VALUE. */
static int check_value(const struct reading *r, const struct provider_option *row, const char *key,
                       const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (row->check != NULL) {
        if (check_by_row(row, key, value, out, e) < 0)
            return -1;
    } else if (!text_is_utf8(value, strlen(value)) || strlen(value) >= FACT_VALUE_SIZE) {
        return reject(r, "the value is too long or not valid UTF-8", key, e);
    } else {
        snprintf(out, FACT_VALUE_SIZE, "%s", value);
    }
    return out[0] == '\0' ? reject(r, "the value is empty", key, e) : 0;
}

/* The history is not worth failing for: what it has no room for, it counts. */
static void record(struct settings *s, const char *key, const char *value)
{
    const char *equals = value == NULL ? "" : "=";

    if (s->recorded.size + strlen(key) + FACT_VALUE_SIZE > RECORDED_MAX)
        s->recorded_not++;
    else
        text_print(&s->recorded, "%s%s%s%s", s->recorded.size == 0 ? "" : " ", key, equals,
                   value == NULL ? "" : value);
}

static int add_fact(const struct reading *r, const struct provider_option *row, const char *key,
                    const char *value, struct error *e)
{
    char fact[sizeof(SETTING_PREFIX) + FACT_KEY_SIZE], checked[FACT_VALUE_SIZE] = "";

    if (strlen(key) >= FACT_KEY_SIZE)
        return reject(r, "there is no such option", key, e);
    snprintf(fact, sizeof(fact), "%s%s", SETTING_PREFIX, key);
    if (facts_get(&r->out->facts, fact) != NULL)
        return reject(r, "the option is given twice", key, e);
    if (check_value(r, row, key, value, checked, e) < 0)
        return -1;
    if (!facts_set(&r->out->facts, fact, checked))
        return reject(r, "the name is too long, or there are too many options", key, e);
    /* Behind a prefix anything may stand, also what should not be kept twice: the name is enough. */
    record(r->out, key, is_prefix(row) ? NULL : checked);
    return 0;
}

static bool is_unrecorded_key(const struct settings *s, const char *key)
{
    size_t size = strlen(key);

    for (size_t i = 0; i < s->unrecorded_count; i++)
        if (strncmp(s->unrecorded[i], key, size) == 0 && s->unrecorded[i][size] == '=')
            return true;
    return false;
}

static int add_unrecorded(const struct reading *r, const struct provider_option *row, const char *key,
                          const char *value, struct error *e)
{
    struct settings *s = r->out;
    char unused[FACT_VALUE_SIZE] = "";

    if (is_unrecorded_key(s, key))
        return reject(r, "the option is given twice", key, e);
    if (strlen(key) > SETTING_UNRECORDED_MAX || strlen(value) > SETTING_UNRECORDED_MAX ||
        !text_is_utf8(key, strlen(key)) || !text_is_utf8(value, strlen(value)))
        return reject(r, "the name or the value is longer than 64 KiB, or not valid UTF-8", key, e);
    int checked = row->check == NULL ? 0 : check_by_row(row, key, value, unused, e);

    util_wipe(unused, sizeof(unused));
    if (checked < 0)
        return -1;
    s->unrecorded = mem_grow(s->unrecorded, s->unrecorded_count + 2, sizeof(*s->unrecorded));
    s->unrecorded[s->unrecorded_count++] = mem_print("%s=%s", key, value);
    s->unrecorded[s->unrecorded_count] = NULL;
    record(s, key, NULL);
    return 0;
}

static char *copy_key(const char *setting)
{
    return mem_print("%.*s", (int)strcspn(setting, "="), setting);
}

static int read_one(const struct reading *r, const char *setting, struct error *e)
{
    const char *equals = strchr(setting, '=');

    if (equals == NULL || equals == setting)
        return reject(r, "expected KEY=VALUE", equals == NULL ? setting : "=", e);
    AUTO_FREE char *key = copy_key(setting);
    const struct provider_option *row = find_row(r, key);

    if (row == NULL)
        return reject(r, "there is no such option", key, e);
    return row->unrecorded ? add_unrecorded(r, row, key, equals + 1, e)
                           : add_fact(r, row, key, equals + 1, e);
}

static bool is_set(const struct arg_given *given)
{
    return strcmp(given->option->name, "set") == 0;
}

/* Of what is not recorded argv keeps the name: also of what is unknown, which may be a slip in the name. */
static void hide_value(const struct reading *r, char *setting)
{
    AUTO_FREE char *key = copy_key(setting);
    const struct provider_option *row = find_row(r, key);
    char *value = setting + strlen(key);

    if ((row == NULL || row->unrecorded) && *value == '=')
        util_wipe(value + 1, strlen(value + 1));
}

static int read_all(const struct reading *r, const struct args *args, struct error *e)
{
    for (size_t i = 0; i < args->given_count; i++)
        if (is_set(&args->given[i]) && read_one(r, args->given[i].value, e) < 0)
            return -1;
    return 0;
}

int settings_read(const struct provider_ops *ops, const struct provider_option *options, bool with_from,
                  const struct args *args, struct settings *out, struct error *e)
{
    struct reading r = { .ops = ops, .options = options, .with_from = with_from, .out = out };
    int result = read_all(&r, args, e);

    for (size_t i = 0; i < args->given_count; i++)
        if (is_set(&args->given[i]))
            hide_value(&r, args->given[i].value);
    if (result < 0)
        return -1;
    if (out->recorded_not > 0)
        text_print(&out->recorded, "%sand %zu more", out->recorded.size == 0 ? "" : " ", out->recorded_not);
    out->source = facts_get(&out->facts, SETTING_PREFIX SETTING_FROM);
    return 0;
}

static bool is_setting(const struct fact *fact)
{
    return strncmp(fact->key, SETTING_PREFIX, strlen(SETTING_PREFIX)) == 0;
}

bool settings_inherit(const struct facts *given, const struct facts *source, struct facts *out)
{
    for (size_t i = 0; i < source->count; i++) {
        const struct fact *fact = &source->items[i];

        if (!is_setting(fact) || facts_get(given, fact->key) != NULL ||
            strcmp(fact->key, SETTING_PREFIX SETTING_FROM) == 0)
            continue;
        if (!facts_set(out, fact->key, fact->value))
            return false;
    }
    return true;
}

static bool is_create_option(const struct provider_ops *ops, const char *key)
{
    for (const struct provider_option *row = ops->create_options; row->key != NULL; row++)
        if (strcmp(row->key, key) == 0)
            return true;
    return false;
}

bool settings_forget(const struct provider_ops *ops, struct facts *out)
{
    for (const struct provider_option *row = ops->start_options; row->key != NULL; row++) {
        char fact[sizeof(SETTING_PREFIX) + FACT_KEY_SIZE];

        snprintf(fact, sizeof(fact), "%s%s", SETTING_PREFIX, row->key);
        if (is_create_option(ops, row->key) || facts_get(out, fact) != NULL)
            continue;
        if (!facts_set(out, fact, ""))
            return false;
    }
    return true;
}

void settings_done(struct settings *s)
{
    for (size_t i = 0; i < s->unrecorded_count; i++)
        util_wipe_text(&s->unrecorded[i]);
    free(s->unrecorded);
    s->unrecorded = NULL;
    s->unrecorded_count = 0;
    text_done(&s->recorded);
}

#include "tools/agent-desktop/settings.h"

#include <stdio.h>
#include <string.h>

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
    error_set(e, ERROR_INVALID_ARGS, 0, "--set %s: %s; the %s provider accepts here: %s", what, problem,
              r->ops->name, text_get(&accepted));
    text_done(&accepted);
    return -1;
}

/* What is recorded for VALUE. */
static int check_value(const struct reading *r, const struct provider_option *row, const char *key,
                       const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    struct error cause = { 0 };

    if (row->check != NULL) {
        if (row->check(value, out, &cause) < 0)
            return error_set(e, cause.code, 0, "--set %s: %s", key,
                             cause.message); /* its errno is in there */
    } else if (!text_is_utf8(value, strlen(value)) || strlen(value) >= FACT_VALUE_SIZE) {
        return reject(r, "the value is too long or not valid UTF-8", key, e);
    } else {
        snprintf(out, FACT_VALUE_SIZE, "%s", value);
    }
    return out[0] == '\0' ? reject(r, "the value is empty", key, e) : 0;
}

static int add_setting(const struct reading *r, const char *key, const char *value, struct error *e)
{
    const struct provider_option *row = find_row(r, key);
    char fact[sizeof(SETTING_PREFIX) + FACT_KEY_SIZE], checked[FACT_VALUE_SIZE] = "";

    if (row == NULL)
        return reject(r, "there is no such option", key, e);
    snprintf(fact, sizeof(fact), "%s%s", SETTING_PREFIX, key);
    if (facts_get(&r->out->facts, fact) != NULL)
        return reject(r, "the option is given twice", key, e);
    if (check_value(r, row, key, value, checked, e) < 0)
        return -1;
    if (!facts_set(&r->out->facts, fact, checked))
        return reject(r, "the name is too long, or there are too many options", key, e);
    /* Behind a prefix anything may stand, also what should not be kept twice: the name is enough. */
    text_print(&r->out->recorded, "%s%s%s%s", r->out->recorded.size == 0 ? "" : " ", key,
               is_prefix(row) ? "" : "=", is_prefix(row) ? "" : checked);
    return 0;
}

static int read_one(const struct reading *r, const char *setting, struct error *e)
{
    const char *equals = strchr(setting, '=');
    char key[FACT_KEY_SIZE];

    if (equals == NULL || equals == setting)
        return reject(r, "expected KEY=VALUE", setting, e);
    if ((size_t)(equals - setting) >= sizeof(key))
        return reject(r, "there is no such option", setting, e);
    snprintf(key, sizeof(key), "%.*s", (int)(equals - setting), setting);
    return add_setting(r, key, equals + 1, e);
}

int settings_read(const struct provider_ops *ops, const struct provider_option *options, bool with_from,
                  const struct args *args, struct settings *out, struct error *e)
{
    struct reading r = { .ops = ops, .options = options, .with_from = with_from, .out = out };

    for (size_t i = 0; i < args->given_count; i++)
        if (strcmp(args->given[i].option->name, "set") == 0 && read_one(&r, args->given[i].value, e) < 0)
            return -1;
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
    text_done(&s->recorded);
}

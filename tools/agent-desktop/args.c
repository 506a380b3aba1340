#include "tools/agent-desktop/args.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define OPTIONS_MAX 16 /* rows of one command, --help included */

static const struct arg_option help_option = { .name = "help", .letter = 'h', .kind = ARG_FLAG };

struct parser {
    const struct args_syntax *syntax;
    struct args *out;
    char **next; /* the next word, NULL at the end */
};

/* --- options ------------------------------------------------------------------------------------------- */

static const struct arg_option *find_long(const struct args_syntax *syntax, const char *name, size_t size)
{
    if (size == strlen(help_option.name) && memcmp(name, help_option.name, size) == 0)
        return &help_option;
    for (const struct arg_option *row = syntax->options; row != NULL && row->name != NULL; row++)
        if (strlen(row->name) == size && memcmp(row->name, name, size) == 0)
            return row;
    return NULL;
}

static const struct arg_option *find_letter(const struct args_syntax *syntax, char letter)
{
    if (letter == help_option.letter)
        return &help_option;
    for (const struct arg_option *row = syntax->options; row != NULL && row->name != NULL; row++)
        if (row->letter == letter)
            return row;
    return NULL;
}

static int unknown_option(const struct parser *p, const char *name, size_t size, struct error *e)
{
    const char *names[OPTIONS_MAX] = { help_option.name };
    size_t count = 1;
    char word[64];

    for (const struct arg_option *row = p->syntax->options; row != NULL && row->name != NULL; row++) {
        assert(count < OPTIONS_MAX);
        names[count++] = row->name;
    }
    snprintf(word, sizeof(word), "%.*s", (int)(size < sizeof(word) ? size : sizeof(word) - 1), name);
    const char *nearest = text_find_nearest(word, names, count);

    if (nearest == NULL)
        return error_set(e, ERROR_INVALID_ARGS, 0, "%s has no option '--%s'; see agent-desktop %s --help",
                         p->out->command, word, p->out->command);
    return error_set(e, ERROR_INVALID_ARGS, 0, "%s has no option '--%s'; did you mean '--%s'?",
                     p->out->command, word, nearest);
}

static int add_given(const struct parser *p, const struct arg_option *option, char *value, struct error *e)
{
    struct args *a = p->out;

    if (option == &help_option) {
        a->help = true;
        return 0;
    }
    if (!option->many && args_has(a, option->name))
        return error_set(e, ERROR_INVALID_ARGS, 0, "--%s is given twice", option->name);
    a->given = mem_grow(a->given, a->given_count + 1, sizeof(*a->given));
    a->given[a->given_count++] = (struct arg_given){ option, value };
    return 0;
}

/* WORD is "--name" or "--name=value". */
static int parse_long(struct parser *p, char *word, struct error *e)
{
    char *name = word + 2;
    size_t size = strcspn(name, "=");
    char *value = name[size] == '=' ? name + size + 1 : NULL;
    const struct arg_option *option = find_long(p->syntax, name, size);

    if (option == NULL)
        return unknown_option(p, name, size, e);
    if (option->kind == ARG_FLAG && value != NULL)
        return error_set(e, ERROR_INVALID_ARGS, 0, "--%s takes no value", option->name);
    if (option->kind == ARG_VALUE && value == NULL) {
        if (*p->next == NULL)
            return error_set(e, ERROR_INVALID_ARGS, 0, "--%s needs a value: --%s=%s", option->name,
                             option->name, option->value);
        value = *p->next++;
    }
    return add_given(p, option, value, e);
}

/* WORD is "-i", or several such letters together: all short options are flags. */
static int parse_letters(struct parser *p, const char *word, struct error *e)
{
    for (const char *letter = word + 1; *letter != '\0'; letter++) {
        const struct arg_option *option = find_letter(p->syntax, *letter);

        if (option == NULL)
            return error_set(e, ERROR_INVALID_ARGS, 0,
                             "%s has no option '%s'; see agent-desktop %s --help (\"--\" ends options)",
                             p->out->command, word, p->out->command);
        assert(option->kind == ARG_FLAG);
        if (add_given(p, option, NULL, e) < 0)
            return -1;
    }
    return 0;
}

/* --- arguments ----------------------------------------------------------------------------------------- */

static int usage_error(const struct parser *p, const char *problem, const char *word, struct error *e)
{
    struct text usage = { 0 };

    args_print_usage(p->out->command, p->syntax, &usage);
    error_set(e, ERROR_INVALID_ARGS, 0, "%s%s; usage: %s", problem, word, text_get(&usage));
    text_done(&usage);
    return -1;
}

static int add_positional(const struct parser *p, const char *word, struct error *e)
{
    struct args *a = p->out;

    if (a->count == p->syntax->max)
        return usage_error(p, "surplus argument ", word, e);
    a->positional[a->count++] = word;
    return 0;
}

/* The words behind "--". */
static int parse_behind_dashes(struct parser *p, struct error *e)
{
    if (p->syntax->rest != ARGS_NO_REST) {
        p->out->rest = p->next;
        return 0;
    }
    while (*p->next != NULL)
        if (add_positional(p, *p->next++, e) < 0)
            return -1;
    return 0;
}

static int check_complete(const struct parser *p, struct error *e)
{
    const struct args *a = p->out;

    if (a->count < p->syntax->min)
        return usage_error(p, "an argument is missing", "", e);
    if (a->rest == NULL && p->syntax->rest != ARGS_NO_REST)
        return usage_error(p, "\"--\" is missing", "", e);
    if (p->syntax->rest == ARGS_REST_WORD && a->rest[0] == NULL)
        return usage_error(p, "nothing stands behind \"--\"", "", e);
    return 0;
}

static int parse_word(struct parser *p, char *word, struct error *e)
{
    if (strncmp(word, "--", 2) == 0)
        return parse_long(p, word, e);
    if (word[0] == '-' && word[1] != '\0')
        return parse_letters(p, word, e);
    return add_positional(p, word, e);
}

int args_parse(const char *command, const struct args_syntax *syntax, char **argv, struct args *out,
               struct error *e)
{
    struct parser p = { .syntax = syntax, .out = out, .next = argv };

    assert(syntax->max <= ARGS_POSITIONAL_MAX);
    *out = (struct args){ .command = command };
    while (*p.next != NULL) {
        char *word = *p.next++;

        if (strcmp(word, "--") == 0) {
            if (parse_behind_dashes(&p, e) < 0)
                return -1;
            break;
        }
        if (parse_word(&p, word, e) < 0)
            return -1;
        if (out->help)
            return 0;
    }
    return check_complete(&p, e);
}

void args_print_usage(const char *command, const struct args_syntax *syntax, struct text *out)
{
    const char *const parts[] = { syntax->arguments, syntax->options == NULL ? "" : "[OPTIONS]",
                                  syntax->behind };

    text_print(out, "agent-desktop %s", command);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i][0] != '\0')
            text_print(out, " %s", parts[i]);
}

void args_done(struct args *a)
{
    free(a->given);
    a->given = NULL;
    a->given_count = 0;
}

static const struct arg_given *find_given(const struct args *a, const char *name)
{
    for (size_t i = 0; i < a->given_count; i++)
        if (strcmp(a->given[i].option->name, name) == 0)
            return &a->given[i];
    return NULL;
}

bool args_has(const struct args *a, const char *name)
{
    return find_given(a, name) != NULL;
}

const char *args_value(const struct args *a, const char *name)
{
    const struct arg_given *given = find_given(a, name);

    return given == NULL ? NULL : given->value;
}

size_t args_values(const struct args *a, const char *name, const char ***out)
{
    const char **values = mem_alloc((a->given_count + 1) * sizeof(*values));
    size_t count = 0;

    for (size_t i = 0; i < a->given_count; i++)
        if (strcmp(a->given[i].option->name, name) == 0)
            values[count++] = a->given[i].value;
    *out = values;
    return count;
}

size_t args_rest_count(const struct args *a)
{
    size_t count = 0;

    while (a->rest != NULL && a->rest[count] != NULL)
        count++;
    return count;
}

/* tools/agent-desktop/args.h - one command's part of the command line, read by the rules of its row.
 *
 * Options stand before or after the positional arguments; "--" ends them; "--option=value" and
 * "--option value" both work. Nothing is copied: all text is lent by argv.
 *
 * argv is also what /proc/PID/cmdline and ps show, to all users and as long as the process lives, a fork of
 * it included. So settings_read() overwrites the values of --set that may be secrets: from then on such a
 * text ends with its '=', and what was behind it is in struct settings alone. */
#ifndef TOOLS_AGENT_DESKTOP_ARGS_H
#define TOOLS_AGENT_DESKTOP_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "core/text.h"

#define ARGS_POSITIONAL_MAX 2

enum arg_kind {
    ARG_FLAG,           /* --name */
    ARG_VALUE,          /* --name=value or --name value */
    ARG_OPTIONAL_VALUE, /* --name or --name=value */
};

struct arg_option {
    const char *name; /* without the dashes */
    char letter;      /* 'i' for -i; 0: none */
    enum arg_kind kind;
    bool many;         /* may be given more than once */
    const char *value; /* how help shows the value: "SECONDS" */
    const char *help;  /* one line, not capitalised, no full stop */
};

enum args_rest {
    ARGS_NO_REST = 0, /* what follows "--" is positional */
    ARGS_REST,        /* "--" and what follows it is the command's own: it must be there */
    ARGS_REST_WORD,   /* the same, and at least one word of it */
};

struct args_syntax {
    const char *arguments; /* "NAME": as usage shows them; "" */
    size_t min, max;       /* how many; max at most ARGS_POSITIONAL_MAX */
    enum args_rest rest;
    const char *behind;               /* "-- PROGRAM ARGS..."; "" */
    const struct arg_option *options; /* ends with a nameless row; NULL: none */
};

struct arg_given {
    const struct arg_option *option;
    char *value; /* in argv; NULL when none was given. Written to by settings_read() alone */
};

struct args {                                    /* args_done() when parsed */
    const char *command;                         /* "sandbox start" */
    const char *positional[ARGS_POSITIONAL_MAX]; /* NULL behind the last */
    size_t count;
    char **rest; /* behind "--", NULL-terminated; NULL without "--" */
    struct arg_given *given;
    size_t given_count;
    bool help; /* --help: nothing else has been checked */
};

/* Reads ARGV (NULL-terminated, behind the command's own words) for COMMAND ("sandbox start"). Fails with
 * INVALID_ARGS that names the word, the nearest known one and the usage. OUT needs args_done() either way. */
int args_parse(const char *command, const struct args_syntax *syntax, char **argv, struct args *out,
               struct error *e);
void args_done(struct args *a);

/* "agent-desktop sandbox start NAME [OPTIONS]" */
void args_print_usage(const char *command, const struct args_syntax *syntax, struct text *out);

/* The option NAME: was it given, and with what? */
bool args_has(const struct args *a, const char *name);
const char *args_value(const struct args *a, const char *name); /* NULL when not given, or without value */

/* Every value of the option NAME, in the order given; free(*out), the texts are lent. Their number. */
size_t args_values(const struct args *a, const char *name, const char ***out);

/* How many words REST has. */
size_t args_rest_count(const struct args *a);

#endif

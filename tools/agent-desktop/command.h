/* tools/agent-desktop/command.h - the table of commands. Dispatch, argument counts, usage errors, the nearest
 * name and --help all read it; to add a command, write its file and its row. */
#ifndef TOOLS_AGENT_DESKTOP_COMMAND_H
#define TOOLS_AGENT_DESKTOP_COMMAND_H

#include "core/error.h"
#include "tools/agent-desktop/args.h"
#include "tools/agent-desktop/reply.h"

/* Reads ARGS, calls down, fills REPLY. 0, or -1 with *e. */
typedef int command_fn(const struct args *args, struct reply *reply, struct error *e);

enum command_settings { SETTINGS_NONE = 0, SETTINGS_CREATE, SETTINGS_START };

struct command {
    const char *path; /* "sandbox start", as the envelope names it: a family and a verb, or a verb */
    struct args_syntax syntax;
    const char *help;               /* one line */
    const char *details;            /* paragraphs for --help, each line ending with a newline; NULL */
    const char *examples;           /* command lines, each ending with a newline */
    enum command_settings settings; /* --help lists these options of every provider */
    command_fn *run;
};

extern const struct command command_table[]; /* ends with a row without path */

/* What a command line is about. */
struct command_choice {
    const struct command *command; /* NULL: none was named */
    const char *family;            /* "sandbox" when one was named, else NULL */
    const char *understood;        /* for the envelope: the path, the family or "unknown" */
    char **rest;                   /* the words behind it */
};

/* Reads the first words of ARGV (behind the program's name). 0, or -1 with INVALID_ARGS; OUT is filled as far
 * as it was understood either way. No word at all, a family without a verb, an option or "help" is no
 * command. */
int command_find(char **argv, struct command_choice *out, struct error *e);

command_fn cmd_install, cmd_create, cmd_start, cmd_status, cmd_list, cmd_exec, cmd_run, cmd_stop, cmd_rm,
    cmd_log, cmd_recover;
command_fn cmd_launch, cmd_snapshot, cmd_click, cmd_type, cmd_screenshot;

#endif

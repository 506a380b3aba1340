#include "tools/agent-desktop/command.h"

#include <assert.h>
#include <string.h>

#include "core/text.h"

#define COMMANDS_MAX 32

#define SET_OPTION(what)                                                                                     \
    {                                                                                                        \
        .name = "set", .kind = ARG_VALUE, .many = true, .value = "KEY=VALUE", .help = what                   \
    }
#define WAIT_OPTION                                                                                          \
    {                                                                                                        \
        .name = "wait", .kind = ARG_OPTIONAL_VALUE, .value = "SECONDS",                                      \
        .help = "answer when the work has ended, or after SECONDS"                                           \
    }
#define PROVIDER_OPTION(what)                                                                                \
    {                                                                                                        \
        .name = "provider", .kind = ARG_VALUE, .value = "PROVIDER", .help = what                             \
    }

static const struct arg_option create_options[] = {
    PROVIDER_OPTION("which kind of sandbox; `sandbox install` lists them"),
    SET_OPTION("an option of the provider; may be repeated"),
    WAIT_OPTION,
    { 0 },
};
static const struct arg_option start_options[] = {
    { .name = "window", .kind = ARG_FLAG, .help = "show the desktop in a window on the host" },
    SET_OPTION("an option of this start; may be repeated"),
    WAIT_OPTION,
    { 0 },
};
static const struct arg_option stop_options[] = { WAIT_OPTION, { 0 } };
static const struct arg_option list_options[] = {
    { .name = "state",
      .kind = ARG_VALUE,
      .value = "STATE",
      .help = "only those that are working, needs_setup, running, stopped or broken" },
    PROVIDER_OPTION("only those of this provider"),
    { 0 },
};
static const struct arg_option exec_options[] = {
    { .name = "timeout",
      .kind = ARG_VALUE,
      .value = "SECONDS",
      .help = "end the command after SECONDS (default, and most: 300)" },
    { .name = "report",
      .kind = ARG_VALUE,
      .value = "FILE",
      .help = "write to FILE, as JSON, how far it came" },
    { 0 },
};
static const struct arg_option log_options[] = {
    { .name = "limit",
      .kind = ARG_VALUE,
      .value = "N",
      .help = "only the newest N events (default 10000; --follow: all)" },
    { .name = "since",
      .kind = ARG_VALUE,
      .value = "TIME",
      .help = "only from TIME on: 2026-11-29T16:34:13Z, or 30s, 15m, 2h, 7d ago" },
    { .name = "follow",
      .kind = ARG_FLAG,
      .help = "go on with each new event, one a line, until interrupted" },
    { .name = "verify", .kind = ARG_FLAG, .help = "check the whole journal: its hash chain, and the states" },
    { 0 },
};
static const struct arg_option recover_options[] = {
    { .name = "rm", .kind = ARG_FLAG, .help = "also remove it, where that is the only way out" },
    { 0 },
};
static const struct arg_option launch_options[] = {
    { .name = "activate", .kind = ARG_FLAG, .help = "wait for its window and give it the focus" },
    { .name = "timeout-ms", .kind = ARG_VALUE, .value = "MS", .help = "how long to wait (default 10000)" },
    { .name = "arg",
      .kind = ARG_VALUE,
      .many = true,
      .value = "X",
      .help = "an argument for the application; may be repeated" },
    { 0 },
};
static const struct arg_option snapshot_options[] = {
    { .name = "app", .kind = ARG_VALUE, .value = "APP", .help = "which application" },
    { .name = "interactive", .letter = 'i', .kind = ARG_FLAG, .help = "only what can be acted on" },
    { 0 },
};
static const struct arg_option screenshot_options[] = {
    { .name = "out", .kind = ARG_VALUE, .value = "FILE", .help = "where the PNG goes" },
    { 0 },
};

const struct command command_table[] = {
    { .path = "sandbox install",
      .syntax = { "[PROVIDER]", 0, 1, ARGS_NO_REST, "", NULL },
      .help = "report every provider's state, or make one ready",
      .details = "A provider is a kind of sandbox. One that is ready can create them.\n",
      .examples = "agent-desktop sandbox install\n"
                  "agent-desktop sandbox install linux\n",
      .run = cmd_install },
    { .path = "sandbox create",
      .syntax = { "NAME", 1, 1, ARGS_NO_REST, "", create_options },
      .help = "create a sandbox",
      .details =
          "NAME is 1 to 32 of a-z, 0-9 and dashes, and begins with a letter or a digit. The new sandbox is\n"
          "stopped; only a hosted one runs, and costs, at once. Where making it takes long, the answer is\n"
          "`working`, and `status` tells how far it is.\n",
      .examples = "agent-desktop sandbox create demo\n"
                  "agent-desktop sandbox create work --set from=demo\n",
      .settings = SETTINGS_CREATE,
      .run = cmd_create },
    { .path = "sandbox start",
      .syntax = { "NAME", 1, 1, ARGS_NO_REST, "", start_options },
      .help = "start a stopped sandbox",
      .details =
          "One that runs already is left as it is. Where the start takes long, the answer is `working`.\n",
      .examples = "agent-desktop sandbox start demo\n"
                  "agent-desktop sandbox start demo --wait=60\n",
      .settings = SETTINGS_START,
      .run = cmd_start },
    { .path = "sandbox status",
      .syntax = { "NAME", 1, 1, ARGS_NO_REST, "", NULL },
      .help = "report a sandbox's state and what to do next",
      .examples = "agent-desktop sandbox status demo\n",
      .run = cmd_status },
    { .path = "sandbox list",
      .syntax = { "", 0, 0, ARGS_NO_REST, "", list_options },
      .help = "report every sandbox",
      .examples = "agent-desktop sandbox list\n"
                  "agent-desktop sandbox list --state running\n",
      .run = cmd_list },
    { .path = "sandbox exec",
      .syntax = { "NAME", 1, 1, ARGS_REST, "-- ARGS...", exec_options },
      .help = "run agent-desktop inside a sandbox",
      .details =
          "Standard input, output and error are the command's own: there is no envelope. One that says why\n"
          "the command could not be run, or that its time was over, stands on stdout; once the command may\n"
          "have written there, on stderr. SIGINT, SIGTERM and SIGHUP end the command too. To a hosted\n"
          "sandbox no standard input is carried: one that has something to read is refused.\n",
      .examples = "agent-desktop sandbox exec demo -- launch mousepad --activate\n"
                  "agent-desktop sandbox exec demo -- snapshot --app mousepad -i\n",
      .run = cmd_exec },
    { .path = "sandbox run",
      .syntax = { "NAME", 1, 1, ARGS_REST_WORD, "-- PROGRAM ARGS...", exec_options },
      .help = "run any program inside a sandbox",
      .details = "As exec, with PROGRAM instead of agent-desktop. No shell reads the arguments.\n",
      .examples = "agent-desktop sandbox run demo -- ls -l\n"
                  "agent-desktop sandbox run demo --timeout 10 -- sh -c 'echo \"$HOME\"'\n",
      .run = cmd_run },
    { .path = "sandbox stop",
      .syntax = { "NAME", 1, 1, ARGS_NO_REST, "", stop_options },
      .help = "stop a running sandbox",
      .details = "An install or a start that is under way is cancelled.\n",
      .examples = "agent-desktop sandbox stop demo\n",
      .run = cmd_stop },
    { .path = "sandbox rm",
      .syntax = { "NAME", 1, 1, ARGS_NO_REST, "", NULL },
      .help = "remove a stopped or broken sandbox and all its files",
      .details = "A running one is refused: stop it first.\n",
      .examples = "agent-desktop sandbox rm demo\n",
      .run = cmd_rm },
    { .path = "sandbox log",
      .syntax = { "[NAME]", 0, 1, ARGS_NO_REST, "", log_options },
      .help = "read the journal: what was decided and what was done",
      .details = "Oldest first; of removed sandboxes too. With --follow there is no envelope.\n",
      .examples = "agent-desktop sandbox log demo --limit 20\n"
                  "agent-desktop sandbox log --since 2h --follow\n"
                  "agent-desktop sandbox log --limit 1 --verify\n",
      .run = cmd_log },
    { .path = "sandbox recover",
      .syntax = { "NAME", 1, 1, ARGS_NO_REST, "", recover_options },
      .help = "follow `next` until a sandbox is running, stopped or gone",
      .details = "Ends where a person is needed, and before a removal unless --rm is given.\n",
      .examples = "agent-desktop sandbox recover demo\n"
                  "agent-desktop sandbox recover demo --rm\n",
      .run = cmd_recover },
    { .path = "launch",
      .syntax = { "APP", 1, 1, ARGS_NO_REST, "", launch_options },
      .help = "start an application, or focus it",
      .details = "APP is a program, or the name of an application as menus show it.\n",
      .examples = "agent-desktop launch mousepad --activate\n",
      .run = cmd_launch },
    { .path = "snapshot",
      .syntax = { "--app APP", 0, 0, ARGS_NO_REST, "", snapshot_options },
      .help = "read an application's accessibility tree, with refs",
      .examples = "agent-desktop snapshot --app mousepad -i\n",
      .run = cmd_snapshot },
    { .path = "click",
      .syntax = { "REF", 1, 1, ARGS_NO_REST, "", NULL },
      .help = "click an element of a snapshot",
      .details = "REF is a `ref` that snapshot printed. It means that element, or is refused as stale.\n",
      .examples = "agent-desktop click @8f3a2c:e5\n",
      .run = cmd_click },
    { .path = "type",
      .syntax = { "REF TEXT", 2, 2, ARGS_NO_REST, "", NULL },
      .help = "type text into an element of a snapshot",
      .details = "REF is a `ref` that snapshot printed. TEXT replaces what is selected there, else it is "
                 "inserted.\n",
      .examples = "agent-desktop type @8f3a2c:e7 'Dear all,'\n"
                  "agent-desktop type @8f3a2c:e7 -- --dashes\n",
      .run = cmd_type },
    { .path = "screenshot",
      .syntax = { "--out FILE", 0, 0, ARGS_NO_REST, "", screenshot_options },
      .help = "write the desktop as a PNG",
      .examples = "agent-desktop screenshot --out desktop.png\n",
      .run = cmd_screenshot },
    { 0 },
};

/* The word behind the family, or the whole of a path without one. */
static const char *get_verb(const struct command *c)
{
    const char *blank = strchr(c->path, ' ');

    return blank == NULL ? c->path : blank + 1;
}

static bool is_in_family(const struct command *c, const char *family)
{
    size_t size = strlen(family);

    return strncmp(c->path, family, size) == 0 && c->path[size] == ' ';
}

static bool is_family(const char *word)
{
    for (const struct command *c = command_table; c->path != NULL; c++)
        if (is_in_family(c, word))
            return true;
    return false;
}

/* FAMILY NULL: the commands without one. */
static const struct command *find_verb(const char *family, const char *verb)
{
    for (const struct command *c = command_table; c->path != NULL; c++) {
        bool here = family == NULL ? strchr(c->path, ' ') == NULL : is_in_family(c, family);

        if (here && strcmp(get_verb(c), verb) == 0)
            return c;
    }
    return NULL;
}

static const struct command *find_anywhere(const char *verb)
{
    for (const struct command *c = command_table; c->path != NULL; c++)
        if (strcmp(get_verb(c), verb) == 0)
            return c;
    return NULL;
}

static int unknown_command(const char *family, const char *word, struct error *e)
{
    const char *words[COMMANDS_MAX] = { family == NULL ? "sandbox" : NULL };
    size_t count = family == NULL ? 1 : 0;

    for (const struct command *c = command_table; c->path != NULL; c++) {
        assert(count < COMMANDS_MAX);
        if (family == NULL ? strchr(c->path, ' ') == NULL : is_in_family(c, family))
            words[count++] = get_verb(c);
    }
    const char *nearest = text_find_nearest(word, words, count);
    const char *prefix = family == NULL ? "" : family, *blank = family == NULL ? "" : " ";
    const struct command *elsewhere = find_anywhere(word);

    if (elsewhere != NULL)
        return error_set(e, ERROR_INVALID_ARGS, 0, "there is no command '%s%s%s'; did you mean '%s'?", prefix,
                         blank, word, elsewhere->path);
    if (nearest == NULL)
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "there is no command '%s%s%s'; see agent-desktop %s%s--help", prefix, blank, word,
                         prefix, blank);
    return error_set(e, ERROR_INVALID_ARGS, 0, "there is no command '%s%s%s'; did you mean '%s%s%s'?", prefix,
                     blank, word, prefix, blank, nearest);
}

int command_find(char **argv, struct command_choice *out, struct error *e)
{
    *out = (struct command_choice){ .understood = "unknown", .rest = argv };
    if (argv[0] != NULL && is_family(argv[0])) {
        out->family = out->understood = argv[0];
        out->rest = ++argv;
    }
    if (argv[0] == NULL || argv[0][0] == '-' || strcmp(argv[0], "help") == 0)
        return 0;
    out->command = find_verb(out->family, argv[0]);
    if (out->command == NULL)
        return unknown_command(out->family, argv[0], e);
    out->understood = out->command->path;
    out->rest = argv + 1;
    return 0;
}

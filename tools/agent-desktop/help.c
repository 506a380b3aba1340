#include "tools/agent-desktop/help.h"

#include <ctype.h>
#include <string.h>

#include "providers/provider.h"
#include "tools/agent-desktop/settings.h"

#define NAME_COLUMN   16 /* of commands */
#define OPTION_COLUMN 24 /* of options */

static const char exit_codes[] = "\nExit status:\n"
                                 "  0  success: the envelope has \"ok\":true\n"
                                 "  1  failure: the envelope's error.code says which\n"
                                 "  2  the command line cannot be used (INVALID_ARGS)\n";

static const char guest_exit_codes[] =
    "\nExit status: the command's own, 128+N when signal N ended it; else\n"
    "  1  the command could not be run, or its time was over\n"
    "  2  the command line cannot be used (INVALID_ARGS)\n";

static const char session[] = "\nA first session:\n"
                              "  agent-desktop sandbox create demo\n"
                              "  agent-desktop sandbox start demo --wait\n"
                              "  agent-desktop sandbox exec demo -- launch mousepad --activate\n"
                              "  agent-desktop sandbox exec demo -- snapshot --app mousepad -i\n"
                              "  agent-desktop sandbox stop demo\n"
                              "  agent-desktop sandbox rm demo\n";

static const char environment[] = "\nEnvironment:\n"
                                  "  AGENT_DESKTOP_HOME   the state root (default: ~/.agent-desktop)\n"
                                  "  AGENT_DESKTOP_DEBUG  when set, lines for debugging on stderr\n";

static void print_row(const struct command *c, struct text *out)
{
    text_print(out, "  %-*s %s\n", NAME_COLUMN, c->path, c->help);
}

static void print_family(const char *family, struct text *out)
{
    for (const struct command *c = command_table; c->path != NULL; c++) {
        const char *blank = strchr(c->path, ' ');
        size_t size = blank == NULL ? 0 : (size_t)(blank - c->path);

        if (strlen(family) == size && memcmp(family, c->path, size) == 0)
            print_row(c, out);
    }
}

static void print_program(struct text *out)
{
    text_add_string(out, "agent-desktop drives a desktop, and keeps sandboxes: desktops of their own.\n\n"
                         "Usage: agent-desktop COMMAND [ARGUMENTS] [OPTIONS]\n"
                         "       agent-desktop sandbox COMMAND [ARGUMENTS] [OPTIONS]\n"
                         "       agent-desktop [sandbox] [COMMAND] --help\n"
                         "       agent-desktop --version\n\n"
                         "Commands on this desktop:\n");
    print_family("", out);
}

void help_print_commands(const char *family, struct text *out)
{
    if (family == NULL)
        print_program(out);
    else
        text_print(
            out,
            "A sandbox is a desktop of its own: its display, applications, processes and home directory\n"
            "are not those of the host.\n\n"
            "Usage: agent-desktop %s COMMAND [ARGUMENTS] [OPTIONS]\n"
            "       agent-desktop %s COMMAND --help\n",
            family, family);
    text_add_string(out, "\nCommands on sandboxes:\n");
    print_family("sandbox", out);
    text_add_string(out, session);
    text_add_string(
        out,
        "\nEvery command but exec, run and log --follow prints one line of JSON. Its `next`, where there is\n"
        "one, is the command that helps next.\n");
    text_add_string(out, exit_codes);
    text_add_string(out, environment);
}

static void print_option(const struct arg_option *option, struct text *out)
{
    struct text left = { 0 };

    if (option->letter != 0)
        text_print(&left, "-%c, ", option->letter);
    text_print(&left, "--%s", option->name);
    if (option->kind == ARG_VALUE)
        text_print(&left, " %s", option->value);
    if (option->kind == ARG_OPTIONAL_VALUE)
        text_print(&left, "[=%s]", option->value);
    text_print(out, "  %-*s %s\n", OPTION_COLUMN, text_get(&left), option->help);
    text_done(&left);
}

static void print_setting(const char *key, const char *name, const char *value, const char *help,
                          struct text *out)
{
    struct text left = { 0 };

    text_print(&left, "%s%s=%s", key, name, value);
    text_print(out, "  %-*s %s\n", OPTION_COLUMN, text_get(&left), help);
    text_done(&left);
}

/* What --set takes, provider by provider. */
static void print_settings(enum command_settings which, struct text *out)
{
    for (const struct provider_ops *const *p = provider_list(); *p != NULL; p++) {
        const struct provider_option *row =
            which == SETTINGS_CREATE ? (*p)->create_options : (*p)->start_options;
        bool with_from = which == SETTINGS_CREATE && (*p)->can_clone;

        if (row->key == NULL && !with_from)
            continue;
        text_print(out, "\n--set of the %s provider (%s):\n", (*p)->name, (*p)->summary);
        for (; row->key != NULL; row++)
            print_setting(row->key, row->key[strlen(row->key) - 1] == '.' ? "NAME" : "", row->value,
                          row->help, out);
        if (with_from)
            print_setting(SETTING_FROM, "", "SANDBOX", "copy this stopped sandbox", out);
    }
}

/* "  agent-desktop ..." for each line. */
static void print_examples(const char *lines, struct text *out)
{
    text_add_string(out, "\nExamples:\n");
    for (const char *end; *lines != '\0'; lines = end + 1) {
        end = strchr(lines, '\n');
        text_print(out, "  %.*s\n", (int)(end - lines), lines);
    }
}

void help_print_command(const struct command *c, struct text *out)
{
    static const struct arg_option help = { .name = "help", .letter = 'h', .help = "show this" };

    text_add_string(out, "Usage: ");
    args_print_usage(c->path, &c->syntax, out);
    text_print(out, "\n\n%c%s.\n", toupper((unsigned char)c->help[0]), c->help + 1);
    if (c->details != NULL)
        text_add_string(out, c->details);
    text_add_string(out, "\nOptions:\n");
    for (const struct arg_option *o = c->syntax.options; o != NULL && o->name != NULL; o++)
        print_option(o, out);
    print_option(&help, out);
    if (c->settings != SETTINGS_NONE)
        print_settings(c->settings, out);
    print_examples(c->examples, out);
    text_add_string(out, c->syntax.rest == ARGS_NO_REST ? exit_codes : guest_exit_codes);
}

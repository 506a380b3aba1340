/* tools/agent-desktop/help.h - text for people, from the table of commands and the providers' options. */
#ifndef TOOLS_AGENT_DESKTOP_HELP_H
#define TOOLS_AGENT_DESKTOP_HELP_H

#include "core/text.h"
#include "tools/agent-desktop/command.h"

/* The program, or one family of commands. */
void help_print_commands(const char *family, struct text *out);

void help_print_command(const struct command *c, struct text *out);

#endif

/* agent-desktop: reads the command line, runs one row of the table, prints one envelope. */
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "providers/linux/supervisor.h"
#include "providers/remote/runner.h"
#include "store/journal.h"
#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/envelope.h"
#include "tools/agent-desktop/help.h"
#include "tools/agent-desktop/output.h"

static int print_text(struct text *text)
{
    int r = output_write(STDOUT_FILENO, text_get(text), text->size);

    text_done(text);
    return r < 0 || output_finish() < 0 ? 1 : 0;
}

static int print_help(const struct command_choice *choice)
{
    struct text text = { 0 };

    if (choice->command != NULL)
        help_print_command(choice->command, &text);
    else
        help_print_commands(choice->family, &text);
    return print_text(&text);
}

/* Text for people, where there is no command: its exit status, or -1 with INVALID_ARGS. */
static int run_without_command(const struct command_choice *choice, struct error *e)
{
    const char *word = choice->rest[0];
    struct text version = { 0 };

    if (word == NULL && choice->family != NULL)
        return error_set(e, ERROR_INVALID_ARGS, 0, "a command is missing; see agent-desktop %s --help",
                         choice->family);
    if (word == NULL || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return print_help(choice);
    if (choice->family != NULL || strcmp(word, "--version") != 0)
        return error_set(e, ERROR_INVALID_ARGS, 0, "there is no option '%s' here; did you mean '--help'%s?",
                         word, choice->family != NULL ? "" : " or '--version'");
    text_print(&version, "agent-desktop %s\n", AD_VERSION);
    return print_text(&version);
}

static int print_envelope(const char *command, struct reply *reply, const struct error *e)
{
    AUTO_FREE char *line = envelope_print(command, reply, e);
    int fd = reply->stdout_used ? STDERR_FILENO : STDOUT_FILENO;

    if (output_write(fd, line, strlen(line)) < 0 || (fd == STDOUT_FILENO && output_finish() < 0))
        return 1;
    return envelope_exit_status(e);
}

/* What the commands on sandboxes count on. Returns what the store prints when a damaged journal ends the
 * process; to be kept until it is disarmed. */
static char *prepare_for_sandboxes(const struct command_choice *choice)
{
    struct reply nothing = { 0 };
    struct error damage = { 0 };

    umask(0077); /* no mode depends on the caller's */
    error_set(&damage, ERROR_STORE_CORRUPT, 0, "the journal is damaged: reading it failed");
    char *reply = envelope_print(choice->understood, &nothing, &damage);

    journal_set_crash_reply(reply, envelope_exit_status(&damage));
    return reply;
}

static int run_command(const struct command_choice *choice, struct error *e)
{
    AUTO_FREE char *crash_reply = choice->family == NULL ? NULL : prepare_for_sandboxes(choice);
    struct reply reply = { 0 };
    struct args args;
    int status;

    if (args_parse(choice->understood, &choice->command->syntax, choice->rest, &args, e) == 0 && !args.help)
        choice->command->run(&args, &reply, e);
    journal_set_crash_reply(NULL, 0);
    if (args.help && e->code == ERROR_NONE)
        status = print_help(choice);
    else if (reply.streamed)
        status = reply.exit_status;
    else
        status = print_envelope(choice->understood, &reply, e);
    reply_done(&reply);
    args_done(&args);
    return status;
}

/* A caller that ignores its children, or blocks signals, has handed that on: our children would vanish
 * unseen, and a SIGTERM would not reach the guest. */
static void forget_callers_signals(void)
{
    sigset_t none;

    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

int main(int argc, char **argv)
{
    struct command_choice choice;
    struct reply nothing = { 0 };
    struct error e = { 0 };

    if (argc > 1 && strcmp(argv[1], SUPERVISOR_MODE) == 0)
        return supervisor_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], RUNNER_MODE) == 0)
        return runner_main(argc, argv);
    output_init();
    forget_callers_signals();
    if (command_find(argc > 0 ? argv + 1 : argv, &choice, &e) == 0) {
        if (choice.command != NULL)
            return run_command(&choice, &e);
        int status = run_without_command(&choice, &e);

        if (status >= 0)
            return status;
    }
    return print_envelope(choice.understood, &nothing, &e);
}

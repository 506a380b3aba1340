/* The desktop commands as processes of their own, as the command line runs them: one after another in the
 * same process would share libatspi's state, which real calls never do.
 *
 *   desktop_driver launch APP ACTIVATE TIMEOUT_MS [ARG]... | snapshot APP INTERACTIVE | click REF |
 *                  type REF TEXT | screenshot FILE
 *
 * One line of JSON: the data, or {"code", "message"} and exit status 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "tools/desktop/desktop.h"

static int run_launch(char **argv, int argc, struct json **data, struct error *e)
{
    const struct desktop_launch options = {
        .app = argv[0],
        .activate = atoi(argv[1]) != 0,
        .timeout_ms = atoi(argv[2]),
        .args = (const char *const *)argv + 3,
        .arg_count = (size_t)argc - 3,
    };

    return desktop_launch(&options, data, e);
}

static int run_snapshot(char **argv, int argc, struct json **data, struct error *e)
{
    (void)argc;
    return desktop_snapshot(&(struct desktop_snapshot){ argv[0], atoi(argv[1]) != 0 }, data, e);
}

static int run_click(char **argv, int argc, struct json **data, struct error *e)
{
    (void)argc;
    return desktop_click(&(struct desktop_click){ argv[0] }, data, e);
}

static int run_type(char **argv, int argc, struct json **data, struct error *e)
{
    (void)argc;
    return desktop_type(&(struct desktop_type){ argv[0], argv[1] }, data, e);
}

static int run_screenshot(char **argv, int argc, struct json **data, struct error *e)
{
    (void)argc;
    return desktop_screenshot(&(struct desktop_screenshot){ argv[0] }, data, e);
}

static const struct {
    const char *name;
    int arguments;
    int (*run)(char **argv, int argc, struct json **data, struct error *e);
} commands[] = {
    { "launch", 3, run_launch }, { "snapshot", 2, run_snapshot },     { "click", 1, run_click },
    { "type", 2, run_type },     { "screenshot", 1, run_screenshot },
};

int main(int argc, char **argv)
{
    struct json *data = NULL;
    struct error e = { 0 };
    int result = -1;

    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (argc >= commands[i].arguments + 2 && strcmp(argv[1], commands[i].name) == 0)
            result = commands[i].run(argv + 2, argc - 2, &data, &e);
    if (result < 0) {
        data = json_new_object();
        json_put_string(data, "code", error_code_name(e.code));
        json_put_string(data, "message", e.message);
        json_put_string(data, "retry", error_retry_name(&e));
    }

    AUTO_FREE char *line = json_print(data);

    puts(line);
    json_free(data);
    return result < 0;
}

/* The written specifications say what the tables in the code say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/json.h"
#include "core/util.h"
#include "tools/agent-desktop/command.h"

#define SPEC_MAX (1 << 20)

static char *read_spec(const char *name)
{
    AUTO_CLOSE int dir = open(AD_SPECS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct error e = { 0 };
    char *bytes = NULL;
    size_t size;

    assert_true(dir >= 0);
    assert_int_equal(file_read(dir, name, SPEC_MAX, &bytes, &size, &e), 1);
    return bytes;
}

static void check_says(const char *spec, const char *what)
{
    if (strstr(spec, what) == NULL)
        fail_msg("the specification does not say: %s", what);
}

/* the set of codes is closed and documented. */
static void test_specs__document_every_error_code(void **state)
{
    AUTO_FREE char *cli = read_spec("cli.md");
    size_t rows = 0;

    (void)state;
    for (int code = ERROR_NONE + 1; code < ERROR_CODE_COUNT; code++) {
        struct error e = { .code = (enum error_code)code };
        char row[256];

        snprintf(row, sizeof(row), "\n| `%s` | %s | `%s` | `%s` |\n", error_code_name(e.code),
                 error_code_meaning(e.code), error_delivery_name(&e), error_retry_name(&e));
        check_says(cli, row);
    }
    for (const char *line = strstr(cli, "\n| code |"); (line = strstr(line, "\n| `")) != NULL; line++) {
        if (strncmp(line, "\n| `AGENT_DESKTOP_", 18) == 0)
            break;
        rows++;
    }
    assert_int_equal(rows, ERROR_CODE_COUNT - 1);
}

static void test_specs__schema_has_exactly_these_codes(void **state)
{
    AUTO_FREE char *text = read_spec("envelope.schema.json");
    AUTO_JSON struct json *schema = NULL;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), "the schema", ERROR_INTERNAL, &schema, &e), 0);
    struct json *codes = json_get(json_get(json_get(schema, "$defs"), "code"), "enum");
    AUTO_FREE char *printed = json_print(codes);

    assert_int_equal(json_count(codes), ERROR_CODE_COUNT - 1);
    for (int code = ERROR_NONE + 1; code < ERROR_CODE_COUNT; code++) {
        char word[64];

        snprintf(word, sizeof(word), "\"%s\"", error_code_name((enum error_code)code));
        check_says(printed, word);
    }
}

static void test_specs__document_every_command_and_option(void **state)
{
    AUTO_FREE char *cli = read_spec("cli.md");
    AUTO_FREE char *schema = read_spec("envelope.schema.json");

    (void)state;
    for (const struct command *c = command_table; c->path != NULL; c++) {
        char word[128];

        snprintf(word, sizeof(word), "`%s%s%s%s%s", c->path, c->syntax.arguments[0] == '\0' ? "" : " ",
                 c->syntax.arguments, c->syntax.behind[0] == '\0' ? "" : " ", c->syntax.behind);
        check_says(cli,
                   strcmp(c->path, "snapshot") == 0 || strcmp(c->path, "screenshot") == 0 ? c->path : word);
        snprintf(word, sizeof(word), "\"%s\"", c->path);
        check_says(schema, word);
        for (const struct arg_option *o = c->syntax.options; o != NULL && o->name != NULL; o++) {
            const char *shape = o->kind == ARG_VALUE ? " " : o->kind == ARG_OPTIONAL_VALUE ? "[=" : "";

            snprintf(word, sizeof(word), "`--%s%s%s%s`", o->name, shape, o->value == NULL ? "" : o->value,
                     o->kind == ARG_OPTIONAL_VALUE ? "]" : "");
            check_says(cli, word);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_specs__document_every_error_code),
        cmocka_unit_test(test_specs__schema_has_exactly_these_codes),
        cmocka_unit_test(test_specs__document_every_command_and_option),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

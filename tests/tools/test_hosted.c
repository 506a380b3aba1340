/* The commands with a scripted provider of hosted sandboxes in the place of the registry: what comes between
 * a command line and such a provider. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"
#include "core/util.h"
#include "providers/provider.h"
#include "tools/agent-desktop/command.h"
#include "tools/agent-desktop/envelope.h"
#include "tools/agent-desktop/help.h"

#define WORDS_MAX 16

/* --- the service, and its provider -----------------------------------------------------------------------
 */

static struct service {
    bool bare;                                 /* its image has no desktop */
    enum error_code down;                      /* how it fails; ERROR_NONE: not at all */
    enum error_code unasked, unfit, unwilling; /* the look at the host, at a clone's source, at the options */
    bool views;                                /* it is worth while to list */
    bool view_fails;
    size_t view_count;
    int views_opened, views_closed;
    atomic_int seen_in_view, seen_alone;
} service;

static int answer(struct error *e)
{
    return service.down == ERROR_NONE ? 0 : error_set(e, service.down, 0, "the service says no");
}

static int inspect_host(const struct root *root, struct provider_host_report *out, struct error *e)
{
    (void)root;
    out->state = PROVIDER_READY;
    return service.unasked == ERROR_NONE ? 0 : error_set(e, service.unasked, 0, "nobody answers");
}

static int check_create(void *self, struct facts *facts, struct error *e)
{
    (void)self, (void)facts;
    return service.unwilling == ERROR_NONE ? 0 : error_set(e, service.unwilling, 0, "not with these options");
}

static int check_clone(void *self, struct error *e)
{
    (void)self;
    return service.unfit == ERROR_NONE ? 0 : error_set(e, service.unfit, 0, "the source does not do");
}

static int open_box(const struct provider_place *place, void **self, struct error *e)
{
    (void)e;
    *self = (void *)(uintptr_t)place;
    return 0;
}

static void close_box(void *self)
{
    (void)self;
}

/* What was handed over, one setting a line, in the sandbox's directory. */
static enum step_result write_given(void *self, struct step_context *c, struct error *e)
{
    const struct provider_place *place = self;
    AUTO_CLOSE int dir = file_make_dir(place->root->sandboxes, place->name, 0700, e);
    struct text given = { 0 };

    (void)c;
    for (char *const *s = place->unrecorded; s != NULL && *s != NULL; s++)
        text_print(&given, "%s\n", *s);
    int r = dir < 0 ? -1 : file_replace(dir, "given", text_get(&given), given.size, 0600, e);

    text_done(&given);
    return r < 0 ? STEP_FAILED : STEP_DONE;
}

static enum step_result run_guest(void *self, struct step_context *c, struct error *e)
{
    (void)self;
    if (answer(e) < 0)
        return STEP_FAILED;
    c->outcome = service.bare ? EV_SETUP_REQUIRED : EV_GUEST_READY;
    if (service.bare)
        facts_set(c->outputs, "desktop", "missing");
    return STEP_DONE;
}

static enum step_result end_guest(void *self, struct step_context *c, struct error *e)
{
    (void)self, (void)c;
    return answer(e) < 0 ? STEP_FAILED : STEP_DONE;
}

static enum step_result delete_files(void *self, struct step_context *c, struct error *e)
{
    const struct provider_place *place = self;

    (void)c;
    return file_remove_tree(place->root->sandboxes, place->name, e) < 0 ? STEP_FAILED : STEP_DONE;
}

static int observe(void *self, const struct facts *facts, int deadline_ms, struct observation *out,
                   struct error *e)
{
    const struct provider_place *place = self;

    (void)facts, (void)deadline_ms;
    if (place->view != NULL)
        atomic_fetch_add(&service.seen_in_view, 1);
    else
        atomic_fetch_add(&service.seen_alone, 1);
    if (answer(e) < 0)
        return -1;
    out->event = EV_NONE;
    return 0;
}

static int open_view(const struct root *root, size_t count, int deadline_ms, void **view, struct error *e)
{
    assert_true(root->dir >= 0);
    assert_in_range(deadline_ms, 1, 2500);
    service.views_opened++;
    service.view_count = count;
    if (service.view_fails)
        return error_set(e, ERROR_AUTH_FAILED, 0, "the token of VERCEL_TOKEN was refused");
    *view = service.views ? mem_copy_text("a view") : NULL;
    return 0;
}

static void close_view(void *view)
{
    if (view != NULL)
        service.views_closed++;
    free(view);
}

static bool is_bare(const struct facts *facts)
{
    return facts_get(facts, "desktop") != NULL;
}

static int exec_inside(void *self, const struct facts *facts, const struct exec_request *request,
                       struct exec_result *out, struct error *e)
{
    (void)self, (void)facts, (void)request, (void)out;
    return answer(e) < 0 ? -1 : error_set(e, ERROR_ACTION_FAILED, 0, "nothing runs here");
}

static const struct provider_option create_options[] = {
    { .key = "env.", .value = "TEXT", .help = "a variable inside", .unrecorded = true }, { 0 }
};
static const struct provider_option no_options[] = { { 0 } };
static const struct step create_steps[] = { { "write", write_given, true },
                                            { "run", run_guest, false },
                                            { 0 } };
static const struct step start_steps[] = { { "run", run_guest, false }, { 0 } };
static const struct step stop_steps[] = { { "end", end_guest, false }, { 0 } };
static const struct step remove_steps[] = { { "delete", delete_files, false }, { 0 } };

static const struct provider_ops hosted = {
    .name = "hosted",
    .summary = "a script",
    .inspect_host = inspect_host,
    .create_options = create_options,
    .start_options = no_options,
    .can_clone = true,
    .stopped_can_change = true,
    .open = open_box,
    .close = close_box,
    .check_create = check_create,
    .check_clone = check_clone,
    .plan = { [OPERATION_CREATE] = { create_steps, 10000, 0 }, /* in a worker */
              [OPERATION_CLONE] = { create_steps, 10000, 0 },
              [OPERATION_START] = { start_steps, -1, 0 },
              [OPERATION_STOP] = { stop_steps, -1, 0 },
              [OPERATION_REMOVE] = { remove_steps, -1, 0 } },
    .observe = observe,
    .view_open = open_view,
    .view_close = close_view,
    .cannot_be_set_up = is_bare,
    .exec = exec_inside,
};

/* In the place of providers/registry.c. */
static const struct provider_ops *const list[] = { &hosted, NULL };

const struct provider_ops *const *provider_list(void)
{
    return list;
}

const struct provider_ops *provider_find(const char *name)
{
    return strcmp(name, hosted.name) == 0 ? &hosted : NULL;
}

const char *provider_default_name(void)
{
    return hosted.name;
}

/* --- commands --------------------------------------------------------------------------------------------
 */

static char home[] = "/tmp/ad-test-hosted-XXXXXX";

static int make_home(void **state)
{
    (void)state;
    service = (struct service){ .bare = false };
    memset(home + sizeof(home) - sizeof("XXXXXX"), 'X', 6);
    return mkdtemp(home) == NULL ? -1 : setenv("AGENT_DESKTOP_HOME", home, 1);
}

static int remove_home(void **state)
{
    struct error e = { 0 };
    AUTO_CLOSE int tmp = file_open_dir(-1, "/tmp"); /* an absolute path: the descriptor does not count */

    (void)state;
    return file_remove_tree(tmp, home + sizeof("/tmp"), &e);
}

/* One command line, words separated by blanks: its envelope. */
static struct json *run(const char *line)
{
    AUTO_FREE char *copy = mem_copy_text(line);
    char *argv[WORDS_MAX] = { NULL }, *rest = NULL;
    size_t count = 0;
    struct command_choice choice;
    struct reply reply = { 0 };
    struct error e = { 0 };
    struct args args;
    struct json *envelope = NULL;

    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    assert_int_equal(command_find(argv, &choice, &e), 0);
    if (args_parse(choice.understood, &choice.command->syntax, choice.rest, &args, &e) == 0)
        choice.command->run(&args, &reply, &e);
    args_done(&args);
    AUTO_FREE char *printed = envelope_print(choice.understood, &reply, &e);

    reply_done(&reply);
    e = (struct error){ 0 };
    assert_int_equal(json_parse(printed, strlen(printed), "the envelope", ERROR_INTERNAL, &envelope, &e), 0);
    return envelope;
}

static void expect(const char *line, const char *place, const char *next)
{
    AUTO_JSON struct json *envelope = run(line);
    AUTO_FREE char *printed = json_print(envelope);
    const struct json *data = json_get(envelope, "data");
    const char *shown = json_get_string(data, "next");

    if (data == NULL || strcmp(json_get_string(data, "state"), place) != 0 ||
        (next == NULL ? shown != NULL : shown == NULL || strcmp(shown, next) != 0))
        fail_msg("%s: %s", line, printed);
}

/* An error, about a sandbox in STATE, and its way out: none for NULL. */
static void expect_error(const char *line, enum error_code code, const char *state, const char *next,
                         bool person)
{
    AUTO_JSON struct json *envelope = run(line);
    AUTO_FREE char *printed = json_print(envelope);
    const struct json *error = json_get(envelope, "error"), *recovery = json_get(error, "recovery");
    const char *shown = json_get_string(recovery, "next");
    const char *told = json_get_string(json_get(error, "details"), "state");

    if (error == NULL || strcmp(json_get_string(error, "code"), error_code_name(code)) != 0 || told == NULL ||
        strcmp(told, state) != 0 ||
        (next == NULL ? shown != NULL : shown == NULL || strcmp(shown, next) != 0) ||
        json_get_bool(recovery, "needs_person", false) != person)
        fail_msg("%s: %s", line, printed);
}

/* --- tests -----------------------------------------------------------------------------------------------
 */

/* the provider's worker has them, the journal has their names. */
static void test_hosted__what_may_be_secret_reaches_the_provider_alone(void **state)
{
    struct error e = { 0 };
    AUTO_FREE char *path = mem_print("%s/sandboxes/web/given", home);
    AUTO_FREE char *given = NULL;
    size_t size;

    (void)state;
    expect("sandbox create web --wait --set env.TOKEN=hunter2 --set env.B=", "running", NULL);
    assert_int_equal(file_read(-1, path, 4096, &given, &size, &e), 1);
    assert_string_equal(given, "env.TOKEN=hunter2\nenv.B=\n");
    AUTO_JSON struct json *log = run("sandbox log web");
    AUTO_FREE char *printed = json_print(log);

    assert_null(strstr(printed, "hunter2"));
    assert_non_null(strstr(printed, "\"options\":\"env.TOKEN env.B\""));
}

static void test_hosted__help_lists_what_is_not_recorded(void **state)
{
    const struct command *command = command_table;
    struct text help = { 0 };

    (void)state;
    while (command->run != cmd_create)
        command++;
    help_print_command(command, &help);
    assert_non_null(strstr(text_get(&help), "\n  env.NAME=TEXT            a variable inside\n"));
    text_done(&help);
}

static const struct json *find_item(const struct json *envelope, const char *name)
{
    const struct json *items = json_get(json_get(envelope, "data"), "sandboxes");

    for (size_t i = 0; i < json_count(items); i++)
        if (strcmp(json_get_string(json_at(items, i), "name"), name) == 0)
            return json_at(items, i);
    fail_msg("'%s' is not listed", name);
    return NULL;
}

static void test_hosted__a_list_looks_through_one_view(void **state)
{
    static const struct {
        bool views, fails;
        int in_view, alone;
    } cases[] = { { true, false, 2, 0 }, { false, false, 0, 2 }, { false, true, 0, 0 } };

    (void)state;
    expect("sandbox create a --wait", "running", NULL);
    expect("sandbox create b --wait", "running", NULL);
    expect("sandbox stop b", "stopped", "agent-desktop sandbox start b");
    service.down = ERROR_ACTION_FAILED;
    json_free(run("sandbox create broken --wait"));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        service = (struct service){ .views = cases[i].views, .view_fails = cases[i].fails };
        AUTO_JSON struct json *listing = run("sandbox list");

        assert_int_equal(service.views_opened, 1);
        assert_int_equal(service.views_closed, cases[i].views ? 1 : 0);
        assert_int_equal(service.view_count, 2); /* not the broken one: nothing changes there */
        assert_int_equal(service.seen_in_view, cases[i].in_view);
        assert_int_equal(service.seen_alone, cases[i].alone);
        assert_string_equal(json_get_string(find_item(listing, "broken"), "state"), "broken");
        assert_string_equal(json_get_string(find_item(listing, "a"), "message"),
                            cases[i].fails ? "a is running: the token of VERCEL_TOKEN was refused."
                                           : "a is running.");
        assert_string_equal(json_get_string(find_item(listing, "b"), "state"), "stopped");
    }
}

/* the way out of a guest that nobody can set up is told by every command. */
static void test_hosted__what_cannot_be_set_up_is_stopped_and_removed(void **state)
{
    (void)state;
    service.bare = true;
    expect("sandbox create bare --wait", "needs_setup", "agent-desktop sandbox stop bare");
    expect("sandbox status bare", "needs_setup", "agent-desktop sandbox stop bare");
    expect_error("sandbox exec bare -- version", ERROR_INVALID_STATE, "needs_setup",
                 "agent-desktop sandbox stop bare", false);
    expect_error("sandbox rm bare", ERROR_INVALID_STATE, "needs_setup", "agent-desktop sandbox stop bare",
                 false);
    expect("sandbox stop bare", "stopped", "agent-desktop sandbox rm bare");
    AUTO_JSON struct json *listing = run("sandbox list");

    assert_string_equal(json_get_string(find_item(listing, "bare"), "next"), "agent-desktop sandbox rm bare");
    expect_error("sandbox exec bare -- version", ERROR_INVALID_STATE, "stopped",
                 "agent-desktop sandbox rm bare", false);
    expect("sandbox recover bare", "stopped", "agent-desktop sandbox rm bare");
    expect("sandbox start bare", "needs_setup", "agent-desktop sandbox stop bare");
    expect("sandbox recover bare --rm", "missing", NULL);
}

/* what the service does not tell is no state, and the way out is true. */
static void test_hosted__a_look_that_fails_tells_what_is_recorded_and_the_way_out(void **state)
{
    static const struct {
        enum error_code code;
        const char *next;
        bool person;
    } cases[] = {
        { ERROR_PROVIDER_UNAVAILABLE, "agent-desktop sandbox install hosted", false },
        { ERROR_AUTH_FAILED, "agent-desktop sandbox status eye", true },
        { ERROR_TIMEOUT, "agent-desktop sandbox status eye", false },
        { ERROR_ACTION_FAILED, "agent-desktop sandbox status eye", false },
        { ERROR_LIMIT_REACHED, "agent-desktop sandbox status eye", false },
    };
    static const char *const commands[] = { "sandbox status eye", "sandbox recover eye", "sandbox stop eye",
                                            "sandbox start eye", "sandbox rm eye" };

    (void)state;
    expect("sandbox create eye --wait", "running", NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        service.down = cases[i].code;
        for (size_t c = 0; c < ARRAY_LEN(commands); c++) {
            expect_error(commands[c], cases[i].code, "running", cases[i].next, cases[i].person);
            AUTO_JSON struct json *envelope = run(commands[c]);
            const struct json *disposition = json_get(json_get(envelope, "error"), "disposition");

            assert_string_equal(json_get_string(disposition, "delivery"), "not_delivered");
            assert_string_equal(json_get_string(disposition, "retry"), "safe");
        }
    }
    service.down = ERROR_NONE;
    expect("sandbox stop eye", "stopped", "agent-desktop sandbox start eye");
    service.down = ERROR_AUTH_FAILED;
    expect_error("sandbox status eye", ERROR_AUTH_FAILED, "stopped", "agent-desktop sandbox status eye",
                 true);
    expect_error("sandbox exec eye -- version", ERROR_AUTH_FAILED, "stopped",
                 "agent-desktop sandbox status eye", true);
    service.down = ERROR_NONE;
    expect("sandbox rm eye", "missing", NULL);
}

static void test_hosted__what_a_failed_create_has_left_is_removed(void **state)
{
    static const struct {
        enum error_code code;
        bool person;
    } cases[] = {
        { ERROR_PROVIDER_UNAVAILABLE, false },
        { ERROR_AUTH_FAILED, true }, /* its removal is refused, too */
        { ERROR_TIMEOUT, false },
        { ERROR_ACTION_FAILED, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        service.down = cases[i].code;
        expect_error("sandbox create half --wait", ERROR_ACTION_FAILED, "broken",
                     "agent-desktop sandbox rm half", cases[i].person);
        expect("sandbox status half", "broken", "agent-desktop sandbox rm half");
        service.down = ERROR_NONE;
        expect("sandbox rm half", "missing", NULL);
    }
}

static void test_hosted__a_create_that_its_options_forbid_leaves_nothing(void **state)
{
    (void)state;
    service.unwilling = ERROR_AUTH_FAILED;
    expect_error("sandbox create none", ERROR_AUTH_FAILED, "missing", NULL, true);
    service.unwilling = ERROR_INVALID_ARGS;
    expect_error("sandbox create none", ERROR_INVALID_ARGS, "missing", NULL, false);
    AUTO_JSON struct json *envelope = run("sandbox status none");

    assert_string_equal(json_get_string(json_get(envelope, "error"), "code"), "SANDBOX_NOT_FOUND");
}

static void test_hosted__a_source_that_does_not_do_tells_the_way_out(void **state)
{
    static const struct {
        enum error_code code;
        const char *next;
        bool person;
    } cases[] = {
        { ERROR_INVALID_STATE, "agent-desktop sandbox start base", false },
        { ERROR_INVALID_ARGS, NULL, false },
        { ERROR_AUTH_FAILED, "agent-desktop sandbox status base", true },
        { ERROR_ACTION_FAILED, "agent-desktop sandbox status base", false },
    };

    (void)state;
    expect("sandbox create base --wait", "running", NULL);
    expect("sandbox stop base", "stopped", "agent-desktop sandbox start base");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        service.unfit = cases[i].code;
        expect_error("sandbox create twin --set from=base", cases[i].code, "stopped", cases[i].next,
                     cases[i].person);
    }
}

/* The same command asks again. */
static void test_hosted__an_install_that_cannot_ask_tells_the_way_out(void **state)
{
    static const struct {
        enum error_code code;
        const char *next;
        bool person;
    } cases[] = {
        { ERROR_ACTION_FAILED, "agent-desktop sandbox install hosted", false },
        { ERROR_TIMEOUT, "agent-desktop sandbox install hosted", false },
        { ERROR_LIMIT_REACHED, "agent-desktop sandbox install hosted", false },
        { ERROR_PERM_DENIED, "agent-desktop sandbox install hosted", true },
        { ERROR_INVALID_ARGS, NULL, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        service.unasked = cases[i].code;
        AUTO_JSON struct json *envelope = run("sandbox install hosted");
        AUTO_FREE char *printed = json_print(envelope);
        const struct json *error = json_get(envelope, "error"), *recovery = json_get(error, "recovery");
        const struct json *disposition = json_get(error, "disposition");
        const char *next = json_get_string(recovery, "next");

        if (strcmp(json_get_string(error, "code"), error_code_name(cases[i].code)) != 0 ||
            (cases[i].next == NULL ? next != NULL : next == NULL || strcmp(next, cases[i].next) != 0) ||
            json_get_bool(recovery, "needs_person", false) != cases[i].person ||
            strcmp(json_get_string(disposition, "delivery"), "not_delivered") != 0 ||
            strcmp(json_get_string(disposition, "retry"), "safe") != 0 ||
            strstr(printed, "Look at the state") != NULL)
            fail_msg("%s", printed);
    }
}

/* A command in it that could not be sent. */
static void test_hosted__an_exec_that_fails_tells_the_way_out(void **state)
{
    static const struct {
        enum error_code code;
        const char *next;
        bool person;
    } cases[] = {
        { ERROR_PROVIDER_UNAVAILABLE, "agent-desktop sandbox install hosted", false },
        { ERROR_AUTH_FAILED, NULL, true },
        { ERROR_ACTION_FAILED, NULL, false },
    };

    (void)state;
    expect("sandbox create hand --wait", "running", NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        service.down = cases[i].code;
        expect_error("sandbox exec hand -- version", cases[i].code, "running", cases[i].next,
                     cases[i].person);
    }
}

#define IN_A_HOME(test) cmocka_unit_test_setup_teardown(test, make_home, remove_home)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_HOME(test_hosted__what_may_be_secret_reaches_the_provider_alone),
        IN_A_HOME(test_hosted__help_lists_what_is_not_recorded),
        IN_A_HOME(test_hosted__a_list_looks_through_one_view),
        IN_A_HOME(test_hosted__what_cannot_be_set_up_is_stopped_and_removed),
        IN_A_HOME(test_hosted__a_look_that_fails_tells_what_is_recorded_and_the_way_out),
        IN_A_HOME(test_hosted__what_a_failed_create_has_left_is_removed),
        IN_A_HOME(test_hosted__a_create_that_its_options_forbid_leaves_nothing),
        IN_A_HOME(test_hosted__a_source_that_does_not_do_tells_the_way_out),
        IN_A_HOME(test_hosted__an_install_that_cannot_ask_tells_the_way_out),
        IN_A_HOME(test_hosted__an_exec_that_fails_tells_the_way_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

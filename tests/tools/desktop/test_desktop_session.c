/* The desktop commands on a real desktop: GTK 4 (gnome-calculator), GTK 3 (zenity), plain X11 (xterm). */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/json.h"
#include "core/mem.h"
#include "core/process.h"
#include "core/text.h"
#include "core/util.h"
#include "tests/tools/desktop/session.h"
#include "tools/desktop/x11.h"

#define WAIT_MS       10000
#define ARGUMENTS_MAX 10
#define REF_ROOM      32

/* What a command answered. */
struct reply {
    struct json *json;
    int status;
};

/* The driver's standard output is read to its end: had a launched application kept it open, this would hang,
 * as an exec of the command would. */
static struct reply run(const char *const arguments[])
{
    const char *argv[ARGUMENTS_MAX + 2] = { DESKTOP_DRIVER };
    struct text out = { 0 };
    struct reply reply = { 0 };
    struct error e = { 0 };
    char bytes[4096];
    int ends[2];

    for (size_t i = 0; i < ARGUMENTS_MAX && arguments[i] != NULL; i++)
        argv[i + 1] = arguments[i];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);

    const pid_t pid = fork();

    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t size; (size = read(ends[0], bytes, sizeof bytes)) > 0;)
        text_add(&out, bytes, (size_t)size);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &reply.status, 0), pid);
    reply.status = WIFEXITED(reply.status) ? WEXITSTATUS(reply.status) : -1;
    if (json_parse(text_get(&out), out.size, "reply", ERROR_INTERNAL, &reply.json, &e) < 0)
        fail_msg("%s: '%s'", e.message, text_get(&out));
    text_done(&out);
    return reply;
}

#define RUN(...) run((const char *const[]){ __VA_ARGS__, NULL })

/* The data of a command that must succeed; json_free() it. */
static struct json *expect_data(struct reply reply)
{
    if (reply.status != 0)
        fail_msg("%s: %s", json_get_string(reply.json, "code"), json_get_string(reply.json, "message"));
    return reply.json;
}

static void expect_error(struct reply reply, const char *code, const char *word)
{
    assert_int_equal(reply.status, 1);
    assert_string_equal(json_get_string(reply.json, "code"), code);
    if (strstr(json_get_string(reply.json, "message"), word) == NULL)
        fail_msg("'%s' does not name '%s'", json_get_string(reply.json, "message"), word);
    json_free(reply.json);
}

/* The first element below NODE with this role and, unless NULL, name. */
static const struct json *find(const struct json *node, const char *role, const char *name)
{
    const struct json *children = json_get(node, "children"), *found = NULL;
    const char *node_name = json_get_string(node, "name");

    if (strcmp(json_get_string(node, "role"), role) == 0 &&
        (name == NULL || (node_name != NULL && strcmp(node_name, name) == 0)))
        return node;
    for (size_t i = 0; i < json_count(children) && found == NULL; i++)
        found = find(json_at(children, i), role, name);
    return found;
}

static struct json *snapshot(const char *app, bool interactive)
{
    return expect_data(RUN("snapshot", app, interactive ? "1" : "0"));
}

static void find_ref(const char *app, const char *role, const char *name, char out[REF_ROOM])
{
    AUTO_JSON struct json *data = snapshot(app, true);
    const struct json *found = find(json_get(data, "tree"), role, name);

    if (found == NULL)
        fail_msg("no %s '%s' in %s", role, name == NULL ? "" : name, app);
    snprintf(out, REF_ROOM, "%s", json_get_string(found, "ref"));
}

/* Applications act after they have answered: waits until the first text field holds TEXT. */
static void expect_text(const char *app, const char *text)
{
    const int64_t deadline = clock_mono_ms() + WAIT_MS;

    for (;;) {
        AUTO_JSON struct json *data = snapshot(app, false);
        const struct json *field = find(json_get(data, "tree"), "text", NULL);
        const char *told = field == NULL ? NULL : json_get_string(field, "text");
        const char *holds = told == NULL ? "" : told; /* left out when there is none */

        if (field != NULL && strcmp(holds, text) == 0)
            return;
        if (clock_mono_ms() > deadline)
            fail_msg("%s holds '%s', not '%s'", app, holds, text);
    }
}

static void expect_end(pid_t pid)
{
    const int64_t deadline = clock_mono_ms() + WAIT_MS;
    struct process_id id;

    while (process_read(pid, &id) == 0 && clock_mono_ms() < deadline)
        clock_sleep_ms(10);
    assert_int_equal(process_read(pid, &id), -1);
}

static pid_t launch(const char *app, const char *const arguments[])
{
    const char *all[ARGUMENTS_MAX] = { "launch", app, "1", "0" };

    for (size_t i = 0; arguments != NULL && arguments[i] != NULL; i++)
        all[i + 4] = arguments[i];

    AUTO_JSON struct json *data = expect_data(run(all));
    const pid_t pid = (pid_t)json_get_int(data, "pid", 0);

    assert_true(json_get_bool(data, "started", false));
    assert_true(pid > 1);
    return pid;
}

static pid_t launch_entry(void)
{
    return launch("zenity", (const char *const[]){ "--entry", "--text=Your name", NULL });
}

static void finish(pid_t pid)
{
    kill(pid, SIGKILL);
    expect_end(pid);
}

/* */
static void test_desktop__launches_reads_and_clicks_a_gtk4_application(void **state)
{
    AUTO_JSON struct json *started = expect_data(RUN("launch", "gnome-calculator", "1", "0"));
    AUTO_JSON struct json *again = expect_data(RUN("launch", "gnome-calculator", "1", "0"));
    AUTO_JSON struct json *by_entry = expect_data(RUN("launch", "org.gnome.Calculator", "0", "0"));
    const struct json *window = json_get(started, "window");
    const int64_t pid = json_get_int(started, "pid", 0);
    char seven[REF_ROOM];

    (void)state;
    assert_string_equal(json_get_string(started, "app"), "gnome-calculator");
    assert_true(json_get_bool(started, "started", false));
    assert_string_equal(json_get_string(window, "title"), "Calculator");
    assert_true(json_get_bool(window, "active", false));
    assert_true(json_get_int(json_get(window, "bounds"), "width", 0) > 100);
    assert_false(json_get_bool(again, "started", true)); /* focused, not a second copy */
    assert_int_equal(json_get_int(again, "pid", 0), pid);
    assert_int_equal(json_get_int(by_entry, "pid", 0), pid);

    find_ref("gnome-calculator", "push button", "7 7", seven);

    AUTO_JSON struct json *click = expect_data(RUN("click", seven));

    assert_string_equal(json_get_string(click, "method"), "action");
    assert_string_equal(json_get_string(click, "action"), "click");
    expect_text("Calculator", "7"); /* by Name= of the .desktop file */
    finish((pid_t)pid);
}

/* Every element below the windows has STATE and another role than ROLE; returns how many there are. */
static size_t check_elements(const struct json *node, unsigned depth, const char *state, const char *role)
{
    const struct json *children = json_get(node, "children");
    AUTO_FREE char *states = json_print(json_get(node, "states"));
    size_t count = 1;

    assert_non_null(json_get_string(node, "ref"));
    if (depth > 1 && (strstr(states, state) == NULL || strcmp(json_get_string(node, "role"), role) == 0))
        fail_msg("%s %s cannot be acted on", json_get_string(node, "role"), states);
    for (size_t i = 0; i < json_count(children); i++)
        count += check_elements(json_at(children, i), depth + 1, state, role);
    return count;
}

static void test_desktop__interactive_snapshot_keeps_what_can_be_acted_on(void **state)
{
    const pid_t pid = launch_entry();
    AUTO_JSON struct json *all = snapshot("zenity", false), *some = snapshot("zenity", true);
    const size_t kept = check_elements(json_get(some, "tree"), 0, "\"sensitive\"", "filler");

    (void)state;
    assert_int_equal(json_get_int(some, "count", 0), kept);
    assert_int_equal(kept, 5); /* application, dialog, text, Cancel, OK */
    assert_true(json_get_int(all, "count", 0) > (int64_t)kept);
    assert_non_null(find(json_get(all, "tree"), "label", "Your name"));
    assert_string_not_equal(json_get_string(all, "snapshot_id"), json_get_string(some, "snapshot_id"));
    finish(pid);
}

static void test_desktop__types_at_the_caret(void **state)
{
    const pid_t pid = launch_entry();
    char field[REF_ROOM], okay[REF_ROOM];

    (void)state;
    find_ref("zenity", "text", NULL, field);
    find_ref("zenity", "push button", "OK", okay);

    AUTO_JSON struct json *typed = expect_data(RUN("type", field, "J\xc3\xb6rg"));

    assert_string_equal(json_get_string(typed, "method"), "text");
    assert_int_equal(json_get_int(typed, "characters", 0), 4);
    json_free(expect_data(RUN("type", field, " M\xc3\xbcller")));
    expect_text("zenity", "J\xc3\xb6rg M\xc3\xbcller");

    AUTO_JSON struct json *focused = expect_data(RUN("click", field)); /* must not submit the dialog */

    assert_string_equal(json_get_string(focused, "method"), "focus");
    expect_text("zenity", "J\xc3\xb6rg M\xc3\xbcller");
    json_free(expect_data(RUN("click", okay))); /* ends it, perhaps before it answers: that is no failure */
    expect_end(pid);
}

static void test_desktop__ref_is_stale_when_the_application_has_ended(void **state) /* */
{
    pid_t pid = launch_entry();
    char field[REF_ROOM], okay[REF_ROOM];
    struct reply reply;

    (void)state;
    find_ref("zenity", "text", NULL, field);
    find_ref("zenity", "push button", "OK", okay);
    finish(pid);
    expect_error(RUN("click", okay), "STALE_REF", okay);
    pid = launch_entry(); /* the same object paths, roles and names, but not the same element */
    expect_error(RUN("click", okay), "STALE_REF", okay);
    reply = RUN("type", field, "s3cret");
    assert_null(strstr(json_get_string(reply.json, "message"), "s3cret"));
    expect_error(reply, "STALE_REF", field);
    expect_text("zenity", "");
    finish(pid);
}

static void test_desktop__ref_is_stale_when_the_element_means_something_else(void **state) /* */
{
    const char *root = getenv("AGENT_DESKTOP_HOME");
    const pid_t pid = launch_entry();
    char cancel[REF_ROOM];
    AUTO_FREE char *bytes = mem_alloc(1 << 16), *path = NULL;
    char *name;

    (void)state;
    find_ref("zenity", "push button", "Cancel", cancel);
    path = mem_print("%s/snapshots/%.8s.json", root, cancel + 1);

    AUTO_CLOSE int fd = open(path, O_RDWR);

    assert_true(pread(fd, bytes, (1 << 16) - 1, 0) > 0);
    name = strstr(bytes, "\"Cancel\"");
    assert_non_null(name);
    assert_int_equal(pwrite(fd, "\"Delete\"", 8, name - bytes), 8);
    expect_error(RUN("click", cancel), "STALE_REF", cancel);
    assert_int_equal(kill(pid, 0), 0);
    finish(pid);
}

static void test_desktop__ref_beyond_its_snapshot_is_stale(void **state)
{
    const pid_t pid = launch_entry();
    char ref[REF_ROOM];

    (void)state;
    find_ref("zenity", "text", NULL, ref);
    snprintf(ref + strlen("@01234567:e"), REF_ROOM - strlen("@01234567:e"), "99999");
    expect_error(RUN("click", ref), "STALE_REF", ref);
    finish(pid);
}

static void test_desktop__element_of_an_application_that_hangs_is_a_timeout(void **state)
{
    const pid_t pid = launch_entry();
    char okay[REF_ROOM];

    (void)state;
    find_ref("zenity", "push button", "OK", okay);
    kill(pid, SIGSTOP);
    expect_error(RUN("click", okay), "TIMEOUT", "does not answer");
    finish(pid);
}

static void test_desktop__launches_programs_without_a_tree(void **state)
{
    AUTO_JSON struct json *started = expect_data(RUN("launch", "xterm", "1", "0"));
    AUTO_JSON struct json *again = expect_data(RUN("launch", "xterm", "1", "0"));
    const pid_t pid = (pid_t)json_get_int(started, "pid", 0);

    (void)state;
    assert_true(json_get_int(json_get(started, "window"), "id", 0) > 0);
    assert_false(json_get_bool(again, "started", true));
    assert_int_equal(json_get_int(again, "pid", 0), pid);
    expect_error(RUN("snapshot", "xterm", "0"), "APP_NOT_FOUND", "xterm");
    finish(pid);
}

static void test_desktop__launch_says_why_there_is_no_window(void **state)
{
    (void)state;
    expect_error(RUN("launch", "nonesuch", "1", "0"), "APP_NOT_FOUND", "nonesuch");
    expect_error(RUN("launch", "gnome-calculatr", "0", "0"), "APP_NOT_FOUND", "gnome-calculator");
    expect_error(RUN("launch", "sleep", "1", "300", "60"), "TIMEOUT", "300 ms");
    expect_error(RUN("launch", "false", "1", "0"), "ACTION_FAILED", "logs/false.log");
}

static void test_desktop__launch_without_activate_does_not_wait(void **state)
{
    const int64_t start = clock_mono_ms();
    AUTO_JSON struct json *data = expect_data(RUN("launch", "sleep", "0", "0", "60"));

    (void)state;
    assert_true(clock_mono_ms() - start < WAIT_MS);
    assert_null(json_get(data, "window"));
    finish((pid_t)json_get_int(data, "pid", 0));
}

static void test_desktop__snapshot_names_what_is_running(void **state)
{
    const pid_t pid = launch_entry();

    (void)state;
    expect_error(RUN("snapshot", "nonesuch", "0"), "APP_NOT_FOUND", "running: 'zenity'");
    expect_error(RUN("snapshot", "zenitx", "0"), "APP_NOT_FOUND", "did you mean 'zenity'");
    finish(pid);
}

static void test_desktop__screenshot_is_a_png_of_the_whole_screen(void **state)
{
    static const unsigned char header[] =
        "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x05\0\0\0\x03\x20"; /* 1280, 800 */
    AUTO_FREE char *path = mem_print("%s/screen.png", getenv("HOME"));
    AUTO_JSON struct json *data = expect_data(RUN("screenshot", path));
    unsigned char bytes[sizeof header - 1];
    AUTO_CLOSE int fd = open(path, O_RDONLY);

    (void)state;
    assert_string_equal(json_get_string(data, "path"), path);
    assert_int_equal(json_get_int(data, "width", 0), 1280);
    assert_int_equal(json_get_int(data, "height", 0), 800);
    assert_int_equal(read(fd, bytes, sizeof bytes), sizeof bytes);
    assert_memory_equal(bytes, header, sizeof bytes);
}

/* XTEST, where there is no editable text: a terminal reads a line, with characters that the keyboard has, has
 * with Shift, and has not. */
static void test_x11__types_any_character(void **state)
{
    static const char text[] = "aZ1!? \xc3\xa9\xd0\xb6\xe2\x82\xac\n";
    AUTO_FREE char *file = mem_print("%s/typed", getenv("HOME"));
    AUTO_FREE char *script =
        mem_print("read -r line; printf '%%s\\n' \"$line\" >'%s.new'; mv '%s.new' '%s'", file, file, file);
    const pid_t pid = launch("xterm", (const char *const[]){ "-u8", "-e", "sh", "-c", script, NULL });
    const int64_t deadline = clock_mono_ms() + WAIT_MS;
    char bytes[sizeof text] = "";
    AUTO_X11 struct x11 *x = NULL;
    struct error e = { 0 };

    (void)state;
    assert_int_equal(x11_open(&x, &e), 0);
    assert_int_equal(x11_type(x, text, &e), 0);
    while (access(file, F_OK) < 0 && clock_mono_ms() < deadline)
        clock_sleep_ms(10);

    AUTO_CLOSE int fd = open(file, O_RDONLY);

    assert_true(read(fd, bytes, sizeof bytes - 1) > 0);
    assert_string_equal(bytes, text);
    expect_end(pid);
}

static void test_x11__clicks_on_the_screen_only(void **state)
{
    AUTO_X11 struct x11 *x = NULL;
    struct error beyond = { 0 }, e = { 0 };

    (void)state;
    assert_int_equal(x11_open(&x, &e), 0);
    assert_int_equal(x11_click(x, 5, 795, &e), 0);
    assert_int_equal(x11_click(x, 1280, 5, &beyond), -1);
    assert_int_equal(beyond.code, ERROR_ACTION_FAILED);
}

static int start_session(void **state)
{
    static struct session session;
    const char *missing = session_start(&session);

    *state = &session;
    if (missing == NULL)
        return 0;
    session_stop(&session);
    fprintf(stderr, "skipped: %s\n", missing);
    exit(77); /* ctest's SKIP_RETURN_CODE */
}

static int stop_session(void **state)
{
    session_stop(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_desktop__launches_reads_and_clicks_a_gtk4_application),
        cmocka_unit_test(test_desktop__interactive_snapshot_keeps_what_can_be_acted_on),
        cmocka_unit_test(test_desktop__types_at_the_caret),
        cmocka_unit_test(test_desktop__ref_is_stale_when_the_application_has_ended),
        cmocka_unit_test(test_desktop__ref_is_stale_when_the_element_means_something_else),
        cmocka_unit_test(test_desktop__ref_beyond_its_snapshot_is_stale),
        cmocka_unit_test(test_desktop__element_of_an_application_that_hangs_is_a_timeout),
        cmocka_unit_test(test_desktop__launches_programs_without_a_tree),
        cmocka_unit_test(test_desktop__launch_says_why_there_is_no_window),
        cmocka_unit_test(test_desktop__launch_without_activate_does_not_wait),
        cmocka_unit_test(test_desktop__snapshot_names_what_is_running),
        cmocka_unit_test(test_desktop__screenshot_is_a_png_of_the_whole_screen),
        cmocka_unit_test(test_x11__types_any_character),
        cmocka_unit_test(test_x11__clicks_on_the_screen_only),
    };

    return cmocka_run_group_tests(tests, start_session, stop_session);
}

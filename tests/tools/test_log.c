/* `sandbox log` of a journal that is too long for one reply. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/json.h"
#include "store/journal.h"
#include "tools/agent-desktop/command.h"

#define EVENTS 10500 /* more than the default limit, 10000 */
#define BATCH  500

static char home[] = "/tmp/ad-test-log-XXXXXX";

/* EVENTS entries of commands inside a sandbox; who made it is of no importance here. */
static int make_journal(void **state)
{
    static struct journal_entry entries[BATCH];
    const struct journal_guard none = { 0 };
    struct error e = { 0 };
    struct journal *j = NULL;
    struct root root;

    (void)state;
    for (size_t i = 0; i < BATCH; i++)
        entries[i] =
            (struct journal_entry){ .kind = JOURNAL_EXEC, .name = "demo", .attempt = 1, .status = 0 };
    if (mkdtemp(home) == NULL || setenv("AGENT_DESKTOP_HOME", home, 1) < 0 ||
        root_open(ROOT_WRITE, &root, &e) < 0 || journal_open(&root, JOURNAL_WRITE, &j, &e) != 1)
        return -1;
    for (int i = 0; i < EVENTS; i += BATCH)
        if (journal_lmdb_ops.commit(j, "demo", &none, entries, BATCH, NULL, &e) != 1)
            return -1;
    journal_close(j);
    root_close(&root);
    return 0;
}

static int remove_journal(void **state)
{
    struct error e = { 0 };
    AUTO_CLOSE int tmp = file_open_dir(-1, "/tmp"); /* an absolute path: the descriptor does not count */

    (void)state;
    return file_remove_tree(tmp, home + sizeof("/tmp"), &e);
}

/* The data of `sandbox log ARGV...`. */
static struct json *read_log(const char **argv)
{
    const struct command *command = command_table;
    struct reply reply = { 0 };
    struct error e = { 0 };
    struct json *data = NULL;
    struct args args;

    while (command->run != cmd_log)
        command++;
    assert_int_equal(args_parse(command->path, &command->syntax, (char **)argv, &args, &e), 0);
    assert_int_equal(cmd_log(&args, &reply, &e), 0);
    assert_int_equal(
        json_parse(text_get(&reply.printed), reply.printed.size, "it", ERROR_INTERNAL, &data, &e), 0);
    reply_done(&reply);
    args_done(&args);
    return data;
}

static void check_log(const char **argv, size_t count, int64_t limited_to)
{
    AUTO_JSON struct json *data = read_log(argv);
    const struct json *events = json_get(data, "events");

    assert_int_equal(json_count(events), count);
    assert_int_equal(json_get_int(json_at(events, count - 1), "seq", 0), EVENTS); /* the newest */
    assert_int_equal(json_get_int(data, "limited_to", 0), limited_to);
}

static void test_log__says_when_it_does_not_show_all(void **state)
{
    (void)state;
    check_log((const char *[]){ "demo", NULL }, 10000, 10000);
    check_log((const char *[]){ "--since", "1h", NULL }, 10000, 10000);
}

static void test_log__shows_as_many_as_were_asked_for(void **state)
{
    (void)state;
    check_log((const char *[]){ "demo", "--limit", "7", NULL }, 7, 0);
    check_log((const char *[]){ "--limit", "10000", NULL }, 10000, 0);
    check_log((const char *[]){ "--limit", "1000000", NULL }, EVENTS, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log__says_when_it_does_not_show_all),
        cmocka_unit_test(test_log__shows_as_many_as_were_asked_for),
    };

    return cmocka_run_group_tests(tests, make_journal, remove_journal);
}

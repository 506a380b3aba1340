/* The fold (core/journal.h): what an entry of each kind changes, and what it leaves alone. */
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/journal.h"
#include "core/util.h"

static void fold(struct journal_record *r, uint64_t seq, struct journal_entry entry)
{
    entry.seq = seq;
    entry.time_ms = 1000 + (int64_t)seq;
    entry.name = "demo";
    entry.boot = "boot-1";
    entry.mono_ms = 10;
    journal_fold(r, &entry);
}

static const struct journal_entry create_op = { .kind = JOURNAL_OP,
                                                .id = "id-1",
                                                .provider = "linux",
                                                .op = "op-1",
                                                .command = "create",
                                                .token = "token-1",
                                                .actor_pid = 7,
                                                .actor_start = 8 };
static const struct journal_entry to_working = {
    .kind = JOURNAL_MOVE, .from = "missing", .to = "working", .activity = "installing", .reason = "asked"
};

static struct journal_entry step(const char *name, const char *phase, const struct facts *facts)
{
    return (struct journal_entry){
        .kind = JOURNAL_STEP, .step = name, .phase = phase, .attempt = 3, .facts = facts
    };
}

static struct journal_record installing(void)
{
    struct journal_record r;

    journal_record_init(&r, "demo");
    fold(&r, 1, create_op);
    fold(&r, 2, to_working);
    return r;
}

static void test_fold__starts_missing(void **state)
{
    struct journal_record r;

    (void)state;
    journal_record_init(&r, "demo");
    assert_string_equal(r.name, "demo");
    assert_string_equal(r.state, "missing");
    assert_int_equal(r.facts.count, 0);
    assert_int_equal(r.seq, 0);
}

static void test_fold__op_names_the_owner_and_the_incarnation(void **state)
{
    struct journal_record r = installing();

    (void)state;
    assert_string_equal(r.id, "id-1");
    assert_string_equal(r.provider, "linux");
    assert_string_equal(r.op, "op-1");
    assert_string_equal(r.command, "create");
    assert_string_equal(r.token, "token-1");
    assert_int_equal(r.owner.pid, 7);
    assert_int_equal(r.owner.start, 8);
    assert_string_equal(r.owner.boot, "boot-1");
    assert_int_equal(r.created_ms, 1001);
}

static void test_fold__created_is_the_incarnations_first_time(void **state)
{
    struct journal_record r = installing();
    struct journal_entry again = create_op;

    (void)state;
    again.command = "start";
    fold(&r, 9, again);
    assert_int_equal(r.created_ms, 1001);
    again.id = "id-2";
    fold(&r, 10, again);
    assert_int_equal(r.created_ms, 1010);
}

static void test_fold__move_sets_state_and_times(void **state)
{
    struct journal_record r = installing();

    (void)state;
    assert_string_equal(r.state, "working");
    assert_string_equal(r.activity, "installing");
    assert_string_equal(r.reason, "asked");
    assert_int_equal(r.moved_ms, 1002);
    assert_int_equal(r.moved_boot_ms, 10);
    assert_string_equal(r.moved_boot, "boot-1");
    assert_int_equal(r.seq, 2);
    fold(&r, 3, (struct journal_entry){ .kind = JOURNAL_MOVE, .to = "stopped" });
    assert_string_equal(r.state, "stopped");
    assert_string_equal(r.activity, "");
    assert_string_equal(r.reason, "");
}

static void test_fold__moves_and_done_steps_merge_facts(void **state)
{
    struct journal_record r = installing();
    struct facts given = { 0 };

    (void)state;
    facts_set(&given, "user", "me");
    fold(&r, 3, step("boot", "done", &given));
    facts_set(&given, "user", "");
    facts_set(&given, "port", "22");
    fold(&r, 4, (struct journal_entry){ .kind = JOURNAL_MOVE, .to = "stopped", .facts = &given });
    assert_null(facts_get(&r.facts, "user"));
    assert_string_equal(facts_get(&r.facts, "port"), "22");
    facts_set(&given, "port", "23");
    fold(&r, 5, step("boot", "failed", &given));
    fold(&r, 6, step("boot", "begin", &given));
    assert_string_equal(facts_get(&r.facts, "port"), "22");
}

static void test_fold__a_step_changes_nothing_but_facts(void **state)
{
    static const char *const phases[] = { "begin", "done", "failed" };
    struct journal_record r = installing(), before = r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(phases); i++) {
        fold(&r, 3 + i, step("copy-disk", phases[i], NULL));
        assert_int_equal(r.seq, 3 + i);
        r.seq = before.seq;
        assert_memory_equal(&r, &before, offsetof(struct journal_record, facts));
    }
}

static void test_fold__the_same_command_again_has_a_new_owner_and_keeps_what_is_known(void **state)
{
    struct journal_record r = installing();
    struct journal_entry op = create_op;
    struct facts given = { 0 };

    (void)state;
    facts_set(&given, "port", "22");
    fold(&r, 3, step("disk", "done", &given));
    op.token = "token-2";
    op.actor_pid = 9;
    fold(&r, 4, op);
    assert_string_equal(r.command, "create");
    assert_string_equal(r.token, "token-2");
    assert_int_equal(r.owner.pid, 9);
    assert_string_equal(facts_get(&r.facts, "port"), "22");
    assert_string_equal(r.activity, "installing");
}

static void test_fold__end_clears_the_operation(void **state)
{
    struct journal_record r = installing();

    (void)state;
    fold(&r, 3, (struct journal_entry){ .kind = JOURNAL_END });
    assert_string_equal(r.token, "");
    assert_string_equal(r.op, "");
    assert_string_equal(r.command, "");
    assert_int_equal(r.owner.pid, 0);
    assert_string_equal(r.id, "id-1");
    assert_string_equal(r.state, "working");
}

static void test_fold__moving_to_missing_ends_the_record(void **state)
{
    struct journal_record r = installing(), fresh;

    (void)state;
    fold(&r, 3, (struct journal_entry){ .kind = JOURNAL_MOVE, .to = "missing" });
    fold(&r, 4, (struct journal_entry){ .kind = JOURNAL_END });
    journal_record_init(&fresh, "demo");
    fresh.seq = 4;
    assert_memory_equal(&r, &fresh, offsetof(struct journal_record, facts));
    assert_int_equal(r.facts.count, 0);
}

static void test_fold__exec_changes_nothing(void **state)
{
    struct journal_record r = installing(), before = r;

    (void)state;
    fold(&r, 3, (struct journal_entry){ .kind = JOURNAL_EXEC, .word = "ls", .phase = "done" });
    assert_memory_equal(&r, &before, offsetof(struct journal_record, facts));
}

static void test_fold__a_refusal_stands_until_the_next_entry(void **state)
{
    struct journal_record r = installing();

    (void)state;
    fold(&r, 3, (struct journal_entry){ .kind = JOURNAL_REFUSED, .event = "start", .state = "working" });
    assert_string_equal(r.refused, "start");
    assert_int_equal(r.seq, 3);
    fold(&r, 4, (struct journal_entry){ .kind = JOURNAL_EXEC });
    assert_string_equal(r.refused, "start");
    fold(&r, 5, step("disk", "begin", NULL));
    assert_string_equal(r.refused, "");
}

static void test_fold__long_text_is_cut_at_a_character(void **state)
{
    struct journal_record r = installing();
    char reason[JOURNAL_REASON_SIZE + 10];

    (void)state;
    memset(reason, 'x', sizeof(reason));
    memcpy(reason + JOURNAL_REASON_SIZE - 2, "\xc3\xa4", 2); /* its second byte would be the NUL */
    reason[sizeof(reason) - 1] = '\0';
    fold(&r, 3, (struct journal_entry){ .kind = JOURNAL_MOVE, .to = "broken", .reason = reason });
    assert_int_equal(strlen(r.reason), JOURNAL_REASON_SIZE - 2);
}

static void test_fold__an_unknown_kind_changes_nothing(void **state)
{
    struct journal_record r = installing();

    (void)state;
    fold(&r, 3, (struct journal_entry){ .kind = JOURNAL_KIND_COUNT });
    assert_int_equal(r.seq, 2);
    assert_string_equal(journal_kind_name(JOURNAL_KIND_COUNT), "unknown");
    assert_string_equal(journal_kind_name(JOURNAL_REFUSED), "refused");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fold__starts_missing),
        cmocka_unit_test(test_fold__op_names_the_owner_and_the_incarnation),
        cmocka_unit_test(test_fold__created_is_the_incarnations_first_time),
        cmocka_unit_test(test_fold__move_sets_state_and_times),
        cmocka_unit_test(test_fold__moves_and_done_steps_merge_facts),
        cmocka_unit_test(test_fold__a_step_changes_nothing_but_facts),
        cmocka_unit_test(test_fold__the_same_command_again_has_a_new_owner_and_keeps_what_is_known),
        cmocka_unit_test(test_fold__end_clears_the_operation),
        cmocka_unit_test(test_fold__moving_to_missing_ends_the_record),
        cmocka_unit_test(test_fold__exec_changes_nothing),
        cmocka_unit_test(test_fold__a_refusal_stands_until_the_next_entry),
        cmocka_unit_test(test_fold__long_text_is_cut_at_a_character),
        cmocka_unit_test(test_fold__an_unknown_kind_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

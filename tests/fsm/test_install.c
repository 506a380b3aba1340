/* Provider installs on doubles: a journal in memory, a clock turned by hand, a compiler that follows a
 * script. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/util.h"
#include "fsm/install.h"
#include "tests/doubles/fake_host.h"
#include "tests/doubles/memory_journal.h"

struct compiler {
    bool built;
    bool fails;
    int runs;
};

static enum step_result write_files(void *self, struct step_context *c, struct error *e)
{
    (void)self, (void)c, (void)e;
    return STEP_DONE;
}

static enum step_result build(void *self, struct step_context *c, struct error *e)
{
    struct compiler *compiler = self;

    (void)c;
    compiler->runs++;
    if (compiler->fails) {
        error_set(e, ERROR_ACTION_FAILED, 0, "the build failed; see build.log");
        return STEP_FAILED;
    }
    compiler->built = true;
    return STEP_DONE;
}

static const struct step install_steps[] = { { "write-files", write_files, false },
                                             { "build", build, false },
                                             { 0 } };
static const struct plan plans[FSM_OPERATION_COUNT] = { [OPERATION_INSTALL] = { install_steps, -1, 0 } };

struct world {
    struct memory_journal journal;
    struct fake_host host;
    struct compiler compiler;
    struct engine engine;
    struct engine_subject subject;
};

static void world_init(struct world *w)
{
    memset(w, 0, sizeof(*w));
    w->journal.boot_id = "boot-1";
    w->journal.boot_ms = 1000;
    w->journal.fault = FAULT_BEFORE_COMMIT;
    w->journal.self = (struct process_id){ .pid = 4711, .start = 5 };
    w->host = (struct fake_host){ .journal = &w->journal, .now_ms = 1000 };
    w->engine = (struct engine){ &memory_journal_ops, &w->journal, &fake_host_ops, &w->host };
    w->subject =
        (struct engine_subject){ .name = "@fake", .provider = "fake", .plans = plans, .self = &w->compiler };
}

/* What the host shows. */
static enum fsm_provider_event seen(const struct world *w)
{
    return w->compiler.built ? PROVIDER_EV_HOST_READY : PROVIDER_EV_NOT_BUILT;
}

static enum fsm_provider_state look(struct world *w, struct install_look *out)
{
    struct error e = { 0 };

    assert_int_equal(install_look(&w->engine, &w->subject, seen(w), true, out, NULL, &e), 0);
    assert_int_equal(w->host.locks_out, 0);
    return out->state;
}

static int install(struct world *w, struct install_look *l, struct error *e)
{
    const struct engine_request request = { .operation = OPERATION_INSTALL };

    look(w, l);
    return install_run(&w->engine, &w->subject, seen(w), &request, l, e);
}

static void test_install__leads_from_missing_to_ready(void **state)
{
    struct install_look l;
    struct error e = { 0 };
    struct world w;

    (void)state;
    world_init(&w);
    assert_int_equal(look(&w, &l), PROVIDER_MISSING);
    assert_int_equal(w.journal.entry_count, 0); /* a look at a host writes nothing */
    assert_int_equal(install(&w, &l, &e), 0);
    assert_int_equal(l.state, PROVIDER_READY);
    assert_int_equal(look(&w, &l), PROVIDER_READY);
    assert_string_equal(w.journal.entries[1].what, "install missing>working");
}

static void test_install__a_failed_build_is_broken_and_can_be_repeated(void **state)
{
    struct install_look l;
    struct error e = { 0 };
    struct world w;

    (void)state;
    world_init(&w);
    w.compiler.fails = true;
    assert_int_equal(install(&w, &l, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_int_equal(look(&w, &l), PROVIDER_BROKEN);
    assert_string_equal(l.record.reason, "the build failed; see build.log");
    w.compiler.fails = false;
    e = (struct error){ 0 };
    assert_int_equal(install(&w, &l, &e), 0);
    assert_int_equal(look(&w, &l), PROVIDER_READY);
}

/* a changed source makes the provider missing; the record says ready, the host does not. */
static void test_install__a_ready_provider_whose_build_is_gone_is_missing(void **state)
{
    struct install_look l;
    struct error e = { 0 };
    struct world w;

    (void)state;
    world_init(&w);
    assert_int_equal(install(&w, &l, &e), 0);
    w.compiler.built = false;
    assert_int_equal(look(&w, &l), PROVIDER_MISSING);
    assert_int_equal(install(&w, &l, &e), 0);
    assert_int_equal(l.state, PROVIDER_READY);
    assert_int_equal(w.compiler.runs, 2);
}

static void test_install__ready_and_unavailable_are_refused(void **state)
{
    const struct engine_request request = { .operation = OPERATION_INSTALL };
    struct install_look l;
    struct error e = { 0 };
    struct world w;

    (void)state;
    world_init(&w);
    assert_int_equal(install_look(&w.engine, &w.subject, PROVIDER_EV_HOST_LACKS, true, &l, NULL, &e), 0);
    assert_int_equal(l.state, PROVIDER_UNAVAILABLE);
    assert_int_equal(install_run(&w.engine, &w.subject, PROVIDER_EV_HOST_LACKS, &request, &l, &e), -1);
    assert_int_equal(e.code, ERROR_PROVIDER_UNAVAILABLE);
    assert_int_equal(w.journal.entry_count, 0);
}

/* R-305 for providers: whoever looks first says so; who may not write says that there is something to say. */
static void test_install__an_interrupted_one_is_broken_at_the_next_look(void **state)
{
    for (int at = 1; at <= 3; at++) {
        struct install_look l;
        struct error e = { 0 };
        bool wants_record = false;
        struct world w;

        (void)state;
        world_init(&w);
        w.journal.fail_at = at;
        w.journal.fault = FAULT_AFTER_COMMIT; /* as if its owner had died there */
        assert_int_equal(install(&w, &l, &e), -1);
        w.journal.fail_at = 0;
        if (at == 3) { /* the last commit: all was done */
            assert_int_equal(look(&w, &l), PROVIDER_READY);
            continue;
        }
        w.compiler.built = false;
        e = (struct error){ 0 };
        assert_int_equal(install_look(&w.engine, &w.subject, seen(&w), false, &l, &wants_record, &e), 0);
        if (l.recorded == PROVIDER_WORKING)
            assert_true(wants_record);
        assert_int_equal(look(&w, &l), PROVIDER_BROKEN);
        e = (struct error){ 0 };
        assert_int_equal(install(&w, &l, &e), 0);
        assert_int_equal(look(&w, &l), PROVIDER_READY);
    }
}

static void test_install__one_under_way_is_left_to_its_owner(void **state)
{
    struct install_look l;
    struct error e = { 0 };
    struct world w;

    (void)state;
    world_init(&w);
    w.journal.fail_at = 2;
    assert_int_equal(install(&w, &l, &e), -1);
    w.compiler.built = false;
    w.host.op_held_by_other = true;
    assert_int_equal(look(&w, &l), PROVIDER_WORKING);
    assert_int_equal(l.recorded, PROVIDER_WORKING);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_install__leads_from_missing_to_ready),
        cmocka_unit_test(test_install__a_failed_build_is_broken_and_can_be_repeated),
        cmocka_unit_test(test_install__a_ready_provider_whose_build_is_gone_is_missing),
        cmocka_unit_test(test_install__ready_and_unavailable_are_refused),
        cmocka_unit_test(test_install__an_interrupted_one_is_broken_at_the_next_look),
        cmocka_unit_test(test_install__one_under_way_is_left_to_its_owner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tools/agent-desktop/envelope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/text.h"
#include "core/util.h"

static struct engine_look look_at(enum fsm_place place, const char *message, const char *reason)
{
    struct engine_look look = { .found = true, .place = place };

    journal_record_init(&look.record, "demo");
    strcpy(look.message, message);
    strcpy(look.record.reason, reason);
    return look;
}

/* the two shapes, member by member. */
static void test_envelope__has_its_two_shapes(void **state)
{
    struct engine_look look = look_at(FSM_RUNNING, "", "");
    struct reply_view view = reply_view_of(&look, "linux");
    struct error none = { 0 }, refused = { 0 };
    struct reply reply = { 0 };

    (void)state;
    reply.data = reply_sandbox(&view, NULL);
    AUTO_FREE char *success = envelope_print("sandbox status", &reply, &none);

    assert_string_equal(success, "{\"version\":\"2.5\",\"ok\":true,\"command\":\"sandbox status\",\"data\":"
                                 "{\"name\":\"demo\",\"provider\":\"linux\",\"state\":\"running\","
                                 "\"message\":\"demo is running.\"}}\n");
    assert_null(reply.data);

    error_set(&refused, ERROR_INVALID_STATE, 0, "no: \xff");
    reply_fail(&reply, &view, (struct fsm_next){ NEXT_STOP, false });
    AUTO_FREE char *failure = envelope_print("sandbox rm", &reply, &refused);

    assert_string_equal(failure,
                        "{\"version\":\"2.5\",\"ok\":false,\"command\":\"sandbox rm\",\"error\":"
                        "{\"code\":\"INVALID_STATE\",\"message\":\"no: \xef\xbf\xbd\","
                        "\"recovery\":{\"next\":\"agent-desktop sandbox stop demo\",\"next_argv\":"
                        "[\"agent-desktop\",\"sandbox\",\"stop\",\"demo\"]},"
                        "\"details\":{\"name\":\"demo\",\"provider\":\"linux\",\"state\":\"running\"},"
                        "\"disposition\":{\"delivery\":\"not_delivered\",\"retry\":\"safe\"}}}\n");
    reply_done(&reply);
}

static void test_envelope__leaves_out_what_there_is_not(void **state)
{
    struct engine_look look = look_at(FSM_RUNNING, "", "");
    struct reply_view view = reply_view_of(&look, "");
    struct error e = { 0 };
    struct reply reply = { 0 };

    (void)state;
    error_set(&e, ERROR_INVALID_STATE, 0, "no");
    reply_fail(&reply, &view, (struct fsm_next){ NEXT_NONE, false });
    AUTO_FREE char *line = envelope_print("sandbox rm", &reply, &e);

    assert_null(strstr(line, "recovery"));
    assert_null(strstr(line, "provider"));
    assert_null(strstr(line, "null"));
    reply_done(&reply);
}

/* Long lists are printed item by item, and look as if they were not. */
static void test_envelope__takes_printed_lists(void **state)
{
    static const struct {
        size_t items;
        bool more;
        const char *expected;
    } cases[] = {
        { 0, false, "{\"events\":[]}" },
        { 1, false, "{\"events\":[{}]}" },
        { 2, true, "{\"events\":[{},{}],\"verified\":true}" },
        { 0, true, "{\"events\":[],\"verified\":true}" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_JSON struct json *more = json_new_object();
        struct reply reply = { 0 };
        struct error none = { 0 };
        char expected[256];

        reply_open_list(&reply, "events");
        for (size_t n = 0; n < cases[i].items; n++)
            reply_add_item(&reply, "{}");
        if (cases[i].more)
            json_put_bool(more, "verified", true);
        reply_close_list(&reply, more);
        AUTO_FREE char *line = envelope_print("sandbox log", &reply, &none);

        snprintf(expected, sizeof(expected),
                 "{\"version\":\"2.5\",\"ok\":true,\"command\":\"sandbox log\",\"data\":%s}\n",
                 cases[i].expected);
        assert_string_equal(line, expected);
        reply_done(&reply);
    }
}

/* One rule: what INVALID_ARGS means, the exit status says. */
static void test_envelope__exit_status_follows_the_code(void **state)
{
    (void)state;
    for (int code = ERROR_NONE; code < ERROR_CODE_COUNT; code++) {
        struct error e = { .code = (enum error_code)code };

        assert_int_equal(envelope_exit_status(&e), code == ERROR_NONE           ? 0
                                                   : code == ERROR_INVALID_ARGS ? 2
                                                                                : 1);
    }
}

/* every place has its sentence, and says what it is at. */
static void test_reply__describes_every_place(void **state)
{
    (void)state;
    for (int place = FSM_MISSING; place < FSM_PLACE_COUNT; place++) {
        struct engine_look look = look_at((enum fsm_place)place, "", "");
        struct reply_view view = reply_view_of(&look, "linux");
        AUTO_JSON struct json *data = reply_sandbox(&view, NULL);
        const char *message = json_get_string(data, "message");
        bool helped = place != FSM_RUNNING && place != FSM_MISSING;

        assert_string_equal(json_get_string(data, "state"), fsm_state_name((enum fsm_place)place));
        assert_int_equal(json_get_string(data, "activity") != NULL, fsm_is_working((enum fsm_place)place));
        assert_memory_equal(message, "demo ", 5);
        assert_int_equal(message[strlen(message) - 1], '.');
        assert_int_equal(json_get_string(data, "next") != NULL, helped);
        assert_int_equal(json_get(data, "next_argv") != NULL, helped);
        assert_int_equal(json_get_bool(data, "needs_person", false), place == FSM_NEEDS_SETUP);
    }
}

static void test_reply__message_is_one_sentence(void **state)
{
    static const struct {
        const char *message, *reason, *expected;
    } cases[] = {
        { "", "", "demo is stopped." },
        { "", "its session ended without a stop", "demo is stopped: its session ended without a stop." },
        { "no answer.", "older", "demo is stopped: no answer." },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct engine_look look = look_at(FSM_STOPPED, cases[i].message, cases[i].reason);
        struct reply_view view = reply_view_of(&look, "linux");
        AUTO_JSON struct json *data = reply_sandbox(&view, NULL);

        assert_string_equal(json_get_string(data, "message"), cases[i].expected);
    }
}

/* each provider state with the command that helps. */
static void test_reply__describes_every_provider_state(void **state)
{
    static const struct {
        enum fsm_provider_state state;
        const char *next;
    } cases[] = {
        { PROVIDER_UNAVAILABLE, "sudo apt-get install xvfb" },
        { PROVIDER_MISSING, "agent-desktop sandbox install linux" },
        { PROVIDER_WORKING, "agent-desktop sandbox install linux" },
        { PROVIDER_READY, "agent-desktop sandbox create desktop-2 --provider linux" },
        { PROVIDER_BROKEN, "agent-desktop sandbox install linux" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct provider_host_report report = { .state = cases[i].state,
                                               .message = "So it is.",
                                               .fix = "sudo apt-get install xvfb" };
        AUTO_JSON struct json *data = reply_provider("linux", &report, "desktop-2");

        assert_string_equal(json_get_string(data, "state"), fsm_provider_state_name(cases[i].state));
        assert_string_equal(json_get_string(data, "next"), cases[i].next);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_envelope__has_its_two_shapes),
        cmocka_unit_test(test_envelope__leaves_out_what_there_is_not),
        cmocka_unit_test(test_envelope__takes_printed_lists),
        cmocka_unit_test(test_envelope__exit_status_follows_the_code),
        cmocka_unit_test(test_reply__describes_every_place),
        cmocka_unit_test(test_reply__message_is_one_sentence),
        cmocka_unit_test(test_reply__describes_every_provider_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "providers/macos/guest.h"
#include "tests/providers/macos/fake_guest.h"
#include "tests/providers/macos/machine.h"

/* --- what the helper says ----------------------------------------------------------------------------- */

/* Bug case 11: whatever the login shell prints around it. */
static void test_permissions__are_found_in_any_noise(void **state)
{
    static const struct {
        const char *output;
        enum guest_state state;
    } cases[] = {
        { FAKE_GRANTED, GUEST_READY },
        { FAKE_MISSING, GUEST_NOT_ALLOWED },
        { "{\"state\":\"stale\"}", GUEST_STALE },
        { "{\"state\":\"unknown\"}\n", GUEST_UNTOLD },
        { "welcome!\n{not json}\n" FAKE_GRANTED "bye\n", GUEST_READY },
        { "{\"state\":\"granted\"}\r\n", GUEST_READY },
        { "{\"state\":7}\n", GUEST_UNTOLD },
        { "{\"state\":\"granted\"", GUEST_UNTOLD },
        { "granted\n", GUEST_UNTOLD },
        { "motd {\"state\":\"granted\"}\n", GUEST_UNTOLD },
        { "", GUEST_UNTOLD },
        { "\n\n\n", GUEST_UNTOLD },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (guest_read_permissions(cases[i].output, strlen(cases[i].output)) != cases[i].state)
            fail_msg("%s", cases[i].output);
}

/* --- where it is -------------------------------------------------------------------------------------- */

static void test_neighbour__is_found_by_its_hardware_address(void **state)
{
    static const char table[] =
        "? (192.168.64.1) at 3e:22:fb:aa:bb:64 on bridge100 ifscope permanent [bridge]\n"
        "? (192.168.64.3) at (incomplete) on bridge100 ifscope [bridge]\n"
        "mac.local (192.168.64.7) at 6e:5:0:a1:b2:c3 on bridge100 ifscope [bridge]\n"
        "? (not an address) at 6e:5:0:a1:b2:c4 on bridge100\n"
        "? (192.168.64.9) at 6e:5:0:a1:b2 on bridge100\n";
    const uint8_t mac[6] = { 0x6e, 0x05, 0x00, 0xa1, 0xb2, 0xc3 },
                  odd[6] = { 0x6e, 0x05, 0x00, 0xa1, 0xb2, 0xc4 }, missing[6] = { 0 };
    char address[46] = "";

    (void)state;
    assert_true(guest_find_neighbour(table, mac, address));
    assert_string_equal(address, "192.168.64.7");
    assert_false(guest_find_neighbour(table, odd, address));
    assert_false(guest_find_neighbour(table, missing, address));
    assert_false(guest_find_neighbour("", mac, address));
    assert_false(guest_find_neighbour("? (192.168.64.7) at 6e:5:0:a1:b2:c3", mac, address)); /* torn */
}

static struct guest_view look(struct sandbox *s, bool thorough)
{
    struct guest_view view;

    guest_look(machine_vm(s), &s->facts, 5000, thorough, &view);
    return view;
}

static void test_guest__is_where_its_live_lease_says(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");

    fake_guest.address = "192.168.64.20";
    machine_lease(m, &s, "192.168.64.20", 3600); /* not where it was */
    struct guest_view view = look(&s, false);

    assert_int_equal(view.state, GUEST_READY);
    assert_true(view.live);
    assert_string_equal(view.address, "192.168.64.20");
    machine_lease(m, &s, "192.168.64.21", -5); /* expired: where it last answered is better */
    view = look(&s, false);
    assert_string_equal(view.address, "192.168.64.7");
    assert_false(view.live);
}

/* Its neighbours are asked only where there is time for that. */
static void test_guest__is_looked_for_among_the_neighbours_at_last(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");
    char body[256];

    machine_must_run(&s, OPERATION_START);
    snprintf(body, sizeof(body), "echo '? (192.168.64.7) at %s on bridge100 ifscope [bridge]'",
             facts_get(&s.facts, "mac"));
    scripts_set(m->scripts, "arp", body);
    fake_guest.address = "192.168.64.7";
    fake_guest.output = FAKE_GRANTED;
    assert_int_equal(look(&s, false).state, GUEST_NO_ADDRESS);
    assert_int_equal(look(&s, true).state, GUEST_READY);
    scripts_set(m->scripts, "arp", "exit 1");
    assert_int_equal(look(&s, true).state, GUEST_NO_ADDRESS);
}

static int connect_to(struct sandbox *s, struct error *e)
{
    struct ssh *ssh = NULL;
    int r = guest_connect(machine_vm(s), &s->facts, 4000, NULL, &ssh, e);

    ssh_close(r == 0 ? ssh : NULL);
    return r;
}

/* For exec: a lease may be somebody else's, or the guest may have moved. */
static void test_connect__tries_where_it_was_when_its_lease_leads_nowhere(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");
    struct error e = { 0 };

    machine_lease(m, &s, "192.168.64.99", 3600);
    assert_int_equal(connect_to(&s, &e), 0);
    fake_guest.address = "192.168.64.99";
    assert_int_equal(connect_to(&s, &e), 0);
    fake_guest.address = "192.168.64.50";
    assert_int_equal(connect_to(&s, &e), -1);
}

static void test_connect__tells_the_obstacle_as_it_is(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_start(m, "base");
    struct error changed = { 0 }, nowhere = { 0 };

    fake_guest.blob = "AAAAsomebody";
    assert_int_equal(connect_to(&s, &changed), -1);
    assert_int_equal(changed.code, ERROR_HOST_KEY_CHANGED);
    facts_set(&s.facts, "mac", "00:00:00:00:00:01");
    for (size_t i = 0; i < s.facts.count; i++)
        if (strcmp(s.facts.items[i].key, "address") == 0)
            s.facts.items[i].key[0] = '_';
    scripts_set(m->scripts, "arp", "true");
    assert_int_equal(connect_to(&s, &nowhere), -1);
    assert_non_null(strstr(nowhere.message, "has no address"));
}

/* --- words -------------------------------------------------------------------------------------------- */

/* A reason is cut at 255 bytes in the journal: what a person has to do must fit. */
static void test_words__of_a_first_start_fit_into_the_journal(void **state)
{
    struct guest_view view = { .state = GUEST_NO_ADDRESS };
    struct facts facts = { .count = 0 };
    char steps[512];

    (void)state;
    facts_set(&facts, "user", "administrator.of.mac");
    facts_set(&facts, "set.window", "yes");
    guest_print_steps(&view, &facts, steps, sizeof(steps));
    if (strlen(steps) >= JOURNAL_REASON_SIZE)
        fail_msg("%zu: %s", strlen(steps), steps);
    assert_non_null(strstr(steps, "Accessibility)"));
}

static void test_words__of_each_state_are_one_clause(void **state)
{
    struct facts facts = { .count = 0 };

    (void)state;
    facts_set(&facts, "user", "sarah");
    for (int with_window = 0; with_window < 2; with_window++) {
        for (int i = 0; i < GUEST_STATE_COUNT; i++) {
            struct guest_view view = { .state = (enum guest_state)i,
                                       .trouble = { .message = "the key is of mode 0644" } };
            char trouble[512], steps[512];

            guest_print_trouble(&view, &facts, trouble, sizeof(trouble));
            guest_print_steps(&view, &facts, steps, sizeof(steps));
            assert_int_equal(trouble[0] == '\0', i == GUEST_READY);
            assert_true(trouble[0] == '\0' || trouble[strlen(trouble) - 1] != '.');
            assert_int_equal(steps[0] == '\0', i == GUEST_READY && with_window);
            assert_null(strchr(steps, '\n'));
        }
        facts_set(&facts, "set.window", "yes");
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permissions__are_found_in_any_noise),
        cmocka_unit_test(test_neighbour__is_found_by_its_hardware_address),
        TEST(test_guest__is_where_its_live_lease_says),
        TEST(test_guest__is_looked_for_among_the_neighbours_at_last),
        TEST(test_connect__tries_where_it_was_when_its_lease_leads_nowhere),
        TEST(test_connect__tells_the_obstacle_as_it_is),
        cmocka_unit_test(test_words__of_a_first_start_fit_into_the_journal),
        cmocka_unit_test(test_words__of_each_state_are_one_clause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

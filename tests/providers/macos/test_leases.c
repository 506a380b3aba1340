#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/text.h"
#include "providers/macos/leases.h"

#define NOW   0x6a1c4000
#define LATER "0x6a1c4f00" /* NOW and about an hour */
#define LAST  "0x6a1d0000" /* still later; the expiry ends in 00 */
#define OVER  "0x6a1afd80" /* a day before NOW */

#define BLOCK(address, hardware, lease)                                                                      \
    "{\n\tname=x\n\tip_address=" address "\n\thw_address=" hardware "\n\tidentifier=" hardware               \
    "\n\tlease=" lease "\n}\n"

static bool find_in(const char *text, size_t size, const char *mac_text, struct lease *out)
{
    uint8_t mac[6];

    assert_true(lease_parse_mac(mac_text, mac));
    return lease_find(text, size, mac, NOW, out);
}

/* A row says what a file must give for 02:0d:00:0a:0b:0c. */
static const struct {
    const char *comment, *text;
    const char *address; /* NULL: none */
    bool live, shared;
} cases[] = {
    { "bug case 14: leading zeros are left out", BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER),
      "192.168.64.2", true, false },
    { "leading zeros are there", BLOCK("192.168.64.2", "1,02:0d:00:0a:0b:0c", LATER), "192.168.64.2", true,
      false },
    { "bug case 14: upper case", BLOCK("192.168.64.2", "1,2:D:0:A:B:C", "0X6A1C4F00"), "192.168.64.2", true,
      false },
    { "bug case 14: two live leases, the newer first",
      BLOCK("192.168.64.3", "1,2:d:0:a:b:c", LAST) BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER),
      "192.168.64.3", true, false },
    { "bug case 14: two live leases, the newer last",
      BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER) BLOCK("192.168.64.3", "1,2:d:0:a:b:c", LAST),
      "192.168.64.3", true, false },
    { "an expired one beside a live one",
      BLOCK("192.168.64.2", "1,2:d:0:a:b:c", OVER) BLOCK("192.168.64.3", "1,2:d:0:a:b:c", LATER),
      "192.168.64.3", true, false },
    { "nothing but expired ones: the newest of them",
      BLOCK("192.168.64.2", "1,2:d:0:a:b:c", OVER) BLOCK("192.168.64.3", "1,2:d:0:a:b:c", "0x6a100000"),
      "192.168.64.2", false, false },
    { "a lease that never ends", BLOCK("192.168.64.2", "1,2:d:0:a:b:c", "0xffffffff"), "192.168.64.2", true,
      false },
    { "bug case 14: a client that sent an identifier of its own",
      BLOCK("192.168.64.9", "ff,f1:f5:dd:7f:0:2:0:0:ab:11:cb:fb:30:b0:97:b6", LATER), NULL, false, false },
    { "the same six bytes of another hardware type", BLOCK("192.168.64.9", "6,2:d:0:a:b:c", LATER), NULL,
      false, false },
    { "the MAC and two bytes more", BLOCK("192.168.64.9", "1,2:d:0:a:b:c:0:0", LATER), NULL, false, false },
    { "five bytes", BLOCK("192.168.64.9", "1,2:d:0:a:b", LATER), NULL, false, false },
    { "a MAC that is alike as text", BLOCK("192.168.64.9", "1,2:d:0:a:b:c0", LATER), NULL, false, false },
    { "bug case 14: one address in two entries",
      BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER) BLOCK("192.168.64.2", "1,a:b:c:d:e:f", LATER),
      "192.168.64.2", true, true },
    { "one address, shared with an identifier",
      BLOCK("192.168.64.2", "ff,1:2:3:4:5:6:7:8", LATER) BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER),
      "192.168.64.2", true, true },
    { "one address, whose other holder has expired",
      BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER) BLOCK("192.168.64.2", "1,a:b:c:d:e:f", OVER),
      "192.168.64.2", true, false },
    { "one address twice for the same MAC",
      BLOCK("192.168.64.2", "1,2:d:0:a:b:c", OVER) BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER),
      "192.168.64.2", true, false },
    { "bug case 14: a missing brace at the end",
      BLOCK("192.168.64.2", "1,2:d:0:a:b:c",
            LATER) "{\n\tip_address=192.168.64.3\n\thw_address=1,2:d:0:a:b:c\n"
                   "\tlease=" LAST "\n",
      "192.168.64.2", true, false },
    { "a missing brace in the middle",
      "{\n\tip_address=192.168.64.3\n\thw_address=1,2:d:0:a:b:c\n\tlease=" LAST
      "\n" BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER),
      "192.168.64.2", true, false },
    { "members of one block do not count for the next",
      "{\n\tip_address=192.168.64.3\n\tlease=" LAST "\n}\n{\n\thw_address=1,2:d:0:a:b:c\n}\n", NULL, false,
      false },
    { "a block cut in a line", "{\n\tip_address=192.168.64.2\n\thw_address=1,2:d:0", NULL, false, false },
    { "bug case 14: CRLF",
      "{\r\n\tip_address=192.168.64.2\r\n\thw_address=1,2:d:0:a:b:c\r\n\tlease=" LATER "\r\n}\r\n",
      "192.168.64.2", true, false },
    { "no name, other keys, another order, blanks",
      "{\n lease=" LATER "\n odd\n =\n key=value\n hw_address=1,2:d:0:a:b:c \n ip_address=192.168.64.2\n}",
      "192.168.64.2", true, false },
    { "bug case 14: octets that are no hex",
      BLOCK("192.168.64.9", "1,2:d:0:a:b:g", LATER) BLOCK("192.168.64.9", "1,2:d:0:a:b:-1", LATER)
          BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER),
      "192.168.64.2", true, false },
    { "octets that are empty or too large",
      BLOCK("192.168.64.9", "1,2:d::a:b:c", LATER) BLOCK("192.168.64.9", "1,2:d:0:a:b:10c", LATER), NULL,
      false, false },
    { "no address in the address", BLOCK("192.168.64.999", "1,2:d:0:a:b:c", LATER), NULL, false, false },
    { "a far too long address", BLOCK("192.168.64.2.192.168.64.2", "1,2:d:0:a:b:c", LATER), NULL, false,
      false },
    { "an expiry that is no number", BLOCK("192.168.64.9", "1,2:d:0:a:b:c", "never"), NULL, false, false },
    { "an expiry out of all bounds", BLOCK("192.168.64.9", "1,2:d:0:a:b:c", "0x6a1c4f006a1c4f006a1c4f00"),
      NULL, false, false },
    { "no expiry", "{\n\tip_address=192.168.64.9\n\thw_address=1,2:d:0:a:b:c\n}\n", NULL, false, false },
    { "nothing", "", NULL, false, false },
    { "braces only", "}\n{\n{\n}\n}\n", NULL, false, false },
};

static void test_leases__find_the_newest_live_lease_of_exactly_this_mac(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct lease lease = { 0 };
        bool found = find_in(cases[i].text, strlen(cases[i].text), "02:0d:00:0a:0b:0c", &lease);

        const char *expected = cases[i].address != NULL ? cases[i].address : "";

        if (found != (cases[i].address != NULL))
            fail_msg("%s: %s", cases[i].comment, found ? "found" : "not found");
        if (found && (strcmp(lease.address, expected) != 0 || lease.live != cases[i].live ||
                      lease.shared != cases[i].shared))
            fail_msg("%s: %s, live %d, shared %d", cases[i].comment, lease.address, lease.live, lease.shared);
    }
}

static void test_leases__a_lease_ends_with_its_last_second(void **state)
{
    static const char text[] = BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER);
    const uint8_t mac[6] = { 2, 0xd, 0, 0xa, 0xb, 0xc };
    struct lease lease;

    (void)state;
    assert_true(lease_find(text, strlen(text), mac, 0x6a1c4f00 - 1, &lease) && lease.live);
    assert_true(lease_find(text, strlen(text), mac, 0x6a1c4f00, &lease) && !lease.live);
    assert_int_equal(lease.expires_s, 0x6a1c4f00);
}

/* Made from bootpd's own sources: see leases.h. */
static void test_leases__reads_the_sample(void **state)
{
    struct error e = { 0 };
    AUTO_FREE char *text = NULL;
    struct lease lease;
    size_t size;

    (void)state;
    assert_int_equal(file_read(AT_FDCWD, AD_SAMPLES "/dhcpd_leases", 1 << 20, &text, &size, &e), 1);
    assert_true(find_in(text, size, "6e:05:00:a1:b2:c3", &lease));
    assert_string_equal(lease.address, "192.168.64.7");
    assert_true(find_in(text, size, "0a:0b:0c:0d:0e:0f", &lease));
    assert_string_equal(lease.address, "192.168.64.9");
    assert_false(find_in(text, size, "f1:f5:dd:7f:00:02", &lease));
}

static void test_leases__finds_one_among_300(void **state)
{
    struct text file = { 0 };
    struct lease lease;

    (void)state;
    for (int i = 0; i < 300; i++)
        text_print(&file, BLOCK("10.0.%d.%d", "1,2:0:0:0:%x:%x", LATER), i / 256, i % 256, i / 256, i % 256,
                   i / 256, i % 256);
    assert_true(find_in(file.bytes, file.size, "02:00:00:00:01:2b", &lease));
    assert_string_equal(lease.address, "10.0.1.43");
    assert_false(lease.shared);
    text_done(&file);
}

/* Cut anywhere, a file gives what its whole blocks say, and never reads behind its end (asan). */
static void test_leases__survives_being_cut_anywhere(void **state)
{
    static const char text[] =
        BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER) BLOCK("192.168.64.3", "1,2:d:0:a:b:c", LAST);
    const size_t first = strlen(BLOCK("192.168.64.2", "1,2:d:0:a:b:c", LATER)), all = strlen(text);

    (void)state;
    for (size_t size = 0; size <= all; size++) {
        AUTO_FREE char *cut = malloc(size + 1);
        struct lease lease = { 0 };

        memcpy(cut, text, size);
        bool found = find_in(cut, size, "2:d:0:a:b:c", &lease);

        /* the brace is what closes a block, with or without an end of the line */
        assert_int_equal(found, size >= first - 1);
        if (found)
            assert_string_equal(lease.address, size >= all - 1 ? "192.168.64.3" : "192.168.64.2");
    }
}

static void test_leases__parses_a_mac_in_each_spelling(void **state)
{
    static const char *const bad[] = { "",
                                       "2",
                                       "2:d:0:a:b",
                                       "2:d:0:a:b:c:1",
                                       "2:d:0:a:b:c:",
                                       ":2:d:0:a:b:c",
                                       "2:d:0:a:b:g",
                                       "2:d:0:a:b:100",
                                       "1,2:d:0:a:b:c",
                                       "2-d-0-a-b-c",
                                       " 2:d:0:a:b:c" };
    static const char *const good[] = { "02:0d:00:0a:0b:0c", "2:d:0:a:b:c", "2:D:0:A:0B:C" };
    static const uint8_t expected[6] = { 2, 0xd, 0, 0xa, 0xb, 0xc };
    uint8_t mac[6];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (lease_parse_mac(bad[i], mac))
            fail_msg("'%s' is no MAC", bad[i]);
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(lease_parse_mac(good[i], mac));
        assert_memory_equal(mac, expected, sizeof(mac));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leases__find_the_newest_live_lease_of_exactly_this_mac),
        cmocka_unit_test(test_leases__a_lease_ends_with_its_last_second),
        cmocka_unit_test(test_leases__reads_the_sample),
        cmocka_unit_test(test_leases__finds_one_among_300),
        cmocka_unit_test(test_leases__survives_being_cut_anywhere),
        cmocka_unit_test(test_leases__parses_a_mac_in_each_spelling),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

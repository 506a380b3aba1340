#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "core/descriptor.h"
#include "core/util.h"
#include "providers/vercel/relay.h"

#define LONG_MS 5000 /* only a test that has failed waits so long */

struct lab {
    struct relay relay;
    int out[2], err[2], wake[2]; /* pipes */
};

static void open_lab(struct lab *lab)
{
    assert_int_equal(descriptor_pipe(lab->out, false), 0);
    assert_int_equal(descriptor_pipe(lab->err, false), 0);
    assert_int_equal(descriptor_pipe(lab->wake, true), 0);
    relay_init(&lab->relay, lab->out[1], lab->err[1], lab->wake[1]);
}

static void close_lab(struct lab *lab)
{
    relay_done(&lab->relay);
    for (int i = 0; i < 2; i++) {
        util_close_fd(&lab->out[i]);
        util_close_fd(&lab->err[i]);
        util_close_fd(&lab->wake[i]);
    }
}

static void wait_wake(struct lab *lab)
{
    struct pollfd polled = { .fd = lab->wake[0], .events = POLLIN };
    char bytes[64];

    assert_int_equal(poll(&polled, 1, LONG_MS), 1);
    assert_true(read(lab->wake[0], bytes, sizeof(bytes)) > 0);
}

static void wait_done(struct lab *lab)
{
    while (!relay_is_done(&lab->relay))
        wait_wake(lab);
}

/* All of TEXT, which there is room for. */
static void tell(struct lab *lab, struct relay_position *at, enum relay_stream stream, const char *text)
{
    struct error e = { 0 };
    size_t size = strlen(text), taken = 0;

    for (; size > 0; text += taken, size -= taken) {
        assert_int_equal(relay_pass(&lab->relay, at, stream, text, size, &taken, &e), 0);
        if (taken == 0)
            wait_wake(lab);
    }
}

static void check_read(int fd, const char *text)
{
    char bytes[64] = "";

    assert_int_equal(read(fd, bytes, sizeof(bytes) - 1), strlen(text));
    assert_string_equal(bytes, text);
}

static void test_r504_relay__passes_each_byte_once_however_it_is_told(void **state)
{
    struct relay_position first = { 0 }, second = { 0 }, third = { 0 };
    struct lab lab;

    (void)state;
    open_lab(&lab);
    assert_false(relay_has_written(&lab.relay, RELAY_OUT));
    tell(&lab, &first, RELAY_OUT, "abc");
    tell(&lab, &first, RELAY_ERR, "12");
    tell(&lab, &first, RELAY_OUT, "de");
    /* Again from the beginning, in other pieces, the streams in another order, and then further on. */
    tell(&lab, &second, RELAY_OUT, "a");
    assert_false(relay_is_whole(&lab.relay, &second));
    tell(&lab, &second, RELAY_OUT, "bcdef");
    tell(&lab, &second, RELAY_ERR, "123");
    assert_true(relay_is_whole(&lab.relay, &second));
    assert_int_equal(relay_given(&lab.relay), 9);
    /* The first one goes on, behind. */
    tell(&lab, &first, RELAY_ERR, "345"); /* the 3 is known */
    tell(&lab, &third, RELAY_ERR, "12345");
    assert_false(relay_is_whole(&lab.relay, &third));
    wait_done(&lab);
    check_read(lab.out[0], "abcdef");
    check_read(lab.err[0], "12345");
    relay_stop(&lab.relay);
    assert_true(relay_has_written(&lab.relay, RELAY_OUT));
    close_lab(&lab);
}

static void test_case_10_relay__takes_no_more_than_there_is_room_for(void **state)
{
    static char block[64 << 10];
    struct relay_position at = { 0 };
    struct error e = { 0 };
    struct lab lab;
    size_t taken = 1, all = 0;

    (void)state;
    open_lab(&lab);
    while (taken > 0) { /* nobody reads; the pipe takes some, and some blocks of memory */
        assert_int_equal(relay_pass(&lab.relay, &at, RELAY_OUT, block, sizeof(block), &taken, &e), 0);
        all += taken;
        if (taken == 0 && relay_has_room(&lab.relay, RELAY_OUT))
            taken = 1;
        assert_true(all < 4 << 20);
    }
    assert_true(relay_has_room(&lab.relay, RELAY_ERR)); /* the other one is not held up */
    while (!relay_has_room(&lab.relay, RELAY_OUT)) {
        assert_true(read(lab.out[0], block, sizeof(block)) > 0);
        wait_wake(&lab);
    }
    close_lab(&lab);
}

/* What is told is numbered in fours, so that a gap or a repeat would show. */
static void number_block(uint32_t *block, size_t count, uint32_t from)
{
    for (size_t i = 0; i < count; i++)
        block[i] = from + (uint32_t)i;
}

static void test_case_10_relay__what_waits_on_the_disk_comes_whole_and_in_order(void **state)
{
    enum { COUNT = 16 << 10, BLOCKS = 100 };
    static uint32_t block[COUNT], read_back[COUNT];
    struct relay_position at = { 0 };
    struct lab lab;
    size_t got = 0;

    (void)state;
    open_lab(&lab);
    relay_spool(&lab.relay, RELAY_OUT);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct error e = { 0 };
        size_t size = sizeof(block), taken = 0;

        number_block(block, COUNT, i * COUNT);
        for (const char *next = (const char *)block; size > 0; next += taken, size -= taken) {
            assert_true(relay_has_room(&lab.relay, RELAY_OUT));
            assert_int_equal(relay_pass(&lab.relay, &at, RELAY_OUT, next, size, &taken, &e), 0);
            assert_true(taken > 0);
        }
        relay_advance(&lab.relay);
    }
    assert_false(relay_is_done(&lab.relay));
    while (got < BLOCKS * sizeof(block)) {
        ssize_t n =
            read(lab.out[0], (char *)read_back + got % sizeof(block), sizeof(block) - got % sizeof(block));

        assert_true(n > 0);
        got += (size_t)n;
        if (got % sizeof(block) == 0) {
            number_block(block, COUNT, (uint32_t)(got / sizeof(block) - 1) * COUNT);
            assert_memory_equal(read_back, block, sizeof(block));
        }
        relay_advance(&lab.relay);
    }
    wait_done(&lab);
    assert_int_equal(relay_given(&lab.relay), BLOCKS * sizeof(block));
    close_lab(&lab);
}

static void test_case_10_relay__a_reader_that_leaves_is_told(void **state)
{
    struct relay_position at = { 0 };
    struct lab lab;

    (void)state;
    open_lab(&lab);
    util_close_fd(&lab.out[0]);
    tell(&lab, &at, RELAY_OUT, "nobody reads this");
    wait_done(&lab);
    assert_int_equal(relay_broken(&lab.relay, RELAY_OUT), EPIPE);
    assert_int_equal(relay_broken(&lab.relay, RELAY_ERR), 0);
    tell(&lab, &at, RELAY_OUT, ", nor this"); /* taken, and dropped */
    relay_stop(&lab.relay);
    assert_false(relay_has_written(&lab.relay, RELAY_OUT));
    close_lab(&lab);
}

static void test_r213_relay__streams_that_are_one_stay_in_order(void **state)
{
    struct relay_position first = { 0 }, again = { 0 };
    struct lab lab;
    int copy;

    (void)state;
    open_lab(&lab);
    copy = dup(lab.out[1]);
    relay_init(&lab.relay, lab.out[1], copy, lab.wake[1]);
    tell(&lab, &first, RELAY_OUT, "a");
    tell(&lab, &first, RELAY_ERR, "1");
    tell(&lab, &again, RELAY_OUT, "a");
    tell(&lab, &again, RELAY_ERR, "1");
    tell(&lab, &again, RELAY_ERR, "2");
    tell(&lab, &again, RELAY_OUT, "b");
    tell(&lab, &again, RELAY_ERR, "3");
    wait_done(&lab);
    check_read(lab.out[0], "a12b3");
    close_lab(&lab);
    util_close_fd(&copy);
}

static void test_r213_relay__a_closed_stream_takes_everything(void **state)
{
    struct relay_position at = { 0 };
    struct lab lab;

    (void)state;
    open_lab(&lab);
    relay_init(&lab.relay, -1, lab.err[1], lab.wake[1]);
    tell(&lab, &at, RELAY_OUT, "nowhere");
    assert_true(relay_is_done(&lab.relay));
    assert_true(relay_is_whole(&lab.relay, &at));
    assert_false(relay_has_written(&lab.relay, RELAY_OUT));
    close_lab(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_r504_relay__passes_each_byte_once_however_it_is_told),
        cmocka_unit_test(test_case_10_relay__takes_no_more_than_there_is_room_for),
        cmocka_unit_test(test_case_10_relay__what_waits_on_the_disk_comes_whole_and_in_order),
        cmocka_unit_test(test_case_10_relay__a_reader_that_leaves_is_told),
        cmocka_unit_test(test_r213_relay__streams_that_are_one_stay_in_order),
        cmocka_unit_test(test_r213_relay__a_closed_stream_takes_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What stdin may be: the table of what is refused, and what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/descriptor.h"
#include "core/util.h"
#include "providers/vercel/input.h"
#include "tests/core/scratch.h"

static void test_r504_input__devices(void **state)
{
    static const struct {
        const char *path;
        enum input input;
    } rows[] = {
        { "/dev/null", INPUT_NONE }, { "/dev/zero", INPUT_THERE },       { "/dev/urandom", INPUT_THERE },
        { "/dev/ptmx", INPUT_NONE }, { "/proc/self/stat", INPUT_THERE }, /* its size is 0 */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_CLOSE int fd = open(rows[i].path, O_RDONLY | O_NOCTTY | O_CLOEXEC);

        if (fd >= 0)
            assert_int_equal(input_look(fd), rows[i].input);
    }
    assert_int_equal(input_look(-1), INPUT_NONE);
}

static void test_r504_input__a_file_counts_from_where_it_stands(void **state)
{
    const struct scratch *s = *state;

    scratch_write(s, "file", "four");
    AUTO_CLOSE int fd = openat(s->dir, "file", O_RDONLY | O_CLOEXEC);

    assert_int_equal(input_look(fd), INPUT_THERE);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
    lseek(fd, 3, SEEK_SET);
    assert_int_equal(input_look(fd), INPUT_THERE);
    lseek(fd, 4, SEEK_SET);
    assert_int_equal(input_look(fd), INPUT_NONE);
    scratch_write(s, "empty", "");
    AUTO_CLOSE int empty = openat(s->dir, "empty", O_RDONLY | O_CLOEXEC);

    assert_int_equal(input_look(empty), INPUT_NONE);
}

/* ENDS: [0] is looked at, [1] is written to. Closes both. */
static void check_stream(int ends[2])
{
    char byte = 0;

    assert_int_equal(input_look(ends[0]), INPUT_LATER);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(input_look(ends[0]), INPUT_THERE);
    assert_int_equal(read(ends[0], &byte, 1), 1); /* it was not read away */
    assert_int_equal(byte, 'x');
    assert_int_equal(input_look(ends[0]), INPUT_LATER);
    assert_int_equal(write(ends[1], "x", 1), 1);
    util_close_fd(&ends[1]);
    assert_int_equal(input_look(ends[0]), INPUT_THERE); /* left behind by a writer that is gone */
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(input_look(ends[0]), INPUT_NONE);
    util_close_fd(&ends[0]);
}

static void test_r504_input__pipes_and_sockets(void **state)
{
    int ends[2];

    (void)state;
    assert_int_equal(descriptor_pipe(ends, false), 0);
    check_stream(ends);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    check_stream(ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_r504_input__devices),
        cmocka_unit_test_setup_teardown(test_r504_input__a_file_counts_from_where_it_stands, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_r504_input__pipes_and_sockets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

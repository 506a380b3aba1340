#include "core/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_prepared(int fd, bool nonblocking)
{
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, nonblocking);
}

static void test_descriptor__nothing_is_inherited_and_blocks_only_if_asked(void **state)
{
    (void)state;
    for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        int ends[2];
        int fd = descriptor_socket(AF_INET, SOCK_STREAM, 0, nonblocking);

        assert_int_equal(descriptor_pipe(ends, nonblocking), 0);
        assert_prepared(fd, nonblocking);
        assert_prepared(ends[0], nonblocking);
        assert_prepared(ends[1], nonblocking);
        assert_int_equal(write(ends[1], "x", 1), 1);
        close(fd);
        close(ends[0]);
        close(ends[1]);
    }
}

static void test_descriptor__blocking_can_be_changed(void **state)
{
    int ends[2];
    char byte;

    (void)state;
    assert_int_equal(descriptor_pipe(ends, false), 0);
    assert_int_equal(descriptor_set_nonblocking(ends[0], true), 0);
    assert_int_equal(read(ends[0], &byte, 1), -1);
    assert_int_equal(errno, EAGAIN);
    assert_prepared(ends[1], false); /* each end for itself */
    assert_int_equal(descriptor_set_nonblocking(ends[0], false), 0);
    assert_prepared(ends[0], false);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(descriptor_set_nonblocking(ends[0], true), -1);
    assert_int_equal(descriptor_socket(-1, SOCK_STREAM, 0, false), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptor__nothing_is_inherited_and_blocks_only_if_asked),
        cmocka_unit_test(test_descriptor__blocking_can_be_changed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/util.h"
#include "providers/linux/control.h"
#include "tests/core/scratch.h"

static int listen_in(int dir, struct error *e)
{
    int fd = control_bind(dir, e);

    return fd >= 0 && control_listen(fd, e) < 0 ? -1 : fd;
}

static const struct control_request ping = { .version = CONTROL_VERSION, .kind = CONTROL_PING };

static void test_control__a_message_arrives_with_its_descriptors(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    AUTO_CLOSE int listener = listen_in(s->dir, &e);
    AUTO_CLOSE int client = -1;
    int ends[2];
    struct control_request got;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = { .iov_base = &got, .iov_len = sizeof(got) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    int fds[2];
    char byte;

    assert_true(listener >= 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(control_connect(s->dir, 1000, &client, &e), 1);
    assert_int_equal(control_send(client, &ping, ends, 2, &e), 0);
    AUTO_CLOSE int server = accept(listener, NULL, NULL);
    assert_int_equal(recvmsg(server, &message, 0), sizeof(got));
    assert_memory_equal(&got, &ping, sizeof(got));
    assert_non_null(CMSG_FIRSTHDR(&message));
    memcpy(fds, CMSG_DATA(&control.header), sizeof(fds));
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(fds[i]);
    }
}

static void test_control__the_socket_is_private_whatever_the_umask(void **state) /* */
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    mode_t before = umask(0);
    AUTO_CLOSE int listener = listen_in(s->dir, &e);

    umask(before);
    assert_true(listener >= 0);
    assert_int_equal(scratch_mode(s, "ctl"), 0600);
}

static void test_control__the_path_may_be_longer_than_a_socket_address(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    char name[201];
    AUTO_CLOSE int client = -1;

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(mkdirat(s->dir, name, 0700), 0);
    AUTO_CLOSE int dir = openat(s->dir, name, O_RDONLY | O_DIRECTORY);
    AUTO_CLOSE int listener = listen_in(dir, &e);
    assert_true(listener >= 0);
    assert_int_equal(control_connect(dir, 1000, &client, &e), 1);
}

static void test_control__nobody_there_is_a_miss_and_no_error(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    int client = -1;

    assert_int_equal(control_connect(s->dir, 1000, &client, &e), 0); /* no socket */
    int listener = listen_in(s->dir, &e);
    close(listener);
    assert_int_equal(control_connect(s->dir, 1000, &client, &e), 0); /* of one that has died */
    assert_int_equal(e.code, ERROR_NONE);
    assert_int_equal(client, -1);
    listener = listen_in(s->dir, &e); /* and the next start takes its place */
    assert_true(listener >= 0);
    close(listener);
}

static void test_control__a_silent_peer_costs_the_deadline_and_no_more(void **state) /* case 15 */
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    AUTO_CLOSE int listener = listen_in(s->dir, &e);
    AUTO_CLOSE int client = -1;
    struct control_reply reply;
    int64_t started_ms = clock_mono_ms();

    assert_int_equal(control_connect(s->dir, 1000, &client, &e), 1);
    assert_int_equal(control_send(client, &ping, NULL, 0, &e), 0);
    assert_int_equal(control_receive(client, 100, &reply, &e), 0);
    assert_in_range(clock_mono_ms() - started_ms, 100, 1000);
}

static void test_control__a_full_backlog_is_a_timeout(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    AUTO_CLOSE int listener = listen_in(s->dir, &e);
    int clients[1024];
    size_t count = 0;
    int r = 1;

    while (count < ARRAY_LEN(clients) && (r = control_connect(s->dir, 50, &clients[count], &e)) == 1)
        count++;
    for (size_t i = 0; i < count; i++)
        close(clients[i]);
    assert_int_equal(r, -1);
    assert_int_equal(e.code, ERROR_TIMEOUT);
}

static void test_control__a_lost_connection_is_an_error(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    AUTO_CLOSE int listener = listen_in(s->dir, &e);
    AUTO_CLOSE int client = -1;
    struct control_reply reply;

    assert_int_equal(control_connect(s->dir, 1000, &client, &e), 1);
    close(accept(listener, NULL, NULL));
    assert_int_equal(control_receive(client, 1000, &reply, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
}

static int own_and_wait(void *arg)
{
    const int *ends = arg; /* the listener, a pipe to tell, a pipe that holds */
    struct error e = { 0 };
    char byte;

    CHECK(control_listen(ends[0], &e) == 0);
    CHECK(write(ends[1], "", 1) == 1);
    CHECK(read(ends[2], &byte, 1) == 1);
    return 0;
}

static void test_control__the_peer_is_who_listens(void **state)
{
    const struct scratch *s = *state;
    struct error e = { 0 };
    AUTO_CLOSE int listener = control_bind(s->dir, &e);
    AUTO_CLOSE int client = -1;
    int told[2], held[2];
    char byte;

    assert_int_equal(control_connect(s->dir, 1000, &client, &e), 0); /* bound, but nobody's yet */
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(held), 0);
    pid_t pid = scratch_start(own_and_wait, (int[]){ listener, told[1], held[0] });
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_int_equal(control_connect(s->dir, 1000, &client, &e), 1);
    assert_int_equal(control_peer(client), pid);
    assert_int_equal(write(held[1], "", 1), 1);
    assert_int_equal(scratch_wait(pid), 0);
    for (int i = 0; i < 2; i++) {
        close(told[i]);
        close(held[i]);
    }
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        ROW(test_control__a_message_arrives_with_its_descriptors),
        ROW(test_control__the_socket_is_private_whatever_the_umask),
        ROW(test_control__the_path_may_be_longer_than_a_socket_address),
        ROW(test_control__nobody_there_is_a_miss_and_no_error),
        ROW(test_control__a_silent_peer_costs_the_deadline_and_no_more),
        ROW(test_control__a_full_backlog_is_a_timeout),
        ROW(test_control__a_lost_connection_is_an_error),
        ROW(test_control__the_peer_is_who_listens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

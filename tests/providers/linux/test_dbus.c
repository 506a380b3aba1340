/* Against a real dbus-daemon, and against a false one for what a real one does not say. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/util.h"
#include "providers/linux/dbus.h"
#include "tests/core/scratch.h"

#define BUS "org.freedesktop.DBus"

struct daemon {
    void *scratch;
    char address[256];
    pid_t pid;
};

static struct daemon daemon_of_tests;

static int start_daemon(void **state)
{
    struct daemon *d = &daemon_of_tests;
    const struct scratch *s;
    int ends[2];
    char address[128], print[64];
    ssize_t n;

    (void)state;
    if (scratch_setup(&d->scratch) < 0 || pipe(ends) < 0)
        return -1;
    s = d->scratch;
    snprintf(address, sizeof(address), "--address=unix:path=%s/bus", s->path);
    snprintf(print, sizeof(print), "--print-address=%d", ends[1]);
    d->pid = fork();
    if (d->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("dbus-daemon", "dbus-daemon", "--session", "--nofork", "--nopidfile", "--nosyslog", address,
               print, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    n = read(ends[0], d->address, sizeof(d->address) - 1);
    close(ends[0]);
    if (n <= 0) {
        print_message("skipped: dbus-daemon cannot be run\n");
        exit(77);
    }
    d->address[strcspn(d->address, "\n")] = '\0';
    return 0;
}

static int end_daemon(void **state)
{
    (void)state;
    kill(daemon_of_tests.pid, SIGKILL);
    waitpid(daemon_of_tests.pid, NULL, 0);
    return scratch_teardown(&daemon_of_tests.scratch);
}

static int64_t soon(void)
{
    return clock_mono_ms() + 5000;
}

static void open_bus(struct dbus *d)
{
    struct error e = { 0 };

    if (dbus_open(d, daemon_of_tests.address, soon(), &e) < 0)
        fail_msg("%s", e.message);
}

static int call_bus(struct dbus *d, const char *member, const char *const *strings, bool dictionary,
                    char *out, size_t room)
{
    const struct dbus_call call = { BUS, "/org/freedesktop/DBus", BUS, member, strings, dictionary };
    struct error e = { 0 };
    int r = dbus_call(d, &call, out, room, &e);

    if (r < 0)
        fail_msg("%s", e.message);
    return r;
}

static void test_dbus__a_call_gives_its_first_string(void **state)
{
    static const char *const name[] = { BUS, NULL };
    struct dbus d;
    char out[64];

    (void)state;
    open_bus(&d);
    assert_int_equal(call_bus(&d, "GetNameOwner", name, false, out, sizeof(out)), 1);
    assert_string_equal(out, BUS);
    assert_int_equal(call_bus(&d, "GetId", NULL, false, out, sizeof(out)), 1);
    assert_int_equal(strlen(out), 32);
    assert_int_equal(call_bus(&d, "GetId", NULL, false, out, 8), 1);
    assert_int_equal(strlen(out), 7); /* cut */
    assert_int_equal(call_bus(&d, "ListNames", NULL, false, out, sizeof(out)), 1);
    assert_string_equal(out, ""); /* begins with no string */
    dbus_close(&d);
}

static void test_dbus__an_error_answer_is_a_miss_with_its_name(void **state)
{
    static const char *const name[] = { "no.such.name", NULL };
    struct dbus d;
    char out[64];

    (void)state;
    open_bus(&d);
    assert_int_equal(call_bus(&d, "GetNameOwner", name, false, out, sizeof(out)), 0);
    assert_string_equal(out, "org.freedesktop.DBus.Error.NameHasNoOwner");
    assert_int_equal(call_bus(&d, "NoSuchMember", NULL, false, out, sizeof(out)), 0);
    dbus_close(&d);
}

static void test_dbus__a_dictionary_is_taken(void **state)
{
    static const char *const none[] = { NULL };
    static const char *const two[] = { "A", "1", "LONGER_NAME", "", NULL };
    struct dbus d;
    char out[64];

    (void)state;
    open_bus(&d);
    assert_int_equal(call_bus(&d, "UpdateActivationEnvironment", none, true, out, sizeof(out)), 1);
    assert_int_equal(call_bus(&d, "UpdateActivationEnvironment", two, true, out, sizeof(out)), 1);
    dbus_close(&d);
}

/* The accessibility bus's launcher takes its name some milliseconds after it was started. It makes files for
 * dconf in its runtime and home directories. */
static void test_dbus__waits_for_a_name_until_it_is_owned(void **state)
{
    const struct scratch *s = daemon_of_tests.scratch;
    struct dbus d;
    struct error e = { 0 };
    char command[1024];
    pid_t pid;

    (void)state;
    open_bus(&d);
    assert_int_equal(dbus_wait_name(&d, BUS, &e), 0); /* owned already */
    snprintf(command, sizeof(command),
             "exec env -i DBUS_SESSION_BUS_ADDRESS='%s' XDG_RUNTIME_DIR='%s' HOME='%s' "
             "$(sed -n 's/^Exec=//p' /usr/share/dbus-1/services/org.a11y.Bus.service) > /dev/null 2>&1",
             daemon_of_tests.address, s->path, s->path);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    if (dbus_wait_name(&d, "org.a11y.Bus", &e) < 0)
        fail_msg("%s", e.message);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    dbus_close(&d);
}

static void test_dbus__the_deadline_ends_every_wait(void **state)
{
    struct dbus d;
    struct error e = { 0 };
    int64_t started_ms = clock_mono_ms();

    (void)state;
    open_bus(&d);
    d.deadline_ms = started_ms + 200;
    assert_int_equal(dbus_wait_name(&d, "org.example.Never", &e), -1);
    assert_int_equal(e.code, ERROR_TIMEOUT);
    assert_in_range(clock_mono_ms() - started_ms, 150, 2000);
    dbus_close(&d);
}

static void test_dbus__addresses(void **state)
{
    const struct scratch *s = daemon_of_tests.scratch;
    static const struct {
        const char *before, *after; /* of the directory's path */
        bool works;
    } cases[] = {
        { "unix:path=", "/bus", true },
        { "tcp:host=localhost,port=1;unix:guid=1,path=", "/bus,x=y", true },
        { "unix:path=", "/bus;unix:path=/nonexistent", true },
        { "unix:path=", "/b%75s", true }, /* an escaped letter */
        { "unix:path=", "/other", false },
        { "unix:abstract=", "/bus", false },
        { "unix:tmpdir=", "", false },
        { "path=", "/bus", false },
        { "", "", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char address[512];
        struct dbus d;
        struct error e = { 0 };

        snprintf(address, sizeof(address), "%s%s%s", cases[i].before, s->path, cases[i].after);
        assert_int_equal(dbus_open(&d, address, soon(), &e), cases[i].works ? 0 : -1);
        if (cases[i].works)
            dbus_close(&d);
        else
            assert_int_equal(e.code, ERROR_ACTION_FAILED);
    }
}

/* A bus that authenticates, and then sends these bytes. */
struct false_bus {
    int listener;
    const char *bytes;
    size_t size;
};

static int run_false_bus(void *arg)
{
    const struct false_bus *b = arg;
    int fd = accept(b->listener, NULL, NULL);
    char got[512];

    CHECK(read(fd, got, sizeof(got)) > 0);
    CHECK(write(fd, "OK 00\r\n", 7) == 7);
    CHECK(write(fd, b->bytes, b->size) == (ssize_t)b->size);
    shutdown(fd, SHUT_WR);
    while (read(fd, got, sizeof(got)) > 0)
        ;
    return 0;
}

static void test_dbus__damaged_messages_are_errors(void **state)
{
#define BYTES(text) text, sizeof(text) - 1
    static const struct {
        const char *what, *bytes;
        size_t size;
    } cases[] = {
        { "nothing", BYTES("") },
        { "cut header", BYTES("l\2\0\1") },
        { "another byte order", BYTES("X\2\0\1\0\0\0\0\1\0\0\0\0\0\0\0") },
        { "endless body", BYTES("l\2\0\1\377\377\377\377\1\0\0\0\0\0\0\0") },
        { "endless fields", BYTES("l\2\0\1\0\0\0\0\1\0\0\0\377\377\377\177") },
        { "cut fields", BYTES("l\2\0\1\0\0\0\0\1\0\0\0\20\0\0\0\5\1u\0") },
        { "field of a strange type", BYTES("l\2\0\1\0\0\0\0\1\0\0\0\10\0\0\0\5\1x\0\1\0\0\0") },
        { "string longer than the fields", BYTES("l\2\0\1\0\0\0\0\1\0\0\0\10\0\0\0\4\1s\0\377\377\0\0") },
        { "string without an end", BYTES("l\2\0\1\0\0\0\0\1\0\0\0\14\0\0\0\4\1s\0\3\0\0\0abcd\0\0\0\0") },
        { "body shorter than its string",
          BYTES("l\2\0\1\4\0\0\0\1\0\0\0\17\0\0\0\5\1u\0\1\0\0\0\10\1g\0\1s\0\0\377\0\0\0") },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct scratch *s = *state;
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        struct false_bus bus = { .bytes = cases[i].bytes, .size = cases[i].size };
        char text[160];
        struct dbus d;
        struct error e = { 0 };
        int r;

        snprintf(address.sun_path, sizeof(address.sun_path), "%s/false-%zu", s->path, i);
        snprintf(text, sizeof(text), "unix:path=%s", address.sun_path);
        bus.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(bus.listener, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(bus.listener, 1), 0);
        pid_t pid = scratch_start(run_false_bus, &bus);
        r = dbus_open(&d, text, soon(), &e);
        if (r == 0) /* of a reply only Hello's name was needed */
            dbus_close(&d);
        else
            assert_int_equal(e.code, ERROR_ACTION_FAILED);
        assert_int_equal(r, i + 1 == ARRAY_LEN(cases) ? 0 : -1);
        scratch_wait(pid);
        close(bus.listener);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dbus__a_call_gives_its_first_string),
        cmocka_unit_test(test_dbus__an_error_answer_is_a_miss_with_its_name),
        cmocka_unit_test(test_dbus__a_dictionary_is_taken),
        cmocka_unit_test(test_dbus__waits_for_a_name_until_it_is_owned),
        cmocka_unit_test(test_dbus__the_deadline_ends_every_wait),
        cmocka_unit_test(test_dbus__addresses),
        cmocka_unit_test_setup_teardown(test_dbus__damaged_messages_are_errors, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, start_daemon, end_daemon);
}

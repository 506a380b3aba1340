/* remote_driver ADDRESS PORT USER KEY_DIRECTORY [--NAME VALUE]... [-- ARGUMENTS...]: what the macos provider
 * does with a guest, for tests that start an sshd.
 *
 *   --pin BLOB          the host key that is expected
 *   --connect-ms N      for ssh_open(); default 10000
 *   --timeout-ms N      the time limit of the command, which connecting is part of; default 60000
 *   --send-buffer N     of the connection's socket, so that it is full when little is on its way
 *   --file NAME=PATH    may come several times: what the guest is to have a copy of; the first is the runner
 *   --own 1             run the guest's agent-desktop
 *   --capture COMMAND   ssh_capture() instead of remote_exec(), with this process's stdin as its input
 *   --report FILE       lines of NAME=VALUE about how it went
 *
 * Without ARGUMENTS and --capture it only connects. Exit status as that of `sandbox run`; 1 after a failure.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/util.h"
#include "providers/remote/channel.h"
#include "providers/remote/exec.h"
#include "providers/remote/ssh.h"

#define FILES_MAX 4

struct driver {
    struct ssh_target target;
    struct ssh_cancel cancel;
    int64_t began_ms;
    int connect_ms, timeout_ms, send_buffer;
    struct remote_file files[FILES_MAX];
    size_t file_count;
    int own;
    const char *capture, *report;
    char **argv;
    enum ssh_obstacle why;
    struct exec_result result;
    struct error e;
    char blob[KEYS_BLOB_SIZE];
};

static volatile int caught;
static int wake_fd = -1;

static void on_signal(int number)
{
    int saved = errno;

    if (number != SIGTSTP && caught == 0)
        caught = number;
    (void)!write(wake_fd, "", 1);
    errno = saved;
}

static int watch_signals(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGTSTP };
    struct sigaction action = { .sa_handler = on_signal };
    int ends[2];

    if (descriptor_pipe(ends, true) < 0)
        exit(2);
    wake_fd = ends[1];
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        sigaction(numbers[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    return ends[0];
}

/* As the program's main() does: what is opened later must not be taken for a stream that the caller has
 * closed. */
static void fill_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            (void)open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

static void suspend(void)
{
    raise(SIGSTOP);
}

static void read_option(struct driver *d, const char *name, char *value)
{
    if (strcmp(name, "--pin") == 0)
        d->target.known_blob = value;
    else if (strcmp(name, "--connect-ms") == 0)
        d->connect_ms = atoi(value);
    else if (strcmp(name, "--timeout-ms") == 0)
        d->timeout_ms = atoi(value);
    else if (strcmp(name, "--send-buffer") == 0)
        d->send_buffer = atoi(value);
    else if (strcmp(name, "--own") == 0)
        d->own = atoi(value);
    else if (strcmp(name, "--capture") == 0)
        d->capture = value;
    else if (strcmp(name, "--report") == 0)
        d->report = value;
    else if (strcmp(name, "--file") == 0 && strchr(value, '=') != NULL && d->file_count < FILES_MAX) {
        char *path = strchr(value, '=');

        *path = '\0';
        d->files[d->file_count++] = (struct remote_file){ value, path + 1 };
    } else {
        fprintf(stderr, "remote_driver: no option %s\n", name);
        exit(2);
    }
}

static int run_capture(struct driver *d, struct ssh *s)
{
    static char input[1 << 20];
    size_t size = fread(input, 1, sizeof(input), stdin);
    struct text out = { 0 };
    int r = ssh_capture(s, d->capture, input, size, 1 << 20, d->timeout_ms, &out, &d->result.status, &d->e);

    fwrite(out.bytes, 1, out.size, stdout);
    fflush(stdout);
    text_done(&out);
    return r;
}

static int run_command(struct driver *d, struct ssh *s)
{
    const struct exec_request request = { .own_binary = d->own != 0,
                                          .argv = d->argv,
                                          .streams = { 0, 1, 2 },
                                          .timeout_ms = d->timeout_ms,
                                          .signal = d->cancel.signal,
                                          .signal_fd = d->cancel.fd,
                                          .suspend = d->cancel.suspend };

    return remote_exec(s, d->files, d->file_count, &request, d->began_ms, &d->result, &d->e);
}

static int drive(struct driver *d)
{
    struct ssh *s = NULL;

    d->began_ms = clock_mono_ms();
    d->cancel = (struct ssh_cancel){ watch_signals(), &caught, suspend };
    d->target.cancel = &d->cancel;
    int r = ssh_open(&d->target, d->connect_ms, &s, &d->why, &d->e);

    if (r < 0)
        return -1;
    snprintf(d->blob, sizeof(d->blob), "%s", ssh_host_blob(s));
    if (d->send_buffer > 0)
        setsockopt(ssh_poll(s, false).fd, SOL_SOCKET, SO_SNDBUF, &d->send_buffer, sizeof(d->send_buffer));
    if (d->capture != NULL)
        r = run_capture(d, s);
    else if (d->argv[0] != NULL)
        r = run_command(d, s);
    ssh_close(s);
    return r;
}

static void write_report(const struct driver *d, int r)
{
    FILE *f = d->report == NULL ? NULL : fopen(d->report, "w");

    if (f == NULL)
        return;
    fprintf(f, "result=%d\ncode=%s\nmessage=%s\ndisposition=%s\nretry=%s\n", r, error_code_name(d->e.code),
            d->e.message, error_delivery_name(&d->e), error_retry_name(&d->e));
    fprintf(f, "obstacle=%d\nblob=%s\ndelivery=%d\nstdout_used=%d\nstatus_known=%d\nstatus=%d\nsignal=%d\n",
            (int)d->why, d->blob, (int)d->result.delivery, d->result.stdout_used, d->result.status_known,
            d->result.status, d->result.signal);
    fclose(f);
}

static int exit_status(const struct driver *d, int r)
{
    if (caught != 0)
        return 128 + caught;
    if (r < 0)
        return 1;
    return d->result.signal != 0 ? 128 + d->result.signal : d->result.status;
}

int main(int argc, char **argv)
{
    struct driver d = { .connect_ms = 10000, .timeout_ms = 60000 };
    int i = 5;

    if (argc < 5)
        return 2;
    fill_streams();
    d.target =
        (struct ssh_target){ .address = argv[1], .port = atoi(argv[2]), .user = argv[3], .key_file = "id" };
    d.target.key_dir = open(argv[4], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2)
        read_option(&d, argv[i], argv[i + 1]);
    d.argv = argv + (i < argc && strcmp(argv[i], "--") == 0 ? i + 1 : argc);
    int r = drive(&d);

    write_report(&d, r);
    if (r < 0)
        fprintf(stderr, "remote_driver: %s: %s\n", error_code_name(d.e.code), d.e.message);
    return exit_status(&d, r);
}

#include "tests/providers/linux/desk.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/util.h"

#define TIMEOUT_MS 20000

static void open_root(struct desk *d)
{
    struct error e = { 0 };

    strcpy(d->home, "/tmp/ad-desk-XXXXXX");
    assert_non_null(mkdtemp(d->home));
    setenv("AGENT_DESKTOP_HOME", d->home, 1);
    if (root_open(ROOT_WRITE, &d->root, &e) < 0)
        fail_msg("%s", e.message);
}

static void remove_root(struct desk *d)
{
    char command[256];

    root_close(&d->root);
    snprintf(command, sizeof(command), "chmod -R u+rwx %s 2>/dev/null; rm -rf %s", d->home, d->home);
    assert_int_equal(system(command), 0);
}

const char *desk_refusal(void)
{
    static struct provider_host_report report;
    struct desk d = { .s = NULL };
    struct error e = { 0 };
    int r;

    open_root(&d);
    r = linux_ops.inspect_host(&d.root, &report, &e);
    remove_root(&d);
    if (r < 0)
        fail_msg("%s", e.message);
    return report.state == PROVIDER_READY ? NULL : report.message;
}

static void create(struct desk *d, const char *name)
{
    struct error e = { 0 };
    void *self = NULL;

    d->place = (struct provider_place){ .root = &d->root, .name = name, .op_lock = -1 };
    assert_int_equal(linux_ops.open(&d->place, &self, &e), 0);
    d->s = self;
    if (linux_ops.check_create(self, &d->facts, &e) < 0 || desk_run(d, OPERATION_CREATE, 0, &e) < 0)
        fail_msg("%s", e.message);
}

void desk_open(struct desk *d, const char *name)
{
    memset(d, 0, sizeof(*d));
    open_root(d);
    create(d, name);
}

void desk_close(struct desk *d)
{
    desk_stop(d);
    linux_ops.close(d->s);
    remove_root(d);
}

void desk_open_beside(struct desk *d, const struct desk *other, const char *name)
{
    memset(d, 0, sizeof(*d));
    d->root = other->root;
    create(d, name);
}

void desk_close_beside(struct desk *d)
{
    desk_stop(d);
    linux_ops.close(d->s);
}

/* One step to its end, as the engine: it owns the clock. */
static enum step_result run_step(struct desk *d, const struct step *step, struct step_context *c,
                                 struct error *e)
{
    for (c->attempt = 1;; c->attempt++) {
        enum step_result r = step->run(d->s, c, e);

        if (r != STEP_AGAIN)
            return r;
        clock_sleep_ms(c->again_ms);
    }
}

int desk_run(struct desk *d, enum fsm_operation operation, size_t count, struct error *e)
{
    const struct step *step = linux_ops.plan[operation].steps;
    struct facts outputs = { .count = 0 };
    struct step_context c = { .facts = &d->facts, .outputs = &outputs, .token = "0123456789abcdef" };

    for (size_t i = 0; step->name != NULL && (count == 0 || i < count); i++, step++) {
        outputs.count = 0;
        if (run_step(d, step, &c, e) == STEP_FAILED)
            return -1;
        assert_true(facts_merge(&d->facts, &outputs));
    }
    d->outcome = c.outcome;
    snprintf(d->note, sizeof(d->note), "%s", c.note == NULL ? "" : c.note);
    return 0;
}

void desk_start(struct desk *d)
{
    struct error e = { 0 };

    if (desk_run(d, OPERATION_START, 0, &e) < 0)
        fail_msg("%s", e.message);
    assert_int_equal(d->outcome, EV_GUEST_READY);
}

void desk_stop(struct desk *d)
{
    struct error e = { 0 };

    if (desk_run(d, OPERATION_STOP, 0, &e) < 0)
        fail_msg("%s", e.message);
}

int desk_exec(struct desk *d, const char *const *argv, struct exec_result *result, char *out, size_t room,
              struct error *e)
{
    AUTO_CLOSE int file = memfd_create("stdout", MFD_CLOEXEC);
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    volatile int signal = 0;
    struct exec_request request = { .argv = (char *const *)(uintptr_t)argv,
                                    .streams = { null, file, STDERR_FILENO },
                                    .timeout_ms = TIMEOUT_MS,
                                    .signal = &signal,
                                    .signal_fd = -1 };
    int r = linux_exec(d->s, &d->facts, &request, result, e);
    ssize_t n = out == NULL ? 0 : pread(file, out, room - 1, 0);

    if (out != NULL)
        out[n < 0 ? 0 : n] = '\0';
    return r;
}

int desk_shell(struct desk *d, const char *script)
{
    const char *const argv[] = { "sh", "-c", script, NULL };
    struct exec_result result;
    struct error e = { 0 };

    if (desk_exec(d, argv, &result, NULL, 0, &e) < 0) {
        print_message("%s\n", e.message);
        return -1;
    }
    return result.signal > 0 ? 128 + result.signal : result.status;
}

int desk_count(struct desk *d, const char *word)
{
    /* The brackets keep the search from finding itself. */
    char script[160], out[32];
    const char *const argv[] = { "sh", "-c", script, NULL };
    struct exec_result result;
    struct error e = { 0 };

    snprintf(script, sizeof(script), "grep -l '%.*s[%s]' /proc/[0-9]*/cmdline 2>/dev/null | wc -l",
             (int)strlen(word) - 1, word, word + strlen(word) - 1);
    return desk_exec(d, argv, &result, out, sizeof(out), &e) < 0 ? -1 : (int)strtol(out, NULL, 10);
}

bool desk_wait_count(struct desk *d, const char *word, int count)
{
    int64_t end_ms = clock_mono_ms() + 5000;

    while (desk_count(d, word) != count) {
        if (clock_mono_ms() > end_ms)
            return false;
        clock_sleep_ms(5);
    }
    return true;
}

pid_t desk_supervisor(const struct desk *d)
{
    return (pid_t)facts_get_int(&d->facts, "pid", 0);
}

#include "tests/providers/macos/machine.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "providers/macos/files.h"
#include "tests/providers/macos/fake_guest.h"

#define RUN_MS 60000

static void install_program(const struct machine *m, enum macos_built which, const char *from)
{
    char path[ROOT_PATH_MAX];

    files_built_path(m->root, which, path);
    AUTO_FREE char *command =
        mem_print("mkdir -p -m 700 \"$(dirname '%s')\" && install -m 700 '%s' '%s'", path, from, path);

    assert_int_equal(scripts_shell(m->scripts, command), 0);
}

int machine_setup(void **state)
{
    struct machine *m = mem_alloc(sizeof(*m));

    if (scripts_setup((void **)&m->scripts) != 0)
        return -1;
    m->root = &m->scripts->root;
    m->image = mem_print("%s/mac/Mac.ipsw", m->scripts->scratch->path);
    *state = m;
    scripts_write(m->scripts, "Mac.ipsw", "an image of macOS");
    scripts_write(m->scripts, "helper", "#!/bin/sh\n");
    install_program(m, BUILT_VMHOST, AD_VMHOST_DOUBLE);
    AUTO_FREE char *helper = mem_print("%s/mac/helper", m->scripts->scratch->path);
    AUTO_FREE char *leases = mem_print("%s/mac/leases", m->scripts->scratch->path);

    install_program(m, BUILT_HELPER, helper);
    fake_guest = (struct fake_guest){ .blob = "AAAAguest", .output = "" };
    return setenv("AGENT_DESKTOP_DHCPD_LEASES", leases, 1) < 0 || unsetenv("VMHOST") < 0 ? -1 : 0;
}

int machine_teardown(void **state)
{
    struct machine *m = *state;
    void *scripts = m->scripts;

    /* Whoever was started here names the scratch directory in its command line; the brackets keep this shell
     * out. */
    AUTO_FREE char *command = mem_print(
        "for p in $(pgrep -f '%s/[r]oot/sandboxes'); do kill -9 $p; done; true", m->scripts->scratch->path);

    (void)scripts_shell(m->scripts, command);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    free(m->image);
    free(m);
    return scripts_teardown(&scripts);
}

struct sandbox machine_open(const struct machine *m, const char *name, const struct facts *facts)
{
    struct sandbox s = { .place = { .root = m->root, .name = name, .op_lock = -1 } };

    if (facts != NULL)
        s.facts = *facts;
    return s;
}

/* It points at the place, which moves with a copy. */
struct macos_vm *machine_vm(struct sandbox *s)
{
    struct error e = { 0 };

    if (s->vm == NULL && macos_ops.open(&s->place, (void **)&s->vm, &e) < 0)
        fail_msg("%s", e.message);
    s->vm->place = &s->place;
    return s->vm;
}

void machine_close(struct sandbox *s)
{
    macos_ops.close(s->vm);
    s->vm = NULL;
}

static int run_step(struct sandbox *s, const struct step *step, struct facts *outputs, struct error *e)
{
    struct step_context c = { .facts = &s->facts, .outputs = outputs, .token = "0123456789abcdef" };
    int64_t end_ms = clock_mono_ms() + RUN_MS;
    enum step_result result = STEP_AGAIN;

    for (c.attempt = 1; result == STEP_AGAIN; c.attempt++) {
        assert_true(clock_mono_ms() < end_ms);
        result = step->run(machine_vm(s), &c, e);
        if (result == STEP_AGAIN)
            clock_sleep_ms(c.again_ms);
    }
    s->outcome = c.outcome;
    snprintf(s->note, sizeof(s->note), "%s", c.note == NULL ? "" : c.note);
    return result == STEP_FAILED ? -1 : 0;
}

int machine_run(struct sandbox *s, enum fsm_operation operation, struct error *e)
{
    struct facts outputs = { .count = 0 };

    for (const struct step *step = macos_ops.plan[operation].steps; step->name != NULL; step++) {
        if (run_step(s, step, &outputs, e) < 0)
            return -1;
        if (step->inside && step[1].name != NULL && step[1].inside)
            continue; /* recorded with it */
        assert_true(facts_merge(&s->facts, &outputs));
        outputs.count = 0;
    }
    return 0;
}

void machine_must_run(struct sandbox *s, enum fsm_operation operation)
{
    struct error e = { 0 };

    if (machine_run(s, operation, &e) < 0)
        fail_msg("%s", e.message);
}

struct sandbox machine_create(const struct machine *m, const char *name)
{
    struct sandbox s = machine_open(m, name, NULL);

    facts_set(&s.facts, "set.ipsw", m->image);
    facts_set(&s.facts, "set.user", "somebody");
    machine_must_run(&s, OPERATION_CREATE);
    return s;
}

struct sandbox machine_set_up(const struct machine *m, const char *name)
{
    struct sandbox s = machine_create(m, name);

    facts_set(&s.facts, "setup", "done");
    facts_set(&s.facts, "hostkey", "AAAAguest");
    fake_guest.disk_has_key = true;
    return s;
}

struct sandbox machine_start(const struct machine *m, const char *name)
{
    struct sandbox s = machine_set_up(m, name);

    fake_guest.address = "192.168.64.7";
    fake_guest.output = FAKE_GRANTED;
    fake_guest.blob = fake_guest.disk_key;
    machine_lease(m, &s, fake_guest.address, 3600);
    machine_must_run(&s, OPERATION_START);
    return s;
}

void machine_lease(const struct machine *m, const struct sandbox *s, const char *address, int expires_s)
{
    AUTO_FREE char *lease =
        mem_print("{\n\tip_address=%s\n\thw_address=1,%s\n\tidentifier=1,%s\n\tlease=0x%llx\n}\n", address,
                  facts_get(&s->facts, "mac"), facts_get(&s->facts, "mac"),
                  (unsigned long long)(clock_wall_ms() / 1000 + expires_s));

    scripts_write(m->scripts, "leases", lease);
}

struct observation machine_observe(struct sandbox *s)
{
    struct observation seen;
    struct error e = { 0 };

    if (macos_observe(machine_vm(s), &s->facts, 2000, &seen, &e) < 0)
        fail_msg("%s", e.message);
    return seen;
}

struct process_id machine_process(const struct sandbox *s)
{
    struct process_id id;

    assert_true(macos_read_process(&s->facts, &id));
    return id;
}

bool machine_is_alive(const struct process_id *id)
{
    struct error e = { 0 };
    AUTO_CLOSE int watch = -1;

    return process_open(id, &watch, &e) == 1;
}

bool machine_runs(const struct sandbox *s)
{
    struct macos_vm vm = { .place = &s->place };
    struct error e = { 0 };

    return macos_is_running(&vm, &e) == 1;
}

static char *path_of(const struct sandbox *s, const char *below)
{
    return mem_print("%s/sandboxes/%s/%s", s->place.root->path, s->place.name, below);
}

char *machine_read(const struct sandbox *s, const char *below)
{
    AUTO_FREE char *path = path_of(s, below);
    struct error e = { 0 };
    char *bytes = NULL;
    size_t size;

    return file_read(AT_FDCWD, path, 1 << 20, &bytes, &size, &e) == 1 ? bytes : NULL;
}

void machine_write(const struct sandbox *s, const char *below, const char *content)
{
    AUTO_FREE char *path = path_of(s, below);
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

bool machine_has(const struct sandbox *s, const char *below)
{
    AUTO_FREE char *path = path_of(s, below);
    struct stat st;

    return lstat(path, &st) == 0;
}

mode_t machine_mode(const struct sandbox *s, const char *below)
{
    AUTO_FREE char *path = path_of(s, below);
    struct stat st;

    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

/* tests/providers/macos/machine.h - macos sandboxes in a scratch state root: their steps are run as the
 * engine runs them, their facts are kept, vmhost is vmhost_double.py. */
#ifndef TESTS_PROVIDERS_MACOS_MACHINE_H
#define TESTS_PROVIDERS_MACOS_MACHINE_H

#include "core/process.h"
#include "providers/macos/macos.h"
#include "tests/providers/macos/scripts.h"

struct machine { /* machine_setup() */
    struct scripts *scripts;
    struct root *root;
    char *image; /* a file that ends in .ipsw */
};

struct sandbox { /* machine_open() */
    struct provider_place place;
    struct macos_vm *vm;
    struct facts facts; /* as recorded */
    enum fsm_event outcome;
    char note[JOURNAL_REASON_SIZE];
};

/* For cmocka_unit_test_setup_teardown(): *state becomes a struct machine with an installed provider. What
 * runs of it is killed at the end. */
int machine_setup(void **state);
int machine_teardown(void **state);

/* A handle with these recorded facts (NULL: none). */
struct sandbox machine_open(const struct machine *m, const char *name, const struct facts *facts);
void machine_close(struct sandbox *s);
struct macos_vm *machine_vm(
    struct sandbox *s); /* the handle, opened when it is not; S may have been copied */
#define AUTO_SANDBOX __attribute__((cleanup(machine_close)))

/* All steps of an operation, each as often as it wants; what they put out is recorded. -1 with *e. */
int machine_run(struct sandbox *s, enum fsm_operation operation, struct error *e);
void machine_must_run(struct sandbox *s, enum fsm_operation operation);

/* Installed from the image, never started; the same with a setup on record; the latter started, and answering
 * at 192.168.64.7. */
struct sandbox machine_create(const struct machine *m, const char *name);
struct sandbox machine_set_up(const struct machine *m, const char *name);
struct sandbox machine_start(const struct machine *m, const char *name);

/* A lease for it. EXPIRES_S from now. */
void machine_lease(const struct machine *m, const struct sandbox *s, const char *address, int expires_s);

struct observation machine_observe(struct sandbox *s);

/* Of vmhost as it was recorded. */
struct process_id machine_process(const struct sandbox *s);
bool machine_is_alive(const struct process_id *id);

/* Is anybody there who holds the run lock, or the op lock? */
bool machine_runs(const struct sandbox *s);

char *machine_read(const struct sandbox *s, const char *below); /* NULL: not there; free() it */
void machine_write(const struct sandbox *s, const char *below, const char *content);
bool machine_has(const struct sandbox *s, const char *below);
mode_t machine_mode(const struct sandbox *s, const char *below);

#endif

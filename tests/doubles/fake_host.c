#include "tests/doubles/fake_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static int64_t fake_now(void *self)
{
    return ((struct fake_host *)self)->now_ms;
}

static const char *fake_boot_id(void *self)
{
    return ((struct fake_host *)self)->journal->boot_id;
}

static void fake_sleep(void *self, int ms)
{
    struct fake_host *h = self;

    h->now_ms += ms;
    h->journal->boot_ms = h->now_ms;
}

static void fake_random_id(void *self, char out[17])
{
    snprintf(out, 17, "%016x", ++((struct fake_host *)self)->ids);
}

static int fake_lock(void *self, enum host_lock which, const char *name, int wait_ms, int *fd,
                     struct error *e)
{
    struct fake_host *h = self;

    (void)which, (void)e;
    if (h->meanwhile != NULL) {
        static const struct journal_guard none;

        memory_journal_ops.commit(h->journal, name, &none, h->meanwhile, 1, NULL, e);
        h->meanwhile = NULL;
    }
    if (h->op_held_by_other || h->lock_is_taken) {
        fake_sleep(h, wait_ms);
        return 0;
    }
    h->locks_out++;
    *fd = 1000;
    return 1;
}

static void fake_unlock(void *self, int fd)
{
    assert_int_equal(fd, 1000);
    ((struct fake_host *)self)->locks_out--;
}

static int fake_is_locked(void *self, enum host_lock which, const char *name, struct error *e)
{
    (void)which, (void)name, (void)e;
    return ((struct fake_host *)self)->op_held_by_other;
}

static int fake_end_process(void *self, const struct process_id *id, int grace_ms, struct error *e)
{
    struct fake_host *h = self;

    (void)grace_ms, (void)e;
    assert_int_equal(id->pid, 4711);
    h->ended_owner = true;
    h->op_held_by_other = false;
    return 0;
}

const struct host_ops fake_host_ops = {
    .wall_ms = fake_now,
    .boot_ms = fake_now,
    .boot_id = fake_boot_id,
    .sleep_ms = fake_sleep,
    .random_id = fake_random_id,
    .lock = fake_lock,
    .unlock = fake_unlock,
    .is_locked = fake_is_locked,
    .end_process = fake_end_process,
};

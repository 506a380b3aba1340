/* tests/doubles/fake_host.h - host_ops with a clock turned by hand, locks that a test holds for others, and
 * an owner (pid 4711) that can be ended. */
#ifndef TESTS_DOUBLES_FAKE_HOST_H
#define TESTS_DOUBLES_FAKE_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "core/host.h"
#include "tests/doubles/memory_journal.h"

struct fake_host {
    struct memory_journal *journal;
    int64_t now_ms;
    unsigned ids;
    bool op_held_by_other;                 /* a live process owns the operation */
    bool ended_owner;                      /* end_process() was asked for, and frees the lock */
    const struct journal_entry *meanwhile; /* what another process writes while the lock is waited for */
    bool lock_is_taken; /* by somebody who is faster, but was not there when it was looked at */
    int locks_out;      /* taken and not given back */
};

extern const struct host_ops fake_host_ops; /* self: struct fake_host * */

#endif

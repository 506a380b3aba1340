/* tests/core/scratch.h - what tests of files and processes share: a directory of one's own, child
 * processes, mounts in a namespace. */
#ifndef TESTS_CORE_SCRATCH_H
#define TESTS_CORE_SCRATCH_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct scratch {
    char path[64];
    int dir;
};

/* For cmocka_unit_test_setup_teardown(): *state becomes a struct scratch of an empty directory. */
int scratch_setup(void **state);
int scratch_setup_in_memory(void **state); /* for thousands of entries, where there is such a place */
int scratch_teardown(void **state);

/* Runs FN(ARG) in a child and returns its exit status, or 128+N. The child never returns to cmocka. */
typedef int scratch_child_fn(void *arg);
int scratch_run(scratch_child_fn *fn, void *arg);

pid_t scratch_start(scratch_child_fn *fn, void *arg);
int scratch_wait(pid_t pid);

/* In a child: an ordinary user, so that permissions count. The directory becomes that user's. */
bool scratch_become_ordinary(const struct scratch *s);

/* In a child: a mount namespace of its own, with the directory opened anew. False where this user may not
 * have one. */
bool scratch_isolate_mounts(struct scratch *s);

/* In a child: the directory becomes an empty tmpfs with these mount options, in a mount namespace of its own;
 * false as above. Then: not one byte of it is free any more, until the file "filler" is gone. */
bool scratch_mount_small(struct scratch *s, const char *options);
void scratch_fill(const struct scratch *s);

/* In a child: no more than MORE descriptors can be opened from now on. */
bool scratch_limit_files(unsigned more);

/* Skips the test where there is no pidfd_open(2): before Linux 5.3, and under valgrind before 3.21. */
void scratch_need_pidfd(void);

/* Runs FN in a child, whose verdict is the test's: 0, SCRATCH_SKIP when the host cannot show it, or failed.
 */
#define SCRATCH_SKIP 77
void scratch_run_as_test(scratch_child_fn *fn, void *arg);

/* In children, where cmocka's asserts would not be heard. */
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #condition);                                  \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

void scratch_write(const struct scratch *s, const char *name, const char *content);
bool scratch_exists(const struct scratch *s, const char *name);
mode_t scratch_mode(const struct scratch *s, const char *name); /* of the name itself, links not followed */

#endif

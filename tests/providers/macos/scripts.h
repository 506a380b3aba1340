/* tests/providers/macos/scripts.h - a Mac made of small scripts on PATH, for tests of one module at a time:
 * each test replaces those whose answer matters. It knows what macOS' manual pages say, not what this program
 * asks. */
#ifndef TESTS_PROVIDERS_MACOS_SCRIPTS_H
#define TESTS_PROVIDERS_MACOS_SCRIPTS_H

#include <stdbool.h>

#include "core/root.h"
#include "tests/core/scratch.h"

struct scripts {
    struct scratch
        *scratch; /* bin/ has the scripts, mac/ what they remember ($MAC), root/ is the state root */
    struct root root;
    char *old_path;
};

/* For cmocka_unit_test_setup_teardown(): *state becomes a struct scripts of a Mac that qualifies, with the
 * Command Line Tools and an empty state root. */
int scripts_setup(void **state);
int scripts_teardown(void **state);

/* What TOOL does from now on; BODY is shell. */
void scripts_set(const struct scripts *s, const char *tool, const char *body);
void scripts_remove(const struct scripts *s, const char *tool); /* from PATH's front, that is */

/* Names below mac/. */
void scripts_write(const struct scripts *s, const char *name, const char *content);
char *scripts_read(const struct scripts *s, const char *name); /* free() it; NULL: there is none */
bool scripts_has(const struct scripts *s, const char *name);

/* Runs shell in mac/, with $ROOT; its exit status. */
int scripts_shell(const struct scripts *s, const char *command);

/* How many files and directories are below the state root, itself not counted. */
int scripts_count_files(const struct scripts *s);

#endif

/* tools/desktop/program.h - what an application's name stands for: a program to start, a process that
 * runs it. */
#ifndef TOOLS_DESKTOP_PROGRAM_H
#define TOOLS_DESKTOP_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/error.h"

struct program { /* program_done() when done; { 0 } is none */
    char *name;  /* as a person knows it: Name= of its .desktop file, else the file's name */
    char **argv; /* ends with NULL; [0] is an absolute path */
    size_t argc;
};

/* APP: a path, a program on PATH, or the id ("org.gnome.Calculator"), its last part, or the Name= of a
 * .desktop file; all but paths without regard to case where there is no exact one. 1; 0 when there is
 * none. */
int program_find(const char *app, struct program *out);
void program_add_argument(struct program *program, const char *argument);
void program_done(struct program *program);

/* Installed .desktop files' name nearest to APP, NULL when none is near; free() it. */
char *program_find_near(const char *app);

/* Does process PID run what APP, or PROGRAM (may be NULL), names? Compares file names: of the executable,
 * of argv[0] and, under an interpreter, of the script. */
bool program_is_run_by(pid_t pid, const char *app, const struct program *program);

const char *program_base_name(const char *path); /* lent: behind the last slash */

#endif

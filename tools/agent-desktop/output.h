/* tools/agent-desktop/output.h - the standard streams: there, checked, and never a reason to die.
 *
 * A reply counts only when it was really written: a full disk, a closed descriptor or a reader that went
 * away is a line on stderr and a failure, though what was done stands. */
#ifndef TOOLS_AGENT_DESKTOP_OUTPUT_H
#define TOOLS_AGENT_DESKTOP_OUTPUT_H

#include <stddef.h>

/* First thing in main(): makes descriptors 0 to 2 exist, so that no file opened later becomes one of them (a
 * closed stdout still fails when written to), and makes a broken pipe an error instead of a signal, for
 * this process but not for programs it starts. */
void output_init(void);

/* All of it, or a line on stderr and -1. */
int output_write(int fd, const char *bytes, size_t size);

/* The last word on stdout: also what only shows when it is closed (a full quota, a network file system). */
int output_finish(void);

#endif

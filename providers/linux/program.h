/* providers/linux/program.h - the last steps of a forked child before it becomes a program of the sandbox.
 *
 * For the supervisor's children: nothing of PID 1 (signal mask, dispositions, session) reaches a program; its
 * descriptors are all close-on-exec. */
#ifndef PROVIDERS_LINUX_PROGRAM_H
#define PROVIDERS_LINUX_PROGRAM_H

/* Default signals, an own session, STREAMS (all above 2) as 0, 1, 2, the working directory (/ when there is
 * no HOME). -1 with errno. */
int program_prepare(const int streams[3], const char *home);

/* execve(2) with ARGV[0] looked up in the PATH of ENVIRONMENT, not of the caller. Returns only on failure,
 * with the errno that tells most: EACCES of a file that was found rather than ENOENT of the next directory.
 */
int program_execute(char *const *argv, char *const *environment);

#endif

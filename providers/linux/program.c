#include "providers/linux/program.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int program_prepare(const int streams[3], const char *home)
{
    sigset_t none;

    /* Whoever typed `start` may have ignored signals, and ignored ones outlive exec. */
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    if (setsid() < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (dup2(streams[i], i) < 0)
            return -1;
    if (chdir(home) < 0 && chdir("/") < 0)
        return -1;
    sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL);
}

static const char *find_path(char *const *environment)
{
    for (; *environment != NULL; environment++)
        if (strncmp(*environment, "PATH=", 5) == 0)
            return *environment + 5;
    return "/usr/bin:/bin";
}

int program_execute(char *const *argv, char *const *environment)
{
    const char *path = find_path(environment);
    int error = ENOENT;

    if (strchr(argv[0], '/') != NULL || argv[0][0] == '\0') {
        execve(argv[0], argv, environment);
        return errno;
    }
    for (;;) {
        size_t size = strcspn(path, ":");
        char file[4096];

        if ((size_t)snprintf(file, sizeof(file), "%.*s%s%s", (int)size, path, size > 0 ? "/" : "", argv[0]) <
            sizeof(file)) {
            execve(file, argv, environment);
            if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
                return errno;
            error = errno == EACCES ? EACCES : error;
        }
        if (path[size] == '\0')
            return error;
        path += size + 1;
    }
}

/* tool.c - every Apple tool on the simulated Mac's PATH is a copy of this program.
 *
 * It asks the daemon: its own name, its working directory, DEVELOPER_DIR and its arguments, each ended by a
 * NUL, with its three standard descriptors; the daemon writes the output itself and answers with the exit
 * status. The socket lies at ../run/tools.sock as seen from the file that runs, so that no environment can
 * lead astray. */

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CANNOT_RUN = 125 };

static int fail(const char *what)
{
    perror(what);
    return CANNOT_RUN;
}

/* Splits the path of the program that runs into folder and name. */
static int find_self(char *path, size_t size, char **name)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    char *slash;

    if (length < 0)
        return -1;
    path[length] = '\0';
    slash = strrchr(path, '/');
    *slash = '\0';
    *name = slash + 1;
    return 0;
}

static int connect_daemon(const char *folder)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/../run/tools.sock", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || length >= (int)sizeof(address.sun_path) ||
        connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -1;
    return fd;
}

/* The first byte carries the standard descriptors. */
static int send_descriptors(int fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } control = {
        .header = { .cmsg_len = CMSG_LEN(3 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS }
    };
    const int standard[3] = { 0, 1, 2 };
    char byte = '+';
    struct iovec data = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr message = { .msg_iov = &data,
                              .msg_iovlen = 1,
                              .msg_control = control.space,
                              .msg_controllen = sizeof(control.space) };

    memcpy(CMSG_DATA(&control.header), standard, sizeof(standard));
    return sendmsg(fd, &message, 0) == 1 ? 0 : -1;
}

static int send_field(int fd, const char *text)
{
    size_t left = strlen(text) + 1;

    while (left > 0) {
        ssize_t sent = send(fd, text, left, MSG_NOSIGNAL);

        if (sent < 0)
            return -1;
        text += sent;
        left -= (size_t)sent;
    }
    return 0;
}

static int ask(int fd, const char *name, char **arguments)
{
    char folder[PATH_MAX];
    const char *developer = getenv("DEVELOPER_DIR");

    if (getcwd(folder, sizeof(folder)) == NULL)
        folder[0] = '\0';
    if (send_descriptors(fd) < 0 || send_field(fd, name) < 0 || send_field(fd, folder) < 0 ||
        send_field(fd, developer != NULL ? developer : "") < 0)
        return -1;
    for (; *arguments != NULL; arguments++)
        if (send_field(fd, *arguments) < 0)
            return -1;
    return shutdown(fd, SHUT_WR);
}

/* -1 when the daemon went away without an answer. */
static int answer(int fd)
{
    char text[16] = { 0 };
    size_t length = 0;
    ssize_t got;

    while (length < sizeof(text) - 1 && (got = read(fd, text + length, sizeof(text) - 1 - length)) > 0)
        length += (size_t)got;
    return length > 0 ? (int)strtol(text, NULL, 10) : -1;
}

int main(int argc, char **argv)
{
    char path[PATH_MAX];
    char *name;
    int fd, status;

    (void)argc;
    while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd <= 2) /* a standard one was closed */
        ;
    if (find_self(path, sizeof(path), &name) < 0)
        return fail("/proc/self/exe");
    fd = connect_daemon(path);
    if (fd < 0 || ask(fd, name, argv + 1) < 0)
        return fail("the simulated Mac does not answer");
    status = answer(fd);
    if (status < 0)
        return fail("the simulated Mac is gone");
    return status;
}

#include "providers/exec_rules.h"

#include <fcntl.h>
#include <sys/stat.h>

int exec_check_streams(const struct exec_request *request, struct error *e)
{
    static const char *const names[] = { "stdin", "stdout", "stderr" };
    struct stat st;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (fstat(request->streams[i], &st) == 0 && S_ISDIR(st.st_mode))
            return error_set(e, ERROR_INVALID_ARGS, 0, "%s is a directory, which is not passed on", names[i]);
    return 0;
}

int exec_usable_stream(int fd, int forbidden)
{
    int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);

    return flags < 0 || (flags & O_ACCMODE) == forbidden ? -1 : fd;
}

int exec_set_late(const struct exec_request *request, struct error *e)
{
    error_set(e, ERROR_TIMEOUT, 0, "the command took longer than %d.%03d s and was ended",
              request->timeout_ms / 1000, request->timeout_ms % 1000);
    e->delivery = DELIVERY_DELIVERED_UNVERIFIED;
    e->retry = RETRY_UNSAFE;
    return -1;
}

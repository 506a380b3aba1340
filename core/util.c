#include "core/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

void util_free_pointer(void *p)
{
    free(util_take_pointer(p));
}

void util_close_fd(int *fd)
{
    int saved = errno;

    if (*fd >= 0)
        close(*fd); /* after EINTR the descriptor is gone all the same: never twice */
    errno = saved;
}

void *util_take_pointer(void *p)
{
    void **slot = p;
    void *taken = *slot;

    *slot = NULL;
    return taken;
}

int steal_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

void util_wipe(void *secret, size_t size)
{
    /* Nobody reads it any more, which a compiler may see; it cannot see which function this is. */
    static void *(*const volatile overwrite)(void *, int, size_t) = memset;

    overwrite(secret, 0, size);
}

void util_wipe_text(char **secret)
{
    if (*secret != NULL)
        util_wipe(*secret, strlen(*secret));
    util_free_pointer(secret);
}

void util_random_id(char out[17])
{
    unsigned char bits[8];

    /* Fails only where the system forbids the call itself; an id that can be guessed or repeats would
     * break the fencing of operations, so there is no going on without. */
    if (getentropy(bits, sizeof(bits)) < 0) {
        perror("agent-desktop: no random numbers");
        _exit(1);
    }
    for (size_t i = 0; i < sizeof(bits); i++)
        snprintf(out + 2 * i, 3, "%02x", bits[i]);
}

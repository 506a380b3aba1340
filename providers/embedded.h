/* providers/embedded.h - a file that this build carries as data, to be written on the user's disk;
 * made by embed.cmake. */
#ifndef PROVIDERS_EMBEDDED_H
#define PROVIDERS_EMBEDDED_H

struct embedded {
    const char *name;
    const char *bytes; /* with a NUL behind them */
    unsigned size;     /* without it */
};

#endif

/* store/crash.h - an end in good order when a damaged file makes LMDB crash.
 *
 * LMDB trusts its pages: a flipped bit can make it read outside of the map, divide by zero or abort. While
 * a store call is inside (between enter and leave), SIGSEGV, SIGBUS, SIGFPE and SIGABRT write the prepared
 * reply to stdout and end the process with the prepared status. Outside, and when no reply is armed, these
 * signals mean what they always meant. Not for more than one thread. */
#ifndef STORE_CRASH_H
#define STORE_CRASH_H

#include <signal.h>
#include <stdbool.h>

#define CRASH_SIGNAL_COUNT 4

struct crash_guard { /* of one store call; guards may nest */
    bool armed;
    struct sigaction before[CRASH_SIGNAL_COUNT];
};

void crash_set_reply(const char *text, int exit_status); /* by reference; NULL disarms */

void crash_enter(struct crash_guard *guard);
void crash_leave(struct crash_guard *guard);

#endif

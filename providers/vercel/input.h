/* providers/vercel/input.h - the service carries no stdin: is there anything that would have to be carried?
 */
#ifndef PROVIDERS_VERCEL_INPUT_H
#define PROVIDERS_VERCEL_INPUT_H

enum input {
    INPUT_NONE,  /* nothing, and nothing to come: closed, /dev/null, at its end; or a terminal, whose user
                    types it */
    INPUT_LATER, /* a pipe or the like, in which nothing is yet: poll(2) tells when that changes */
    INPUT_THERE
};

/* Looks at FD, which may be -1, without taking anything away. Never blocks. */
enum input input_look(int fd);

#endif

/* tests/providers/macos/fake_guest.h - a guest that answers as a test says, in place of ssh.h, exec.h and
 * disk.h, which the linker finds here first. */
#ifndef TESTS_PROVIDERS_MACOS_FAKE_GUEST_H
#define TESTS_PROVIDERS_MACOS_FAKE_GUEST_H

#include "providers/provider.h"
#include "providers/remote/ssh.h"

struct fake_guest {
    const char *address;        /* where it is; anywhere else nobody answers */
    enum ssh_obstacle obstacle; /* there */
    const char *blob;           /* its host key; a pin that differs is SSH_HOST_KEY */
    const char *output;         /* of whatever is run in it */
    int status;                 /* and its exit status */
    bool slow;                  /* everything takes all of its time */

    /* what was seen of it */
    int connections;
    char user[64];
    bool pinned;

    /* its stopped disk */
    bool disk_has_key;
    enum error_code disk_error;
    char disk_key[KEYS_BLOB_SIZE]; /* written last */
    char disk_path[4352];
    int releases;

    struct exec_request request; /* exec: as it arrived */
    int64_t began_ms;
    char files[2][4352];
};

extern struct fake_guest fake_guest; /* the one guest of a test program */

#define FAKE_GRANTED "{\"trusted\":true,\"working\":true,\"state\":\"granted\"}\n"
#define FAKE_MISSING "{\"trusted\":false,\"working\":false,\"state\":\"missing\"}\n"

#endif

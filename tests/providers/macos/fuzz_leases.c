/* The reader of leases against libFuzzer: build with clang and -DAD_FUZZ=ON, run on corpus/leases. The first
 * six bytes are the MAC that is looked up. What it finds must be true, too. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "providers/macos/leases.h"

#define NOW 0x6a1c4000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lease lease;
    struct in_addr address;
    uint8_t mac[6];

    if (size < sizeof(mac))
        return 0;
    if (!lease_find((const char *)data + 6, size - 6, data, NOW, &lease))
        return 0;
    if (inet_pton(AF_INET, lease.address, &address) != 1 || lease.live != (lease.expires_s > NOW))
        abort();
    /* as a text, which ends with a NUL, and is no file at all mostly */
    char *text = strndup((const char *)data, size);

    (void)lease_parse_mac(text, mac);
    free(text);
    return 0;
}

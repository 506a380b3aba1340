/* providers/macos/leases.h - which address bootpd gave a guest: /var/db/dhcpd_leases.
 *
 * Format: apple-oss-distributions/bootp, bootpd.tproj/dhcpd.c and bootplib/NICache.c. Anything may be torn,
 * odd or there twice: what cannot be read is passed over. */
#ifndef PROVIDERS_MACOS_LEASES_H
#define PROVIDERS_MACOS_LEASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lease {
    char address[46];
    int64_t expires_s; /* since 1970 */
    bool live;         /* not expired at NOW_S */
    bool shared;       /* another hardware address has a live lease of the same one: the pinned key decides */
};

/* "6e:05:00:a1:b2:c3", leading zeros optional, either case. */
bool lease_parse_mac(const char *text, uint8_t out[6]);

/* The newest live lease of exactly this hardware address, else its newest expired one. */
bool lease_find(const char *bytes, size_t size, const uint8_t mac[6], int64_t now_s, struct lease *out);

#endif

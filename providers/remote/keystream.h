/* providers/remote/keystream.h - AES-CTR for who asks for it 16 bytes at a time.
 *
 * libssh2 before 1.11 has no other fast cipher, and calls OpenSSL for each single block: a block alone takes
 * the processor as long as eight, whose steps it does side by side. This puts a provider (provider(7)) in
 * front of OpenSSL's own that makes the key stream of AES-128-CTR in pieces of some KiB, by OpenSSL's own
 * cipher, and hands it out as it is asked for. A gigabyte then takes a quarter less time. */
#ifndef PROVIDERS_REMOTE_KEYSTREAM_H
#define PROVIDERS_REMOTE_KEYSTREAM_H

/* For all of this process, once. Where it cannot be done everything stays as it was. */
void keystream_install(void);

#endif

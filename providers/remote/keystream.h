/* providers/remote/keystream.h - AES-CTR for who asks for it 16 bytes at a time.
 *
 * libssh2 before 1.11 has no other fast cipher, and calls OpenSSL for each single block: a block alone takes
 * the processor as long as eight, whose steps it does side by side. So an exec's stdout came at 0.72 to 0.85
 * of the speed of ssh(1), and comes at more than 0.9 of it with this: a provider (provider(7)) in front of
 * OpenSSL's own that makes the key stream in pieces of some KiB, by OpenSSL's own cipher, and hands it out as
 * it is asked for.
 *
 * It replaces AES-128-CTR, and nothing else, for everybody in this process who uses OpenSSL's default library
 * context and does not ask for a provider: also for libcurl. For that it loads two providers (OpenSSL's
 * "default" and this one) and sets the default properties of that context to prefer this one. What was
 * fetched before stays what it was. */
#ifndef PROVIDERS_REMOTE_KEYSTREAM_H
#define PROVIDERS_REMOTE_KEYSTREAM_H

/* For the whole process, for good, once; any thread may call it. Where it cannot be done ciphers stay as they
 * were. */
void keystream_install(void);

#endif

/* providers/remote/keys.h - Ed25519 keys in OpenSSH's own file formats; hides OpenSSL (opened on first use).
 *
 * Formats: openssh-portable PROTOCOL.key and sshd(8) "AUTHORIZED_KEYS FILE FORMAT". */
#ifndef PROVIDERS_REMOTE_KEYS_H
#define PROVIDERS_REMOTE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

#define KEYS_COMMENT_MAX  64
#define KEYS_PRIVATE_SIZE 512 /* a file is about 400 bytes with a comment of 64 */
#define KEYS_PUBLIC_SIZE  192
#define KEYS_RAW_SIZE     51 /* a public blob: "ssh-ed25519" and 32 bytes, each behind its length */
#define KEYS_BLOB_SIZE    72 /* that in base64: 68 characters */

struct keys_pair {
    char private_file[KEYS_PRIVATE_SIZE]; /* the text of id_ed25519: a secret */
    char public_line[KEYS_PUBLIC_SIZE];   /* "ssh-ed25519 AAAA... COMMENT\n": the text of id_ed25519.pub */
    char blob[KEYS_BLOB_SIZE];            /* "AAAA...": what is pinned */
};

/* A fresh pair. COMMENT: at most 64 printable characters; "" for none. PLATFORM_NOT_SUPPORTED without
 * OpenSSL's library. */
int keys_generate(const char *comment, struct keys_pair *out, struct error *e);

/* Overwrites the secret, in a way that the compiler keeps. */
void keys_forget(struct keys_pair *pair);
void keys_wipe(void *secret, size_t size); /* the same for any bytes */

/* The blob of an "ssh-ed25519 AAAA... comment" line; false when it is no such line. */
bool keys_read_blob(const char *line, char out[KEYS_BLOB_SIZE]);

/* The blob of a public key as it goes over the wire; false when it is no Ed25519 key. */
bool keys_print_blob(const uint8_t *raw, size_t size, char out[KEYS_BLOB_SIZE]);

#endif

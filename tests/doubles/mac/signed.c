/* signed.c - what the kernel of a Mac checks when a program starts, linked into each program that the
 * simulated Mac's compiler makes.
 *
 * A signature is the end of the file: flags and entitlements as text, then 8 hexadecimal digits of CRC-32
 * over all that stands before them, 8 of the text's length, and a mark. The program is killed when it has
 * none, when it is not that of its bytes, when it claims an entitlement that only Apple gives, and when the
 * same file (not another one of that name) was run with other bytes before. Without the virtualization
 * entitlement the simulator is told so. */

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char mark[] = "-SIMULATED-SIGNATURE\n";

enum { HEX_DIGITS = 8, MARK_LENGTH = sizeof(mark) - 1, TRAILER_LENGTH = 2 * HEX_DIGITS + MARK_LENGTH };

struct program {
    const char *bytes;
    size_t size;
    char identity[96]; /* of the file, whatever its name; empty when the file system cannot tell a new one */
};

static uint32_t crc32_of(const char *bytes, size_t size)
{
    uint32_t crc = ~UINT32_C(0);

    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (UINT32_C(0xEDB88320) & -(crc & 1));
    }
    return ~crc;
}

static size_t hex_at(const char *text)
{
    char digits[HEX_DIGITS + 1] = { 0 };

    memcpy(digits, text, HEX_DIGITS);
    return (size_t)strtoul(digits, NULL, 16);
}

static bool open_program(struct program *self)
{
    struct statx found;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &found) < 0)
        return false;
    self->size = (size_t)found.stx_size;
    self->bytes = mmap(NULL, self->size, PROT_READ, MAP_PRIVATE, fd, 0);
    self->identity[0] = '\0';
    if ((found.stx_mask & STATX_BTIME) != 0) /* inode numbers are used again */
        snprintf(self->identity, sizeof(self->identity), "%x-%x-%jx-%jx-%x", found.stx_dev_major,
                 found.stx_dev_minor, (uintmax_t)found.stx_ino, (uintmax_t)found.stx_btime.tv_sec,
                 found.stx_btime.tv_nsec);
    close(fd);
    return self->bytes != MAP_FAILED;
}

/* The signature's text, NULL when there is none or it is another file's. */
static const char *signature_of(const struct program *self, size_t *length)
{
    const char *end = self->bytes + self->size;
    size_t body;

    if (self->size < TRAILER_LENGTH || memcmp(end - MARK_LENGTH, mark, MARK_LENGTH) != 0)
        return NULL;
    *length = hex_at(end - TRAILER_LENGTH + HEX_DIGITS);
    if (*length > self->size - TRAILER_LENGTH)
        return NULL;
    body = self->size - TRAILER_LENGTH - *length;
    if (crc32_of(self->bytes, body) != hex_at(end - TRAILER_LENGTH))
        return NULL;
    return self->bytes + body;
}

static bool claims(const char *text, size_t length, const char *entitlement)
{
    const char *found = memmem(text, length, entitlement, strlen(entitlement));
    const char *end = text + length;

    if (found == NULL)
        return false;
    found += strlen(entitlement) + strlen("</key>");
    while (found < end && (*found == ' ' || *found == '\t' || *found == '\n'))
        found++;
    return found < end && (size_t)(end - found) >= strlen("<true/>") &&
           memcmp(found, "<true/>", strlen("<true/>")) == 0;
}

/* The kernel remembers the signature of a file that ran: one whose bytes were replaced in place has a wrong
 * one. */
static bool ran_with_other_bytes(const struct program *self)
{
    const char *folder = getenv("SIMULATED_MAC_RAN");
    char path[4096], before[2 * HEX_DIGITS] = { 0 }, now[2 * HEX_DIGITS];
    int fd;
    ssize_t got;

    if (folder == NULL || self->identity[0] == '\0')
        return false;
    snprintf(path, sizeof(path), "%s/%s", folder, self->identity);
    snprintf(now, sizeof(now), "%08x", (unsigned)crc32_of(self->bytes, self->size));
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    got = read(fd, before, sizeof(before) - 1);
    if (got == 0 && write(fd, now, strlen(now)) < 0)
        got = -1;
    close(fd);
    return got > 0 && strcmp(before, now) != 0;
}

__attribute__((constructor)) static void check_signature(void)
{
    struct program self;
    const char *text;
    size_t length = 0;

    if (!open_program(&self))
        return;
    text = signature_of(&self, &length);
    if (text == NULL || claims(text, length, "com.apple.vm.networking") || ran_with_other_bytes(&self))
        raise(SIGKILL); /* Code Signature Invalid */
    else if (!claims(text, length, "com.apple.security.virtualization"))
        setenv("VZSIM_NO_ENTITLEMENT", "1", 1);
    munmap((void *)self.bytes, self.size);
}

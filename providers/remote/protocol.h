/* providers/remote/protocol.h - what exec.c (here) and runner.c (in the guest) say to each other.
 *
 * The runner is started through the account's login shell, whose start-up files may print what they like. So
 * it begins with a header on the runner's stdin, which has a nonce that nobody else in the guest knows, and
 * what the runner has to tell stands in its streams as marks that contain the nonce:
 *
 *   stdin   to the guest  the header, then the command's stdin
 *   stdout  to the host   noise, BEGIN (or STALE, and nothing is run), the command's stdout, END
 *   stderr  to the host   noise, BEGIN, the command's stderr, then DONE, LATE or NOT_RUN
 *
 * Noise is dropped. The command has stdin and stdout as they are; its stderr passes through the runner: the
 * two share one window of their SSH channel, so that a reader that takes only one of them would hold up the
 * other, and the news of the command's end with it. At most PROTOCOL_STDERR_MAX bytes go that way.
 *
 * For more, for signals, and when somebody is slow to read, the host starts a second runner on the same
 * connection (`--run-for-host join RENDEZVOUS`). It hands its stdin and stdout to the first one, over a
 * socket in /tmp, and only waits from then on. This is the control channel, with a window of its own:
 *
 *   stdin   to the guest  how many bytes of stderr have arrived (8 bytes, the highest first), then a byte
 *                         each time: the number of a signal for the command, or PROTOCOL_STDERR_CLOSED
 *   stdout  to the host   noise, BEGIN, the command's stderr from that number on, and the mark of its end
 *
 * From then on the first channel may be closed, which closes the command's stdout. The host hangs up when it
 * has all; the first runner ends then, and not before, for it may be joined when all is over, too.
 *
 * Both sides are the same program on the same kind of system, by the check in the header; so numbers of
 * signals and errors mean the same to both. Magic, version, nonce and the size of the rest stay where they
 * are in every version: an older or newer runner finds the nonce, tells STALE and is replaced. */
#ifndef PROVIDERS_REMOTE_PROTOCOL_H
#define PROVIDERS_REMOTE_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"

#define PROTOCOL_VERSION       1
#define PROTOCOL_NONCE_SIZE    64                /* also because a long one is found faster */
#define PROTOCOL_WORDS_MAX     (2 * 1024 * 1024) /* execve(2) takes no more with Linux's usual stack limit */
#define PROTOCOL_FILES_MAX     4
#define PROTOCOL_NAME_SIZE     64
#define PROTOCOL_HEAD_SIZE     78 /* magic 8, version 2, nonce 64, size of the rest 4 */
#define PROTOCOL_REST_MAX      (PROTOCOL_WORDS_MAX + 1024)
#define PROTOCOL_MARK_SIZE     (PROTOCOL_NONCE_SIZE + 5) /* nonce, kind 1, value 4 */
#define PROTOCOL_STDERR_MAX    (64 * 1024)
#define PROTOCOL_STDERR_CLOSED 0 /* no signal's number */

/* --- the header ----------------------------------------------------------------------------------------- */

struct protocol_file {
    char name[PROTOCOL_NAME_SIZE]; /* beside the runner; letters, digits, '-' and '.', no '.' first */
    uint8_t sha1[HASH_SHA1_SIZE];
};

struct protocol_request {
    uint8_t nonce[PROTOCOL_NONCE_SIZE];
    uint64_t rendezvous; /* names the socket */
    uint32_t timeout_ms;
    bool own_binary; /* run the runner's file, whatever words[0] says */
    size_t file_count;
    struct protocol_file files[PROTOCOL_FILES_MAX]; /* must be so, else MARK_STALE; the first is the runner */
    uint32_t word_count;                            /* at least 1 */
    char *words; /* each ends with a NUL; lent when packed, owned when unpacked: protocol_done() */
    size_t words_size;
};

void protocol_pack(const struct protocol_request *r, struct text *out);

/* The part that all versions have in common. False when it is none. *REST: how many bytes follow, whose
 * meaning is known when *VERSION is PROTOCOL_VERSION. */
bool protocol_unpack_head(const uint8_t head[PROTOCOL_HEAD_SIZE], struct protocol_request *out,
                          unsigned *version, size_t *rest);

/* What follows. False when it is malformed. */
bool protocol_unpack_rest(const uint8_t *rest, size_t size, struct protocol_request *out);
void protocol_done(struct protocol_request *r);

/* The socket's path, PROTOCOL_PATH_SIZE bytes. */
#define PROTOCOL_PATH_SIZE 48
void protocol_print_path(char out[PROTOCOL_PATH_SIZE], uint64_t rendezvous);

/* --- marks ---------------------------------------------------------------------------------------------- */

enum mark_kind {
    MARK_NONE,
    MARK_BEGIN,   /* what follows is the command's; value: 1 when the runner can be joined */
    MARK_STALE,   /* value: bit N set: file N is not what the host has */
    MARK_END,     /* of the command's stdout */
    MARK_DONE,    /* value: protocol_status() */
    MARK_LATE,    /* the same, of a command that was ended by the time limit */
    MARK_NOT_RUN, /* value: the errno why */
    MARK_KIND_COUNT
};

struct mark {
    enum mark_kind kind;
    uint32_t value;
};

void protocol_print_mark(uint8_t out[PROTOCOL_MARK_SIZE], const uint8_t nonce[PROTOCOL_NONCE_SIZE],
                         struct mark m);

uint32_t protocol_status(int exit_status, int signal); /* signal 0: it exited */
int protocol_exit_status(uint32_t value);
int protocol_signal(uint32_t value);

/* Finds marks in a stream that comes in pieces. */
struct mark_scanner {
    uint8_t nonce[PROTOCOL_NONCE_SIZE];
    uint8_t shift[256];
};

void mark_scanner_init(struct mark_scanner *s, const uint8_t nonce[PROTOCOL_NONCE_SIZE]);

/* Looks at SIZE bytes, which begin with what was left over the last time. Returns how many of them are text
 * in front of the first mark, which is put into *FOUND and takes the PROTOCOL_MARK_SIZE bytes behind. When
 * *FOUND is MARK_NONE, what is behind the text (less than a mark) may be the beginning of one: left over. */
size_t mark_scanner_look(const struct mark_scanner *s, const uint8_t *bytes, size_t size, struct mark *found);

#endif

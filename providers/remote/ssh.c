/* libssh2 never gets to see a socket that would block, nor one that is lost: it cannot go on correctly when a
 * packet was sent in part and something else is to be sent first (a window adjustment while a write is
 * pending), and it forgets what had arrived before a connection broke. So it reads and writes through the
 * callbacks here: whatever it sends is taken at once, into a queue that ssh_flush() sends, and the end of the
 * connection looks to it like silence and is told by ssh_is_lost(). */
#include "providers/remote/ssh.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libssh2.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/file.h"
#include "core/library.h"
#include "core/mem.h"
#include "core/util.h"
#include "providers/remote/channel.h"

/* What a peer may send before it is told that we have taken some: enough for a fast network, and about what
 * the memory can grow by while nobody takes anything. */
#define WINDOW_SIZE    (1024 * 1024)
#define PACKET_SIZE    32768        /* as OpenSSH's client asks for */
#define QUEUE_MAX      (128 * 1024) /* more is not taken from a writer; what libssh2 sends by itself is little */
#define BURST_SIZE     16384
#define KEEPALIVES_MAX 3 /* unanswered */
#define KEY_FILE_MAX   4096
#define TEXT_MAX       4096 /* kept of ssh_send_file() */
#define PIECE_SIZE     32768

/* libssh2 takes memory for each packet, nearly all of them of a size at which malloc(3) gives it back to the
 * system and gets it anew each time: a tenth of the time that a gigabyte takes. */
#define PARCEL_SIZE (PACKET_SIZE + 1024) /* a whole packet */
#define PARCEL_MIN  (PACKET_SIZE / 4)
#define PARCELS_MAX (WINDOW_SIZE / PACKET_SIZE)

/* --- libssh2 -------------------------------------------------------------------------------------------- */

struct libssh2 {
    __typeof__(libssh2_session_init_ex) *libssh2_session_init_ex;
    __typeof__(libssh2_session_free) *libssh2_session_free;
    __typeof__(libssh2_session_callback_set) *libssh2_session_callback_set;
    __typeof__(libssh2_session_set_blocking) *libssh2_session_set_blocking;
    __typeof__(libssh2_session_supported_algs) *libssh2_session_supported_algs;
    __typeof__(libssh2_session_method_pref) *libssh2_session_method_pref;
    __typeof__(libssh2_session_handshake) *libssh2_session_handshake;
    __typeof__(libssh2_session_hostkey) *libssh2_session_hostkey;
    __typeof__(libssh2_session_last_error) *libssh2_session_last_error;
    __typeof__(libssh2_session_last_errno) *libssh2_session_last_errno;
    __typeof__(libssh2_userauth_publickey_frommemory) *libssh2_userauth_publickey_frommemory;
    __typeof__(libssh2_keepalive_config) *libssh2_keepalive_config;
    __typeof__(libssh2_keepalive_send) *libssh2_keepalive_send;
    __typeof__(libssh2_channel_open_ex) *libssh2_channel_open_ex;
    __typeof__(libssh2_channel_process_startup) *libssh2_channel_process_startup;
    __typeof__(libssh2_channel_read_ex) *libssh2_channel_read_ex;
    __typeof__(libssh2_channel_write_ex) *libssh2_channel_write_ex;
    __typeof__(libssh2_channel_send_eof) *libssh2_channel_send_eof;
    __typeof__(libssh2_channel_eof) *libssh2_channel_eof;
    __typeof__(libssh2_channel_wait_closed) *libssh2_channel_wait_closed;
    __typeof__(libssh2_channel_get_exit_status) *libssh2_channel_get_exit_status;
    __typeof__(libssh2_channel_get_exit_signal) *libssh2_channel_get_exit_signal;
    __typeof__(libssh2_channel_close) *libssh2_channel_close;
    __typeof__(libssh2_free) *libssh2_free;
};

static const struct library_symbol symbols[] = {
    LIBRARY_SYMBOL(libssh2, libssh2_session_init_ex),
    LIBRARY_SYMBOL(libssh2, libssh2_session_free),
    LIBRARY_SYMBOL(libssh2, libssh2_session_callback_set),
    LIBRARY_SYMBOL(libssh2, libssh2_session_set_blocking),
    LIBRARY_SYMBOL(libssh2, libssh2_session_supported_algs),
    LIBRARY_SYMBOL(libssh2, libssh2_session_method_pref),
    LIBRARY_SYMBOL(libssh2, libssh2_session_handshake),
    LIBRARY_SYMBOL(libssh2, libssh2_session_hostkey),
    LIBRARY_SYMBOL(libssh2, libssh2_session_last_error),
    LIBRARY_SYMBOL(libssh2, libssh2_session_last_errno),
    LIBRARY_SYMBOL(libssh2, libssh2_userauth_publickey_frommemory),
    LIBRARY_SYMBOL(libssh2, libssh2_keepalive_config),
    LIBRARY_SYMBOL(libssh2, libssh2_keepalive_send),
    LIBRARY_SYMBOL(libssh2, libssh2_channel_open_ex),
    LIBRARY_SYMBOL(libssh2, libssh2_channel_process_startup),
    LIBRARY_SYMBOL(libssh2, libssh2_channel_read_ex),
    LIBRARY_SYMBOL(libssh2, libssh2_channel_write_ex),
    LIBRARY_SYMBOL(libssh2, libssh2_channel_send_eof),
    LIBRARY_SYMBOL(libssh2, libssh2_channel_eof),
    LIBRARY_SYMBOL(libssh2, libssh2_channel_wait_closed),
    LIBRARY_SYMBOL(libssh2, libssh2_channel_get_exit_status),
    LIBRARY_SYMBOL(libssh2, libssh2_channel_get_exit_signal),
    LIBRARY_SYMBOL(libssh2, libssh2_channel_close),
    LIBRARY_SYMBOL(libssh2, libssh2_free),
};

struct parcel {
    _Alignas(max_align_t) size_t size; /* of what follows; PARCEL_SIZE: may stay */
    struct parcel *next;
};

struct ssh {
    struct libssh2 lib;
    struct parcel *parcels;
    size_t parcel_count;
    LIBSSH2_SESSION *session;
    int socket;
    bool lost;
    bool closing;      /* libssh2 is to give up whatever it waits for */
    struct text queue; /* of it QUEUE_AT bytes are sent */
    size_t queue_at;
    size_t budget;  /* how many more bytes libssh2 gets to see now */
    size_t burst;   /* bytes received without waiting for more */
    int unanswered; /* keepalives, since anything was heard */
    int64_t heard_ms, asked_ms;
    char host_blob[KEYS_BLOB_SIZE];
};

struct channel {
    struct ssh *ssh;
    const char *command;
    LIBSSH2_CHANNEL *handle; /* NULL until it is open */
    bool runs;
};

/* Cheap to compute first. GCM came with libssh2 1.11; before, AES is computed block by block, and a stream
 * takes half as long again as with ssh(1) (P-11 of tools/bench). */
static const struct {
    int method;
    const char *names;
} methods[] = {
    { LIBSSH2_METHOD_KEX, "curve25519-sha256,curve25519-sha256@libssh.org" },
    { LIBSSH2_METHOD_HOSTKEY, "ssh-ed25519" },
    { LIBSSH2_METHOD_CRYPT_CS, "aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes256-ctr" },
    { LIBSSH2_METHOD_CRYPT_SC, "aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes256-ctr" },
    { LIBSSH2_METHOD_MAC_CS, "hmac-sha2-256,hmac-sha2-512,hmac-sha1" },
    { LIBSSH2_METHOD_MAC_SC, "hmac-sha2-256,hmac-sha2-512,hmac-sha1" },
};

/* --- memory --------------------------------------------------------------------------------------------- */

static void *take_memory(size_t size, void **abstract)
{
    struct ssh *s = *abstract;
    bool may_stay = size >= PARCEL_MIN && size <= PARCEL_SIZE;
    struct parcel *p = may_stay ? s->parcels : NULL;

    if (p != NULL) {
        s->parcels = p->next;
        s->parcel_count--;
        return p + 1;
    }
    size = may_stay ? PARCEL_SIZE : size;
    p = malloc(sizeof(*p) + size);
    if (p == NULL)
        return NULL;
    p->size = size;
    return p + 1;
}

static void give_memory(void *memory, void **abstract)
{
    struct ssh *s = *abstract;
    struct parcel *p = memory == NULL ? NULL : (struct parcel *)memory - 1;

    if (p == NULL || p->size != PARCEL_SIZE || s->parcel_count >= PARCELS_MAX) {
        free(p);
        return;
    }
    p->next = s->parcels;
    s->parcels = p;
    s->parcel_count++;
}

static void *change_memory(void *memory, size_t size, void **abstract)
{
    void *other = take_memory(size, abstract);

    if (memory != NULL && other != NULL) {
        size_t old = ((struct parcel *)memory - 1)->size;

        memcpy(other, memory, old < size ? old : size);
        give_memory(memory, abstract);
    }
    return other;
}

static void free_parcels(struct ssh *s)
{
    while (s->parcels != NULL) {
        struct parcel *next = s->parcels->next;

        free(s->parcels);
        s->parcels = next;
    }
}

/* --- the socket ----------------------------------------------------------------------------------------- */

/* A peer that sends a little and waits to hear that it arrived (RFC 896) hears it at once. A peer that sends
 * much is not waiting. */
static void acknowledge(struct ssh *s)
{
    if (s->burst < BURST_SIZE)
        descriptor_acknowledge(s->socket);
    s->burst = 0;
}

static ssize_t receive_bytes(int socket, void *out, size_t room, int flags, void **abstract)
{
    struct ssh *s = *abstract;

    (void)socket;
    if (s->closing)
        return -ECONNRESET;
    if (s->lost || s->budget == 0)
        return -EAGAIN;
    ssize_t n = RETRY_EINTR(recv(s->socket, out, room < s->budget ? room : s->budget, flags));

    if (n > 0) {
        s->heard_ms = clock_mono_ms();
        s->unanswered = 0;
        s->burst += (size_t)n;
        s->budget -= (size_t)n;
        return n;
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        acknowledge(s);
    else
        s->lost = true;
    return -EAGAIN;
}

static ssize_t send_bytes(int socket, const void *bytes, size_t size, int flags, void **abstract)
{
    struct ssh *s = *abstract;

    (void)socket;
    (void)flags;
    if (!s->closing && !s->lost)
        text_add(&s->queue, bytes, size);
    return (ssize_t)size;
}

/* So that the queue never holds more than what is not sent yet. */
static void forget_sent(struct ssh *s)
{
    if (s->queue_at == 0)
        return;
    s->queue.size -= s->queue_at;
    memmove(s->queue.bytes, s->queue.bytes + s->queue_at, s->queue.size);
    s->queue_at = 0;
}

void ssh_flush(struct ssh *s)
{
    while (s->queue_at < s->queue.size && !s->lost) {
        ssize_t n = RETRY_EINTR(
            send(s->socket, s->queue.bytes + s->queue_at, s->queue.size - s->queue_at, MSG_NOSIGNAL));

        if (n >= 0)
            s->queue_at += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            break;
        else
            s->lost = true;
    }
    if (s->lost)
        s->queue_at = s->queue.size;
    forget_sent(s);
}

struct pollfd ssh_poll(const struct ssh *s, bool reading)
{
    bool writing = s->queue_at < s->queue.size;

    return (struct pollfd){ .fd = s->lost ? -1 : s->socket,
                            .events = (short)((reading ? POLLIN : 0) | (writing ? POLLOUT : 0)) };
}

bool ssh_is_lost(const struct ssh *s)
{
    return s->lost;
}

void ssh_tend(struct ssh *s)
{
    int64_t now = clock_mono_ms();

    if (s->lost || now - s->heard_ms < SSH_TEND_MS || now - s->asked_ms < SSH_TEND_MS)
        return;
    if (s->unanswered >= KEEPALIVES_MAX) {
        s->lost = true;
        return;
    }
    s->unanswered++;
    s->asked_ms = now;
    (void)s->lib.libssh2_keepalive_send(s->session, NULL);
}

static bool is_cancelled(const struct ssh_cancel *c)
{
    return c != NULL && c->fd >= 0 && *c->signal != 0;
}

/* What woke us is taken first: a signal that comes after the look at it wakes us again. */
static void take_signal(const struct ssh_cancel *c)
{
    char bytes[64];

    (void)!read(c->fd, bytes, sizeof(bytes));
    if (*c->signal == 0 && c->suspend != NULL)
        c->suspend();
}

/* Waits for the socket, the caller's signal, or the end. -1: the time is over, or the caller gives up. */
static int wait_for_socket(struct pollfd *socket, const struct ssh_cancel *cancel, int64_t end_ms)
{
    struct pollfd polls[] = { *socket, { .fd = cancel == NULL ? -1 : cancel->fd, .events = POLLIN } };
    int64_t left = end_ms - clock_mono_ms();

    socket->revents = 0;
    if (left <= 0 || is_cancelled(cancel))
        return -1;
    if (poll(polls, ARRAY_LEN(polls), (int)left) <= 0)
        return 0; /* interrupted or over: the next round sees */
    socket->revents = polls[0].revents;
    if (cancel != NULL && polls[1].revents != 0)
        take_signal(cancel);
    return is_cancelled(cancel) ? -1 : 0;
}

/* Sends what is to be sent and waits until something has come. -1: the time is over, the connection lost, or
 * the caller gives up. */
static int wait_for_peer(struct ssh *s, const struct ssh_cancel *cancel, int64_t end_ms)
{
    ssh_flush(s);
    struct pollfd waiting = ssh_poll(s, true);

    return s->lost ? -1 : wait_for_socket(&waiting, cancel, end_ms);
}

static int cancelled(struct error *e)
{
    return error_set(e, ERROR_ACTION_FAILED, 0, "interrupted before the guest took the command");
}

/* --- opening -------------------------------------------------------------------------------------------- */

struct opening {
    const struct ssh_target *target;
    int64_t end_ms;
    int deadline_ms;
    enum ssh_obstacle *why;
    char key[KEY_FILE_MAX];
    size_t key_size;
};

static int stop_opening(const struct opening *o, enum ssh_obstacle why)
{
    *o->why = why;
    return -1;
}

/* The time is over, or the caller gives up. */
static int silent(const struct opening *o, const char *doing, struct error *e)
{
    if (is_cancelled(o->target->cancel)) {
        cancelled(e);
        return stop_opening(o, SSH_LOCAL);
    }
    error_set(e, ERROR_TIMEOUT, 0, "%s did not answer within %d.%01d s (%s)", o->target->address,
              o->deadline_ms / 1000, o->deadline_ms % 1000 / 100, doing);
    return stop_opening(o, SSH_SILENT);
}

static int check_key(const struct opening *o, int fd, struct error *e)
{
    const char *name = o->target->key_file;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return error_set_errno(e, ERROR_PERM_DENIED, errno, "cannot look at the key '%s'", name);
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERROR_PERM_DENIED, 0, "the key '%s' is not a regular file", name);
    if (st.st_uid != geteuid())
        return error_set(e, ERROR_PERM_DENIED, 0, "the key '%s' belongs to user %ld, not to the caller", name,
                         (long)st.st_uid);
    if ((st.st_mode & 077) != 0) {
        e->suggestion =
            "Make it readable by its owner alone (chmod 600), and think about who may have read it.";
        return error_set(e, ERROR_PERM_DENIED, 0,
                         "the key '%s' has mode %04o and must be nobody else's to read or write: 0600", name,
                         (unsigned)st.st_mode & 07777);
    }
    return 0;
}

static int read_key(struct opening *o, struct error *e)
{
    const char *name = o->target->key_file;
    AUTO_CLOSE int fd =
        RETRY_EINTR(openat(o->target->key_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    ssize_t n;

    if (fd < 0)
        return error_set_errno(e, ERROR_PERM_DENIED, errno, "cannot open the key '%s'", name);
    if (check_key(o, fd, e) < 0)
        return -1;
    n = RETRY_EINTR(read(fd, o->key, sizeof(o->key))); /* a regular file is read in one piece */
    if (n < 0)
        return error_set_errno(e, ERROR_PERM_DENIED, errno, "cannot read the key '%s'", name);
    o->key_size = (size_t)n;
    return 0;
}

/* Why connect(2) failed. */
static int refused(const struct opening *o, int error, struct error *e)
{
    static const int no_route[] = { EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, ENETDOWN };

    if (error == ETIMEDOUT)
        return silent(o, "connecting", e);
    for (size_t i = 0; i < ARRAY_LEN(no_route); i++) {
        if (error != no_route[i])
            continue;
        e->suggestion =
            "On macOS 15 and later, also allow the program that this was started from under System "
            "Settings, Privacy & Security, Local Network.";
        error_set(e, ERROR_ACTION_FAILED, error, "cannot reach %s", o->target->address);
        return stop_opening(o, SSH_NO_ROUTE);
    }
    error_set(e, ERROR_ACTION_FAILED, error, "cannot connect to %s port %d", o->target->address,
              o->target->port);
    return stop_opening(o, error == ECONNREFUSED ? SSH_REFUSED : SSH_LOCAL);
}

static int finish_connect(struct ssh *s, const struct opening *o, struct error *e)
{
    struct pollfd waiting = { .fd = s->socket, .events = POLLOUT };
    int error = 0;

    while (waiting.revents == 0)
        if (wait_for_socket(&waiting, o->target->cancel, o->end_ms) < 0)
            return silent(o, "connecting", e);
    if (getsockopt(s->socket, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){ sizeof(error) }) < 0)
        error = errno;
    return error == 0 ? 0 : refused(o, error, e);
}

static int connect_to(struct ssh *s, const struct opening *o, const struct addrinfo *address, struct error *e)
{
    s->socket = descriptor_socket(address->ai_family, SOCK_STREAM, 0, true);
    if (s->socket < 0) {
        error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot make a socket");
        return stop_opening(o, SSH_LOCAL);
    }
    (void)setsockopt(s->socket, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    if (connect(s->socket, address->ai_addr, address->ai_addrlen) == 0)
        return 0;
    return errno == EINPROGRESS || errno == EINTR ? finish_connect(s, o, e) : refused(o, errno, e);
}

static int connect_target(struct ssh *s, const struct opening *o, struct error *e)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct addrinfo *address = NULL;
    char port[16];

    snprintf(port, sizeof(port), "%d", o->target->port);
    if (getaddrinfo(o->target->address, port, &hints, &address) != 0) {
        error_set(e, ERROR_ACTION_FAILED, 0, "'%s' is not a numeric address", o->target->address);
        return stop_opening(o, SSH_LOCAL);
    }
    int r = connect_to(s, o, address, e);

    freeaddrinfo(address);
    return r;
}

static void set_callback(struct ssh *s, int kind, const void *function)
{
    void *pointer;

    memcpy(&pointer, function, sizeof(pointer)); /* POSIX: pointers to functions have the size of others */
    s->lib.libssh2_session_callback_set(s->session, kind, pointer);
}

static bool is_known(const char *const *known, int count, const char *name, size_t size)
{
    for (int i = 0; i < count; i++)
        if (strlen(known[i]) == size && memcmp(known[i], name, size) == 0)
            return true;
    return false;
}

/* Only those that libssh2 knows: 1.10 takes others out by a memcpy(3) onto the same memory. */
static int prefer(const struct ssh *s, int method, const char *names, struct error *e)
{
    struct text wanted = { 0 };
    const char **known = NULL;
    int count = s->lib.libssh2_session_supported_algs(s->session, method, &known);

    for (const char *at = names; count > 0 && *at != '\0';) {
        size_t size = strcspn(at, ",");

        if (is_known(known, count, at, size))
            text_print(&wanted, "%s%.*s", wanted.size > 0 ? "," : "", (int)size, at);
        at += size + (at[size] == ',');
    }
    int r = wanted.size == 0 ? -1 : s->lib.libssh2_session_method_pref(s->session, method, text_get(&wanted));

    text_done(&wanted);
    s->lib.libssh2_free(s->session, (void *)(uintptr_t)known);
    return r == 0 ? 0 : error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0, "this libssh2 has none of %s", names);
}

static int make_session(struct ssh *s, struct error *e)
{
    ssize_t (*const receiver)(int, void *, size_t, int, void **) = receive_bytes;
    ssize_t (*const sender)(int, const void *, size_t, int, void **) = send_bytes;

    s->session = s->lib.libssh2_session_init_ex(take_memory, give_memory, change_memory, s);
    if (s->session == NULL)
        mem_exhausted();
    s->lib.libssh2_session_set_blocking(s->session, 0);
    set_callback(s, LIBSSH2_CALLBACK_RECV, &receiver);
    set_callback(s, LIBSSH2_CALLBACK_SEND, &sender);
    s->lib.libssh2_keepalive_config(s->session, 1, 2);
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        if (prefer(s, methods[i].method, methods[i].names, e) < 0)
            return -1;
    return 0;
}

/* After the time was over, the connection lost, or libssh2 gave up. */
static int broken(const struct ssh *s, const struct opening *o, const char *doing, int code, struct error *e)
{
    const struct ssh_target *target = o->target;
    char *text = NULL;

    if (code == LIBSSH2_ERROR_EAGAIN && !s->lost)
        return silent(o, doing, e);
    if (code == LIBSSH2_ERROR_EAGAIN) {
        error_set(e, ERROR_ACTION_FAILED, 0, "%s port %d ended the connection (%s)", target->address,
                  target->port, doing);
    } else {
        s->lib.libssh2_session_last_error(s->session, &text, NULL, 0);
        error_set(e, ERROR_ACTION_FAILED, code, "no SSH connection with %s port %d (%s): %s", target->address,
                  target->port, doing, text == NULL ? "" : text);
    }
    return stop_opening(o, SSH_NOT_SSH);
}

static int shake_hands(struct ssh *s, const struct opening *o, struct error *e)
{
    int code;

    do
        code = s->lib.libssh2_session_handshake(s->session, s->socket);
    while (code == LIBSSH2_ERROR_EAGAIN && wait_for_peer(s, o->target->cancel, o->end_ms) == 0);
    return code == 0 ? 0 : broken(s, o, "shaking hands", code, e);
}

static int check_host(struct ssh *s, const struct opening *o, struct error *e)
{
    const struct ssh_target *target = o->target;
    size_t size = 0;
    int type = 0;
    const char *raw = s->lib.libssh2_session_hostkey(s->session, &size, &type);

    if (raw == NULL || !keys_print_blob((const uint8_t *)raw, size, s->host_blob)) {
        error_set(e, ERROR_ACTION_FAILED, 0, "%s port %d has no Ed25519 host key", target->address,
                  target->port);
        return stop_opening(o, SSH_NOT_SSH);
    }
    if (target->known_blob == NULL || strcmp(target->known_blob, s->host_blob) == 0)
        return 0;
    error_set(e, ERROR_HOST_KEY_CHANGED, 0,
              "%s presents another host key than the one that is pinned: it is not the guest, or its key was "
              "changed",
              target->address);
    return stop_opening(o, SSH_HOST_KEY);
}

static int log_in(struct ssh *s, const struct opening *o, struct error *e)
{
    const struct ssh_target *target = o->target;
    bool asked = false;
    int code;

    while ((code = s->lib.libssh2_userauth_publickey_frommemory(s->session, target->user,
                                                                strlen(target->user), NULL, 0, o->key,
                                                                o->key_size, NULL)) == LIBSSH2_ERROR_EAGAIN &&
           wait_for_peer(s, target->cancel, o->end_ms) == 0)
        asked = true;
    if (code != 0 && code != LIBSSH2_ERROR_EAGAIN && !asked) {
        error_set(e, ERROR_PERM_DENIED, 0, "the key '%s' is damaged, or not an OpenSSH key",
                  target->key_file);
        return stop_opening(o, SSH_LOCAL);
    }
    switch (code) {
    case 0:
        return 0;
    case LIBSSH2_ERROR_AUTHENTICATION_FAILED:
    case LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED:
        error_set(e, ERROR_AUTH_FAILED, 0, "%s does not let user '%.64s' in with the sandbox's key",
                  target->address, target->user);
        return stop_opening(o, SSH_LOGIN);
    default:
        return broken(s, o, "logging in", code, e);
    }
}

static int open_connection(struct ssh *s, struct opening *o, struct error *e)
{
    if (library_open("libssh2.so.1", "libssh2-1", symbols, ARRAY_LEN(symbols), &s->lib, e) < 0 ||
        read_key(o, e) < 0)
        return stop_opening(o, SSH_LOCAL);
    if (connect_target(s, o, e) < 0)
        return -1;
    if (make_session(s, e) < 0)
        return stop_opening(o, SSH_LOCAL);
    if (shake_hands(s, o, e) < 0 || check_host(s, o, e) < 0 || log_in(s, o, e) < 0)
        return -1;
    s->heard_ms = s->asked_ms = clock_mono_ms();
    return 0;
}

int ssh_open(const struct ssh_target *target, int deadline_ms, struct ssh **out, enum ssh_obstacle *why,
             struct error *e)
{
    struct opening o = { .target = target, .deadline_ms = deadline_ms, .why = why };
    struct ssh *s = mem_alloc(sizeof(*s));
    int r;

    o.end_ms = clock_mono_ms() + deadline_ms;
    *why = SSH_NO_OBSTACLE;
    s->socket = -1;
    s->budget = SIZE_MAX;
    r = open_connection(s, &o, e);
    keys_wipe(o.key, sizeof(o.key));
    if (r < 0) {
        e->delivery = DELIVERY_NOT_DELIVERED;
        e->retry = RETRY_SAFE;
        ssh_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

void ssh_close(struct ssh *s)
{
    if (s == NULL)
        return;
    if (s->session != NULL) {
        ssh_flush(s); /* as far as it goes without waiting */
        s->closing = true;
        s->lib.libssh2_session_free(s->session);
    }
    free_parcels(s);
    util_close_fd(&s->socket);
    text_done(&s->queue);
    free(s);
}

const char *ssh_host_blob(const struct ssh *s)
{
    return s->host_blob;
}

/* --- channels ------------------------------------------------------------------------------------------- */

struct channel *channel_start(struct ssh *s, const char *command)
{
    struct channel *c = mem_alloc(sizeof(*c));

    c->ssh = s;
    c->command = command;
    return c;
}

static int not_started(const struct channel *c, struct error *e)
{
    char *text = NULL;

    c->ssh->lib.libssh2_session_last_error(c->ssh->session, &text, NULL, 0);
    return error_set(e, ERROR_ACTION_FAILED, 0, "the guest does not start commands over SSH: %s",
                     text == NULL ? "" : text);
}

int channel_advance(struct channel *c, struct error *e)
{
    static const char kind[] = "session", request[] = "exec";
    struct ssh *s = c->ssh;
    int code;

    if (c->runs || s->lost)
        return c->runs;
    if (c->handle == NULL)
        c->handle = s->lib.libssh2_channel_open_ex(s->session, kind, sizeof(kind) - 1, WINDOW_SIZE,
                                                   PACKET_SIZE, NULL, 0);
    if (c->handle == NULL)
        return s->lib.libssh2_session_last_errno(s->session) == LIBSSH2_ERROR_EAGAIN ? 0 : not_started(c, e);
    code = s->lib.libssh2_channel_process_startup(c->handle, request, sizeof(request) - 1, c->command,
                                                  (unsigned)strlen(c->command));
    if (code == LIBSSH2_ERROR_EAGAIN)
        return 0;
    c->runs = code == 0;
    return c->runs ? 1 : not_started(c, e);
}

ssize_t channel_read(struct channel *c, enum channel_stream stream, void *out, size_t room)
{
    struct ssh *s = c->ssh;
    ssize_t n;

    if (!c->runs)
        return 0;
    /* It would decrypt all that comes before it gives any of it, and the peer would wait with a full window.
     */
    s->budget = room;
    n = s->lib.libssh2_channel_read_ex(c->handle, stream == CHANNEL_STDERR ? SSH_EXTENDED_DATA_STDERR : 0,
                                       out, room);
    s->budget = SIZE_MAX;
    if (n > 0 || n == LIBSSH2_ERROR_EAGAIN)
        return n > 0 ? n : 0;
    if (n < 0) { /* what it got makes no sense, or the peer has said good-bye */
        s->lost = true;
        return 0;
    }
    return s->lib.libssh2_channel_eof(c->handle) == 1 ? -1 : 0;
}

size_t channel_write(struct channel *c, const void *bytes, size_t size)
{
    struct ssh *s = c->ssh;
    size_t done = 0;

    while (c->runs && !s->lost && done < size) {
        if (s->queue.size - s->queue_at >= QUEUE_MAX)
            ssh_flush(s);
        if (s->queue.size - s->queue_at >= QUEUE_MAX)
            break; /* the socket is full; poll(2) tells when it is not */
        ssize_t n = s->lib.libssh2_channel_write_ex(c->handle, 0, (const char *)bytes + done, size - done);

        if (n <= 0)
            break; /* the window is full; or the guest has closed the channel, which who reads finds */
        done += (size_t)n;
    }
    return done;
}

void channel_send_eof(struct channel *c)
{
    if (c->runs)
        (void)c->ssh->lib.libssh2_channel_send_eof(c->handle);
}

static bool was_ended_by_signal(struct channel *c)
{
    const struct libssh2 *lib = &c->ssh->lib;
    char *name = NULL;
    size_t size = 0;

    if (lib->libssh2_channel_get_exit_signal(c->handle, &name, &size, NULL, NULL, NULL, NULL) != 0 ||
        name == NULL)
        return false;
    lib->libssh2_free(c->ssh->session, name);
    return true;
}

bool channel_is_deserted(struct channel *c)
{
    return c->runs && (was_ended_by_signal(c) || c->ssh->lib.libssh2_channel_get_exit_status(c->handle) != 0);
}

bool channel_has_ended(struct channel *c, int *status)
{
    const struct libssh2 *lib = &c->ssh->lib;

    if (!c->runs || lib->libssh2_channel_wait_closed(c->handle) != 0)
        return false;
    *status = was_ended_by_signal(c) ? -1 : lib->libssh2_channel_get_exit_status(c->handle);
    return true;
}

/* libssh2 keeps it until the session ends: freeing it would wait for the guest's answer. */
void channel_close(struct channel *c)
{
    if (c == NULL)
        return;
    if (c->handle != NULL && !c->ssh->lost)
        (void)c->ssh->lib.libssh2_channel_close(c->handle);
    free(c);
}

/* --- fixed commands ------------------------------------------------------------------------------------- */

struct capture {
    struct channel *channel;
    const char
        *bytes; /* the input that is not sent yet: of memory, or the piece of FILE that was read last */
    size_t size;
    int file; /* -1: none, or all is read */
    const struct ssh_cancel *cancel;
    off_t offset;
    char piece[PIECE_SIZE];
    bool eof_sent;
    bool out_ended, err_ended;
    struct text *out;
    size_t max;
};

static int fill(struct capture *c, struct error *e)
{
    if (c->size > 0 || c->file < 0)
        return 0;
    ssize_t n = RETRY_EINTR(pread(c->file, c->piece, sizeof(c->piece), c->offset));

    if (n < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot read the file that is to be sent");
    if (n == 0)
        c->file = -1;
    c->bytes = c->piece;
    c->size = (size_t)n;
    c->offset += n;
    return 0;
}

static int feed(struct capture *c, struct error *e)
{
    size_t taken = 1;

    while (taken > 0 && !c->eof_sent) {
        if (fill(c, e) < 0)
            return -1;
        taken = channel_write(c->channel, c->bytes, c->size);
        c->bytes += taken;
        c->size -= taken;
        if (c->size > 0 || c->file >= 0)
            continue;
        channel_send_eof(c->channel);
        c->eof_sent = true;
    }
    return 0;
}

/* Of what is there, all but the last MAX bytes goes. */
static void keep_last(struct text *out, size_t max)
{
    size_t extra = out->size > max ? out->size - max : 0;

    memmove(out->bytes, out->bytes + extra, out->size - extra + 1);
    out->size -= extra;
}

/* True when the stream has ended. */
static bool drain(struct capture *c, enum channel_stream stream)
{
    char buffer[4096];
    ssize_t n;

    while ((n = channel_read(c->channel, stream, buffer, sizeof(buffer))) > 0) {
        if (stream != CHANNEL_STDOUT)
            continue;
        text_add(c->out, buffer, (size_t)n);
        if (c->out->size / 2 > c->max)
            keep_last(c->out, c->max);
    }
    return n < 0;
}

/* 1 when it has ended. */
static int go_on(struct capture *c, int *status, struct error *e)
{
    int runs = channel_advance(c->channel, e);

    if (runs <= 0)
        return runs;
    if (feed(c, e) < 0)
        return -1;
    for (int i = 0; i < 2; i++) { /* neither stream has ended while anything of the other is there */
        c->out_ended = drain(c, CHANNEL_STDOUT) || c->out_ended;
        c->err_ended = drain(c, CHANNEL_STDERR) || c->err_ended;
    }
    return c->out_ended && c->err_ended && channel_has_ended(c->channel, status);
}

static int run_capture(struct ssh *s, struct capture *c, int deadline_ms, int *status, struct error *e)
{
    int64_t end_ms = clock_mono_ms() + deadline_ms;
    int r;

    text_add(c->out, "", 0);
    while ((r = go_on(c, status, e)) == 0 && wait_for_peer(s, c->cancel, end_ms) == 0) {
    }
    if (r > 0)
        return 0;
    if (r == 0 && is_cancelled(c->cancel))
        return cancelled(e);
    if (r == 0 && s->lost)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the connection to the guest was lost");
    return r < 0 ? -1
                 : error_set(e, ERROR_TIMEOUT, 0, "the guest did not answer within %d.%01d s",
                             deadline_ms / 1000, deadline_ms % 1000 / 100);
}

static int capture(struct ssh *s, const char *command, const struct capture *how, int deadline_ms,
                   int *status, struct error *e)
{
    struct capture *c = mem_alloc(sizeof(*c));

    *c = *how;
    c->channel = channel_start(s, command);
    int r = run_capture(s, c, deadline_ms, status, e);

    keep_last(c->out, c->max);
    channel_close(c->channel);
    ssh_flush(s);
    free(c);
    return r;
}

int ssh_capture(struct ssh *s, const char *command, const void *input, size_t input_size, size_t max,
                int deadline_ms, struct text *out, int *status, struct error *e)
{
    const struct capture how = { .bytes = input, .size = input_size, .file = -1, .out = out, .max = max };

    return capture(s, command, &how, deadline_ms, status, e);
}

int ssh_send_file(struct ssh *s, const char *command, int input, int deadline_ms,
                  const struct ssh_cancel *cancel, struct text *out, int *status, struct error *e)
{
    const struct capture how = { .bytes = "", .file = input, .cancel = cancel, .out = out, .max = TEXT_MAX };

    return capture(s, command, &how, deadline_ms, status, e);
}

#include "providers/remote/sync.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"

int sync_hash(const struct remote_file *file, uint8_t sum[HASH_SHA1_SIZE], struct error *e)
{
    AUTO_CLOSE int fd = RETRY_EINTR(open(file->path, O_RDONLY | O_CLOEXEC));
    uint8_t block[16384], result[HASH_SIZE_MAX];
    struct hash hash;
    ssize_t n = -1;

    hash_init(&hash, HASH_SHA1);
    while (fd >= 0 && (n = RETRY_EINTR(read(fd, block, sizeof(block)))) > 0)
        hash_add(&hash, block, (size_t)n);
    if (n < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot read '%s', which the guest needs",
                               file->path);
    hash_end(&hash, result);
    memcpy(sum, result, HASH_SHA1_SIZE);
    return 0;
}

/* In single quotes, sh, bash, zsh, csh and fish take everything as it is but quotes, backslashes (fish), `!`
 * and line ends (csh): there are none. What start-up files print comes before; the ID tells our lines from
 * theirs. A copy that was cut off goes on without its reader (SIGPIPE) and removes its file: that is left
 * behind only when the guest itself ends, and an hour later the next copy removes it. */
void sync_print_command(struct text *out, const char *name, const char *sum, const char *id)
{
    static const char usual[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";

    assert(name[strspn(name, usual)] == '\0' && name[0] != '-' && name[0] != '.');
    assert(sum[strspn(sum, "0123456789abcdef")] == '\0' && id[strspn(id, "0123456789abcdef")] == '\0');
    text_print(out,
               "exec /bin/sh -c '"
               "trap \"\" PIPE; exec 2>&1; d=$HOME/" REMOTE_BIN "; t=$d/%s.new-%s; "
               "mkdir -p \"$d\" && cat >\"$t\" && chmod 755 \"$t\" && "
               "case $( (sha1sum || shasum -a 1) <\"$t\" 2>/dev/null ) in "
               "%s*) mv -f \"$t\" \"$d/%s\" && echo && echo %s done;; "
               "*) echo; echo %s the copy is damaged;; esac; "
               "rm -f \"$t\"; find \"$d\" -name \"%s.new-*\" -mmin +60 -exec rm -f {} +'",
               name, id, sum, name, id, id, name);
}

/* The last line of what the guest has said, for a person. */
static void print_last_line(char *out, size_t room, const struct text *said)
{
    const char *text = text_get(said);
    size_t end = said->size, begin;

    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == '\r'))
        end--;
    for (begin = end; begin > 0 && text[begin - 1] != '\n'; begin--) {
    }
    text_clean(out, room, text + begin, end - begin);
}

static int judge(const struct remote_file *file, const char *id, const struct text *said, int status,
                 struct error *e)
{
    char line[24], last[160];

    snprintf(line, sizeof(line), "\n%s done", id);
    if (memmem(said->bytes, said->size, line, strlen(line)) != NULL) /* start-up files may print NULs, too */
        return 0;
    print_last_line(last, sizeof(last), said);
    return error_set(e, ERROR_ACTION_FAILED, 0, "cannot copy %s into the guest (status %d): %s", file->name,
                     status, last[0] == '\0' ? "it did not say why" : last);
}

static void print_hex(char out[HASH_HEX_MAX], const uint8_t sum[HASH_SHA1_SIZE])
{
    for (size_t i = 0; i < HASH_SHA1_SIZE; i++)
        snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

int sync_upload(struct ssh *s, const struct remote_file *file, const uint8_t sum[HASH_SHA1_SIZE],
                int deadline_ms, const struct ssh_cancel *cancel, struct error *e)
{
    AUTO_CLOSE int fd = RETRY_EINTR(open(file->path, O_RDONLY | O_CLOEXEC));
    char id[17], digits[HASH_HEX_MAX];
    struct text command = { 0 }, said = { 0 };
    int status = -1;

    if (fd < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open '%s'", file->path);
    util_random_id(id);
    print_hex(digits, sum);
    sync_print_command(&command, file->name, digits, id);
    int r = ssh_send_file(s, text_get(&command), fd, deadline_ms, cancel, &said, &status, e);

    if (r == 0)
        r = judge(file, id, &said, status, e);
    text_done(&command);
    text_done(&said);
    return r;
}

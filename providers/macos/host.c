#include "providers/macos/host.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"
#include "core/spawn.h"
#include "providers/macos/files.h"

#define READ_MS       2000
#define WORDS_MAX     8 /* a verb and its arguments */
#define LOCKS_MAX     3
#define FIRST_LOCK_FD 20 /* the script uses descriptors below 10, and shells those from 10 on */
#define LOG_TAIL      4096

/* These change nothing, so that a host that nothing was ever written on can be asked. */
static const char *const questions[] = { "host", "system", "verify", "containers", "attached", "arp" };

static bool is_question(const char *verb)
{
    for (size_t i = 0; i < ARRAY_LEN(questions); i++)
        if (strcmp(questions[i], verb) == 0)
            return true;
    return false;
}

/* An attached image has a process, diskimages-helper, that may have inherited what hdiutil had: a lock would
 * stay taken for as long as a killed command's disk is attached, and nobody could take it to detach the disk.
 */
static bool leaves_process(const char *verb)
{
    return strcmp(verb, "attach") == 0;
}

/* ---- what a status stands for ---- */

static enum error_code code_of(int exit_status)
{
    static const struct {
        int status; /* provider.sh, and sysexits(3) */
        enum error_code code;
    } rows[] = {
        { 64, ERROR_INTERNAL },
        { 69, ERROR_PROVIDER_UNAVAILABLE },
        { 75, ERROR_SANDBOX_BUSY },
        { 77, ERROR_PERM_DENIED },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].status == exit_status)
            return rows[i].code;
    return ERROR_ACTION_FAILED;
}

/* The last line with anything in it, fit for a message. */
static void find_last_line(const char *bytes, size_t size, char *out, size_t room)
{
    const char *start;

    while (size > 0 && (bytes[size - 1] == '\n' || bytes[size - 1] == '\r' || bytes[size - 1] == ' '))
        size--;
    for (start = bytes + size; start > bytes && start[-1] != '\n';)
        start--;
    text_clean(out, room, start, (size_t)(bytes + size - start));
}

static int judge(const char *verb, int status, const char *said, size_t size, struct error *e)
{
    char reason[400];

    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFSIGNALED(status))
        return error_set(e, ERROR_ACTION_FAILED, 0, "'provider.sh %s' was ended by signal %d", verb,
                         WTERMSIG(status));
    find_last_line(said, size, reason, sizeof(reason));
    if (reason[0] == '\0')
        return error_set(e, code_of(WEXITSTATUS(status)), 0, "'provider.sh %s' ended with status %d", verb,
                         WEXITSTATUS(status));
    return error_set(e, code_of(WEXITSTATUS(status)), 0, "%s", reason);
}

/* ---- running it ---- */

/* The command line in *LINE, which ends with NULL. PATH is where the script's file is, when it is one. */
static int prepare(const struct host_call *call, const char *const *words, char path[ROOT_PATH_MAX],
                   const char *line[], struct error *e)
{
    size_t count = 0, given = 0;

    line[count++] = "/bin/sh";
    if (is_question(words[0])) {
        line[count++] = "-c";
        line[count++] = macos_files[FILE_PROVIDER_SH].bytes;
        line[count++] = macos_files[FILE_PROVIDER_SH].name;
    } else {
        if (files_path(call->root, FILE_PROVIDER_SH, path, e) < 0)
            return -1;
        line[count++] = path;
    }
    for (; words[given] != NULL; given++) {
        assert(given < WORDS_MAX);
        line[count++] = words[given];
    }
    line[count] = NULL;
    return 0;
}

/* Copies that are out of the script's way. */
static int copy_locks(const int *locks, int copies[LOCKS_MAX], struct error *e)
{
    for (size_t i = 0; i < LOCKS_MAX && locks[i] >= 0; i++) {
        copies[i] = fcntl(locks[i], F_DUPFD_CLOEXEC, FIRST_LOCK_FD);
        if (copies[i] < 0)
            return error_set_errno(e, ERROR_INTERNAL, errno, "cannot copy a lock's descriptor");
    }
    return 0;
}

static int run_answering(const struct spawn *s, const struct host_call *call, const char *verb,
                         struct text *answer, struct error *e)
{
    struct text said = { 0 };
    int status = 0;
    int result = spawn_capture(s, call->timeout_ms, HOST_ANSWER_MAX, answer, &said, &status, e);

    if (result == 0)
        result = judge(verb, status, text_get(&said), said.size, e);
    text_done(&said);
    return result;
}

static int judge_by_log(const struct host_call *call, const char *verb, int status, struct error *e)
{
    char tail[LOG_TAIL];
    struct stat st = { 0 };
    ssize_t got = 0;

    if (fstat(call->log, &st) == 0)
        got = RETRY_EINTR(
            pread(call->log, tail, sizeof(tail), st.st_size > LOG_TAIL ? st.st_size - (off_t)LOG_TAIL : 0));
    return judge(verb, status, tail, got > 0 ? (size_t)got : 0, e);
}

static int run_logging(const struct spawn *s, const struct host_call *call, const char *verb, struct error *e)
{
    int status = 0, ended;
    pid_t pid;

    if (spawn_start(s, &pid, e) < 0)
        return -1;
    ended = spawn_wait(pid, call->timeout_ms, &status, e);
    if (ended == 1)
        return judge_by_log(call, verb, status, e);
    spawn_kill(pid);
    return error_set(e, ERROR_TIMEOUT, 0, "'provider.sh %s' did not end within %d s and was killed", verb,
                     call->timeout_ms / 1000);
}

int host_call(const struct host_call *call, const char *const *words, struct text *answer, struct error *e)
{
    const char *line[4 + WORDS_MAX + 1];
    char path[ROOT_PATH_MAX];
    int copies[LOCKS_MAX + 1] = { -1, -1, -1, -1 };
    struct spawn s = { .directory = -1, .streams = { -1, call->log, call->log }, .keep = copies };
    int result = -1;

    if (prepare(call, words, path, line, e) < 0)
        return -1;
    s.argv = (char *const *)(uintptr_t)line; /* posix_spawn(3) takes no const, and changes nothing */
    if (leaves_process(words[0]) || copy_locks(call->locks, copies, e) == 0)
        result = call->log >= 0 ? run_logging(&s, call, words[0], e)
                                : run_answering(&s, call, words[0], answer, e);
    for (size_t i = 0; i < LOCKS_MAX; i++)
        util_close_fd(&copies[i]);
    return result;
}

int host_run_words(const struct root *root, int op_lock, int timeout_ms, struct text *answer, struct error *e,
                   const char *const *words)
{
    const struct host_call call = {
        .root = root, .locks = { op_lock, -1 }, .timeout_ms = timeout_ms, .log = -1
    };

    return host_call(&call, words, answer, e);
}

bool host_is_broken(const char *program, int op_lock, int timeout_ms)
{
    struct text answer = { 0 };
    struct error ignored = { 0 };
    bool broken = host_run(NULL, op_lock, timeout_ms, &answer, &ignored, "verify", program, NULL) == 0 &&
                  strcmp(text_get(&answer), "broken\n") == 0;

    text_done(&answer);
    return broken;
}

/* ---- what the host is ---- */

static const char *const tools_names[] = {
    [HOST_TOOLS_READY] = "ready",     [HOST_TOOLS_ABSENT] = "absent",   [HOST_TOOLS_STALE] = "stale",
    [HOST_TOOLS_LICENCE] = "licence", [HOST_TOOLS_UNKNOWN] = "unknown",
};
_Static_assert(ARRAY_LEN(tools_names) == HOST_TOOLS_COUNT, "each has a name");

static enum host_tools parse_tools(const char *name)
{
    for (enum host_tools i = 0; i < HOST_TOOLS_UNKNOWN; i++)
        if (strcmp(tools_names[i], name) == 0)
            return i;
    return HOST_TOOLS_UNKNOWN;
}

/* A key that this version does not know is passed over. */
static void take_value(struct host *h, const char *key, const char *value)
{
    if (strcmp(key, "system") == 0)
        snprintf(h->system, sizeof(h->system), "%s", value);
    else if (strcmp(key, "version") == 0)
        snprintf(h->version, sizeof(h->version), "%s", value);
    else if (strcmp(key, "leases") == 0)
        snprintf(h->leases, sizeof(h->leases), "%s", value);
    else if (strcmp(key, "arm64") == 0)
        h->apple_silicon = strcmp(value, "1") == 0;
    else if (strcmp(key, "virtual") == 0)
        h->virtual_machine = strcmp(value, "1") == 0;
    else if (strcmp(key, "tools") == 0)
        h->tools = parse_tools(value);
}

static void take_lines(struct host *h, char *text)
{
    char *next = NULL;

    for (char *line = strtok_r(text, "\n", &next); line != NULL; line = strtok_r(NULL, "\n", &next)) {
        char *equals = strchr(line, '=');

        if (equals == NULL)
            continue;
        *equals = '\0';
        take_value(h, line, equals + 1);
    }
}

static int read_by(const char *verb, int timeout_ms, struct host *out, struct error *e)
{
    struct host h = { .tools = HOST_TOOLS_UNKNOWN };
    struct text answer = { 0 };
    int result = host_run(NULL, -1, timeout_ms, &answer, e, verb, NULL);

    if (result == 0 && answer.size > 0)
        take_lines(&h, answer.bytes);
    text_done(&answer);
    if (result == 0 && h.system[0] == '\0')
        return error_set(e, ERROR_INTERNAL, 0, "'provider.sh %s' does not tell which system this is", verb);
    if (result == 0)
        *out = h;
    return result;
}

int host_read(struct host *out, struct error *e)
{
    return read_by("host", READ_MS, out, e);
}

int host_read_system(int timeout_ms, struct host *out, struct error *e)
{
    return read_by("system", timeout_ms, out, e);
}

int host_read_tools(int timeout_ms, enum host_tools *out, struct error *e)
{
    struct host h = { .tools = HOST_TOOLS_UNKNOWN };

    if (read_by("host", timeout_ms, &h, e) < 0)
        return -1;
    *out = h.tools;
    return 0;
}

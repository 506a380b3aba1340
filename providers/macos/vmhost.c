#include "providers/macos/vmhost.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"
#include "core/spawn.h"
#include "core/text.h"

#define LOG_MAX        (1024 * 1024) /* then it begins anew; a launch is some 500 bytes */
#define STORY_MAX      (64 * 1024)   /* from the end of the log; the frameworks print there too */
#define EVENT_SIZE_MAX (16 * 1024)
#define LOOK_MS        200
#define CANCEL_MS      30000 /* after a quiet limit; an operation that is cancelled is killed after 5 s */
#define LAST_END_MS    10000 /* from its last output to its end */
#define LAST_SIZE      200
#define LAUNCH_EVENT   "launch"

/* --- events ------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum vmhost_event_kind kind;
} event_names[] = {
    { LAUNCH_EVENT, VMHOST_LAUNCH },   { "image", VMHOST_IMAGE },     { "progress", VMHOST_PROGRESS },
    { "installed", VMHOST_INSTALLED }, { "started", VMHOST_STARTED }, { "stopping", VMHOST_STOPPING },
    { "stopped", VMHOST_STOPPED },     { "error", VMHOST_ERROR },
};

static enum vmhost_event_kind find_kind(const char *name)
{
    for (size_t i = 0; name != NULL && i < ARRAY_LEN(event_names); i++)
        if (strcmp(name, event_names[i].name) == 0)
            return event_names[i].kind;
    return VMHOST_OTHER;
}

static void copy_text(char *out, size_t room, const struct json *j, const char *key)
{
    const char *value = json_get_string(j, key);

    out[0] = '\0';
    if (value != NULL)
        text_clean(out, room, value, strlen(value));
}

static double between_0_and_1(double value)
{
    if (!(value > 0)) /* also what is no number */
        return 0;
    return value < 1 ? value : 1;
}

static pid_t read_pid(const struct json *j)
{
    int64_t pid = json_get_int(j, "pid", 0);

    return pid > 1 && pid <= INT32_MAX ? (pid_t)pid : 0;
}

void vmhost_parse_event(const char *line, size_t size, struct vmhost_event *out)
{
    AUTO_JSON struct json *j = NULL;
    struct error ignored = { 0 };

    *out = (struct vmhost_event){ .kind = VMHOST_OTHER };
    if (size == 0 || size > EVENT_SIZE_MAX || line[0] != '{' ||
        json_parse(line, size, "event", ERROR_INTERNAL, &j, &ignored) < 0)
        return;
    out->kind = find_kind(json_get_string(j, "event"));
    out->fraction = between_0_and_1(json_get_real(j, "fraction", 0));
    out->pid = read_pid(j);
    out->code = json_get_int(j, "code", 0);
    copy_text(out->version, sizeof(out->version), j, "version");
    copy_text(out->build, sizeof(out->build), j, "build");
    copy_text(out->how, sizeof(out->how), j, "how");
    copy_text(out->problem, sizeof(out->problem), j, "problem");
    copy_text(out->message, sizeof(out->message), j, "message");
}

/* --- failures ----------------------------------------------------------------------------------------- */

static const struct problem {
    const char *name;
    enum error_code code;
    const char *suggestion; /* NULL: the code's */
} problems[] = {
    { "limit", ERROR_LIMIT_REACHED,
      "Stop another macOS guest first, also one of another application. A Mac sometimes keeps counting "
      "guests that are "
      "gone; restarting it helps." },
    { "keychain", ERROR_ACTION_FAILED,
      "macOS 15 and later run a guest only with an unlocked login keychain: log in at this Mac's own screen "
      "once." },
    { "locked", ERROR_ACTION_FAILED, "Another process has the guest's disk open: wait for it, or end it." },
    { "entitlement", ERROR_PROVIDER_UNAVAILABLE, "Run 'agent-desktop sandbox install macos'." },
    { "image", ERROR_ACTION_FAILED, "Use another image, or --set ipsw=latest." },
    { "host-too-old", ERROR_ACTION_FAILED,
      "Update this Mac, or use an image that is not newer than its macOS." },
    { "no-space", ERROR_STORE_FULL, NULL },
    { "unsupported", ERROR_PROVIDER_UNAVAILABLE, NULL },
};

int vmhost_fail(const struct vmhost_event *failure, struct error *e)
{
    static const struct problem other = { "other", ERROR_ACTION_FAILED, NULL };
    const struct problem *found = &other;

    for (size_t i = 0; i < ARRAY_LEN(problems); i++)
        if (strcmp(failure->problem, problems[i].name) == 0)
            found = &problems[i];
    if (e->code == ERROR_NONE)
        e->suggestion = found->suggestion;
    return error_set(e, found->code, 0, "%s",
                     failure->message[0] != '\0' ? failure->message : "the VM host failed without a reason");
}

bool vmhost_is_limit(const struct vmhost_event *failure)
{
    return strcmp(failure->problem, "limit") == 0;
}

/* --- the log ------------------------------------------------------------------------------------------ */

static void add_to_story(struct vmhost_story *story, const struct vmhost_event *event)
{
    switch (event->kind) {
    case VMHOST_LAUNCH:
        *story = (struct vmhost_story){ .launched = true };
        break;
    case VMHOST_STARTED:
        story->started = event->pid;
        break;
    case VMHOST_STOPPING:
        memcpy(story->stopping, event->how, sizeof(story->stopping));
        break;
    case VMHOST_STOPPED:
        memcpy(story->stopped, event->how, sizeof(story->stopped));
        break;
    case VMHOST_ERROR:
        story->failed = true;
        story->failure = *event;
        break;
    case VMHOST_OTHER:
    case VMHOST_IMAGE:
    case VMHOST_PROGRESS:
    case VMHOST_INSTALLED:
        break;
    }
}

/* The end of a regular file of ours. How many bytes; 0 when there is none to be read. */
static size_t read_end(int vm_dir, char *out, size_t room)
{
    AUTO_CLOSE int fd = openat(vm_dir, VMHOST_LOG, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    ssize_t got = RETRY_EINTR(pread(fd, out, room, st.st_size > (off_t)room ? st.st_size - (off_t)room : 0));

    return got > 0 ? (size_t)got : 0;
}

void vmhost_read_story(int vm_dir, struct vmhost_story *out)
{
    AUTO_FREE char *bytes = mem_alloc(STORY_MAX);
    size_t size = read_end(vm_dir, bytes, STORY_MAX);

    *out = (struct vmhost_story){ .launched = false };
    for (size_t at = 0; at < size;) {
        const char *newline = memchr(bytes + at, '\n', size - at);
        size_t length = newline == NULL ? size - at : (size_t)(newline - bytes) - at;
        struct vmhost_event event;

        vmhost_parse_event(bytes + at, length, &event);
        add_to_story(out, &event);
        at += length + 1;
    }
}

/* --- launching ---------------------------------------------------------------------------------------- */

/* Nobody else writes to it: the caller has the run lock. */
static int mark_launch(int fd, off_t size)
{
    char last = '\n', line[96];

    if (size > LOG_MAX) {
        if (ftruncate(fd, 0) < 0)
            return -1;
        size = 0;
    }
    if (size > 0 && RETRY_EINTR(pread(fd, &last, 1, size - 1)) != 1)
        return -1;
    /* a line that was cut by a kill must not swallow the mark */
    int length = snprintf(line, sizeof(line), "%s{\"time\":%lld,\"event\":\"" LAUNCH_EVENT "\"}\n",
                          last == '\n' ? "" : "\n", (long long)clock_wall_ms());

    return file_write_all(fd, line, (size_t)length);
}

static int open_log(int vm_dir, struct error *e)
{
    AUTO_CLOSE int fd = RETRY_EINTR(
        openat(vm_dir, VMHOST_LOG, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open vm/" VMHOST_LOG);
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERROR_ACTION_FAILED, 0, "vm/" VMHOST_LOG " is not a regular file");
    if (fchmod(fd, 0600) < 0 || mark_launch(fd, st.st_size) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot write vm/" VMHOST_LOG);
    return steal_fd(&fd);
}

/* execve(2) writes to none of them; its type is older than const. */
static char *word(const char *text)
{
    return (char *)(uintptr_t)text;
}

int vmhost_launch(const struct vmhost_launch *launch, pid_t *pid, struct error *e)
{
    AUTO_CLOSE int log = open_log(launch->vm_dir, e);
    const int keep[] = { launch->run_lock, -1 };
    char *argv[] = { word(launch->program),
                     word("run"),
                     word("--vm"),
                     word(launch->vm),
                     word("--share"),
                     word(launch->share),
                     NULL,
                     NULL,
                     NULL };
    const struct spawn spawn = {
        .argv = argv, .directory = -1, .streams = { -1, log, log }, .keep = keep, .detach = true
    };

    if (log < 0)
        return -1;
    if (launch->window != NULL) {
        argv[6] = word("--window");
        argv[7] = word(launch->window);
    }
    return spawn_start(&spawn, pid, e);
}

/* --- a short verb ------------------------------------------------------------------------------------- */

struct listening {
    const struct vmhost_job *job;
    pid_t pid;
    int stdin_end; /* ours; closing it asks vmhost to give up */
    int stdout_end;
    int64_t heard_ms;     /* mono: the last event, or the start */
    bool skipping;        /* the rest of a line that is too long */
    struct text line;     /* so far */
    char last[LAST_SIZE]; /* the last line that was no event: the reason of who dies without an error event */
    struct vmhost_event failure;
};

static void take_line(struct listening *l)
{
    struct vmhost_event event;

    vmhost_parse_event(text_get(&l->line), l->line.size, &event);
    if (event.kind == VMHOST_OTHER && l->line.size > 0 && text_get(&l->line)[0] != '{')
        text_clean(l->last, sizeof(l->last), text_get(&l->line), l->line.size);
    if (event.kind == VMHOST_ERROR)
        l->failure = event;
    if (event.kind != VMHOST_OTHER && l->job->on_event != NULL)
        l->job->on_event(l->job->self, &event);
    if (event.kind != VMHOST_OTHER)
        l->heard_ms = clock_mono_ms();
}

static void take_bytes(struct listening *l, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] == '\n') {
            if (!l->skipping)
                take_line(l);
            l->skipping = false;
            l->line.size = 0;
        } else if (l->line.size >= EVENT_SIZE_MAX) {
            l->skipping = true;
        } else {
            text_add(&l->line, bytes + i, 1);
        }
    }
}

static bool is_asked_to_end(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, SIGTERM) == 1;
}

/* Until it prints something, or is at its end. What the frameworks print is no progress: neither it nor a
 * stream of it puts off either limit. */
static int await_output(const struct listening *l, struct error *e)
{
    struct pollfd waiting = { .fd = l->stdout_end, .events = POLLIN };

    for (;;) {
        int ready;

        if (is_asked_to_end())
            return error_set(e, ERROR_ACTION_FAILED, 0, "vmhost %s was cancelled", l->job->argv[1]);
        if (clock_mono_ms() - l->heard_ms >= l->job->quiet_ms)
            return error_set(e, ERROR_TIMEOUT, 0, "vmhost %s told of no progress for %d s", l->job->argv[1],
                             l->job->quiet_ms / 1000);
        ready = RETRY_EINTR(poll(&waiting, 1, LOOK_MS));
        if (ready < 0)
            return error_set(e, ERROR_ACTION_FAILED, errno, "cannot wait for vmhost");
        if (ready > 0)
            return 0;
    }
}

/* 1 when there is more to come, 0 at the end, -1. */
static int listen_once(struct listening *l, struct error *e)
{
    char bytes[4096];

    if (await_output(l, e) < 0)
        return -1;
    ssize_t got = RETRY_EINTR(read(l->stdout_end, bytes, sizeof(bytes)));

    if (got < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot read what vmhost prints");
    if (l->job->log >= 0)
        (void)file_write_all(l->job->log, bytes, (size_t)got); /* a full disk is told by vmhost itself */
    take_bytes(l, bytes, (size_t)got);
    return got > 0;
}

/* Ended by itself, or soon after it was asked to. */
static int await_end(const struct listening *l, int wait_ms, int *status, struct error *e)
{
    int ended = spawn_wait(l->pid, wait_ms, status, e);

    if (ended != 0)
        return ended;
    (void)kill(l->pid, SIGKILL); /* a child that was not waited for: nobody else can have its number */
    return spawn_wait(l->pid, LAST_END_MS, status, e);
}

/* Stops listening: closed, its stdin tells it to give up. */
static void give_up(struct listening *l)
{
    struct error ignored = { 0 };
    int status;

    util_close_fd(&l->stdin_end);
    l->stdin_end = -1;
    (void)await_end(l, CANCEL_MS, &status, &ignored);
}

static int judge(const struct listening *l, int status, struct error *e)
{
    const char *verb = l->job->argv[1];

    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (l->failure.kind == VMHOST_ERROR)
        return vmhost_fail(&l->failure, e);
    if (WIFSIGNALED(status))
        return error_set(e, ERROR_ACTION_FAILED, 0, "vmhost %s was ended by signal %d", verb,
                         WTERMSIG(status));
    return error_set(e, ERROR_ACTION_FAILED, 0, "vmhost %s failed%s%s", verb, l->last[0] == '\0' ? "" : ": ",
                     l->last);
}

static int listen_to_end(struct listening *l, struct error *e)
{
    int more, status = 0;

    do
        more = listen_once(l, e);
    while (more > 0);
    if (l->line.size > 0 && !l->skipping)
        take_line(l);
    if (more < 0) {
        give_up(l);
        return -1;
    }
    int ended = await_end(l, LAST_END_MS, &status, e);

    if (ended < 0)
        return -1;
    if (ended == 0)
        return error_set(e, ERROR_ACTION_FAILED, 0, "vmhost %s does not end", l->job->argv[1]);
    return judge(l, status, e);
}

static int spawn_job(struct listening *l, struct error *e)
{
    const int keep[] = { l->job->op_lock, -1 };
    int in[2] = { -1, -1 }, out[2] = { -1, -1 };

    if (descriptor_pipe(in, false) < 0 || descriptor_pipe(out, false) < 0) {
        error_set(e, ERROR_ACTION_FAILED, errno, "cannot make a pipe");
        util_close_fd(&in[0]);
        util_close_fd(&in[1]);
        return -1;
    }
    const struct spawn spawn = {
        .argv = l->job->argv, .directory = -1, .streams = { in[0], out[1], out[1] }, .keep = keep
    };
    int r = spawn_start(&spawn, &l->pid, e);

    util_close_fd(&in[0]);
    util_close_fd(&out[1]);
    l->stdin_end = in[1];
    l->stdout_end = out[0];
    return r;
}

/* A SIGTERM waits meanwhile, so that vmhost can let go of what it does before its worker ends: who cancels an
 * operation ends the worker's whole group as soon as the worker is gone (process_end()). */
static void hold_back_term(sigset_t *before)
{
    sigset_t term;

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, before);
}

int vmhost_run(const struct vmhost_job *job, struct vmhost_event *failure, struct error *e)
{
    struct listening l = { .job = job, .stdin_end = -1, .stdout_end = -1 };
    sigset_t before;

    hold_back_term(&before);
    int r = spawn_job(&l, e);

    l.heard_ms = clock_mono_ms();
    if (r == 0)
        r = listen_to_end(&l, e);
    util_close_fd(&l.stdin_end);
    util_close_fd(&l.stdout_end);
    text_done(&l.line);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (failure != NULL)
        *failure = l.failure;
    return r;
}

#include "providers/linux/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/text.h"
#include "core/util.h"
#include "providers/linux/clients.h"
#include "providers/linux/control.h"
#include "providers/linux/services.h"

#define STOP_GRACE_MS    3000 /* programs that handle SIGTERM by saving their work */
#define FAILURE_GRACE_MS 300  /* the desktop is gone: nothing is left to be saved with */
#define KILL_LIMIT_MS    1000
#define DESCRIPTORS_MIN  1024
#define LOG_NAME         "supervisor.log"
#define ENV_NAME         "env"
#define ENV_TEMPORARY    ".env.new"

/* Where arrange() puts what the host passed on: the same numbers before and after the re-execution. */
enum { FD_LISTEN = 3, FD_GO, FD_REPORT, FD_RUN_LOCK, FD_LOG_DIR, FD_ENV_DIR, FD_END };

enum phase {
    PHASE_WAITING,  /* for the host to record us */
    PHASE_STARTING, /* the services */
    PHASE_READY,
    PHASE_STOPPING, /* SIGTERM was sent, then SIGKILL */
    PHASE_OVER
};

enum {
    POLL_SIGNALS,
    POLL_LISTEN,
    POLL_GO,
    POLL_RUN_LOCK,
    POLL_SERVICES,
    POLL_CLIENTS = POLL_SERVICES + SERVICE_COUNT
};

struct session { /* all that PID 1 knows; made once, at the start */
    const struct supervisor *s;
    enum phase phase;
    int64_t started_ms;
    int64_t deadline_ms; /* of the phase; -1: none */
    int exit_status;
    int signals;
    int lock_watch; /* inotify, on the run lock */
    bool scoped;
    bool reported;
    bool killed;
    struct services services;
    struct clients clients;
    struct pollfd polls[POLL_CLIENTS + CLIENTS_MAX];
};

/* --- log and report ------------------------------------------------------------------------------- */

/* One line on stderr, which is log/supervisor.log. */
static void log_line(const char *what, const char *text)
{
    char line[768], when[32];
    int n;

    text_format_time(when, clock_wall_ms(), true);
    n = snprintf(line, sizeof(line), "%s%s%s\n", when, what, text);
    (void)file_write_all(STDERR_FILENO, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

static void send_report(int fd, const struct supervisor_report *report)
{
    (void)file_write_all(fd, report, sizeof(*report)); /* nobody listens any more: that does not matter */
}

static void report_failure(int fd, const struct error *e)
{
    struct supervisor_report report = { 0 };

    snprintf(report.message, sizeof(report.message), "%.*s", (int)sizeof(report.message) - 1, e->message);
    send_report(fd, &report);
}

/* --- isolation -------------------------------------------------------------------------------------- */

/* Keeps abstract sockets (the host's X server listens on one) and signals inside, for every program started
 * from here. linux/landlock.h of this build may be older than the kernel: landlock(7), ABI 6, kernel 6.12. */
static bool enter_landlock(void)
{
    const struct {
        uint64_t handled_access_fs, handled_access_net, scoped;
    } rules = { .scoped = 1 /* abstract sockets */ | 2 /* signals */ };
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1u /* LANDLOCK_CREATE_RULESET_VERSION */);
    long set;
    bool done;

    if (abi < 6)
        return false;
    set = syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0u);
    done = set >= 0 && syscall(SYS_landlock_restrict_self, set, 0u) == 0;
    if (set >= 0)
        close((int)set);
    return done;
}

/* --- the end ---------------------------------------------------------------------------------------- */

static void begin_stop(struct session *d, int exit_status, int grace_ms)
{
    if (d->phase == PHASE_STOPPING)
        return;
    d->phase = PHASE_STOPPING;
    d->exit_status = exit_status;
    d->deadline_ms = clock_mono_ms() + grace_ms;
    kill(-1, SIGTERM);
    kill(-1, SIGCONT); /* what was stopped (Ctrl-Z) could not act on it */
}

static void fail(struct session *d, const struct error *e)
{
    log_line(SUPERVISOR_ENDED, e->message);
    if (!d->reported)
        report_failure(FD_REPORT, e);
    d->reported = true;
    begin_stop(d, 1, FAILURE_GRACE_MS);
}

/* WHY: a clause, for the log and for a start that is not over. */
static void stop(struct session *d, const char *why)
{
    struct error e = { 0 };

    if (d->phase == PHASE_STOPPING)
        return;
    if (!d->reported) {
        error_set(&e, ERROR_ACTION_FAILED, 0, "%s while it started", why);
        fail(d, &e);
        return;
    }
    log_line(SUPERVISOR_ENDED, why);
    begin_stop(d, 0, STOP_GRACE_MS);
}

/* A session whose lock has no name any more, deleted alone or with the whole state root, is one that no
 * command finds: it would live for ever, next to a second one. */
static void check_run_lock(struct session *d)
{
    struct stat st;

    if (fstat(FD_RUN_LOCK, &st) == 0 && st.st_nlink == 0)
        stop(d, "its run lock was removed");
}

/* --- children --------------------------------------------------------------------------------------- */

/* Takes every child that has ended; the last one's end ends a stop. */
static void reap(struct session *d)
{
    struct error e = { 0 };
    int wait_status;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        if (clients_reaped(&d->clients, pid, wait_status) || d->phase == PHASE_STOPPING)
            continue;
        if (services_reaped(&d->services, pid, wait_status, &e) < 0) {
            fail(d, &e);
            e = (struct error){ 0 };
        }
    }
    clients_settle(&d->clients);
    if (d->phase == PHASE_STOPPING && pid < 0)
        d->phase = PHASE_OVER;
}

/* --- events ----------------------------------------------------------------------------------------- */

static void take_signals(struct session *d)
{
    struct signalfd_siginfo info;

    while (read(d->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo == SIGTERM)
            stop(d, "it was stopped");
}

static void take_lock_changes(struct session *d)
{
    _Alignas(struct inotify_event) char bytes[1024];

    while (read(d->lock_watch, bytes, sizeof(bytes)) > 0)
        ; /* that something changed is all they tell */
    check_run_lock(d);
}

/* The host has recorded us; or it is gone and nobody knows of us, which must not be. */
static void take_go(struct session *d)
{
    char byte;
    struct error e = { 0 };

    if (RETRY_EINTR(read(FD_GO, &byte, 1)) != 1) {
        log_line(SUPERVISOR_ENDED, "the command that started the sandbox is gone");
        d->exit_status = 1;
        d->phase = PHASE_OVER;
        return;
    }
    close(FD_GO);
    d->phase = PHASE_STARTING;
    if (services_start(&d->services, &e) < 0)
        fail(d, &e);
}

static void read_services(struct session *d)
{
    struct error e = { 0 };

    for (enum service_id id = 0; id < SERVICE_COUNT && d->phase <= PHASE_READY; id++) {
        const struct pollfd *p = &d->polls[POLL_SERVICES + id];

        /* The descriptor may have been closed since poll(2), when its service was reaped. */
        if (p->fd < 0 || p->revents == 0 || d->services.states[id].line_fd != p->fd)
            continue;
        if (services_read(&d->services, id, &e) < 0 || services_start(&d->services, &e) < 0)
            fail(d, &e);
    }
}

static int write_environment(const struct services *s, struct error *e)
{
    AUTO_CLOSE int fd =
        openat(FD_ENV_DIR, ENV_TEMPORARY, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool failed = fd < 0;

    for (size_t i = 0; !failed && s->environment[i] != NULL; i++)
        failed = file_write_all(fd, s->environment[i], strlen(s->environment[i]) + 1) < 0;
    if (failed || renameat(FD_ENV_DIR, ENV_TEMPORARY, FD_ENV_DIR, ENV_NAME) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot write the file " ENV_NAME);
    return 0;
}

static void become_ready(struct session *d)
{
    struct supervisor_report report = { .ready = 1,
                                        .display = (uint32_t)d->services.display,
                                        .scoped = d->scoped };
    struct error e = { 0 };
    char text[64];

    if (write_environment(&d->services, &e) < 0) {
        fail(d, &e);
        return;
    }
    snprintf(text, sizeof(text), "display :%d after %d ms", d->services.display,
             (int)(clock_mono_ms() - d->started_ms));
    log_line(" ready: ", text);
    /* As root the programs inside may look into PID 1: no way out is left open for them. */
    close(FD_LOG_DIR);
    close(FD_ENV_DIR);
    d->phase = PHASE_READY;
    d->deadline_ms = -1;
    d->reported = true;
    send_report(FD_REPORT, &report);
    close(FD_REPORT);
}

static void deadline_passed(struct session *d)
{
    struct error e = { 0 };

    if (d->phase == PHASE_STOPPING && !d->killed) {
        kill(-1, SIGKILL);
        d->killed = true;
        d->deadline_ms = clock_mono_ms() + KILL_LIMIT_MS;
        return;
    }
    if (d->phase == PHASE_STOPPING) { /* stuck in the kernel: what is left dies with the namespace */
        d->phase = PHASE_OVER;
        return;
    }
    services_set_overdue(&d->services, d->s->bound_ms, &e);
    fail(d, &e);
}

static int wait_ms(const struct session *d)
{
    int64_t left = d->deadline_ms - clock_mono_ms();

    return d->deadline_ms < 0 ? -1 : left > 0 ? (int)left : 0;
}

static int fill_polls(struct session *d)
{
    d->polls[POLL_SIGNALS] = (struct pollfd){ .fd = d->signals, .events = POLLIN };
    d->polls[POLL_LISTEN] = (struct pollfd){ .fd = d->clients.full ? -1 : FD_LISTEN, .events = POLLIN };
    d->polls[POLL_GO] = (struct pollfd){ .fd = d->phase == PHASE_WAITING ? FD_GO : -1, .events = POLLIN };
    d->polls[POLL_RUN_LOCK] = (struct pollfd){ .fd = d->lock_watch, .events = POLLIN };
    for (int i = 0; i < SERVICE_COUNT; i++)
        d->polls[POLL_SERVICES + i] =
            (struct pollfd){ .fd = d->services.states[i].line_fd, .events = POLLIN };
    return POLL_CLIENTS + clients_poll(&d->clients, d->polls + POLL_CLIENTS);
}

static struct clients_view make_view(const struct session *d)
{
    static const enum control_answer answers[] = { [PHASE_WAITING] = CONTROL_STARTING,
                                                   [PHASE_STARTING] = CONTROL_STARTING,
                                                   [PHASE_READY] = CONTROL_OK,
                                                   [PHASE_STOPPING] = CONTROL_STOPPING,
                                                   [PHASE_OVER] = CONTROL_STOPPING };

    return (struct clients_view){ .state = answers[d->phase],
                                  .display = d->services.display,
                                  .environment = d->services.environment,
                                  .home = d->s->user.home };
}

static void turn(struct session *d)
{
    int count = fill_polls(d);
    int n = poll(d->polls, (nfds_t)count, wait_ms(d));
    struct clients_view view;
    bool stopped = false;

    if (n > 0) {
        if (d->polls[POLL_SIGNALS].revents != 0)
            take_signals(d);
        if (d->polls[POLL_GO].revents != 0)
            take_go(d);
        if (d->polls[POLL_RUN_LOCK].revents != 0)
            take_lock_changes(d);
        read_services(d);
    }
    if (d->phase == PHASE_STARTING && services_ready(&d->services))
        become_ready(d);
    view = make_view(d);
    if (n > 0 && clients_serve(&d->clients, d->polls + POLL_CLIENTS, count - POLL_CLIENTS, &view))
        stopped = true;
    if (n > 0 && d->polls[POLL_LISTEN].revents != 0 && clients_accept(&d->clients, FD_LISTEN, &view))
        stopped = true;
    if (stopped) /* now, so that a command that began in this very turn is ended too */
        stop(d, "it was stopped");
    if (d->phase != PHASE_OVER && wait_ms(d) == 0)
        deadline_passed(d);
    reap(d);
}

/* Enough for every client, even where the starting shell had less; what is usual for the programs inside. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= DESCRIPTORS_MIN)
        return;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS_MIN ? limit.rlim_max : DESCRIPTORS_MIN;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* a hard limit below: fewer commands at once */
}

/* The last unlink of a file that is still open changes its number of links: IN_ATTRIB. It may have come
 * before the watch. None is to be had beyond fs.inotify.max_user_instances: the session serves all the same.
 */
static void watch_run_lock(struct session *d)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", FD_RUN_LOCK);
    d->lock_watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (d->lock_watch < 0 || inotify_add_watch(d->lock_watch, path, IN_ATTRIB | IN_DELETE_SELF) < 0)
        log_line(" cannot watch the run lock: ", strerror(errno));
    check_run_lock(d);
}

static int prepare(struct session *d, struct error *e)
{
    sigset_t signals;

    signal(SIGCHLD, SIG_DFL); /* ignored by whoever typed `start`, it would hide the ends of children */
    sigfillset(&signals);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    d->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (d->signals < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot make a signalfd");
    umask(022);
    raise_descriptor_limit();
    prctl(PR_SET_NAME, "ad-supervisor");
    if (geteuid() != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot set no_new_privs");
    d->scoped = enter_landlock();
    if (control_listen(FD_LISTEN, e) < 0)
        return -1;
    return services_init(&d->services, &d->s->user, d->s->screen, d->s->lang, FD_LOG_DIR, e);
}

/* Everything passed on is at its number now. */
static int serve(const struct supervisor *s)
{
    struct session *d = mem_alloc(sizeof(*d));
    struct error e = { 0 };
    int exit_status;

    d->s = s;
    d->started_ms = clock_mono_ms();
    d->deadline_ms = d->started_ms + s->bound_ms;
    d->lock_watch = -1;
    clients_init(&d->clients);
    close_range(FD_LISTEN, FD_END - 1, CLOSE_RANGE_CLOEXEC);
    if (prepare(d, &e) < 0) {
        fail(d, &e);
        reap(d);
    } else {
        watch_run_lock(d);
    }
    while (d->phase != PHASE_OVER)
        turn(d);
    exit_status = d->exit_status;
    free(d);
    return exit_status;
}

/* --- entering --------------------------------------------------------------------------------------- */

static int redirect_streams(int log_dir, struct error *e)
{
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    AUTO_CLOSE int log =
        openat(log_dir, LOG_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (null < 0 || log < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot write log/" LOG_NAME);
    return 0;
}

/* Streams and the passed descriptors to their numbers; everything else of the host's is closed. */
static int arrange(const struct supervisor *s, struct error *e)
{
    const int passed[] = { s->listen, s->go, s->report, s->run_lock, s->log_dir, s->env_dir };
    int high[ARRAY_LEN(passed)];

    for (size_t i = 0; i < ARRAY_LEN(passed); i++) {
        high[i] = fcntl(passed[i], F_DUPFD_CLOEXEC, FD_END);
        if (high[i] < 0)
            return error_set(e, ERROR_ACTION_FAILED, errno, "cannot keep a descriptor");
    }
    if (redirect_streams(high[FD_LOG_DIR - FD_LISTEN], e) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(passed); i++)
        if (dup2(high[i], FD_LISTEN + (int)i) < 0)
            return error_set(e, ERROR_ACTION_FAILED, errno, "cannot arrange the descriptors");
    close_range(FD_END, ~0u, 0);
    return 0;
}

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010u /* kernel 6.3; older ones refuse it, and need it not */
#endif

/* A sealed copy of this binary in memory: what root inside finds as /proc/1/exe must not be the host's file.
 */
static int copy_binary(void)
{
    static const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    AUTO_CLOSE int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int copy = memfd_create("agent-desktop", flags | MFD_EXEC);
    struct stat st;

    if (copy < 0 && errno == EINVAL)
        copy = memfd_create("agent-desktop", flags);
    if (file < 0 || copy < 0 || fstat(file, &st) < 0)
        return -1;
    for (off_t at = 0; at < st.st_size;)
        if (sendfile(copy, file, &at, (size_t)(st.st_size - at)) <= 0)
            return -1;
    if (fcntl(copy, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return -1;
    return steal_fd(&copy);
}

/* Where vm.memfd_noexec forbids the copy, the read-only mount of the binary serves. */
static int execute_again(const struct supervisor *s, struct error *e)
{
    static char *const no_environment[] = { NULL };
    char bound[16], uid[16], gid[16];
    const char *const words[] = { "agent-desktop", SUPERVISOR_MODE, s->name,       s->screen,
                                  s->lang,         bound,           uid,           gid,
                                  s->user.name,    s->user.home,    s->user.shell, NULL };
    char *const *argv = (char *const *)(uintptr_t)words;
    AUTO_CLOSE int copy = copy_binary();

    snprintf(bound, sizeof(bound), "%d", s->bound_ms);
    snprintf(uid, sizeof(uid), "%u", (unsigned)s->user.uid);
    snprintf(gid, sizeof(gid), "%u", (unsigned)s->user.gid);
    if (copy >= 0)
        execveat(copy, "", argv, no_environment, AT_EMPTY_PATH);
    execve("/run/agent-desktop/bin/agent-desktop", argv, no_environment);
    return error_set(e, ERROR_ACTION_FAILED, errno, "cannot execute the supervisor");
}

int supervisor_run(const struct supervisor *s)
{
    struct error e = { 0 };

    /* A session of its own: signals for the starting command's process group and terminal are not for us. */
    setsid();
    if (arrange(s, &e) < 0) {
        report_failure(s->report, &e);
        return 1;
    }
    if (geteuid() != 0)
        return serve(s);
    execute_again(s, &e);
    log_line(SUPERVISOR_ENDED, e.message);
    report_failure(FD_REPORT, &e);
    return 1;
}

static void copy_word(char *out, size_t room, const char *word)
{
    snprintf(out, room, "%s", word);
}

int supervisor_main(int argc, char **argv)
{
    struct supervisor s = { .listen = FD_LISTEN,
                            .go = FD_GO,
                            .report = FD_REPORT,
                            .run_lock = FD_RUN_LOCK,
                            .log_dir = FD_LOG_DIR,
                            .env_dir = FD_ENV_DIR };

    /* Typed by a person, this is refused: outside of a pid namespace there is no sandbox to supervise. */
    if (argc != 11 || getpid() != 1)
        return 2;
    copy_word(s.name, sizeof(s.name), argv[2]);
    copy_word(s.screen, sizeof(s.screen), argv[3]);
    copy_word(s.lang, sizeof(s.lang), argv[4]);
    s.bound_ms = (int)strtol(argv[5], NULL, 10);
    s.user.uid = (uid_t)strtoul(argv[6], NULL, 10);
    s.user.gid = (gid_t)strtoul(argv[7], NULL, 10);
    copy_word(s.user.name, sizeof(s.user.name), argv[8]);
    copy_word(s.user.home, sizeof(s.user.home), argv[9]);
    copy_word(s.user.shell, sizeof(s.user.shell), argv[10]);
    return serve(&s);
}

#include "providers/linux/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/process.h"
#include "core/text.h"
#include "providers/linux/control.h"
#include "providers/linux/mounts.h"
#include "providers/linux/namespace.h"
#include "providers/linux/supervisor.h"

#define REMAINS_WAIT_MS 5000 /* until a dead supervisor's processes have vanished */
#define HALT_WAIT_MS    5000 /* PID 1 gives its programs 3 s of these */
#define KILL_WAIT_MS    5000
#define ASK_MS          500  /* a supervisor answers within a millisecond */
#define REPORT_EXTRA_MS 2000 /* the supervisor keeps the bound itself; this is for one that is stuck */
#define AGAIN_MS        50
#define LOG_TAIL_SIZE   1024
#define LOG_FILE        "log/supervisor.log"
#define DEFAULT_LANG    "C.UTF-8"

struct session_start {
    struct process_id id;
    int go;
    int report;
    int run_lock;
    struct supervisor supervisor;
    struct mounts_request mounts;
    char *note; /* shared with the child, which writes it before it runs */
};

/* --- who it is ---------------------------------------------------------------------------------------- */

static bool read_id(const struct facts *facts, struct process_id *out)
{
    const char *boot = facts_get(facts, "boot");

    *out = (struct process_id){ .pid = (pid_t)facts_get_int(facts, "pid", 0),
                                .start = (uint64_t)facts_get_int(facts, "start", 0) };
    snprintf(out->boot, sizeof(out->boot), "%s", boot == NULL ? "" : boot);
    return out->pid > 0;
}

static void write_id(struct facts *facts, const struct process_id *id)
{
    facts_set_int(facts, "pid", id->pid);
    facts_set_int(facts, "start", (int64_t)id->start);
    facts_set(facts, "boot", id->boot);
}

static void write_display(struct facts *facts, int display)
{
    char text[16];

    snprintf(text, sizeof(text), ":%d", display);
    facts_set(facts, "display", text);
}

static void lock_name(const struct linux_sandbox *s, char out[64])
{
    snprintf(out, 64, "%s.run", s->place->name);
}

int session_wait_remains(const struct facts *facts, struct error *e)
{
    struct process_id id;
    AUTO_CLOSE int pidfd = -1;
    int found = read_id(facts, &id) ? process_open_remains(&id, &pidfd, e) : 0;

    if (found <= 0 || process_wait_gone(pidfd, REMAINS_WAIT_MS))
        return found < 0 ? -1 : 0;
    return error_set(e, ERROR_ACTION_FAILED, 0, "processes of the last session (supervisor %d) do not end",
                     (int)id.pid);
}

/* --- asking it ---------------------------------------------------------------------------------------- */

enum session_answer {
    SESSION_NONE,   /* nobody listens */
    SESSION_SILENT, /* somebody does, but does not answer */
    SESSION_STARTING,
    SESSION_READY,
    SESSION_STOPPING
};

struct session_look {
    enum session_answer answer;
    pid_t pid; /* 0 unless somebody listens */
    int display;
};

static enum session_answer translate(uint32_t answer)
{
    switch (answer) {
    case CONTROL_OK:
        return SESSION_READY;
    case CONTROL_STARTING:
        return SESSION_STARTING;
    case CONTROL_STOPPING:
        return SESSION_STOPPING;
    default:
        return SESSION_SILENT;
    }
}

static int time_left(int64_t end_ms)
{
    int64_t left = end_ms - clock_mono_ms();

    return left > 0 ? (int)left : 0;
}

static int ask(int dir, int deadline_ms, struct session_look *out, struct error *e)
{
    const struct control_request ping = { .version = CONTROL_VERSION, .kind = CONTROL_PING };
    struct control_reply reply = { 0 };
    struct error trouble = { 0 };
    int64_t end_ms = clock_mono_ms() + deadline_ms;
    AUTO_CLOSE int fd = -1;
    int connected = control_connect(dir, deadline_ms, &fd, &trouble);
    int received;

    *out = (struct session_look){ .answer = connected == 0 ? SESSION_NONE : SESSION_SILENT };
    if (connected < 0 && trouble.code != ERROR_TIMEOUT) {
        *e = trouble;
        return -1;
    }
    if (connected <= 0)
        return 0;
    out->pid = control_peer(fd);
    received = control_send(fd, &ping, NULL, 0, &trouble);
    if (received == 0)
        received = control_receive(fd, time_left(end_ms), &reply, &trouble);
    if (received < 0) { /* killed between our connecting and its answer */
        *out = (struct session_look){ .answer = SESSION_NONE };
    } else if (received > 0) {
        out->answer = translate(reply.answer);
        out->display = reply.value;
    }
    return 0;
}

/* --- how it ended ------------------------------------------------------------------------------------- */

/* What the supervisor wrote about its end, in the last line that does: others may have written to its log
 * since. "" when it could not. */
static void read_ending(int dir, char out[LOG_TAIL_SIZE])
{
    AUTO_CLOSE int fd = openat(dir, LOG_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    char text[LOG_TAIL_SIZE] = "";
    ssize_t n;

    out[0] = '\0';
    if (fd < 0 || fstat(fd, &st) < 0)
        return;
    n = pread(fd, text, sizeof(text) - 1,
              st.st_size > LOG_TAIL_SIZE - 1 ? st.st_size - (LOG_TAIL_SIZE - 1) : 0);
    text[n > 0 ? n : 0] = '\0';
    for (const char *said = strstr(text, SUPERVISOR_ENDED); said != NULL;
         said = strstr(said, SUPERVISOR_ENDED)) {
        said += strlen(SUPERVISOR_ENDED);
        text_clean(out, LOG_TAIL_SIZE, said, strcspn(said, "\n"));
    }
}

/* A start that did not lead to a desktop. Always -1. */
static int fail_start(const struct linux_sandbox *s, struct error *e)
{
    char why[LOG_TAIL_SIZE];

    read_ending(s->dir, why);
    return error_set(e, ERROR_ACTION_FAILED, 0,
                     "the session did not become ready%s%.200s; see " LOG_FILE " in '%s'",
                     why[0] == '\0' ? "" : ": ", why, s->path);
}

static void explain_end(const struct linux_sandbox *s, const struct facts *facts, char *out, size_t room)
{
    char why[LOG_TAIL_SIZE];
    struct process_id id;

    if (read_id(facts, &id) && strcmp(id.boot, process_boot_id()) != 0) {
        snprintf(out, room, "the host was restarted");
        return;
    }
    read_ending(s->dir, why);
    if (why[0] == '\0')
        snprintf(out, room, "the session's supervisor was killed; its log is sandboxes/%s/" LOG_FILE,
                 s->place->name);
    else
        snprintf(out, room, "the session ended: %.*s", (int)room / 2, why);
}

/* --- start: spawn ------------------------------------------------------------------------------------- */

void session_start_free(struct session_start *s)
{
    if (s == NULL)
        return;
    util_close_fd(&s->go);
    util_close_fd(&s->report);
    util_close_fd(&s->run_lock);
    util_close_fd(&s->supervisor.listen);
    util_close_fd(&s->supervisor.go);
    util_close_fd(&s->supervisor.report);
    util_close_fd(&s->supervisor.log_dir);
    util_close_fd(&s->mounts.binary);
    if (s->note != NULL)
        munmap(s->note, FACT_VALUE_SIZE);
    free(s);
}

static struct session_start *start_new(void)
{
    struct session_start *s = mem_alloc(sizeof(*s));

    s->go = s->report = s->run_lock = s->mounts.binary = -1;
    s->supervisor.listen = s->supervisor.go = s->supervisor.report = s->supervisor.log_dir = -1;
    return s;
}

/* A session that is there already: of a start whose worker died. 1 with its facts, 0 when there is none. */
static int adopt(const struct linux_sandbox *s, struct facts *outputs, struct session_look *look,
                 struct error *e)
{
    struct process_id id;

    if (ask(s->dir, ASK_MS, look, e) < 0)
        return -1;
    if (look->answer == SESSION_SILENT)
        return error_set(e, ERROR_ACTION_FAILED, 0, "'%s' has a session already, which does not answer",
                         s->place->name);
    if (look->answer != SESSION_READY && look->answer != SESSION_STARTING)
        return 0;
    if (process_read(look->pid, &id) < 0)
        return 0;
    write_id(outputs, &id);
    return 1;
}

/* Sockets rather than a pipe: writing to a supervisor that is gone must not be a SIGPIPE. */
static int open_pair(int *here, int *there, struct error *e)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot make a pair of sockets");
    *here = ends[0];
    *there = ends[1];
    return 0;
}

static int take_run_lock(const struct linux_sandbox *s, struct session_start *start, struct error *e)
{
    char name[64];
    int taken;

    lock_name(s, name);
    taken = lock_take(s->place->root->locks, name, LOCK_EXCLUSIVE, REMAINS_WAIT_MS, &start->run_lock, e);
    if (taken == 0)
        return error_set(e, ERROR_SANDBOX_BUSY, 0, "another session of '%s' has not ended", s->place->name);
    start->supervisor.run_lock = start->run_lock;
    return taken < 0 ? -1 : 0;
}

static int clear_old(const struct linux_sandbox *s, struct error *e)
{
    if (unlinkat(s->dir, "env", 0) < 0 && errno != ENOENT)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot remove the old env file");
    return 0;
}

static void copy_setting(char *out, size_t room, const char *value, const char *fallback)
{
    bool usable = value != NULL && value[0] != '\0' && strlen(value) < room;

    snprintf(out, room, "%s", usable ? value : fallback);
}

static bool has_own_network(const struct facts *facts)
{
    const char *net = facts_get(facts, "set.net");

    return net != NULL && strcmp(net, "none") == 0;
}

/* Everything the supervisor needs from the host. */
static int prepare_start(const struct linux_sandbox *s, const struct facts *facts,
                         struct session_start *start, struct error *e)
{
    struct supervisor *v = &start->supervisor;

    if (linux_user_find(&v->user, e) < 0 || take_run_lock(s, start, e) < 0 ||
        session_wait_remains(facts, e) < 0 || clear_old(s, e) < 0)
        return -1;
    copy_setting(v->name, sizeof(v->name), s->place->name, "");
    copy_setting(v->screen, sizeof(v->screen), facts_get(facts, "set.screen"), "1280x800");
    copy_setting(v->lang, sizeof(v->lang), getenv("LANG"), DEFAULT_LANG);
    v->bound_ms = LINUX_START_BOUND_MS;
    v->env_dir = s->dir;
    v->log_dir = file_make_dir(s->dir, "log", 0700, e);
    v->listen = v->log_dir < 0 ? -1 : control_bind(s->dir, e);
    if (v->listen < 0 || open_pair(&start->go, &v->go, e) < 0 || open_pair(&start->report, &v->report, e) < 0)
        return -1;
    start->mounts = (struct mounts_request){ .sandbox_dir = s->dir,
                                             .sandbox_path = s->path,
                                             .root_path = s->place->root->path,
                                             .user = &v->user,
                                             .own_network = has_own_network(facts),
                                             .binary = open("/proc/self/exe", O_RDONLY | O_CLOEXEC) };
    if (start->mounts.binary < 0)
        return error_set(e, ERROR_ACTION_FAILED, errno, "cannot open this program's own file");
    start->note = mmap(NULL, FACT_VALUE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (start->note != MAP_FAILED)
        return 0;
    start->note = NULL;
    return error_set(e, ERROR_ACTION_FAILED, errno, "cannot share memory with the supervisor");
}

static int enter_mounts(void *self, struct error *e)
{
    struct session_start *start = self;

    return mounts_enter(&start->mounts, start->note, FACT_VALUE_SIZE, e);
}

static int run_supervisor(void *self)
{
    const struct session_start *start = self;

    return supervisor_run(&start->supervisor);
}

/* The child has its own copies: what must be seen to close with it, or to belong to it alone, is closed. */
static void keep_own_ends(struct session_start *start)
{
    util_close_fd(&start->supervisor.go);
    util_close_fd(&start->supervisor.report);
    util_close_fd(&start->supervisor.listen);
    start->supervisor.go = start->supervisor.report = start->supervisor.listen = -1;
}

static int spawn(struct linux_sandbox *s, struct session_start *start, const struct facts *facts,
                 struct facts *outputs, struct error *e)
{
    const struct namespace_request request = { .hostname = s->place->name,
                                               .own_network = has_own_network(facts),
                                               .enter = enter_mounts,
                                               .run = run_supervisor,
                                               .self = start };
    pid_t pid;

    if (prepare_start(s, facts, start, e) < 0 || namespace_spawn(&request, &pid, e) < 0)
        return -1;
    keep_own_ends(start);
    if (process_read(pid, &start->id) < 0) {
        waitpid(pid, NULL, WNOHANG);
        return fail_start(s, e);
    }
    write_id(outputs, &start->id);
    return 0;
}

/* Nothing is left to be started, and what stands in its place is not ours. */
static bool is_lost(const struct linux_sandbox *s)
{
    struct stat st;

    if (s->place->root->sandboxes < 0)
        return true;
    if (fstatat(s->place->root->sandboxes, s->place->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT;
    return !S_ISDIR(st.st_mode);
}

static int require_dir(struct linux_sandbox *s, struct step_context *c, struct error *e)
{
    int found = linux_sandbox_open_dir(s, e);

    if (found > 0)
        return 0;
    if (is_lost(s))
        c->outcome = EV_LOST;
    return found < 0 ? -1 : error_set(e, ERROR_ACTION_FAILED, 0, "'%s' is gone", s->path);
}

static enum step_result step_spawn(void *self, struct step_context *c, struct error *e)
{
    struct linux_sandbox *s = self;
    struct session_look look;
    struct session_start *start;
    int adopted = require_dir(s, c, e) < 0 ? -1 : adopt(s, c->outputs, &look, e);

    if (adopted != 0)
        return adopted < 0 ? STEP_FAILED : STEP_DONE;
    start = start_new();
    if (spawn(s, start, c->facts, c->outputs, e) < 0) {
        session_start_free(start);
        return STEP_FAILED;
    }
    session_start_free(s->starting);
    s->starting = start;
    return STEP_DONE;
}

/* --- start: desktop ----------------------------------------------------------------------------------- */

/* 1 with the report, 0 when none came: the supervisor is gone, or stuck beyond its own bound. */
static int receive_report(int fd, struct supervisor_report *out)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int64_t end_ms = clock_mono_ms() + LINUX_START_BOUND_MS + REPORT_EXTRA_MS;

    for (;;) {
        int n = poll(&p, 1, time_left(end_ms));

        if (n < 0 && errno == EINTR)
            continue;
        return n > 0 && RETRY_EINTR(read(fd, out, sizeof(*out))) == (ssize_t)sizeof(*out);
    }
}

/* What a person should know of this session: from the mounts, and what this kernel cannot close. */
static void write_note(struct linux_sandbox *s, const char *mounts_note, bool sockets_are_open)
{
    static const char open_sockets[] =
        "abstract sockets of the host can be reached from inside (Landlock of Linux 6.12 is missing)";

    snprintf(s->note, sizeof(s->note), "%s%s%s", sockets_are_open ? open_sockets : "",
             sockets_are_open && mounts_note[0] != '\0' ? "; " : "", mounts_note);
}

static int send_signal(int pidfd, int number)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
}

/* Until all processes inside are gone. */
static int kill_supervisor(pid_t pid, int pidfd, struct error *e)
{
    send_signal(pidfd, SIGKILL);
    if (!process_wait_gone(pidfd, KILL_WAIT_MS))
        return error_set(e, ERROR_ACTION_FAILED, 0,
                         "process %d was killed but does not end: something it waits for is stuck", (int)pid);
    return 0;
}

/* Where the same process started it, it is our child: nobody else would take its zombie. */
static void take_zombie(pid_t pid)
{
    waitpid(pid, NULL, WNOHANG);
}

/* Neither ready nor known to have ended: it must not become ready behind the back of a start that failed. */
static void abandon(const struct session_start *start, struct error *e)
{
    AUTO_CLOSE int pidfd = -1;

    if (process_open_remains(&start->id, &pidfd, e) == 1)
        (void)kill_supervisor(start->id.pid, pidfd, e);
    take_zombie(start->id.pid);
}

static int finish_start(struct linux_sandbox *s, const struct session_start *start, const struct facts *facts,
                        struct facts *outputs, struct error *e)
{
    struct supervisor_report report = { .ready = 0 };
    /* A supervisor that has ended already is told apart by its missing report. */
    bool told = send(start->go, "", 1, MSG_NOSIGNAL) == 1 && receive_report(start->report, &report);

    if (told && report.ready == 1) {
        write_display(outputs, (int)report.display);
        write_note(s, start->note, report.scoped == 0 && !has_own_network(facts));
        facts_set(outputs, "note", s->note);
        return 0;
    }
    report.message[sizeof(report.message) - 1] = '\0';
    if (told)
        error_set(e, ERROR_ACTION_FAILED, 0, "%s in '%s'", report.message, s->path);
    else
        fail_start(s, e);
    abandon(start, e);
    return -1;
}

/* A start that another process began: its supervisor goes on by itself, and ends by itself at its bound. */
static enum step_result follow_start(const struct linux_sandbox *s, struct step_context *c, struct error *e)
{
    struct session_look look;

    if (ask(s->dir, ASK_MS, &look, e) < 0)
        return STEP_FAILED;
    if (look.answer == SESSION_STARTING) {
        c->again_ms = AGAIN_MS;
        return STEP_AGAIN;
    }
    if (look.answer == SESSION_READY) {
        write_display(c->outputs, look.display);
        c->outcome = EV_GUEST_READY;
        return STEP_DONE;
    }
    fail_start(s, e);
    return STEP_FAILED;
}

static enum step_result step_desktop(void *self, struct step_context *c, struct error *e)
{
    struct linux_sandbox *s = self;
    struct session_start *start = s->starting;
    int r;

    if (require_dir(s, c, e) < 0)
        return STEP_FAILED;
    if (start == NULL)
        return follow_start(s, c, e);
    r = finish_start(s, start, c->facts, c->outputs, e);
    session_start_free(start);
    s->starting = NULL;
    if (r < 0)
        return STEP_FAILED;
    c->outcome = EV_GUEST_READY;
    c->note = s->note[0] == '\0' ? NULL : s->note;
    return STEP_DONE;
}

const struct step linux_start_steps[] = {
    { "spawn", step_spawn, false },
    { "desktop", step_desktop, false },
    { 0 },
};

/* --- stop --------------------------------------------------------------------------------------------- */

/* Asks by the socket; the signal is for one that does not take connections. */
static void ask_to_stop(int dir, int pidfd)
{
    const struct control_request stop = { .version = CONTROL_VERSION, .kind = CONTROL_STOP };
    struct error ignored = { 0 };
    AUTO_CLOSE int fd = -1;

    if (control_connect(dir, ASK_MS, &fd, &ignored) != 1 || control_send(fd, &stop, NULL, 0, &ignored) < 0)
        send_signal(pidfd, SIGTERM);
}

/* The supervisor to be ended: the recorded one, or the one that listens (a start that was killed before it
 * could record it). 1, 0 when there is none, -1. */
static int find_supervisor(const struct linux_sandbox *s, const struct facts *facts, struct process_id *id,
                           int *pidfd, struct error *e)
{
    struct session_look look;
    int found = read_id(facts, id) ? process_open_remains(id, pidfd, e) : 0;

    if (found != 0)
        return found;
    if (ask(s->dir, ASK_MS, &look, e) < 0)
        return -1;
    return look.pid > 0 && process_read(look.pid, id) == 0 ? process_open(id, pidfd, e) : 0;
}

static int end_supervisor(const struct linux_sandbox *s, struct step_context *c, struct error *e)
{
    struct process_id id;
    AUTO_CLOSE int pidfd = -1;
    int found = find_supervisor(s, c->facts, &id, &pidfd, e);

    if (found <= 0)
        return found;
    ask_to_stop(s->dir, pidfd);
    if (!process_wait_gone(pidfd, HALT_WAIT_MS)) {
        c->note = "its session did not end by itself within 5 s and was killed";
        if (kill_supervisor(id.pid, pidfd, e) < 0)
            return -1;
    }
    take_zombie(id.pid);
    return 0;
}

/* The proof that nobody runs it: a worker that was starting it has its copy of the lock for a moment longer.
 */
static int wait_run_lock(const struct linux_sandbox *s, struct error *e)
{
    AUTO_CLOSE int fd = -1;
    char name[64];
    int taken;

    lock_name(s, name);
    taken = lock_take(s->place->root->locks, name, LOCK_SHARED, REMAINS_WAIT_MS, &fd, e);
    if (taken == 0)
        return error_set(e, ERROR_ACTION_FAILED, 0, "a process that is not recorded holds locks/%s", name);
    return taken < 0 ? -1 : 0;
}

static enum step_result step_halt(void *self, struct step_context *c, struct error *e)
{
    struct linux_sandbox *s = self;
    struct error no_directory = { 0 };

    /* Gone, or something else in its place, it is no end of a session: that goes by the recorded process. */
    (void)linux_sandbox_open_dir(s, &no_directory);
    session_start_free(s->starting);
    s->starting = NULL;
    if (end_supervisor(s, c, e) < 0 || wait_run_lock(s, e) < 0)
        return STEP_FAILED;
    unlinkat(s->dir, "ctl", 0); /* leftovers that the next start removes anyway */
    unlinkat(s->dir, "env", 0);
    return STEP_DONE;
}

const struct step linux_stop_steps[] = {
    { "halt", step_halt, false },
    { 0 },
};

/* --- observe ------------------------------------------------------------------------------------------ */

static int observe_alive(const struct linux_sandbox *s, const struct facts *facts, int deadline_ms,
                         struct observation *out, struct error *e)
{
    static const char *const messages[] = {
        [SESSION_NONE] = "its supervisor does not listen (yet)",
        [SESSION_SILENT] = "its supervisor does not answer",
        [SESSION_STARTING] = "its desktop is being started",
        [SESSION_READY] = NULL, /* the note */
        [SESSION_STOPPING] = "its session is ending",
    };
    struct session_look look;
    struct process_id id;
    const char *message;

    if (ask(s->dir, deadline_ms, &look, e) < 0)
        return -1;
    out->alive = true;
    message = look.answer == SESSION_READY ? facts_get(facts, "note") : messages[look.answer];
    snprintf(out->message, sizeof(out->message), "%s", message == NULL ? "" : message);
    if (look.answer != SESSION_READY)
        return 0;
    out->event = EV_GUEST_READY;
    write_display(&out->facts, look.display);
    if (look.pid > 0 && process_read(look.pid, &id) == 0)
        write_id(&out->facts, &id);
    return 0;
}

int linux_observe(void *self, const struct facts *facts, int deadline_ms, struct observation *out,
                  struct error *e)
{
    struct linux_sandbox *s = self;
    int found = linux_sandbox_open_dir(s, e);
    char name[64];
    int held;

    *out = (struct observation){ .event = EV_NONE };
    lock_name(s, name);
    held = found < 0 ? -1 : s->place->root->locks < 0 ? 0 : lock_is_held(s->place->root->locks, name, e);
    if (held < 0)
        return -1;
    if (held > 0 && found > 0)
        return observe_alive(s, facts, deadline_ms, out, e);
    if (found == 0) {
        out->alive = held > 0;
        out->event = held > 0 ? EV_NONE : EV_LOST;
        snprintf(out->message, sizeof(out->message), "its directory is gone");
        return 0;
    }
    /* The kernel frees the lock with the process: no pid, start time or boot id has to be believed. */
    out->event = EV_GUEST_GONE;
    explain_end(s, facts, out->message, sizeof(out->message));
    return 0;
}

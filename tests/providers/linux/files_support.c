#include "tests/providers/linux/files_support.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/text.h"
#include "providers/linux/leftovers.h"
#include "providers/linux/mounts.h"
#include "providers/linux/namespace.h"

static int wait_for(pid_t pid)
{
    int status = 0;

    if (RETRY_EINTR(waitpid(pid, &status, 0)) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool become(uid_t id)
{
    if (id == geteuid())
        return true;
    if (setgroups(0, NULL) < 0 || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
        return false;
    /* A change of ids clears it, and /proc/PID/uid_map of the children would be root's. An exec sets it. */
    return prctl(PR_SET_DUMPABLE, 1) == 0;
}

int support_run_as_both(int (*group)(void))
{
    int failures = group();
    pid_t pid;

    if (geteuid() != 0)
        return failures;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        printf("once more as nobody\n");
        exit(become(SUPPORT_NOBODY) ? group() : 1);
    }
    return failures + abs(wait_for(pid));
}

static int do_nothing(void *self)
{
    (void)self;
    return 0;
}

void support_need_namespaces(void)
{
    const struct namespace_request request = { .run = do_nothing };
    struct error e = { 0 };
    pid_t pid;

    if (namespace_spawn(&request, &pid, &e) < 0) {
        print_message("skipped: %s\n", e.message);
        skip();
    }
    assert_int_equal(wait_for(pid), 0);
}

struct root support_root_make(const char *parent)
{
    struct root root = { .dir = -1, .sandboxes = -1, .locks = -1 };
    struct error e = { 0 };

    snprintf(root.path, sizeof(root.path), "%s/ad-test-XXXXXX", parent);
    assert_non_null(mkdtemp(root.path));
    root.dir = open(root.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(root.dir >= 0);
    root.sandboxes = file_make_dir(root.dir, "sandboxes", 0700, &e);
    root.locks = file_make_dir(root.dir, "locks", 0700, &e);
    assert_true(root.sandboxes >= 0 && root.locks >= 0);
    return root;
}

void support_root_remove(struct root *root)
{
    AUTO_CLOSE int parent = file_open_dir(root->dir, "..");
    struct error e = { 0 };

    if (leftover_remove(parent, strrchr(root->path, '/') + 1, &e) < 0)
        fail_msg("%s", e.message);
    close(root->dir);
    close(root->sandboxes);
    close(root->locks);
}

bool support_in_child(bool (*prepare)(void *self), bool (*fn)(void *self), void *self, uid_t user_id)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        if (prepare != NULL && (unshare(CLONE_NEWNS) < 0 ||
                                mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || !prepare(self)))
            _exit(2);
        _exit(become(user_id) && fn(self) ? 0 : 1);
    }
    return wait_for(pid) == 0;
}

struct linux_sandbox support_sandbox(struct provider_place *place, const struct root *root, const char *name,
                                     const char *source)
{
    static const struct facts never_started;
    struct linux_sandbox s = { .place = place, .dir = -1 };

    *place = (struct provider_place){
        .root = root, .name = name, .source = source, .source_facts = &never_started, .op_lock = -1
    };
    snprintf(s.path, sizeof(s.path), "%s/sandboxes/%s", root->path, name);
    return s;
}

int support_run_steps(const struct step *steps, struct linux_sandbox *s, const struct facts *facts,
                      struct error *e)
{
    static const struct facts none;
    char token[17];

    util_random_id(token);
    for (const struct step *step = steps; step->name != NULL; step++) {
        struct facts outputs = { 0 };
        struct step_context c = {
            .facts = facts == NULL ? &none : facts, .outputs = &outputs, .token = token, .attempt = 1
        };

        if (step->run(s, &c, e) == STEP_FAILED)
            return -1;
    }
    return 0;
}

struct inside {
    struct mounts_request mounts;
    const char *script;
    int out;
    int note;
};

static int inside_enter(void *self, struct error *e)
{
    const struct inside *i = self;
    char note[256];

    if (mounts_enter(&i->mounts, note, sizeof(note), e) < 0)
        return -1;
    return write(i->note, note, strlen(note) + 1) < 0 ? -1 : 0;
}

/* As the first process of its pid namespace: sh runs as its child. */
static int inside_run(void *self)
{
    const struct inside *i = self;
    char path[] = "PATH=/run/agent-desktop/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char *const environment[] = { path, NULL };
    pid_t pid = fork();

    if (pid == 0) {
        dup2(i->out, 1);
        dup2(i->out, 2);
        execle("/bin/sh", "sh", "-c", i->script, NULL, environment);
        _exit(127);
    }
    return wait_for(pid);
}

static char *read_all(int fd)
{
    struct text t = { 0 };
    char block[4096];
    ssize_t got;

    while ((got = RETRY_EINTR(read(fd, block, sizeof(block)))) > 0)
        text_add(&t, block, (size_t)got);
    text_add(&t, "", 0);
    return t.bytes;
}

char *support_run_inside(const struct root *root, const char *name, const char *script, char *note,
                         struct error *e)
{
    AUTO_FREE char *path = mem_print("%s/sandboxes/%s", root->path, name);
    struct linux_user user = { .uid = geteuid(), .gid = getegid(), .name = "tester", .home = "/home/tester" };
    struct inside inside = { .mounts = { .sandbox_dir = file_open_dir(root->sandboxes, name),
                                         .sandbox_path = path,
                                         .root_path = root->path,
                                         .user = &user,
                                         .binary = open("/proc/self/exe", O_RDONLY | O_CLOEXEC) },
                             .script = script };
    struct namespace_request request = {
        .hostname = name, .enter = inside_enter, .run = inside_run, .self = &inside
    };
    int out[2], notes[2];
    char *text = NULL;
    pid_t pid;
    int spawned;

    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(notes, O_CLOEXEC) < 0)
        return NULL;
    inside.out = out[1];
    inside.note = notes[1];
    spawned = namespace_spawn(&request, &pid, e);
    close(out[1]);
    close(notes[1]);
    if (spawned == 0) {
        text = read_all(out[0]);
        if (read(notes[0], note, 256) <= 0)
            note[0] = '\0';
        wait_for(pid);
    }
    close(out[0]);
    close(notes[0]);
    close(inside.mounts.sandbox_dir);
    close(inside.mounts.binary);
    return text;
}

bool support_write(int dir, const char *path, const char *content)
{
    AUTO_CLOSE int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    return fd >= 0 && file_write_all(fd, content, strlen(content)) == 0;
}

bool support_exists(int dir, const char *path)
{
    struct stat st;

    return fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

char *support_read(int dir, const char *path)
{
    struct error e = { 0 };
    char *content = NULL;
    size_t size;

    return file_read(dir, path, 1 << 20, &content, &size, &e) == 1 ? content : NULL;
}

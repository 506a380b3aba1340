#include "providers/linux/family.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/util.h"

/* A signal needs microseconds to stop a process; one that is stuck in the kernel for longer is killed as it
 * is (the kernel then ends a fork that is under way). */
#define STOP_ROUNDS_MAX 64

/* Fields of /proc/PID/stat behind the name, which may hold blanks and ')' itself (proc_pid_stat(5)). */
static bool parse_stat(char *text, struct family_process *out)
{
    char *at = strrchr(text, ')');
    int parent, group;
    unsigned long long start;

    if (at == NULL ||
        sscanf(at + 1, " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &out->state, &parent, &group, &start) != 4)
        return false;
    out->parent = parent;
    out->group = group;
    out->start = start;
    return true;
}

static bool read_process(int proc, const char *name, struct family_process *out)
{
    char path[32], text[1024];
    ssize_t n;

    snprintf(path, sizeof(path), "%.16s/stat", name);
    AUTO_CLOSE int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false; /* it ended meanwhile */
    n = read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    *out = (struct family_process){ .pid = (pid_t)strtol(name, NULL, 10) };
    return parse_stat(text, out);
}

struct directory_entry { /* getdents64(2): readdir() would allocate */
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

static void scan(struct family *f)
{
    _Alignas(struct directory_entry) char buffer[8192];
    AUTO_CLOSE int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n;

    f->process_count = 0;
    while (proc >= 0 && (n = syscall(SYS_getdents64, proc, buffer, sizeof(buffer))) > 0) {
        for (long at = 0; at < n;) {
            const struct directory_entry *entry = (const void *)(buffer + at);

            at += entry->size;
            if (entry->name[0] >= '1' && entry->name[0] <= '9' && f->process_count < FAMILY_SCAN_MAX &&
                read_process(proc, entry->name, &f->processes[f->process_count]))
                f->process_count++;
        }
    }
}

static bool is_alive(const struct family_process *p)
{
    return p->state != 'Z' && p->state != 'X';
}

static bool is_stopped(const struct family_process *p)
{
    return p->state == 'T' || p->state == 't';
}

static bool is_kin(const struct family *f, pid_t leader, const struct family_process *p)
{
    for (size_t i = 0; i < f->kin_count; i++)
        if (f->kin[i].leader == leader && f->kin[i].pid == p->pid && f->kin[i].start == p->start)
            return true;
    return false;
}

static bool has_marked_parent(const struct family *f, const struct family_process *p)
{
    for (size_t i = 0; i < f->process_count; i++)
        if (f->processes[i].marked && f->processes[i].pid == p->parent)
            return true;
    return false;
}

static void mark_members(struct family *f, pid_t leader)
{
    for (size_t i = 0; i < f->process_count; i++) {
        struct family_process *p = &f->processes[i];

        p->marked = p->marked || p->group == leader || p->pid == leader || is_kin(f, leader, p);
    }
}

static void mark_descendants(struct family *f)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (size_t i = 0; i < f->process_count; i++) {
            struct family_process *p = &f->processes[i];

            if (!p->marked && p->parent > 1 && has_marked_parent(f, p))
                p->marked = changed = true;
        }
    }
}

static void scan_and_mark(struct family *f, const pid_t *leaders, size_t count)
{
    scan(f);
    for (size_t i = 0; i < count; i++)
        mark_members(f, leaders[i]);
    mark_descendants(f);
}

void family_remember(struct family *f, pid_t leader)
{
    scan_and_mark(f, &leader, 1);
    family_forget(f, leader);
    for (size_t i = 0; i < f->process_count && f->kin_count < FAMILY_REMEMBER_MAX; i++) {
        const struct family_process *p = &f->processes[i];

        if (p->marked && is_alive(p))
            f->kin[f->kin_count++] = (struct family_kin){ leader, p->pid, p->start };
    }
}

void family_forget(struct family *f, pid_t leader)
{
    size_t kept = 0;

    for (size_t i = 0; i < f->kin_count; i++)
        if (f->kin[i].leader != leader)
            f->kin[kept++] = f->kin[i];
    f->kin_count = kept;
}

bool family_lives(struct family *f, pid_t leader)
{
    scan_and_mark(f, &leader, 1);
    for (size_t i = 0; i < f->process_count; i++)
        if (f->processes[i].marked && is_alive(&f->processes[i]))
            return true;
    return false;
}

/* Sends SIGNAL to the marked ones that live; how many of them were not stopped. */
static size_t signal_marked(const struct family *f, int signal)
{
    size_t running = 0;

    for (size_t i = 0; i < f->process_count; i++) {
        const struct family_process *p = &f->processes[i];

        if (!p->marked || !is_alive(p))
            continue;
        running += !is_stopped(p);
        kill(p->pid, signal);
    }
    return running;
}

void family_kill(struct family *f, const pid_t *leaders, size_t count)
{
    size_t running = 1;

    for (int round = 0; running > 0 && round < STOP_ROUNDS_MAX; round++) {
        scan_and_mark(f, leaders, count);
        running = signal_marked(f, SIGSTOP);
    }
    signal_marked(f, SIGKILL);
}

#include "core/process_kin.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/util.h"

/* As a rule two rounds are enough: one that finds all, and one that finds nobody new. More when somebody
 * forks all the time, and gets a child in before it is stopped. */
#define SEARCH_MS 5000

static bool is_same(const struct process_id *a, const struct process_id *b)
{
    return a->pid == b->pid && a->start == b->start;
}

static bool is_known(const struct process_kin *k, const struct process_id *id)
{
    for (size_t i = 0; i < k->count; i++)
        if (is_same(&k->ids[i], id))
            return true;
    return false;
}

static void forget_the_dead(struct process_kin *k)
{
    size_t kept = 0;

    for (size_t i = 0; i < k->count; i++) {
        struct process_id now;

        if (process_read(k->ids[i].pid, &now) == 0 && is_same(&now, &k->ids[i]))
            k->ids[kept++] = now;
    }
    k->count = kept;
}

/* True when it lives and was not known. */
static bool add(struct process_kin *k, pid_t pid)
{
    struct process_id id;

    if (process_read(pid, &id) < 0 || is_known(k, &id))
        return false;
    if (k->count == k->room) {
        k->room = k->room == 0 ? 16 : 2 * k->room;
        k->ids = mem_grow(k->ids, k->room, sizeof(*k->ids));
    }
    k->ids[k->count++] = id;
    return true;
}

static bool add_children(struct process_kin *k, pid_t parent)
{
    AUTO_FREE pid_t *children = NULL;
    size_t count = process_children(parent, &children);
    bool added = false;

    for (size_t i = 0; i < count; i++)
        added |= add(k, children[i]);
    return added;
}

/* True when it has found somebody new. */
static bool search(struct process_kin *k)
{
    bool added;

    forget_the_dead(k);
    added = add(k, k->leader);
    if (k->adopts)
        added |= add_children(k, getpid());
    for (size_t i = 0; i < k->count; i++) /* which grows meanwhile */
        added |= add_children(k, k->ids[i].pid);
    return added;
}

bool process_kin_remember(struct process_kin *k)
{
    search(k);
    return k->count > 0;
}

/* Where the system cannot signal exactly this process (before Linux 5.3), or there is no descriptor left for
 * that, by its number: it was its own a moment ago. */
static void signal_one(const struct process_id *id, int number)
{
    struct error ignored = { 0 };
    struct process_id now;

    if (process_send(id, number, &ignored) < 0 && process_read(id->pid, &now) == 0 && is_same(&now, id))
        (void)kill(id->pid, number);
}

static void signal_all(const struct process_kin *k, int number)
{
    if (k->leader > 1) /* else it was never started */
        (void)kill(k->adopts ? -k->leader : k->leader, number);
    for (size_t i = 0; i < k->count; i++)
        signal_one(&k->ids[i], number);
}

void process_kin_kill(struct process_kin *k)
{
    int64_t end_ms = clock_mono_ms() + SEARCH_MS;
    bool again = true;

    /* once more behind the first stop, even of those that were known before */
    for (int round = 0; again && clock_mono_ms() < end_ms; round++) {
        again = search(k) || round == 0;
        signal_all(k, SIGSTOP);
    }
    signal_all(k, SIGKILL);
}

void process_kin_reap(const struct process_kin *k)
{
    AUTO_FREE pid_t *children = NULL;
    size_t count = process_children(getpid(), &children);

    for (size_t i = 0; i < count; i++)
        if (children[i] != k->leader)
            (void)waitpid(children[i], NULL, WNOHANG);
}

void process_kin_done(struct process_kin *k)
{
    free(k->ids);
    k->ids = NULL;
    k->count = k->room = 0;
}

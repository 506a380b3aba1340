#include "providers/remote/kin.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util.h"

#define CHILDREN_MAX 256
/* As a rule two are enough: one that finds all, and one that finds nobody new. More when somebody forks all
 * the time, and gets a child in before it is stopped. */
#define STOP_ROUNDS_MAX 64

static bool is_known(const struct kin *k, const struct process_id *id)
{
    for (size_t i = 0; i < k->count; i++)
        if (k->ids[i].pid == id->pid && k->ids[i].start == id->start)
            return true;
    return false;
}

static void forget_the_dead(struct kin *k)
{
    size_t kept = 0;

    for (size_t i = 0; i < k->count; i++) {
        struct process_id now;

        if (process_read(k->ids[i].pid, &now) == 0 && now.start == k->ids[i].start)
            k->ids[kept++] = now;
    }
    k->count = kept;
}

static void add_children(struct kin *k, pid_t parent)
{
    pid_t children[CHILDREN_MAX];
    size_t count = process_children(parent, children, CHILDREN_MAX);

    for (size_t i = 0; i < count; i++) {
        struct process_id id;

        if (process_read(children[i], &id) == 0 && !is_known(k, &id) && k->count < KIN_MAX)
            k->ids[k->count++] = id;
    }
}

bool kin_remember(struct kin *k)
{
    struct process_id leader;

    forget_the_dead(k);
    if (process_read(k->leader, &leader) == 0 && !is_known(k, &leader) && k->count < KIN_MAX)
        k->ids[k->count++] = leader;
    add_children(k, getpid());
    for (size_t i = 0; i < k->count; i++) /* which grows meanwhile */
        add_children(k, k->ids[i].pid);
    return k->count > 0;
}

static void signal_all(const struct kin *k, int number)
{
    struct error ignored = { 0 };

    (void)kill(-k->leader, number);
    for (size_t i = 0; i < k->count; i++)
        (void)process_send(&k->ids[i], number, &ignored);
}

void kin_kill(struct kin *k)
{
    size_t before = 0;

    for (int round = 0; round < STOP_ROUNDS_MAX; round++) {
        kin_remember(k);
        signal_all(k, SIGSTOP);
        if (round > 0 && k->count <= before)
            break;
        before = k->count;
    }
    signal_all(k, SIGKILL);
}

void kin_reap(const struct kin *k)
{
    pid_t children[CHILDREN_MAX];
    size_t count = process_children(getpid(), children, CHILDREN_MAX);

    for (size_t i = 0; i < count; i++)
        if (children[i] != k->leader)
            (void)waitpid(children[i], NULL, WNOHANG);
}

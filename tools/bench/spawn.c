/* tools/bench/spawn.c - starts commands in turn and times them, from before the start to after the end.
 *
 *   spawn ROUNDS , COMMAND ARGS... [, COMMAND ARGS...]...
 *
 * Round by round each command once, so that whatever else the machine does meets all of them alike. Standard
 * output goes to /dev/null, standard error stays. One line a command: median, 10th and 90th percentile in
 * microseconds, the median of the processor time that it and what it waited for took, peak memory in KiB, and
 * how many did not exit with 0. Small on purpose: a large parent would make each fork dear. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMMANDS_MAX 16

struct command {
    char **argv;
    double *times_us;
    double *cpu_us;
    long peak_kib;
    long failures;
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double to_us(struct timeval t)
{
    return (double)t.tv_sec * 1e6 + (double)t.tv_usec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int run_once(struct command *c, const posix_spawn_file_actions_t *actions, long round)
{
    struct rusage usage;
    int status;
    pid_t pid;
    double begun = now_us();
    int failed = posix_spawnp(&pid, c->argv[0], actions, NULL, c->argv, environ);

    if (failed != 0) {
        fprintf(stderr, "spawn: %s: %s\n", c->argv[0], strerror(failed));
        return -1;
    }
    while (wait4(pid, &status, 0, &usage) < 0)
        if (errno != EINTR)
            return -1;
    c->times_us[round] = now_us() - begun;
    c->cpu_us[round] = to_us(usage.ru_utime) + to_us(usage.ru_stime);
    if (usage.ru_maxrss > c->peak_kib)
        c->peak_kib = usage.ru_maxrss;
    c->failures += status != 0;
    return 0;
}

/* Splits ARGV at "," into commands; their number, or -1. */
static int split(char **argv, struct command commands[COMMANDS_MAX])
{
    int count = 0;

    for (char **at = argv; *at != NULL; at++) {
        if (strcmp(*at, ",") != 0)
            continue;
        *at = NULL;
        if (count == COMMANDS_MAX || at[1] == NULL)
            return -1;
        commands[count++] = (struct command){ .argv = at + 1 };
    }
    return count;
}

int main(int argc, char **argv)
{
    struct command commands[COMMANDS_MAX];
    posix_spawn_file_actions_t actions;
    long rounds = argc > 3 ? strtol(argv[1], NULL, 10) : 0;
    int count = rounds > 0 ? split(argv + 2, commands) : 0;

    if (count <= 0) {
        fprintf(stderr, "usage: spawn ROUNDS , COMMAND ARGS... [, COMMAND ARGS...]...\n");
        return 2;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    for (int i = 0; i < count; i++) {
        commands[i].times_us = calloc((size_t)rounds, sizeof(double));
        commands[i].cpu_us = calloc((size_t)rounds, sizeof(double));
        if (commands[i].times_us == NULL || commands[i].cpu_us == NULL)
            return 1;
    }
    for (long round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++)
            if (run_once(&commands[i], &actions, round) < 0)
                return 1;
    for (int i = 0; i < count; i++) {
        double *t = commands[i].times_us, *cpu = commands[i].cpu_us;

        qsort(t, (size_t)rounds, sizeof(*t), by_size);
        qsort(cpu, (size_t)rounds, sizeof(*cpu), by_size);
        printf("%.1f %.1f %.1f %.1f %ld %ld\n", t[rounds / 2], t[rounds / 10], t[rounds * 9 / 10],
               cpu[rounds / 2], commands[i].peak_kib, commands[i].failures);
        free(t);
        free(cpu);
    }
    posix_spawn_file_actions_destroy(&actions);
    return 0;
}

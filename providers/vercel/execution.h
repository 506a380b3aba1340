/* providers/vercel/execution.h - one command at work. For exec*.c only:
 *   exec.c         the course of it, from the look before to the verdict
 *   exec_follow.c  the service's stream, and its being found again when it breaks off
 *   exec_watch.c   what comes from this side meanwhile: signals, the time limit, input, readers that leave */
#ifndef PROVIDERS_VERCEL_EXECUTION_H
#define PROVIDERS_VERCEL_EXECUTION_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/vercel/lookout.h"
#include "providers/vercel/relay.h"
#include "providers/vercel/vercel.h"

#define EXEC_GRACE_MS 2000 /* between the first signal and SIGKILL */
#define EXEC_KILL_MS  2000 /* for the service to tell that it has ended */
#define EXEC_CALL_MS  2000 /* one call beside the stream */

/* Why the command is being ended. */
enum ending {
    ENDING_NONE,
    ENDING_SIGNAL, /* the caller's */
    ENDING_LATE,   /* the time limit */
    ENDING_READER, /* nobody reads its output any more */
    ENDING_SINK,   /* its output cannot be written: a full disk */
    ENDING_INPUT,  /* there is stdin, after all */
    ENDING_LOST    /* nothing more of it can be learnt */
};

struct execution {
    struct vercel_box *box;
    const struct facts *facts;
    const struct exec_request *request;
    struct exec_result *out;
    int64_t end_ms; /* the time limit */

    char session[VERCEL_ID_SIZE];
    char command[VERCEL_ID_SIZE]; /* "" as long as it was not told */
    struct lookout *lookout;
    struct relay relay;
    struct vercel_box beside; /* another client, while that of BOX is busy with the stream */

    bool finished; /* all of its output and its end were told */
    bool is_short; /* its end is known; but its output is not told any more as it was before */
    bool gave_up;  /* nothing that comes is waited for any more */
    bool session_ended;
    bool status_known;
    int status;
    char said[336]; /* with which words the service has broken the stream off; "" when it did not */
    int garbled;    /* tellings with lines that cannot be read */
    int shorter;    /* tellings in a row that were */

    enum ending ending;
    int number;      /* the first signal; 0 when it was sent */
    bool killed;     /* the last word was said, or need not be */
    int64_t kill_ms; /* when it is */
    int64_t give_up_ms;
};

/* Takes the news of x->lookout and does what is due: begins to end the command, sends it signals, suspends.
 * To be called on every wake, and when the command's id is told. May block for some calls beside
 * (EXEC_CALL_MS each). False: give up; then x->gave_up is set. */
bool execution_watch(struct execution *x);

/* Ends a command of which nothing more can be learnt, as E says, rather than leaving it to run unseen. Blocks
 * until it has ended, or cannot be; adds to E that it was. */
void execution_abandon(struct execution *x, struct error *e);

/* When nothing is waited for any more. */
int64_t execution_limit_ms(const struct execution *x);

/* Notes how the command ended. A status that no process can have becomes 255. */
void execution_take_status(struct execution *x, int status);

/* Runs the command and passes its output on, until it has finished, its session has ended, or it is given up.
 * 0 also when it was told nothing (x->command is ""): *START as of api_run(). -1 with *e; delivery tells
 * whether it may run. */
int execution_follow(struct execution *x, const struct api_command *command, enum command_start *start,
                     struct error *e);

#endif

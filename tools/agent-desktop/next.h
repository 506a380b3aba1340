/* tools/agent-desktop/next.h - the command that helps next, as a line for a shell and as an array.
 *
 * Which command that is, fsm/ decides; here it gets its words. */
#ifndef TOOLS_AGENT_DESKTOP_NEXT_H
#define TOOLS_AGENT_DESKTOP_NEXT_H

#include <stddef.h>

#include "core/json.h"
#include "fsm/lifecycle.h"

struct next_subject {
    const char *name;     /* the sandbox; NULL or "" where none is meant */
    const char *provider; /* NULL or "" when unknown */
    const char *fix;      /* NEXT_HOST_FIX: the provider's command line; else NULL */
};

#define NEXT_LINE_MAX  512                 /* a longer line of a provider goes to sh as one word */
#define NEXT_WORDS_MAX (NEXT_LINE_MAX / 2) /* each has a letter and a blank behind it */

struct next_words {
    const char *words[NEXT_WORDS_MAX]; /* lent by the subject, or in BUFFER */
    size_t count;                      /* 0: there is no command, or not enough is known to write it */
    char buffer[NEXT_LINE_MAX];
};

void next_find_words(enum fsm_next_command command, const struct next_subject *subject,
                     struct next_words *out);

/* The words as one line that any POSIX shell reads back as the same words. free() it. */
char *next_line(const struct next_words *w);

/* Adds `next`, `next_argv` and `needs_person` (each only where there is something to say) to OBJECT. */
void next_put(struct json *object, struct fsm_next next, const struct next_subject *subject);

#endif

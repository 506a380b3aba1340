#include "tools/agent-desktop/next.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "providers/provider.h"

enum word { /* what follows "agent-desktop sandbox VERB" */
            WORD_END = 0,
            WORD_NAME,
            WORD_PROVIDER,
            WORD_PROVIDER_OPTION, /* --provider PROVIDER; left out when it is unknown: there is a default */
            WORD_NEEDED           /* --set KEY=VALUE, where that provider cannot do without */
};

#define WORDS_MAX 3

static const enum word shapes[FSM_NEXT_COUNT][WORDS_MAX] = {
    [NEXT_INSTALL] = { WORD_PROVIDER }, [NEXT_CREATE] = { WORD_NAME, WORD_PROVIDER_OPTION, WORD_NEEDED },
    [NEXT_START] = { WORD_NAME },       [NEXT_STATUS] = { WORD_NAME },
    [NEXT_STOP] = { WORD_NAME },        [NEXT_REMOVE] = { WORD_NAME },
};

static bool is_known(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static void add(struct next_words *w, const char *word)
{
    assert(w->count < NEXT_WORDS_MAX);
    w->words[w->count++] = word;
}

/* Only words, which need no shell: no quotes, no pipe, no "A=b" before the program. */
static bool is_plain(const char *line)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,- ";

    return line[strspn(line, plain)] == '\0' && strcspn(line, "=") >= strcspn(line, " ") &&
           strlen(line) < NEXT_LINE_MAX;
}

/* A provider's command line is text for a shell. Plain words are split; anything else is left to sh. */
static void add_words_of_line(struct next_words *w, const char *line)
{
    char *rest = NULL;

    if (!is_plain(line)) {
        add(w, "sh");
        add(w, "-c");
        add(w, line);
        return;
    }
    memcpy(w->buffer, line, strlen(line) + 1);
    for (char *word = strtok_r(w->buffer, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        add(w, word);
}

/* What a create by this provider, or by the one that is taken where none is named, has to be given. */
static void add_needed(struct next_words *w, const char *provider)
{
    const struct provider_ops *ops = provider_find(is_known(provider) ? provider : provider_default_name());

    if (ops == NULL || ops->needed == NULL)
        return;
    add(w, "--set");
    add(w, ops->needed);
}

/* false when the word is needed and not known. */
static bool add_word(struct next_words *w, enum word word, const struct next_subject *subject)
{
    switch (word) {
    case WORD_END:
        return true;
    case WORD_NAME:
        add(w, subject->name);
        return is_known(subject->name);
    case WORD_PROVIDER:
        add(w, subject->provider);
        return is_known(subject->provider);
    case WORD_PROVIDER_OPTION:
        if (is_known(subject->provider)) {
            add(w, "--provider");
            add(w, subject->provider);
        }
        return true;
    case WORD_NEEDED:
        add_needed(w, subject->provider);
        return true;
    }
    return false;
}

void next_find_words(enum fsm_next_command command, const struct next_subject *subject,
                     struct next_words *out)
{
    out->count = 0;
    if (command == NEXT_HOST_FIX && is_known(subject->fix))
        add_words_of_line(out, subject->fix);
    if (command == NEXT_HOST_FIX || command == NEXT_NONE)
        return;
    add(out, "agent-desktop");
    add(out, "sandbox");
    add(out, fsm_next_verb(command));
    for (size_t i = 0; i < WORDS_MAX; i++)
        if (!add_word(out, shapes[command][i], subject)) {
            out->count = 0;
            return;
        }
}

char *next_line(const struct next_words *w)
{
    struct text line = { 0 };

    for (size_t i = 0; i < w->count; i++) {
        if (i > 0)
            text_add_string(&line, " ");
        text_add_shell_word(&line, w->words[i]);
    }
    return line.bytes;
}

void next_put(struct json *object, struct fsm_next next, const struct next_subject *subject)
{
    struct next_words w;

    next_find_words(next.command, subject, &w);
    if (w.count > 0) {
        AUTO_FREE char *line = next_line(&w);

        json_put_string(object, "next", next.command == NEXT_HOST_FIX ? subject->fix : line);
        json_put(object, "next_argv", json_new_strings(w.words, w.count));
    }
    if (next.needs_person)
        json_put_bool(object, "needs_person", true);
}

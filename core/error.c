#include "core/error.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/text.h"

struct code_row {
    const char *name;
    const char *meaning;
    const char *suggestion;
    enum error_delivery delivery;
    enum error_retry retry;
};

/* "safe" only where repeating the same command cannot do harm: the failure came before anything was done,
 * or doing it twice is doing it once. Who knows better sets error.delivery and error.retry. */
static const struct code_row rows[] = {
    [ERROR_NONE] = { "NONE", "no error", NULL, DELIVERY_UNKNOWN, RETRY_UNSAFE },
    [ERROR_INVALID_ARGS] = { "INVALID_ARGS", "the command line or the environment is not acceptable",
                             "Correct the argument that the message names; --help lists what is accepted.",
                             DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_SANDBOX_NOT_FOUND] = { "SANDBOX_NOT_FOUND", "there is no sandbox of that name",
                                  "Check the name; 'sandbox list' shows every sandbox.",
                                  DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_SANDBOX_EXISTS] = { "SANDBOX_EXISTS", "a sandbox of that name exists",
                               "Use the existing sandbox or choose another name.", DELIVERY_NOT_DELIVERED,
                               RETRY_SAFE },
    [ERROR_PROVIDER_NOT_FOUND] = { "PROVIDER_NOT_FOUND", "this build has no provider of that name",
                                   "Check the name; 'sandbox install' shows every provider.",
                                   DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_PROVIDER_UNAVAILABLE] = { "PROVIDER_UNAVAILABLE", "the provider is not ready on this host", NULL,
                                     DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_INVALID_STATE] = { "INVALID_STATE", "the sandbox's state forbids the command", NULL,
                              DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_SANDBOX_BUSY] = { "SANDBOX_BUSY", "another command is working on the sandbox",
                             "Repeat the command when the other one has ended.", DELIVERY_NOT_DELIVERED,
                             RETRY_SAFE },
    [ERROR_STORE_BUSY] = { "STORE_BUSY", "another command holds the journal", "Repeat the command.",
                           DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_LIMIT_REACHED] = { "LIMIT_REACHED", "a limit of the host or of the service is reached",
                              "Stop or remove a sandbox that is not needed.", DELIVERY_NOT_DELIVERED,
                              RETRY_SAFE },
    [ERROR_AUTH_FAILED] = { "AUTH_FAILED", "the credentials were not accepted",
                            "Check the credentials that the message names.", DELIVERY_NOT_DELIVERED,
                            RETRY_SAFE },
    [ERROR_HOST_KEY_CHANGED] = { "HOST_KEY_CHANGED", "the guest's host key is not the pinned one",
                                 "Do not connect until it is known why the key changed.",
                                 DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_NAME_TAKEN] = { "NAME_TAKEN", "the name is taken on the hosted service", "Choose another name.",
                           DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_APP_NOT_FOUND] = { "APP_NOT_FOUND", "the application is not installed or not running",
                              "Check the application's name.", DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_STALE_REF] = { "STALE_REF", "the element that the ref named is gone",
                          "Take a new snapshot and use its refs.", DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_ACTION_FAILED] = { "ACTION_FAILED", "the work was begun and failed",
                              "Look at the state before repeating anything.", DELIVERY_DELIVERED_UNVERIFIED,
                              RETRY_UNSAFE },
    [ERROR_TIMEOUT] = { "TIMEOUT", "the time limit ran out", "Look at the state before repeating anything.",
                        DELIVERY_DELIVERED_UNVERIFIED, RETRY_UNSAFE },
    [ERROR_PERM_DENIED] = { "PERM_DENIED", "the system does not permit it",
                            "Check owner and permissions of what the message names.", DELIVERY_NOT_DELIVERED,
                            RETRY_SAFE },
    [ERROR_PLATFORM_NOT_SUPPORTED] = { "PLATFORM_NOT_SUPPORTED", "this system cannot do it", NULL,
                                       DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_STORE_CORRUPT] = { "STORE_CORRUPT", "the journal or a stored record is damaged or lost",
                              "'sandbox log --verify' says where; restore the state root from a backup.",
                              DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_STORE_FULL] = { "STORE_FULL", "there is no space left to record or write it",
                           "Free disk space or raise the quota, then repeat the command.",
                           DELIVERY_NOT_DELIVERED, RETRY_SAFE },
    [ERROR_INTERNAL] = { "INTERNAL", "something failed that should not",
                         "Look at the state before repeating anything.", DELIVERY_UNKNOWN, RETRY_UNSAFE },
};
_Static_assert(ARRAY_LEN(rows) == ERROR_CODE_COUNT, "each code has a row");

static const char *const delivery_names[] = {
    [DELIVERY_NOT_DELIVERED] = "not_delivered",
    [DELIVERY_DELIVERED_UNVERIFIED] = "delivered_unverified",
    [DELIVERY_UNKNOWN] = "unknown",
};

static const char *const retry_names[] = { [RETRY_SAFE] = "safe", [RETRY_UNSAFE] = "unsafe" };

static const struct errno_row {
    int sys;
    enum error_code code;
    const char *suggestion; /* NULL: the code's */
} errno_rows[] = {
    { ENOSPC, ERROR_STORE_FULL, NULL },
    { EDQUOT, ERROR_STORE_FULL, NULL },
    { EFBIG, ERROR_STORE_FULL, "Raise the limit of file sizes (ulimit -f), then repeat the command." },
    { EACCES, ERROR_PERM_DENIED, NULL },
    { EPERM, ERROR_PERM_DENIED, NULL },
    { EROFS, ERROR_PERM_DENIED, NULL },
    { EMFILE, ERROR_LIMIT_REACHED, "Raise the limit of open files (ulimit -n), then repeat the command." },
    { ENFILE, ERROR_LIMIT_REACHED,
      "Raise the system's limit of open files (fs.file-max), or end what has many open." },
};

static const struct errno_row *find_errno(int sys)
{
    for (size_t i = 0; i < ARRAY_LEN(errno_rows); i++)
        if (errno_rows[i].sys == sys)
            return &errno_rows[i];
    return NULL;
}

static const struct code_row *find_row(enum error_code code)
{
    assert((unsigned int)code < ERROR_CODE_COUNT);
    return &rows[code];
}

/* The cause is kept whole and the words before it are cut: a long path must not hide "no space left". */
static void fill_message(struct error *e, int sys, const char *format, va_list args) PRINTF_LIKE(3, 0);

static void fill_message(struct error *e, int sys, const char *format, va_list args)
{
    char raw[2 * sizeof(e->message)], cause[128] = "";
    int length = vsnprintf(raw, sizeof(raw), format, args);
    size_t used;

    if (length < 0) /* only for wide characters, which nobody prints */
        length = 0;
    if ((size_t)length >= sizeof(raw))
        length = sizeof(raw) - 1;
    if (sys > 0)
        snprintf(cause, sizeof(cause), ": %s", strerror(sys));
    used = text_clean(e->message, sizeof(e->message) - strlen(cause), raw, (size_t)length);
    text_clean(e->message + used, sizeof(e->message) - used, cause, strlen(cause));
}

static void fill(struct error *e, enum error_code code, int sys, const char *format, va_list args)
    PRINTF_LIKE(4, 0);

static void fill(struct error *e, enum error_code code, int sys, const char *format, va_list args)
{
    assert(code != ERROR_NONE);
    if (e->code != ERROR_NONE)
        return;
    e->code = code;
    e->sys = sys;
    fill_message(e, sys, format, args);
}

int(error_set)(struct error *e, enum error_code code, int sys, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fill(e, code, sys, format, args);
    va_end(args);
    return -1;
}

int(error_set_errno)(struct error *e, enum error_code otherwise, int sys, const char *format, ...)
{
    const struct errno_row *row = find_errno(sys);
    va_list args;

    if (row != NULL && e->code == ERROR_NONE)
        e->suggestion = row->suggestion;
    va_start(args, format);
    fill(e, row != NULL ? row->code : otherwise, sys, format, args);
    va_end(args);
    return -1;
}

const char *error_code_name(enum error_code code)
{
    return find_row(code)->name;
}

const char *error_code_meaning(enum error_code code)
{
    return find_row(code)->meaning;
}

const char *error_suggestion(const struct error *e)
{
    return e->suggestion != NULL ? e->suggestion : find_row(e->code)->suggestion;
}

const char *error_delivery_name(const struct error *e)
{
    return delivery_names[e->delivery != DELIVERY_DEFAULT ? e->delivery : find_row(e->code)->delivery];
}

const char *error_retry_name(const struct error *e)
{
    return retry_names[e->retry != RETRY_DEFAULT ? e->retry : find_row(e->code)->retry];
}

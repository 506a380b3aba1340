/* core/error.h - what went wrong, for callers that branch on it and for a person who reads it.
 *
 * An error is filled once, by the code that saw the failure. Functions return 0 for success and -1
 * with *e filled; an expected miss is a result, not an error. Nothing here allocates. */
#ifndef CORE_ERROR_H
#define CORE_ERROR_H

#include <stdbool.h>

#include "core/util.h"

enum error_code { /* printed to callers by name: append only */
                  ERROR_NONE = 0,
                  ERROR_INVALID_ARGS,
                  ERROR_SANDBOX_NOT_FOUND,
                  ERROR_SANDBOX_EXISTS,
                  ERROR_PROVIDER_NOT_FOUND,
                  ERROR_PROVIDER_UNAVAILABLE,
                  ERROR_INVALID_STATE,
                  ERROR_SANDBOX_BUSY,
                  ERROR_STORE_BUSY,
                  ERROR_LIMIT_REACHED,
                  ERROR_AUTH_FAILED,
                  ERROR_HOST_KEY_CHANGED,
                  ERROR_NAME_TAKEN,
                  ERROR_APP_NOT_FOUND,
                  ERROR_STALE_REF,
                  ERROR_ACTION_FAILED,
                  ERROR_TIMEOUT,
                  ERROR_PERM_DENIED,
                  ERROR_PLATFORM_NOT_SUPPORTED,
                  ERROR_STORE_CORRUPT,
                  ERROR_STORE_FULL,
                  ERROR_INTERNAL,
                  ERROR_CODE_COUNT
};

/* Did what was asked for reach the one who does it? */
enum error_delivery {
    DELIVERY_DEFAULT = 0, /* as the code's row says */
    DELIVERY_NOT_DELIVERED,
    DELIVERY_DELIVERED_UNVERIFIED,
    DELIVERY_UNKNOWN
};

/* May the same command be repeated without harm? */
enum error_retry { RETRY_DEFAULT = 0, RETRY_SAFE, RETRY_UNSAFE };

struct error {                    /* owned by the caller; starts as { 0 }; nothing to free */
    enum error_code code;         /* stable: callers branch on it */
    int sys;                      /* errno, MDB_*, CURLcode or LIBSSH2_*, for the log; 0 = none */
    enum error_delivery delivery; /* set where the code's default would be untrue */
    enum error_retry retry;
    const char *suggestion; /* static text; NULL = the code's default */
    char message[512];      /* one line for a person, UTF-8; cut rather than failing */
};

/* Fills *e unless it is filled already (the first cause wins). A SYS above 0 is an errno: its text is
 * appended to the message. Other libraries' codes that are positive go into the format. Always returns -1. */
int error_set(struct error *e, enum error_code code, int sys, const char *format, ...) PRINTF_LIKE(4, 5);

/* As error_set(), choosing the code from errno: ENOSPC, EDQUOT and EFBIG are STORE_FULL, EACCES, EPERM and
 * EROFS are PERM_DENIED, EMFILE and ENFILE are LIMIT_REACHED, everything else is OTHERWISE. Where the code's
 * own suggestion would not help, errno's is set. */
int error_set_errno(struct error *e, enum error_code otherwise, int sys, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* Both give -1, said in a way that compilers and analysers see: what a failed call has left unset is not
 * looked at behind it. */
static inline int error_always(int result)
{
    (void)result;
    return -1;
}
#define error_set(...)       error_always(error_set(__VA_ARGS__))
#define error_set_errno(...) error_always(error_set_errno(__VA_ARGS__))

const char *error_code_name(enum error_code code);
const char *error_code_meaning(enum error_code code); /* one phrase, for documentation */
const char *error_suggestion(const struct error *e);  /* NULL when there is none */
const char *error_delivery_name(const struct error *e);
const char *error_retry_name(const struct error *e);

#endif

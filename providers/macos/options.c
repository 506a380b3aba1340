#include "providers/macos/options.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text.h"

#define IMAGE_SUFFIX ".ipsw" /* the framework takes no other name, whatever the bytes */
#define USER_MAX     64

static bool ends_in(const char *text, const char *suffix)
{
    size_t size = strlen(text), end = strlen(suffix);

    return size > end && strcmp(text + size - end, suffix) == 0;
}

/* Resolved: the framework takes no path with links in it, and a relative one is the caller's. */
static int check_image(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    AUTO_FREE char *path = realpath(value, NULL);
    struct stat st;

    if (path == NULL || stat(path, &st) < 0)
        return error_set(e, ERROR_INVALID_ARGS, errno,
                         "ipsw is 'latest' or the path of an image, and '%s' is none", value);
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERROR_INVALID_ARGS, 0, "'%s' is not a regular file", path);
    if (!ends_in(path, IMAGE_SUFFIX))
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "the image's name must end in " IMAGE_SUFFIX ", unlike '%s'", path);
    if (access(path, R_OK) < 0)
        return error_set(e, ERROR_INVALID_ARGS, errno, "cannot read '%s'", path);
    if (strlen(path) >= FACT_VALUE_SIZE || !text_is_utf8(path, strlen(path)))
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "the image's whole path is longer than %d bytes, or not valid UTF-8: '%s'",
                         FACT_VALUE_SIZE - 1, path);
    memcpy(out, path, strlen(path) + 1);
    return 0;
}

static int check_ipsw(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (strcmp(value, "latest") != 0)
        return check_image(value, out, e);
    snprintf(out, FACT_VALUE_SIZE, "%s", value);
    return 0;
}

/* What sshd and sysadminctl(8) take for a short name; never an option, never a path. */
static bool is_user(const char *value)
{
    size_t size = strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return size >= 1 && size <= USER_MAX && value[size] == '\0' && value[0] != '-' && value[0] != '.';
}

static int check_user(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (!is_user(value))
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "user is an account's name, 1 to %d of a-z, A-Z, 0-9, '.', '_' and '-', not '%s'",
                         USER_MAX, value);
    snprintf(out, FACT_VALUE_SIZE, "%s", value);
    return 0;
}

static int check_title(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    text_clean(out, FACT_VALUE_SIZE, value, strlen(value));
    if (strcmp(out, value) != 0) /* something had to be replaced, or cut */
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "title is one line of text, UTF-8, at most %d bytes, without control characters",
                         FACT_VALUE_SIZE - 1);
    return 0;
}

const struct provider_option macos_create_options[] = {
    { .key = "ipsw",
      .value = "latest|PATH",
      .help = "install macOS from Apple's newest image for this Mac, or from this file",
      .check = check_ipsw },
    { .key = "user",
      .value = "NAME",
      .help = "the guest's account, with ipsw (default: your user name)",
      .check = check_user },
    { 0 },
};

const struct provider_option macos_start_options[] = {
    { .key = "title",
      .value = "TEXT",
      .help = "the window's title (default: the sandbox's name)",
      .check = check_title },
    { 0 },
};

static int add_default_user(struct facts *facts, struct error *e)
{
    const struct passwd *entry = getpwuid(geteuid());

    if (entry == NULL || !is_user(entry->pw_name))
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "your own user name cannot be the guest account's: give one with --set user=NAME");
    return facts_set(facts, "set.user", entry->pw_name)
               ? 0
               : error_set(e, ERROR_INVALID_ARGS, 0, "too many options");
}

int macos_check_create(void *self, struct facts *facts, struct error *e)
{
    bool from = facts_get(facts, "set.from") != NULL;
    bool image = facts_get(facts, "set.ipsw") != NULL;
    bool user = facts_get(facts, "set.user") != NULL;

    (void)self;
    if (from && (image || user))
        return error_set(
            e, ERROR_INVALID_ARGS, 0,
            "--set from=SANDBOX copies a sandbox whole, and goes with neither --set ipsw nor --set user");
    if (!from && !image)
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "a macos sandbox needs exactly one source: --set ipsw=latest, --set ipsw=PATH or "
                         "--set from=SANDBOX");
    return from || user ? 0 : add_default_user(facts, e);
}

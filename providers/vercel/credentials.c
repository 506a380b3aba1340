#include "providers/vercel/credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"
#include "core/text.h"

#define OIDC_NAME    "VERCEL_OIDC_TOKEN"
#define TEAM_NAME    "VERCEL_TEAM_ID"
#define PROJECT_NAME "VERCEL_PROJECT_ID"
#define LINK_FOLDER  ".vercel"
#define LINKED_NAME  "project.json"
#define PROJECT_FILE LINK_FOLDER "/" LINKED_NAME
#define ENV_FILE     ".env.local"
#define FILE_MAX     (1 << 20)      /* neither file is a hundredth of it */
#define TOKEN_MAX    16384          /* a head of this size is what servers take at most */
#define SPARE_MS     60000          /* a token that ends sooner would end in the midst of the work */
#define LATEST_S     253402300799.0 /* the year 9999: text_format_time() can say it */

struct claims { /* of a JWT; "" and 0: not told */
    char team[VERCEL_ID_SIZE];
    char project[VERCEL_ID_SIZE];
    int64_t expires_ms;
};

struct link {   /* the nearest directory upwards that holds a .vercel */
    int dir;    /* -1: there is none */
    int folder; /* that .vercel */
    char path[PATH_MAX];
};

/* Printable ASCII without blanks: what may stand in a header's field and in an address. */
static bool is_word(const char *text, size_t max)
{
    size_t size = 0;

    while (text[size] > ' ' && text[size] < 0x7f)
        size++;
    return size >= 1 && size <= max && text[size] == '\0';
}

static bool is_id(const char *text)
{
    return is_word(text, VERCEL_ID_SIZE - 1);
}

static const char *get_environment(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The way out, for the error that comes next. */
static void suggest(struct error *e, const char *text)
{
    if (e->code == ERROR_NONE)
        e->suggestion = text;
}

/* What helps, for a person and as a command line. */
static const char link_hint[] =
    "Run 'vercel link', then 'vercel env pull', in this directory or one above it.";
static const char pull_hint[] =
    "Run 'vercel env pull' in the directory that was linked: it writes a new token to .env.local.";

#define LINK_FIX "vercel link && vercel env pull"
#define PULL_FIX "vercel env pull"

static const char *find_fix(const char *hint)
{
    if (hint == link_hint)
        return LINK_FIX;
    return hint == pull_hint ? PULL_FIX : NULL;
}

/* --- a JWT ------------------------------------------------------------------------------------------- */

static int base64url_value(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *at = c == '\0' ? NULL : strchr(digits, c);

    return at == NULL ? -1 : (int)(at - digits);
}

/* SIZE digits without padding into OUT, which has room for as many bytes; the number of bytes, 0 when it is
 * none. */
static size_t decode_base64url(const char *digits, size_t size, char *out)
{
    unsigned bits = 0;
    size_t count = 0;

    for (size_t i = 0; i < size; i++) {
        int value = base64url_value(digits[i]);

        if (value < 0)
            return 0;
        bits = bits << 6 | (unsigned)value;
        if (i % 4 != 0)
            out[count++] = (char)(bits >> (6 - 2 * (i % 4)) & 0xff);
    }
    return size % 4 == 1 ? 0 : count;
}

/* The middle one of exactly three parts. */
static bool find_payload(const char *token, const char **at, size_t *size)
{
    const char *first = strchr(token, '.');
    const char *second = first == NULL ? NULL : strchr(first + 1, '.');

    if (second == NULL || strchr(second + 1, '.') != NULL)
        return false;
    *at = first + 1;
    *size = (size_t)(second - *at);
    return true;
}

static void copy_claim(const struct json *payload, const char *key, char out[VERCEL_ID_SIZE])
{
    const char *value = json_get_string(payload, key);

    if (value != NULL && is_id(value))
        snprintf(out, VERCEL_ID_SIZE, "%s", value);
}

/* What TOKEN says about itself; nothing when it is opaque. */
static void read_claims(const char *token, struct claims *out)
{
    AUTO_JSON struct json *payload = NULL;
    AUTO_FREE char *bytes = NULL;
    const char *digits;
    size_t size;
    double expires;

    *out = (struct claims){ 0 };
    if (!find_payload(token, &digits, &size))
        return;
    bytes = mem_alloc(size + 1);
    size = decode_base64url(digits, size, bytes);
    if (json_parse_foreign(bytes, size, "the token", ERROR_AUTH_FAILED, &payload, &(struct error){ 0 }) < 0)
        return;
    copy_claim(payload, "owner_id", out->team);
    if (out->team[0] != '\0') /* without it nobody knows whose words the others are */
        copy_claim(payload, "project_id", out->project);
    expires = json_get_real(payload, "exp", 0);
    if (expires > 0)
        out->expires_ms = (int64_t)(expires < LATEST_S ? expires : LATEST_S) * 1000;
}

/* --- files beside the working directory -------------------------------------------------------------- */

/* Who can write these chooses the project that we work in, and the token: nobody but us and root. A group is
 * the owner's choice: with a umask of 002 all files of theirs are writable by one, of which they alone are.
 */
static bool is_trusted(const struct stat *st)
{
    return (st->st_uid == geteuid() || st->st_uid == 0) && (st->st_mode & S_IWOTH) == 0;
}

static bool is_trusted_folder(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && is_trusted(&st);
}

/* The .vercel in DIR, -1. Somebody else's, as in /tmp, is none, nor is a link: where it leads to is not whose
 * it is. */
static int open_folder(int dir)
{
    AUTO_CLOSE int folder =
        RETRY_EINTR(openat(dir, LINK_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));

    return folder >= 0 && is_trusted_folder(folder) ? steal_fd(&folder) : -1;
}

/* PATH without its last part; false when it has none. */
static bool go_up(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash == NULL || path[1] == '\0')
        return false;
    slash[slash == path ? 1 : 0] = '\0';
    return true;
}

static void find_link(struct link *link)
{
    link->dir = link->folder = -1;
    if (getcwd(link->path, sizeof(link->path)) == NULL)
        return;
    do {
        AUTO_CLOSE int dir = open(link->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        link->folder = dir < 0 ? -1 : open_folder(dir);
        if (link->folder >= 0) {
            link->dir = steal_fd(&dir);
            return;
        }
    } while (go_up(link->path));
}

static int fail_to_read(const struct link *link, const char *name, int why, const char *reason,
                        struct error *e)
{
    suggest(e, link_hint);
    return error_set(e, ERROR_PROVIDER_UNAVAILABLE, why, "cannot read '%s%s%s'%s%s", link->path,
                     link->path[1] == '\0' ? "" : "/", name, reason[0] != '\0' ? ": " : "", reason);
}

/* All of an opened file of which SIZE bytes are announced. -1 with errno. */
static int read_whole(int fd, size_t size, char **out)
{
    AUTO_WIPE char *bytes = mem_alloc(size + 1);
    size_t got = 0;
    ssize_t n = 1;

    while (got < size && n > 0) {
        n = RETRY_EINTR(read(fd, bytes + got, size - got));
        got += n > 0 ? (size_t)n : 0;
    }
    if (n < 0)
        return -1;
    *out = steal(&bytes);
    return 0;
}

/* People keep such files elsewhere, so links are followed, but none that others may have put there: it could
 * lead to any file that we may read. */
static int open_beside(const struct link *link, const char *name)
{
    bool linked = strcmp(name, PROJECT_FILE) == 0;
    int dir = linked ? link->folder : link->dir;
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK; /* a pipe of that name would be waited for */

    if (!is_trusted_folder(dir))
        flags |= O_NOFOLLOW;
    return RETRY_EINTR(openat(dir, linked ? LINKED_NAME : name, flags));
}

static int fail_to_trust(const struct link *link, const char *name, struct error *e)
{
    fail_to_read(link, name, 0, "it is another user's, or others may write it", e);
    e->suggestion = "Make the file yours, writable by nobody else (chown, chmod), or set the variables.";
    return -1;
}

/* What is wrong with an opened file; NULL: nothing. */
static const char *find_fault(const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return "it is not a regular file";
    return st->st_size > FILE_MAX ? "it is larger than 1 MiB" : NULL;
}

/* 1 with text that is to be wiped, 0 when there is no such file, -1 for one that cannot be what it should. */
static int read_beside(const struct link *link, const char *name, char **out, struct error *e)
{
    AUTO_CLOSE int fd = link->dir < 0 ? -1 : open_beside(link, name);
    const char *fault;
    struct stat st;

    if (link->dir < 0 || (fd < 0 && errno == ENOENT))
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_to_read(link, name, errno, "", e);
    fault = find_fault(&st);
    if (fault != NULL)
        return fail_to_read(link, name, 0, fault, e);
    if (!is_trusted(&st))
        return fail_to_trust(link, name, e);
    return read_whole(fd, (size_t)st.st_size, out) < 0 ? fail_to_read(link, name, errno, "", e) : 1;
}

static int copy_linked(const struct link *link, const struct json *object, const char *key,
                       char out[VERCEL_ID_SIZE], struct error *e)
{
    const char *value = json_get_string(object, key);
    AUTO_FREE char *reason = mem_print("\"%s\" is missing, or no id", key);

    if (value == NULL || !is_id(value))
        return fail_to_read(link, PROJECT_FILE, 0, reason, e);
    snprintf(out, VERCEL_ID_SIZE, "%s", value);
    return 0;
}

/* 1 with both ids, 0 when nothing is linked, -1. */
static int read_project(const struct link *link, struct claims *out, struct error *e)
{
    AUTO_WIPE char *text = NULL;
    AUTO_JSON struct json *object = NULL;
    int found = read_beside(link, PROJECT_FILE, &text, e);

    if (found <= 0)
        return found;
    if (json_parse_foreign(text, strlen(text), PROJECT_FILE, ERROR_PROVIDER_UNAVAILABLE, &object,
                           &(struct error){ 0 }) < 0)
        return fail_to_read(link, PROJECT_FILE, 0, "it is not valid JSON", e);
    return copy_linked(link, object, "orgId", out->team, e) < 0 ||
                   copy_linked(link, object, "projectId", out->project, e) < 0
               ? -1
               : 1;
}

/* --- .env.local: dotenv ------------------------------------------------------------------------------ */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

static const char *skip_line(const char *at)
{
    at += strcspn(at, "\r\n");
    return at + strspn(at, "\r\n");
}

/* The end of the text between quotes, which may go over lines; NULL when they are never closed. */
static const char *find_quote(const char *at, char quote)
{
    for (; *at != '\0' && *at != quote; at++)
        if (quote == '"' && at[0] == '\\' && at[1] != '\0')
            at++;
    return *at == '\0' ? NULL : at;
}

/* AT is behind the '='. The value lies in [*from, *to); what is returned is behind it, in the same line. */
static const char *find_value(const char *at, const char **from, const char **to)
{
    const char *end = at[0] == '\'' || at[0] == '"' || at[0] == '`' ? find_quote(at + 1, at[0]) : NULL;

    if (end != NULL) {
        *from = at + 1;
        *to = end;
        return end + 1;
    }
    *from = at;
    end = at + strcspn(at, "#\r\n"); /* a '#' begins a comment: tokens have none */
    *to = end;
    while (*to > at && ((*to)[-1] == ' ' || (*to)[-1] == '\t'))
        (*to)--;
    return end;
}

/* The value of NAME, of several the last; NULL. No escapes: no token has any. */
static char *find_variable(const char *text, const char *name)
{
    const char *at = strncmp(text, "\xef\xbb\xbf", 3) == 0 ? text + 3 : text;
    AUTO_WIPE char *found = NULL;

    while (*at != '\0') {
        const char *key = skip_blanks(at + strspn(at, "\r\n")), *from, *to;
        size_t size = 0;

        if (strncmp(key, "export", 6) == 0 && (key[6] == ' ' || key[6] == '\t'))
            key = skip_blanks(key + 6);
        while (is_name_char(key[size]))
            size++;
        at = skip_blanks(key + size);
        if (size == 0 || *at != '=') {
            at = skip_line(at);
            continue;
        }
        at = skip_line(find_value(skip_blanks(at + 1), &from, &to));
        if (size != strlen(name) || strncmp(key, name, size) != 0)
            continue;
        util_wipe_text(&found);
        found = to > from ? mem_print("%.*s", (int)(to - from), from) : NULL;
    }
    return steal(&found);
}

/* --- the sources ------------------------------------------------------------------------------------- */

/* 1 with *token, 0 when there is none, -1. */
typedef int source_fn(const struct link *link, const char *name, char **token, struct error *e);

static int read_environment(const struct link *link, const char *name, char **token, struct error *e)
{
    const char *value = get_environment(name);

    (void)link;
    (void)e;
    *token = value == NULL ? NULL : mem_copy_text(value);
    return value != NULL;
}

static int read_env_file(const struct link *link, const char *name, char **token, struct error *e)
{
    AUTO_WIPE char *text = NULL;
    int found = read_beside(link, name, &text, e);

    if (found <= 0)
        return found;
    *token = find_variable(text, OIDC_NAME);
    return *token != NULL;
}

static const struct {
    const char *name;
    source_fn *read;
    const char *fix;
} sources[] = {
    { OIDC_NAME, read_environment, NULL }, /* whoever has set it: what is pulled would come after it */
    { "VERCEL_TOKEN", read_environment, NULL },
    { ENV_FILE, read_env_file, PULL_FIX },
};

/* --- team and project -------------------------------------------------------------------------------- */

static int contradict(struct error *e, const char *source, const char *what, const char *of_token,
                      const char *other, const char *where)
{
    suggest(e, "Use a token for that project, or another project with this token.");
    return error_set(e, ERROR_AUTH_FAILED, 0,
                     "the token in %s is for the %s '%s', not for '%s', which %s names", source, what,
                     of_token, other, where);
}

static int read_id(const char *name, const char **out, struct error *e)
{
    *out = get_environment(name);
    if (*out == NULL || is_id(*out))
        return 0;
    suggest(e, "Ids are on the settings pages of the team and of the project.");
    return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0,
                     "%s is not an id: at most %d letters, digits and signs", name, VERCEL_ID_SIZE - 1);
}

static void set_project_source(struct credentials *c, const char *source, const char *fix)
{
    c->project_source = source;
    c->project_fix = fix;
}

/* The rest from the linked project: one team's id with another's project would be no pair. */
static int take_from_link(const struct link *link, struct credentials *c, const char *team,
                          const char *project, struct error *e)
{
    struct claims linked = { 0 };
    int found = read_project(link, &linked, e);

    if (found < 0)
        return -1;
    if (found == 0) {
        suggest(e, "Set " TEAM_NAME " and " PROJECT_NAME ", or run 'vercel link' in this directory.");
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0,
                         "%s is set, but not for which %s: " TEAM_NAME " and " PROJECT_NAME
                         " are not both set, and no directory from here upwards is linked",
                         c->source, team == NULL ? "team" : "project");
    }
    if (team != NULL && strcmp(team, linked.team) != 0) {
        suggest(e, "Set " PROJECT_NAME ", or run 'vercel link' for that team.");
        return error_set(
            e, ERROR_AUTH_FAILED, 0,
            "the team is '%s', but the only project that is named is one of '%s', in '%s/" PROJECT_FILE "'",
            team, linked.team, link->path);
    }
    snprintf(c->team, sizeof(c->team), "%s", linked.team);
    snprintf(c->project, sizeof(c->project), "%s", project != NULL ? project : linked.project);
    if (project == NULL)
        set_project_source(c, PROJECT_FILE, LINK_FIX);
    return 0;
}

static int complete(const struct link *link, struct credentials *c, const struct claims *claims,
                    struct error *e)
{
    const char *set_team, *set_project, *team, *project;

    if (read_id(TEAM_NAME, &set_team, e) < 0 || read_id(PROJECT_NAME, &set_project, e) < 0)
        return -1;
    team = claims->team[0] != '\0' ? claims->team : set_team; /* as the vendor's library decides */
    project = set_project == NULL && claims->project[0] != '\0' ? claims->project : set_project;
    if (set_project != NULL && claims->project[0] != '\0' && strcmp(set_project, claims->project) != 0)
        return contradict(e, c->source, "project", claims->project, set_project, PROJECT_NAME);
    if (set_project != NULL)
        set_project_source(c, PROJECT_NAME, NULL);
    else /* a file's token is pulled for what is linked */
        set_project_source(c, c->source, c->fix != NULL ? LINK_FIX : NULL);
    if (team == NULL || project == NULL)
        return take_from_link(link, c, team, project, e);
    snprintf(c->team, sizeof(c->team), "%s", team);
    snprintf(c->project, sizeof(c->project), "%s", project);
    return 0;
}

/* --- in order ---------------------------------------------------------------------------------------- */

struct expired { /* the first of them */
    const char *source;
    int64_t at_ms;
};

static int check_token(const struct credentials *c, struct error *e)
{
    if (is_word(c->token, TOKEN_MAX))
        return 0;
    suggest(e, c->fix != NULL ? pull_hint : "Set it to a token alone, or unset it.");
    return error_set(
        e, ERROR_PROVIDER_UNAVAILABLE, 0,
        "what is in %s is no token: it has blanks or other characters that none has, or more than %d bytes",
        c->source, TOKEN_MAX);
}

/* 1 when these are the ones, 0 when the next source is to be asked, -1. */
static int try_source(const struct link *link, size_t i, struct credentials *c, struct expired *expired,
                      struct error *e)
{
    struct claims claims;
    int found = sources[i].read(link, sources[i].name, &c->token, e);

    if (found <= 0)
        return found;
    c->source = sources[i].name;
    c->fix = sources[i].fix;
    if (check_token(c, e) < 0)
        return -1;
    read_claims(c->token, &claims);
    if (claims.expires_ms == 0 || claims.expires_ms - clock_wall_ms() >= SPARE_MS)
        return complete(link, c, &claims, e) < 0 ? -1 : 1;
    if (expired->source == NULL)
        *expired = (struct expired){ c->source, claims.expires_ms };
    util_wipe_text(&c->token);
    return 0;
}

static int fail_with_expired(const struct expired *expired, struct error *e)
{
    char when[32];

    text_format_time(when, expired->at_ms, false);
    suggest(e, pull_hint);
    return error_set(e, ERROR_AUTH_FAILED, 0, "the token in %s %s at %s", expired->source,
                     expired->at_ms > clock_wall_ms() ? "is about to expire," : "expired", when);
}

static int fail_without(const struct link *link, struct error *e)
{
    suggest(e, link->dir >= 0 ? pull_hint : link_hint);
    if (link->dir < 0)
        return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0,
                         "neither " OIDC_NAME
                         " nor VERCEL_TOKEN is set, and no directory from here upwards is linked "
                         "to a project (has a .vercel of yours, no link)");
    return error_set(e, ERROR_PROVIDER_UNAVAILABLE, 0,
                     "neither " OIDC_NAME " nor VERCEL_TOKEN is set, and '%s/" ENV_FILE "' has no " OIDC_NAME,
                     link->path);
}

static int search(const struct link *link, struct credentials *out, struct error *e)
{
    struct expired expired = { 0 };
    int found = 0;

    for (size_t i = 0; i < ARRAY_LEN(sources) && found == 0; i++)
        found = try_source(link, i, out, &expired, e);
    if (found == 0)
        return expired.source != NULL ? fail_with_expired(&expired, e) : fail_without(link, e);
    return found < 0 ? -1 : 0;
}

int credentials_find(struct credentials *out, struct error *e)
{
    struct link link;
    int result;

    *out = (struct credentials){ 0 };
    find_link(&link);
    result = search(&link, out, e);
    if (result < 0)
        out->fix = find_fix(e->suggestion);
    util_close_fd(&link.dir);
    util_close_fd(&link.folder);
    return result;
}

void credentials_done(struct credentials *c)
{
    util_wipe_text(&c->token);
    *c = (struct credentials){ 0 };
}

int credentials_aim(struct credentials *c, const char *team, const char *project, const char *who,
                    struct error *e)
{
    struct claims claims;

    read_claims(c->token, &claims);
    if (team != NULL && claims.team[0] != '\0' && strcmp(team, claims.team) != 0)
        return contradict(e, c->source, "team", claims.team, team, who);
    if (project != NULL && claims.project[0] != '\0' && strcmp(project, claims.project) != 0)
        return contradict(e, c->source, "project", claims.project, project, who);
    if (team != NULL)
        snprintf(c->team, sizeof(c->team), "%s", team);
    if (project != NULL)
        snprintf(c->project, sizeof(c->project), "%s", project);
    return 0;
}

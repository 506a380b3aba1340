#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/text.h"
#include "providers/vercel/credentials.h"
#include "tests/core/scratch.h"

#define OPAQUE "vcp_opaqueSecretTokenOfTheTests0123456789"
#define HOURS  3600

/* --- a world: an environment and a tree of files ----------------------------------------------------- */

static const char *const variables[] = { "VERCEL_OIDC_TOKEN", "VERCEL_TOKEN", "VERCEL_TEAM_ID",
                                         "VERCEL_PROJECT_ID" };

struct world {
    const char *comment;
    const char *payload; /* of the JWT, without "exp": "@" stands for the token in ENV, and $T in FILES */
    int exp_s;           /* from now on; 0: it does not tell */
    const char *env[ARRAY_LEN(variables)]; /* OIDC, TOKEN, TEAM, PROJECT */
    const char *files;                     /* a shell's commands in the top directory */
    const char *cwd;                       /* below it; NULL: itself */

    enum error_code code;
    const char *team, *project, *source; /* when they are found */
    const char *says[2];                 /* else */
    const char *fix;
};

static void add_base64url(struct text *out, const char *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    for (size_t i = 0; i < size; i += 3) {
        unsigned bits = 0;
        size_t left = size - i < 3 ? size - i : 3;

        for (size_t j = 0; j < 3; j++) {
            bits <<= 8;
            if (j < left)
                bits |= (unsigned char)bytes[i + j];
        }
        for (size_t j = 0; j <= left; j++)
            text_add(out, &digits[bits >> (18 - 6 * j) & 63], 1);
    }
}

static char *make_token(const char *payload, int exp_s)
{
    struct text token = { 0 };
    AUTO_FREE char *claims = mem_copy_text(payload);

    if (exp_s != 0) {
        claims[strlen(claims) - 1] = '\0';
        AUTO_FREE char *before = steal(&claims);

        claims = mem_print("%s,\"exp\":%lld}", before, (long long)(clock_wall_ms() / 1000 + exp_s));
    }
    text_add_string(&token, "eyJhbGciOiJSUzI1NiJ9.");
    add_base64url(&token, claims, strlen(claims));
    text_add_string(&token, ".c2lnbmF0dXJl");
    return token.bytes;
}

static void make_world(const struct scratch *s, const struct world *w, const char *token)
{
    AUTO_FREE char *clean =
        mem_print("cd %s && chmod -R u+rwx,o-w,-t . && find . -mindepth 1 -delete", s->path);
    AUTO_FREE char *files = mem_print("cd %s && %s", s->path, w->files != NULL ? w->files : ":");
    AUTO_FREE char *cwd = mem_print("%s/%s", s->path, w->cwd != NULL ? w->cwd : ".");

    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        if (w->env[i] == NULL)
            unsetenv(variables[i]);
        else
            setenv(variables[i], strcmp(w->env[i], "@") == 0 ? token : w->env[i], 1);
    }
    setenv("T", token, 1);
    setenv("OPAQUE", OPAQUE, 1);
    assert_int_equal(chdir("/"), 0); /* not in what is removed */
    assert_int_equal(system(clean), 0);
    assert_int_equal(system(files), 0);
    assert_int_equal(chdir(cwd), 0);
}

/* Neither the token nor its middle part, whoever it was found with. */
static void assert_keeps_secret(const struct error *e, const char *token)
{
    const char *suggestion = error_suggestion(e), *payload = strchr(token, '.') + 1;
    AUTO_FREE char *all = mem_print("%s %s", e->message, suggestion != NULL ? suggestion : "");
    AUTO_FREE char *middle = mem_print("%.20s", payload);

    assert_null(strstr(all, OPAQUE));
    assert_null(strstr(all, token));
    assert_null(strstr(all, middle));
    assert_null(strstr(all, "c2lnbmF0dXJl"));
}

static void check_world(const struct scratch *s, const struct world *w)
{
    AUTO_FREE char *token =
        make_token(w->payload != NULL ? w->payload : "{\"owner_id\":\"team_jwt\"}", w->exp_s);
    struct credentials c;
    struct error e = { 0 };
    int result;

    make_world(s, w, token);
    result = credentials_find(&c, &e);
    if (e.code != w->code || (result == 0) != (w->code == ERROR_NONE))
        fail_msg("%s: %s %s", w->comment, error_code_name(e.code), e.message);
    if (result == 0) {
        if (w->team == NULL || w->project == NULL || w->source == NULL || strcmp(c.team, w->team) != 0 ||
            strcmp(c.project, w->project) != 0 || strcmp(c.source, w->source) != 0)
            fail_msg("%s: %s/%s from %s", w->comment, c.team, c.project, c.source);
        assert_true(strcmp(c.token, token) == 0 || strcmp(c.token, OPAQUE) == 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(w->says); i++)
        if (w->says[i] != NULL && strstr(e.message, w->says[i]) == NULL)
            fail_msg("%s: %s", w->comment, e.message);
    if (result < 0 && (w->fix == NULL) != (c.fix == NULL))
        fail_msg("%s: fix %s", w->comment, c.fix != NULL ? c.fix : "none");
    if (result < 0 && w->fix != NULL)
        assert_string_equal(c.fix, w->fix);
    assert_keeps_secret(&e, token);
    credentials_done(&c);
    assert_null(c.token);
}

static void check_worlds(void **state, const struct world *worlds, size_t count)
{
    const struct scratch *s = *state;
    char here[4096];

    assert_non_null(getcwd(here, sizeof(here)));
    for (size_t i = 0; i < count; i++)
        check_world(s, &worlds[i]);
    assert_int_equal(chdir(here), 0);
}

#define CHECK_WORLDS(state, worlds) check_worlds(state, worlds, ARRAY_LEN(worlds))

#define LINK  "vercel link && vercel env pull"
#define PULL  "vercel env pull"
#define WHOLE "{\"owner_id\":\"team_jwt\",\"project_id\":\"prj_jwt\"}"

#define LINKED                                                                                               \
    "mkdir -p .vercel a/b && echo '{\"projectId\":\"prj_file\",\"orgId\":\"team_file\"}' "                   \
    ">.vercel/project.json"
#define ENV_LOCAL  "printf 'A=1\\nVERCEL_OIDC_TOKEN=\"%s\"\\n' \"$T\" >.env.local"
#define LINKED_ENV LINKED " && " ENV_LOCAL

/* --- the order: R-501 -------------------------------------------------------------------------------- */

static void test_r501_credentials__are_looked_for_in_one_order(void **state)
{
    static const struct world worlds[] = {
        { .comment = "all three: the OIDC token of the environment",
          .payload = WHOLE,
          .exp_s = 12 * HOURS,
          .env = { "@", OPAQUE, "team_env", NULL },
          .files = LINKED_ENV,
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = "VERCEL_OIDC_TOKEN" },
        { .comment = "an expired one is passed by",
          .payload = WHOLE,
          .exp_s = -HOURS,
          .env = { "@", OPAQUE, "team_env", "prj_env" },
          .team = "team_env",
          .project = "prj_env",
          .source = "VERCEL_TOKEN" },
        { .comment = "an access token before .env.local",
          .payload = WHOLE,
          .env = { NULL, OPAQUE, "team_env", "prj_env" },
          .files = LINKED_ENV,
          .team = "team_env",
          .project = "prj_env",
          .source = "VERCEL_TOKEN" },
        { .comment = "its team and project from the linked project",
          .env = { NULL, OPAQUE, NULL, NULL },
          .files = LINKED,
          .team = "team_file",
          .project = "prj_file",
          .source = "VERCEL_TOKEN" },
        { .comment = "the team from there",
          .env = { NULL, OPAQUE, NULL, "prj_env" },
          .files = LINKED,
          .team = "team_file",
          .project = "prj_env",
          .source = "VERCEL_TOKEN" },
        { .comment = "the project from there, of the same team",
          .env = { NULL, OPAQUE, "team_file", NULL },
          .files = LINKED,
          .team = "team_file",
          .project = "prj_file",
          .source = "VERCEL_TOKEN" },
        { .comment = "an empty variable is none",
          .payload = WHOLE,
          .env = { "", "", "", "" },
          .files = LINKED_ENV,
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = ".env.local" },
        { .comment = ".env.local at last",
          .payload = WHOLE,
          .exp_s = 12 * HOURS,
          .files = LINKED_ENV,
          .cwd = "a/b",
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = ".env.local" },
        { .comment = "an expired OIDC token, and a new one was pulled",
          .payload = WHOLE,
          .env = { "eyJhbGciOiJSUzI1NiJ9.eyJvd25lcl9pZCI6InQiLCJleHAiOjF9.s", NULL, NULL, NULL },
          .files = LINKED_ENV,
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = ".env.local" },
    };

    CHECK_WORLDS(state, worlds);
}

static void test_r501_credentials__a_token_decides_its_team(void **state)
{
    static const struct world worlds[] = {
        { .comment = "over VERCEL_TEAM_ID, as the vendor's library does",
          .payload = WHOLE,
          .env = { "@", NULL, "team_env", NULL },
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = "VERCEL_OIDC_TOKEN" },
        { .comment = "an access token that is a JWT likewise",
          .payload = WHOLE,
          .env = { NULL, "@", "team_env", NULL },
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = "VERCEL_TOKEN" },
        { .comment = "the project where it names none",
          .payload = "{\"owner_id\":\"team_file\"}",
          .env = { "@", NULL, NULL, NULL },
          .files = LINKED,
          .team = "team_file",
          .project = "prj_file",
          .source = "VERCEL_OIDC_TOKEN" },
        { .comment = "the same project twice is no contradiction",
          .payload = WHOLE,
          .env = { "@", NULL, NULL, "prj_jwt" },
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = "VERCEL_OIDC_TOKEN" },
        { .comment = "without an owner it is opaque",
          .payload = "{\"project_id\":\"prj_jwt\"}",
          .env = { "@", NULL, "team_env", "prj_env" },
          .team = "team_env",
          .project = "prj_env",
          .source = "VERCEL_OIDC_TOKEN" },
        { .comment = "four parts are no JWT",
          .env = { "a.eyJvd25lcl9pZCI6InQifQ.b.c", NULL, NULL, NULL },
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "VERCEL_OIDC_TOKEN is set, but not for which team" } },
        { .comment = "nor is what does not decode",
          .env = { "a.e!.b", NULL, NULL, NULL },
          .code = ERROR_PROVIDER_UNAVAILABLE },
        { .comment = "nor what is no object",
          .env = { "a.W10.b", NULL, NULL, NULL }, /* [] */
          .code = ERROR_PROVIDER_UNAVAILABLE },
        { .comment = "nor an owner that is no id",
          .payload = "{\"owner_id\":\"team\\u0000jwt\"}",
          .env = { "@", NULL, NULL, NULL },
          .code = ERROR_PROVIDER_UNAVAILABLE },
        { .comment = "nor one of another type",
          .payload = "{\"owner_id\":7}",
          .env = { "@", NULL, NULL, NULL },
          .code = ERROR_PROVIDER_UNAVAILABLE },
        { .comment = "another project is a contradiction",
          .payload = WHOLE,
          .env = { "@", NULL, NULL, "prj_env" },
          .code = ERROR_AUTH_FAILED,
          .says = { "VERCEL_OIDC_TOKEN is for the project 'prj_jwt', not for 'prj_env'",
                    "VERCEL_PROJECT_ID" } },
        { .comment = "and so is a project of another team",
          .env = { NULL, OPAQUE, "team_env", NULL },
          .files = LINKED,
          .code = ERROR_AUTH_FAILED,
          .says = { "the team is 'team_env'", "'team_file'" } },
    };

    CHECK_WORLDS(state, worlds);
}

/* --- expiry ------------------------------------------------------------------------------------------ */

static void test_r501_credentials__expiry_is_seen_before_the_first_request(void **state)
{
    static const struct world worlds[] = {
        { .comment = "an hour ago",
          .payload = WHOLE,
          .exp_s = -HOURS,
          .env = { "@", NULL, NULL, NULL },
          .code = ERROR_AUTH_FAILED,
          .says = { "the token in VERCEL_OIDC_TOKEN expired at 20" },
          .fix = PULL },
        { .comment = "within a minute",
          .payload = WHOLE,
          .exp_s = 30,
          .files = LINKED_ENV,
          .code = ERROR_AUTH_FAILED,
          .says = { "the token in .env.local is about to expire, at 20" },
          .fix = PULL },
        { .comment = "in two minutes it may go on",
          .payload = WHOLE,
          .exp_s = 120,
          .files = LINKED_ENV,
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = ".env.local" },
        { .comment = "both have expired: the first is named",
          .payload = WHOLE,
          .exp_s = -HOURS,
          .env = { "@", NULL, NULL, NULL },
          .files = LINKED_ENV,
          .code = ERROR_AUTH_FAILED,
          .says = { "VERCEL_OIDC_TOKEN" },
          .fix = PULL },
        { .comment = "an access token that is a JWT can expire, too",
          .payload = WHOLE,
          .exp_s = -HOURS,
          .env = { NULL, "@", NULL, NULL },
          .code = ERROR_AUTH_FAILED,
          .says = { "the token in VERCEL_TOKEN expired" },
          .fix = PULL },
        { .comment = "a time beyond all clocks",
          .payload = "{\"owner_id\":\"team_jwt\",\"project_id\":\"prj_jwt\",\"exp\":1e300}",
          .env = { "@", NULL, NULL, NULL },
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = "VERCEL_OIDC_TOKEN" },
        { .comment = "a fraction of the first second",
          .payload = "{\"owner_id\":\"team_jwt\",\"project_id\":\"prj_jwt\",\"exp\":1.5}",
          .env = { "@", NULL, NULL, NULL },
          .code = ERROR_AUTH_FAILED,
          .says = { "expired at 1970-01-01T00:00:01Z" },
          .fix = PULL },
    };

    CHECK_WORLDS(state, worlds);
}

/* --- what is missing, or odd ------------------------------------------------------------------------- */

static void test_r501_credentials__what_is_missing_is_named(void **state)
{
    static const struct world worlds[] = {
        { .comment = "nothing",
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "neither VERCEL_OIDC_TOKEN nor VERCEL_TOKEN is set",
                    "no directory from here upwards is linked" },
          .fix = LINK },
        { .comment = "linked, but nothing pulled",
          .files = LINKED,
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "/.env.local' has no VERCEL_OIDC_TOKEN" },
          .fix = PULL },
        { .comment = "without the token in it",
          .files = LINKED " && echo OTHER=1 >.env.local",
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "/.env.local' has no VERCEL_OIDC_TOKEN" },
          .fix = PULL },
        { .comment = "an .env.local that is not beside a .vercel",
          .files = ENV_LOCAL,
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .fix = LINK },
        { .comment = "a nearer .vercel hides a farther one",
          .payload = WHOLE,
          .files = LINKED_ENV " && mkdir a/.vercel",
          .cwd = "a/b",
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "/a/.env.local' has no" },
          .fix = PULL },
        { .comment = "a .vercel that is no directory does not",
          .payload = WHOLE,
          .files = LINKED_ENV " && touch a/.vercel",
          .cwd = "a/b",
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = ".env.local" },
        { .comment = "nor does one that is a link, to whomever's directory",
          .payload = WHOLE,
          .files = LINKED_ENV " && ln -s /etc a/.vercel && ln -s ../../.vercel a/b/.vercel",
          .cwd = "a/b",
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = ".env.local" },
        { .comment = "nor one that everybody may write",
          .payload = WHOLE,
          .files = LINKED_ENV " && mkdir a/.vercel && chmod 777 a/.vercel",
          .cwd = "a/b",
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = ".env.local" },
        { .comment = "an access token alone",
          .env = { NULL, OPAQUE, NULL, NULL },
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "VERCEL_TOKEN is set, but not for which team", "VERCEL_TEAM_ID and VERCEL_PROJECT_ID" } },
        { .comment = "with a team alone",
          .env = { NULL, OPAQUE, "team_env", NULL },
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "VERCEL_TOKEN is set, but not for which project" } },
        { .comment = "ids with blanks",
          .env = { NULL, OPAQUE, "team env", "prj" },
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "VERCEL_TEAM_ID is not an id" } },
        { .comment = "a line end in a token would go into a header",
          .env = { NULL, OPAQUE "\r\nX: y", "team", "prj" },
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "what is in VERCEL_TOKEN is no token" } },
        { .comment = "so would letters of no header",
          .env = { OPAQUE "\xc3\xa9", NULL, "team", "prj" },
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "what is in VERCEL_OIDC_TOKEN is no token" } },
    };

    CHECK_WORLDS(state, worlds);
}

static void test_r501_credentials__odd_files_are_named(void **state)
{
    static const struct world worlds[] = {
#define ODD_PROJECT(what, commands, reason)                                                                  \
    { .comment = "project.json: " what,                                                                      \
      .env = { NULL, OPAQUE, NULL, NULL },                                                                   \
      .files = "mkdir .vercel && " commands,                                                                 \
      .code = ERROR_PROVIDER_UNAVAILABLE,                                                                    \
      .says = { "/.vercel/project.json'", reason },                                                          \
      .fix = LINK }
        ODD_PROJECT("a directory", "mkdir .vercel/project.json", "not a regular file"),
        ODD_PROJECT("a pipe", "mkfifo .vercel/project.json", "not a regular file"),
        ODD_PROJECT("a loop of links", "ln -s project.json .vercel/project.json", "symbolic links"),
        ODD_PROJECT("no JSON", "echo \"$OPAQUE\" >.vercel/project.json", "not valid JSON"),
        ODD_PROJECT("empty", ": >.vercel/project.json", "not valid JSON"),
        ODD_PROJECT("an array", "echo '[]' >.vercel/project.json", "\"orgId\" is missing"),
        ODD_PROJECT("half", "echo '{\"orgId\":\"t\"}' >.vercel/project.json", "\"projectId\" is missing"),
        ODD_PROJECT("no ids", "echo '{\"orgId\":\"a b\",\"projectId\":\"p\"}' >.vercel/project.json",
                    "or no id"),
        ODD_PROJECT("huge", "truncate -s 2M .vercel/project.json", "larger than 1 MiB"),
#define ODD_ENV(what, commands, reason)                                                                      \
    { .comment = ".env.local: " what,                                                                        \
      .files = LINKED " && " commands,                                                                       \
      .code = ERROR_PROVIDER_UNAVAILABLE,                                                                    \
      .says = { "/.env.local'", reason },                                                                    \
      .fix = LINK }
        ODD_ENV("a directory", "mkdir .env.local", "not a regular file"),
        ODD_ENV("a pipe", "mkfifo .env.local", "not a regular file"),
        ODD_ENV("a loop of links", "ln -s .env.local .env.local", "symbolic links"),
        ODD_ENV("huge", "truncate -s 2M .env.local", "larger than 1 MiB"),
#define STRANGE "another user's, or others may write it"
        { .comment = "project.json: everybody may write it",
          .env = { NULL, OPAQUE, NULL, NULL },
          .files = LINKED " && chmod o+w .vercel/project.json",
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "/.vercel/project.json'", STRANGE } },
        { .comment = ".env.local: everybody may write it",
          .files = LINKED_ENV " && chmod o+w .env.local",
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "/.env.local'", STRANGE } },
        { .comment = ".env.local: everybody may write what a link leads to",
          .files = LINKED_ENV " && mv .env.local a/kept && chmod 666 a/kept && ln -s a/kept .env.local",
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "/.env.local'", STRANGE } },
        { .comment = ".env.local: a link that anybody may have made",
          .payload = WHOLE,
          .files = LINKED_ENV " && mv .env.local a/kept && ln -s a/kept .env.local && chmod 1777 .",
          .code = ERROR_PROVIDER_UNAVAILABLE,
          .says = { "/.env.local'", "symbolic links" },
          .fix = LINK },
        { .comment = "a group may write, as with a umask of 002",
          .payload = WHOLE,
          .files = LINKED_ENV " && chmod g+w . .vercel .vercel/project.json .env.local",
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = ".env.local" },
        { .comment = "what is not needed may be odd",
          .env = { NULL, OPAQUE, "team_env", "prj_env" },
          .files = "mkdir -p .vercel/project.json .env.local",
          .team = "team_env",
          .project = "prj_env",
          .source = "VERCEL_TOKEN" },
        { .comment = "a link to a file elsewhere is followed",
          .payload = WHOLE,
          .files = LINKED_ENV " && mv .env.local a/kept && ln -s a/kept .env.local",
          .team = "team_jwt",
          .project = "prj_jwt",
          .source = ".env.local" },
    };

    CHECK_WORLDS(state, worlds);
}

static int cannot_read(void *self)
{
    const struct scratch *s = self;
    struct credentials c;
    struct error e = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        unsetenv(variables[i]);
    scratch_write(s, ".env.local", "VERCEL_OIDC_TOKEN=x\n");
    CHECK(mkdirat(s->dir, ".vercel", 0755) == 0 && fchmodat(s->dir, ".env.local", 0, 0) == 0);
    CHECK(scratch_become_ordinary(s) && fchdir(s->dir) == 0);
    CHECK(credentials_find(&c, &e) == -1);
    CHECK(e.code == ERROR_PROVIDER_UNAVAILABLE && strstr(e.message, "Permission denied") != NULL);
    credentials_done(&c);
    return 0;
}

static void test_r501_credentials__a_file_that_may_not_be_read_is_named(void **state)
{
    scratch_run_as_test(cannot_read, *state);
}

/* Who can make a directory above ours must not choose the project that we work in. */
static int passes_by_a_strangers(void *self)
{
    const struct scratch *s = self;
    struct credentials c;
    struct error e = { 0 };

    if (geteuid() != 0)
        return SCRATCH_SKIP;
    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        unsetenv(variables[i]);
    scratch_write(s, ".env.local", "VERCEL_OIDC_TOKEN=" OPAQUE "\n");
    CHECK(fchmodat(s->dir, ".env.local", 0644, 0) == 0 && mkdirat(s->dir, ".vercel", 0755) == 0);
    CHECK(mkdirat(s->dir, "a", 0755) == 0 && fchownat(s->dir, ".vercel", 12345, 12345, 0) == 0);
    CHECK(scratch_become_ordinary(s) && fchdir(s->dir) == 0 && chdir("a") == 0);
    CHECK(credentials_find(&c, &e) == -1);
    CHECK(strstr(e.message, "no directory from here upwards is linked") != NULL);
    credentials_done(&c);
    return 0;
}

static void test_r501_credentials__somebody_elses_link_is_passed_by(void **state)
{
    scratch_run_as_test(passes_by_a_strangers, *state);
}

#define STRANGER 12345

/* A world in which NAME is another user's; what is said about it. */
static int fail_with_strangers(const struct scratch *s, const char *name, const char *token, struct error *e)
{
    struct credentials c;
    int result;

    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        unsetenv(variables[i]);
    if (token != NULL)
        setenv("VERCEL_TOKEN", token, 1);
    CHECK(fchownat(s->dir, name, STRANGER, STRANGER, 0) == 0 && fchdir(s->dir) == 0);
    result = credentials_find(&c, e);
    credentials_done(&c);
    CHECK(fchownat(s->dir, name, 0, 0, 0) == 0);
    return result;
}

/* Whose directory it is does not tell whose the files in it are; and root, too, does not follow others. */
static int refuses_strangers_files(void *self)
{
    static const struct {
        const char *name, *token, *says;
    } cases[] = {
        { ".env.local", NULL, "/.env.local': it is another user's" },
        { ".vercel/project.json", OPAQUE, "/.vercel/project.json': it is another user's" },
        { ".vercel", NULL, "no directory from here upwards is linked" },
        { ".vercel", OPAQUE, "no directory from here upwards is linked" },
    };
    const struct scratch *s = self;

    if (geteuid() != 0)
        return SCRATCH_SKIP;
    CHECK(mkdirat(s->dir, ".vercel", 0755) == 0);
    scratch_write(s, ".env.local", "VERCEL_OIDC_TOKEN=" OPAQUE "\n");
    scratch_write(s, ".vercel/project.json", "{\"orgId\":\"team\",\"projectId\":\"prj\"}");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = { 0 };

        CHECK(fail_with_strangers(s, cases[i].name, cases[i].token, &e) == -1);
        CHECK(e.code == ERROR_PROVIDER_UNAVAILABLE && strstr(e.message, cases[i].says) != NULL);
    }
    return 0;
}

static void test_r501_credentials__somebody_elses_files_are_refused(void **state)
{
    scratch_run_as_test(refuses_strangers_files, *state);
}

/* --- dotenv ------------------------------------------------------------------------------------------ */

static void test_r501_credentials__env_local_is_read_as_dotenv_says(void **state)
{
    static const struct {
        const char *text; /* "@": the token */
        bool found;
    } cases[] = {
        { "VERCEL_OIDC_TOKEN=@", true },
        { "VERCEL_OIDC_TOKEN=@\n", true },
        { "VERCEL_OIDC_TOKEN=@\r\nB=2\r\n", true },
        { "# made by the CLI\r\nVERCEL_OIDC_TOKEN=\"@\"\r\n", true },
        { "VERCEL_OIDC_TOKEN='@'\n", true },
        { "VERCEL_OIDC_TOKEN=`@`\n", true },
        { "  export\tVERCEL_OIDC_TOKEN = @ # a comment\n", true },
        { "VERCEL_OIDC_TOKEN=\"@\" # a comment\n", true },
        { "\xef\xbb\xbfVERCEL_OIDC_TOKEN=@\n", true },
        { "\n\n\nA=1\n\nVERCEL_OIDC_TOKEN=@", true },
        { "VERCEL_OIDC_TOKEN=old\nVERCEL_OIDC_TOKEN=@\n", true },
        { "A=\"several\nVERCEL_OIDC_TOKEN=none\nlines\"\nVERCEL_OIDC_TOKEN=@\n", true },
        { "A=\"an escaped \\\" quote\"\nVERCEL_OIDC_TOKEN=@\n", true },
        { "A=\"never closed\nVERCEL_OIDC_TOKEN=@\n", true },
        { "no line of this kind\nVERCEL_OIDC_TOKEN=@\n", true },
        { "=\n==\nVERCEL_OIDC_TOKEN=@", true },
        { "#VERCEL_OIDC_TOKEN=@\n", false },
        { "VERCEL_OIDC_TOKEN_OLD=@\nX_VERCEL_OIDC_TOKEN=@\n", false },
        { "A=\"VERCEL_OIDC_TOKEN=@\n\"", false },
        { "VERCEL_OIDC_TOKEN=\n", false },
        { "VERCEL_OIDC_TOKEN=\"\"\n", false },
        { "VERCEL_OIDC_TOKEN", false },
        { "exportVERCEL_OIDC_TOKEN=@\n", false },
        { "", false },
    };
    static const struct world linked = { .files = "mkdir .vercel" };
    const struct scratch *s = *state;
    AUTO_FREE char *token = make_token(WHOLE, 0);
    char here[4096];

    assert_non_null(getcwd(here, sizeof(here)));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct text text = { 0 };
        struct credentials c;
        struct error e = { 0 };

        make_world(s, &linked, token);
        for (const char *at = cases[i].text; *at != '\0'; at++)
            text_add(&text, *at == '@' ? token : at, *at == '@' ? strlen(token) : 1);
        scratch_write(s, ".env.local", text_get(&text));
        text_done(&text);
        if ((credentials_find(&c, &e) == 0) != cases[i].found)
            fail_msg("%s: %s", cases[i].text, e.message);
        if (cases[i].found && strcmp(c.token, token) != 0)
            fail_msg("%s: another token", cases[i].text);
        credentials_done(&c);
    }
    assert_int_equal(chdir(here), 0);
}

/* --- for one sandbox --------------------------------------------------------------------------------- */

static void test_r501_credentials__aim_at_the_project_of_a_sandbox(void **state)
{
    static const struct {
        bool jwt;
        const char *team, *project;
        const char *says; /* NULL: it is taken */
    } cases[] = {
        { true, "team_jwt", "prj_jwt", NULL },
        { true, NULL, NULL, NULL },
        { true, "team_x", "prj_jwt", "for the team 'team_jwt', not for 'team_x'" },
        { true, "team_jwt", "prj_x", "for the project 'prj_jwt', not for 'prj_x'" },
        { false, "team_x", "prj_x", NULL },
    };
    AUTO_FREE char *token = make_token(WHOLE, HOURS);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct credentials c = { .token = mem_copy_text(cases[i].jwt ? token : OPAQUE),
                                 .team = "team_jwt",
                                 .project = "prj_jwt",
                                 .source = "VERCEL_TOKEN" };
        struct error e = { 0 };
        int result = credentials_aim(&c, cases[i].team, cases[i].project, "the sandbox", &e);

        assert_int_equal(result, cases[i].says == NULL ? 0 : -1);
        if (result == 0) {
            assert_string_equal(c.team, cases[i].team != NULL ? cases[i].team : "team_jwt");
            assert_string_equal(c.project, cases[i].project != NULL ? cases[i].project : "prj_jwt");
        } else {
            assert_int_equal(e.code, ERROR_AUTH_FAILED);
            assert_true(cases[i].says != NULL && strstr(e.message, cases[i].says) != NULL);
            assert_keeps_secret(&e, token);
        }
        credentials_done(&c);
    }
}

int main(void)
{
#define ON_DISK(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        ON_DISK(test_r501_credentials__are_looked_for_in_one_order),
        ON_DISK(test_r501_credentials__a_token_decides_its_team),
        ON_DISK(test_r501_credentials__expiry_is_seen_before_the_first_request),
        ON_DISK(test_r501_credentials__what_is_missing_is_named),
        ON_DISK(test_r501_credentials__odd_files_are_named),
        ON_DISK(test_r501_credentials__a_file_that_may_not_be_read_is_named),
        ON_DISK(test_r501_credentials__somebody_elses_link_is_passed_by),
        ON_DISK(test_r501_credentials__somebody_elses_files_are_refused),
        ON_DISK(test_r501_credentials__env_local_is_read_as_dotenv_says),
        cmocka_unit_test(test_r501_credentials__aim_at_the_project_of_a_sandbox),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

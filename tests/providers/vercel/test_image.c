#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "providers/provider.h"
#include "providers/vercel/image.h"
#include "tests/core/scratch.h"

#define TOKEN "vcp_opaqueSecretTokenOfTheTests0123456789"

struct bench {
    struct scratch *scratch;
    struct root root;
    char folder[IMAGE_PATH_SIZE];
    char here[4096];
};

static int setup(void **state)
{
    struct bench *b = mem_alloc(sizeof(*b));
    struct error e = { 0 };

    if (scratch_setup((void **)&b->scratch) < 0 || getcwd(b->here, sizeof(b->here)) == NULL)
        return -1;
    AUTO_FREE char *home = mem_print("%s/root", b->scratch->path);

    setenv("AGENT_DESKTOP_HOME", home, 1);
    if (root_open(ROOT_WRITE, &b->root, &e) < 0)
        return -1;
    image_path(&b->root, b->folder);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;
    void *scratch = b->scratch;
    int result = chdir(b->here);

    root_close(&b->root);
    free(b);
    return result < 0 || scratch_teardown(&scratch) != 0 ? -1 : 0;
}

/* In the directory of the files. */
static int shell(const struct bench *b, const char *command)
{
    AUTO_FREE char *line = mem_print("cd '%s' && %s", b->folder, command);

    return system(line);
}

/* --- the files: R-502, R-110 ------------------------------------------------------------------------- */

static void write_them(const struct bench *b)
{
    struct error e = { 0 };

    if (image_write(&b->root, &e) < 0)
        fail_msg("%s", e.message);
}

static void assert_whole(const struct bench *b)
{
    for (size_t i = 0; i < IMAGE_FILE_COUNT; i++) {
        const struct embedded *file = &image_files[i];
        AUTO_FREE char *path = mem_print("%s/%s", b->folder, file->name), *bytes = NULL;
        bool program = strcmp(file->name, "agent-desktop-run") == 0;
        struct error e = { 0 };
        struct stat st;
        size_t size;

        assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &bytes, &size, &e), 1);
        assert_int_equal(size, file->size);
        assert_memory_equal(bytes, file->bytes, size);
        assert_int_equal(lstat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, program ? 0700 : 0600); /* */
    }
    assert_int_equal(
        shell(b, "[ $(ls -A | wc -l) = 2 ] && [ $(ls -A .. | wc -l) = 1 ] && [ $(stat -c %a .) = 700 ]"), 0);
    assert_true(image_is_written(&b->root));
}

static void test_r502_image__the_program_carries_the_sources_as_they_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < IMAGE_FILE_COUNT; i++) {
        AUTO_FREE char *path = mem_print("%s/%s", AD_SOURCES, image_files[i].name), *bytes = NULL;
        struct error e = { 0 };
        size_t size;

        assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &bytes, &size, &e), 1);
        assert_int_equal(size, image_files[i].size);
        assert_memory_equal(bytes, image_files[i].bytes, size + 1); /* and the NUL behind */
    }
    assert_string_equal(image_files[0].name, "Dockerfile");
    assert_string_equal(image_files[1].name, "agent-desktop-run");
}

static void test_r502_image__is_written_below_its_hash(void **state)
{
    const struct bench *b = *state;
    AUTO_FREE char *parent = mem_print("%s/providers/vercel/", b->root.path);

    assert_memory_equal(b->folder, parent, strlen(parent));
    assert_int_equal(strspn(b->folder + strlen(parent), "0123456789abcdef"), 32);
    assert_int_equal(strlen(b->folder), strlen(parent) + 32);
    assert_false(image_is_written(&b->root));
    write_them(b);
    assert_whole(b);
}

/* A file that is as it should be is not touched: whoever builds from it keeps it. */
static void test_r110_image__nothing_is_written_twice(void **state)
{
    const struct bench *b = *state;

    write_them(b);
    assert_int_equal(shell(b, "stat -c '%i %Y' . * >../before"), 0);
    write_them(b);
    assert_int_equal(shell(b, "stat -c '%i %Y' . * | cmp - ../before && rm ../before"), 0);
    assert_int_equal(shell(b, "ls -i agent-desktop-run >../before && echo x >>Dockerfile"), 0);
    assert_false(image_is_written(&b->root));
    write_them(b);
    assert_int_equal(shell(b, "ls -i agent-desktop-run | cmp - ../before && rm ../before"), 0);
    assert_whole(b);
}

static void test_r110_image__damage_is_noticed_and_made_good(void **state)
{
    static const char *const damages[] = {
        "rm Dockerfile",
        ": >Dockerfile",
        "echo >>Dockerfile",
        "printf x | dd of=agent-desktop-run bs=1 seek=100 conv=notrunc 2>/dev/null",
        "chmod 644 Dockerfile",
        "chmod 600 agent-desktop-run",
        "rm Dockerfile && mkdir -p Dockerfile/full && touch Dockerfile/full/x",
        "rm Dockerfile && ln -s agent-desktop-run Dockerfile",
        "rm agent-desktop-run && mkfifo agent-desktop-run",
        "rm ./* && : >.tmp-0123456789abcdef", /* a write that was killed */
        "rm ./* && mkdir -p .tmp-0123456789abcdef/full",
        "rm -r \"$PWD\"",
        "rm -r \"$PWD\" && : >\"$PWD\"",
        "mv \"$PWD\" ../../moved && ln -s ../../moved \"$PWD\"",
    };
    const struct bench *b = *state;

    write_them(b);
    for (size_t i = 0; i < ARRAY_LEN(damages); i++) {
        assert_int_equal(shell(b, damages[i]), 0);
        if (image_is_written(&b->root))
            fail_msg("unnoticed: %s", damages[i]);
        write_them(b);
        assert_whole(b);
    }
}

/* */
static void test_r502_image__without_a_root_nothing_is_written(void **state)
{
    const struct root missing = { .path = "/nonexistent/root", .dir = -1, .sandboxes = -1, .locks = -1 };

    (void)state;
    assert_false(image_is_written(&missing));
}

static void test_r502_install__may_run_twice(void **state)
{
    const struct bench *b = *state;
    struct provider_place place = { .root = &b->root, .op_lock = -1 };
    struct step_context c = { .attempt = 1 };
    struct error e = { 0 };

    assert_string_equal(vercel_install_steps[0].name, "write-files");
    assert_null(vercel_install_steps[1].name);
    assert_int_equal(vercel_install_steps[0].run(&place, &c, &e), STEP_DONE);
    assert_whole(b);
    assert_int_equal(vercel_install_steps[0].run(&place, &c, &e), STEP_DONE);
    assert_whole(b);
}

static void test_r502_install__says_what_is_in_the_way(void **state)
{
    const struct bench *b = *state;
    struct provider_place place = { .root = &b->root, .op_lock = -1 };
    struct step_context c = { .attempt = 1 };
    struct error e = { 0 };
    int file = openat(b->root.dir, "providers", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(file >= 0);
    close(file);
    assert_int_equal(vercel_install_steps[0].run(&place, &c, &e), STEP_FAILED);
    assert_non_null(strstr(e.message, "providers"));
}

/* --- is the host fit? -------------------------------------------------------------------------------- */

#define SILENT ""

/* Answers every request with ANSWER, and with 418 one that is not what it should be; never with SILENT. */
static _Noreturn void serve(int listener, const char *answer)
{
    static const char odd[] = "HTTP/1.1 418 Odd\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

    for (;;) {
        char request[4096] = "";
        size_t size = 0;
        int fd = accept(listener, NULL, NULL);
        ssize_t n = 1;

        while (n > 0 && size < sizeof(request) - 1 && strstr(request, "\r\n\r\n") == NULL) {
            n = read(fd, request + size, sizeof(request) - 1 - size);
            size += n > 0 ? (size_t)n : 0;
            request[size] = '\0';
        }
        if (strcmp(answer, SILENT) == 0)
            continue; /* open, until the client has enough */
        bool asked = strncmp(request, "GET /api/v2/sandboxes?", 22) == 0 &&
                     strstr(request, "teamId=team_x") != NULL && strstr(request, "project=prj_x") != NULL &&
                     strstr(request, "limit=1") != NULL && strstr(request, "resume") == NULL &&
                     strstr(request, "Bearer ") != NULL;

        (void)!write(fd, asked ? answer : odd, strlen(asked ? answer : odd));
        close(fd);
    }
}

static pid_t start_service(const char *answer)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t pid;

    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    AUTO_FREE char *url = mem_print("http://127.0.0.1:%d/api", ntohs(address.sin_port));

    setenv("VERCEL_API_URL", url, 1);
    pid = fork();
    if (pid == 0)
        serve(listener, answer);
    close(listener);
    return pid;
}

static void stop_service(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

enum who { NOBODY, WITH_TOKEN, WITH_OIDC_EXPIRED, WITH_ENV_FILE };

/* {"owner_id":"team_x","project_id":"prj_x","exp":1}, and without "exp" */
#define EXPIRED "h.eyJvd25lcl9pZCI6InRlYW1feCIsInByb2plY3RfaWQiOiJwcmpfeCIsImV4cCI6MX0.s"
#define LASTING "h.eyJvd25lcl9pZCI6InRlYW1feCIsInByb2plY3RfaWQiOiJwcmpfeCJ9.s"

static void become(const struct bench *b, enum who who)
{
    static const char *const names[] = { "VERCEL_OIDC_TOKEN", "VERCEL_TOKEN", "VERCEL_TEAM_ID",
                                         "VERCEL_PROJECT_ID" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        unsetenv(names[i]);
    unlinkat(b->scratch->dir, ".env.local", 0);
    unlinkat(b->scratch->dir, ".vercel", AT_REMOVEDIR);
    assert_int_equal(fchdir(b->scratch->dir), 0);
    if (who == WITH_OIDC_EXPIRED)
        setenv("VERCEL_OIDC_TOKEN", EXPIRED, 1);
    if (who == WITH_ENV_FILE) {
        assert_int_equal(mkdirat(b->scratch->dir, ".vercel", 0700), 0);
        scratch_write(b->scratch, ".env.local", "VERCEL_OIDC_TOKEN=\"" LASTING "\"\n");
    }
    if (who == WITH_TOKEN) {
        setenv("VERCEL_TOKEN", TOKEN, 1);
        setenv("VERCEL_TEAM_ID", "team_x", 1);
        setenv("VERCEL_PROJECT_ID", "prj_x", 1);
    }
}

#define ANSWER(status, body)                                                                                 \
    "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" body
#define YES  ANSWER("200 OK", "{\"sandboxes\":[],\"pagination\":{\"count\":0,\"next\":null}}")
#define LINK "vercel link && vercel env pull"
#define PULL "vercel env pull"

static void test_r502_inspect__tells_what_unlocks_the_provider(void **state)
{
    static const struct {
        enum who who;
        const char *answer;
        bool written;
        enum fsm_provider_state state; /* NONE: an error */
        enum error_code code;
        const char *says[2];
        const char *fix;
    } cases[] = {
        { NOBODY,
          YES,
          false,
          PROVIDER_UNAVAILABLE,
          ERROR_NONE,
          { "Neither VERCEL_OIDC_TOKEN", "vercel link" },
          LINK },
        { WITH_OIDC_EXPIRED,
          YES,
          false,
          PROVIDER_UNAVAILABLE,
          ERROR_NONE,
          { "expired at 1970", "env pull" },
          PULL },
        { WITH_TOKEN, YES, false, PROVIDER_MISSING, ERROR_NONE, { "VERCEL_TOKEN", "not written yet" }, "" },
        { WITH_TOKEN,
          YES,
          true,
          PROVIDER_READY,
          ERROR_NONE,
          { "of VERCEL_TOKEN for the project 'prj_x'" },
          "" },
        { WITH_ENV_FILE,
          YES,
          true,
          PROVIDER_READY,
          ERROR_NONE,
          { "of .env.local for the project 'prj_x'" },
          "" },
        { WITH_TOKEN,
          ANSWER("401 No", "{}"),
          true,
          PROVIDER_UNAVAILABLE,
          ERROR_NONE,
          { "VERCEL_TOKEN", "401" },
          "" },
        { WITH_TOKEN,
          ANSWER("403 No", "{}"),
          true,
          PROVIDER_UNAVAILABLE,
          ERROR_NONE,
          { "VERCEL_TOKEN", "403" },
          "" },
        { WITH_ENV_FILE,
          ANSWER("403 No", "{}"),
          true,
          PROVIDER_UNAVAILABLE,
          ERROR_NONE,
          { ".env.local" },
          PULL },
        { WITH_TOKEN,
          ANSWER("402 No", "{\"error\":{\"code\":\"payment\",\"message\":\"the bill is open\"}}"),
          true,
          PROVIDER_UNAVAILABLE,
          ERROR_NONE,
          { "the bill is open", "billing" },
          "" },
        { WITH_TOKEN,
          ANSWER("404 No", "{}"),
          true,
          PROVIDER_UNAVAILABLE,
          ERROR_NONE,
          { "know the project 'prj_x', which VERCEL_PROJECT_ID names, in the team 'team_x'",
            "settings pages" },
          "" },
        { WITH_ENV_FILE,
          ANSWER("404 No", "{}"),
          true,
          PROVIDER_UNAVAILABLE,
          ERROR_NONE,
          { "which .env.local names", "vercel link" },
          LINK },
        { WITH_TOKEN, ANSWER("418 No", "{}"), true, PROVIDER_NONE, ERROR_ACTION_FAILED, { "418" }, "" },
        { WITH_TOKEN, ANSWER("503 No", "{}"), true, PROVIDER_NONE, ERROR_ACTION_FAILED, { "503" }, "" },
        { WITH_TOKEN, ANSWER("429 No", "{}"), true, PROVIDER_NONE, ERROR_LIMIT_REACHED, { "429" }, "" },
        { WITH_TOKEN, SILENT, true, PROVIDER_NONE, ERROR_TIMEOUT, { "not answered" }, "" },
    };
    const struct bench *b = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct provider_host_report report = { 0 };
        struct error e = { 0 };
        pid_t service = start_service(cases[i].answer);
        int64_t begin = clock_mono_ms();
        const char *words;
        int result;

        become(b, cases[i].who);
        if (cases[i].written)
            write_them(b);
        result = vercel_inspect_host(&b->root, &report, &e);
        assert_in_range(clock_mono_ms() - begin, 0, 2000);
        stop_service(service);
        words = result == 0 ? report.message : e.message;
        if (report.state != cases[i].state || e.code != cases[i].code ||
            (result == 0) != (e.code == ERROR_NONE))
            fail_msg("case %zu: %d %s", i, (int)report.state, words);
        for (size_t k = 0; k < ARRAY_LEN(cases[i].says); k++)
            if (cases[i].says[k] != NULL && strstr(words, cases[i].says[k]) == NULL)
                fail_msg("case %zu: %s", i, words);
        if (result == 0) {
            assert_true(words[strlen(words) - 1] == '.');
            assert_string_equal(report.fix, cases[i].fix);
        }
        if (report.state == PROVIDER_READY || report.state == PROVIDER_MISSING)
            assert_non_null(strstr(words, b->folder));
        assert_null(strstr(words, TOKEN)); /* */
        assert_null(strstr(words, "eyJvd25lcl9pZCI6"));
    }
}

static void test_r502_inspect__an_address_that_is_not_allowed_is_an_error(void **state)
{
    const struct bench *b = *state;
    struct provider_host_report report;
    struct error e = { 0 };

    become(b, WITH_TOKEN);
    setenv("VERCEL_API_URL", "http://example.com/api", 1);
    assert_int_equal(vercel_inspect_host(&b->root, &report, &e), -1);
    assert_int_equal(e.code, ERROR_INVALID_ARGS);
}

int main(void)
{
#define ON_DISK(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_r502_image__the_program_carries_the_sources_as_they_are),
        ON_DISK(test_r502_image__is_written_below_its_hash),
        ON_DISK(test_r110_image__nothing_is_written_twice),
        ON_DISK(test_r110_image__damage_is_noticed_and_made_good),
        cmocka_unit_test(test_r502_image__without_a_root_nothing_is_written),
        ON_DISK(test_r502_install__may_run_twice),
        ON_DISK(test_r502_install__says_what_is_in_the_way),
        ON_DISK(test_r502_inspect__tells_what_unlocks_the_provider),
        ON_DISK(test_r502_inspect__an_address_that_is_not_allowed_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

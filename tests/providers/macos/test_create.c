#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/lock.h"
#include "core/mem.h"
#include "providers/macos/meter.h"
#include "providers/progress.h"
#include "tests/providers/macos/machine.h"

/* Fails, with *e; what is on the disk stays for the test to look at. */
static struct sandbox fail_to_create(const struct machine *m, const char *ipsw, struct error *e)
{
    struct sandbox s = machine_open(m, "base", NULL);

    facts_set(&s.facts, "set.ipsw", ipsw);
    facts_set(&s.facts, "set.user", "somebody");
    assert_int_equal(machine_run(&s, OPERATION_CREATE, e), -1);
    return s;
}

static void must_contain(const char *text, const char *words)
{
    if (text == NULL || strstr(text, words) == NULL)
        fail_msg("'%s' is not in: %s", words, text == NULL ? "(nothing)" : text);
}

static void must_log(const struct sandbox *s, const char *words)
{
    AUTO_FREE char *log = machine_read(s, "vm/install.log");

    must_contain(log, words);
}

/* --- what it leaves ----------------------------------------------------------------------------------- */

static void test_create__leaves_a_guest_that_was_never_set_up(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_create(*state, "base");

    assert_int_equal(s.outcome, EV_NONE); /* done: stopped */
    assert_true(machine_has(&s, "vm/disk.img"));
    assert_true(machine_has(&s, "vm/aux.img"));
    assert_string_equal(facts_get(&s.facts, "user"), "somebody");
    assert_string_equal(facts_get(&s.facts, "image"), "26.1 (25B78)");
    assert_int_equal(strlen(facts_get(&s.facts, "mac")), strlen("6e:05:00:a1:b2:c3"));
    assert_null(facts_get(&s.facts, "setup"));
    assert_null(facts_get(&s.facts, "hostkey"));
    assert_false(machine_runs(&s));
    assert_false(machine_has(&s, "progress.json"));
    must_log(&s, "\"installed\"");
}

/* */
static void test_create__makes_files_that_are_nobody_elses(void **state)
{
    AUTO_SANDBOX struct sandbox s = machine_create(*state, "base");
    static const char *const files[] = { "id_ed25519", "id_ed25519.pub", "vm/install.log" };

    assert_int_equal(machine_mode(&s, "."), 0700);
    assert_int_equal(machine_mode(&s, "vm"), 0700);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        assert_int_equal(machine_mode(&s, files[i]), 0600);
    AUTO_FREE char *private_half = machine_read(&s, "id_ed25519");
    AUTO_FREE char *public_half = machine_read(&s, "id_ed25519.pub");

    must_contain(private_half, "-----BEGIN OPENSSH PRIVATE KEY-----\n");
    must_contain(public_half, "ssh-ed25519 AAAA");
    must_contain(public_half, " agent-desktop-base\n");
}

/* */
static void test_create__uses_an_image_in_place_and_keeps_it(void **state)
{
    const struct machine *m = *state;
    AUTO_SANDBOX struct sandbox s = machine_create(m, "base");
    AUTO_FREE char *argv = scripts_read(m->scripts, "vmhost.base.argv");

    must_contain(argv, m->image);
    assert_int_equal(access(m->image, R_OK), 0);
    assert_false(machine_has(&s, "restore.ipsw"));
}

static void test_create__never_fills_what_somebody_put_there(void **state)
{
    const struct machine *m = *state;
    struct error e = { 0 };

    assert_int_equal(symlinkat(m->scripts->scratch->path, m->root->sandboxes, "base"), 0);
    AUTO_SANDBOX struct sandbox s = fail_to_create(m, m->image, &e);

    assert_int_equal(e.code, ERROR_SANDBOX_EXISTS);
    assert_false(scratch_exists(m->scripts->scratch, "vm"));
}

/* --- the download ------------------------------------------------------------------------------------- */

/* Serves the catalog and images below mac/www; the port is in mac/port. "slow.ipsw" ends in its middle, and
 * its rest never comes. */
static const char server[] =
    "import http.server, os, sys, time\n"
    "class H(http.server.SimpleHTTPRequestHandler):\n"
    "    protocol_version = 'HTTP/1.1'\n"
    "    def log_message(self, *a): pass\n"
    "    def begin(self):\n"
    "        self.send_response(200); self.send_header('Content-Length', '4000000'); self.end_headers()\n"
    "    def do_HEAD(self):\n"
    "        return self.begin() if 'slow' in self.path else super().do_HEAD()\n"
    "    def do_GET(self):\n"
    "        if 'slow' not in self.path: return super().do_GET()\n"
    "        self.begin()\n"
    "        if self.headers.get('Range') is None: self.wfile.write(b'x' * 1500000); self.wfile.flush()\n"
    "        time.sleep(600)\n"
    "os.chdir('www')\n"
    "s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n"
    "open('../port.new', 'w').write(str(s.server_port)); os.rename('../port.new', '../port')\n"
    "s.serve_forever()\n";

static pid_t serve(const struct machine *m)
{
    AUTO_FREE char *directory = mem_print("%s/mac", m->scripts->scratch->path);
    pid_t pid;

    assert_int_equal(scripts_shell(m->scripts, "mkdir -p www"), 0);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && chdir(directory) == 0)
            execl("/usr/bin/python3", "python3", "-c", server, (char *)NULL);
        _exit(127);
    }
    for (int64_t end_ms = clock_mono_ms() + 20000; !scripts_has(m->scripts, "port");) {
        assert_true(clock_mono_ms() < end_ms);
        clock_sleep_ms(10);
    }
    return pid;
}

static void end_server(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A catalog with one image. SHA1 NULL: the right one. */
static void publish(const struct machine *m, const char *version, const char *image, const char *sha1)
{
    AUTO_FREE char *port = scripts_read(m->scripts, "port");
    AUTO_FREE char *sum =
        mem_print("printf 'a downloaded image' >www/%s; sha1sum www/%s | cut -c 1-40 >sum", image, image);

    assert_int_equal(scripts_shell(m->scripts, sum), 0);
    AUTO_FREE char *right = scripts_read(m->scripts, "sum");
    AUTO_FREE char *catalog = mem_print(
        "<plist "
        "version=\"1.0\"><dict><key>MobileDeviceSoftwareVersionsByVersion</key><dict><key>1</key><dict>"
        "<key>MobileDeviceSoftwareVersions</key><dict><key>VirtualMac2,1</key><dict><key>25B78</key><dict>"
        "<key>Restore</key><dict><key>BuildVersion</key><string>25B78</string><key>FirmwareURL</key>"
        "<string>http://127.0.0.1:%s/%s</string><key>FirmwareSHA1</key><string>%.40s</string>"
        "<key>ProductVersion</key><string>%s</string></dict></dict></dict></dict></dict></dict></dict></"
        "plist>",
        port, image, sha1 == NULL ? right : sha1, version);
    AUTO_FREE char *address = mem_print("http://127.0.0.1:%s/catalog.xml", port);

    scripts_write(m->scripts, "www/catalog.xml", catalog);
    assert_int_equal(setenv("AGENT_DESKTOP_IPSW_CATALOG", address, 1), 0);
}

/* */
static void test_create__downloads_checks_installs_and_deletes(void **state)
{
    const struct machine *m = *state;
    pid_t pid = serve(m);
    AUTO_SANDBOX struct sandbox s = machine_open(m, "base", NULL);

    publish(m, "15.6", "Mac.ipsw", NULL);
    facts_set(&s.facts, "set.ipsw", "latest");
    facts_set(&s.facts, "set.user", "somebody");
    machine_must_run(&s, OPERATION_CREATE);
    end_server(pid);
    assert_false(machine_has(&s, "restore.ipsw"));
    assert_false(machine_has(&s, "progress.json"));
    must_log(&s, "downloading macOS 15.6 (25B78)");
    AUTO_FREE char *argv = scripts_read(m->scripts, "vmhost.base.argv");

    must_contain(argv, "/sandboxes/base/restore.ipsw");
    AUTO_FREE char *command = mem_print(
        "head -c 18 '%s/sandboxes/base/vm/disk.img' | grep -qx 'a downloaded image'", m->root->path);

    assert_int_equal(scripts_shell(m->scripts, command), 0);
}

static void test_create__an_image_with_another_sum_is_not_installed(void **state)
{
    const struct machine *m = *state;
    pid_t pid = serve(m);
    struct error e = { 0 };

    publish(m, "15.6", "Mac.ipsw", "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    AUTO_SANDBOX struct sandbox s = fail_to_create(m, "latest", &e);

    end_server(pid);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    must_contain(e.message, "SHA-1");
    must_log(&s, e.message);
    assert_false(machine_has(&s, "vm/disk.img"));
}

/* Decided before the download: the installer would refuse it only at its end. */
static void test_create__without_an_image_for_this_mac_names_both_versions(void **state)
{
    const struct machine *m = *state;
    pid_t pid = serve(m);
    struct error e = { 0 };

    publish(m, "26.1", "Mac.ipsw", NULL);
    AUTO_SANDBOX struct sandbox s = fail_to_create(m, "latest", &e);

    end_server(pid);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    must_contain(e.message, "26.1");
    must_contain(e.message, "15.6.1");
    must_contain(e.message, "update this Mac");
    must_contain(e.message, "--set ipsw=PATH");
    assert_false(machine_has(&s, "restore.ipsw"));
    must_log(&s, "26.1");
}

/* --- failures of the installer ------------------------------------------------------------------------ */

/* the reason is in the log and in the message. */
static void test_create__tells_why_the_installer_failed(void **state)
{
    const struct machine *m = *state;
    struct error e = { 0 };

    setenv("VMHOST", "install-refuses", 1);
    AUTO_SANDBOX struct sandbox s = fail_to_create(m, m->image, &e);

    assert_string_equal(e.message, "The image holds macOS 26.6, which is newer than this Mac's 26.5.");
    must_contain(e.suggestion, "Update this Mac");
    must_log(&s, "failed: The image holds macOS 26.6");
    assert_false(machine_has(&s, "progress.json"));
}

static void test_create__tells_when_the_installer_died(void **state)
{
    const struct machine *m = *state;
    struct error e = { 0 };

    setenv("VMHOST", "install-dies", 1);
    AUTO_SANDBOX struct sandbox s = fail_to_create(m, m->image, &e);

    must_contain(e.message, "signal 9");
    must_log(&s, "signal 9");
}

static void test_create__without_its_vm_host_says_what_to_do(void **state)
{
    const struct machine *m = *state;
    struct error e = { 0 };

    assert_int_equal(scripts_shell(m->scripts, "rm -rf \"$ROOT\"/providers/macos/vmhost-*"), 0);
    AUTO_SANDBOX struct sandbox s = fail_to_create(m, m->image, &e);

    assert_int_equal(e.code, ERROR_PROVIDER_UNAVAILABLE);
}

/* Bug case 2: an installation counts too. */
static void test_create__at_apples_limit_names_who_runs(void **state)
{
    const struct machine *m = *state;
    AUTO_CLOSE int first = -1, second = -1;
    struct error e = { 0 };

    assert_int_equal(scripts_shell(m->scripts, "mkdir -p \"$ROOT\"/sandboxes/a/vm \"$ROOT\"/sandboxes/b/vm"),
                     0);
    assert_int_equal(lock_take(m->root->locks, "a.run", LOCK_EXCLUSIVE, 0, &first, &e), 1);
    assert_int_equal(lock_take(m->root->locks, "b.run", LOCK_EXCLUSIVE, 0, &second, &e), 1);
    setenv("VMHOST", "install-limit", 1);
    AUTO_SANDBOX struct sandbox s = fail_to_create(m, m->image, &e);

    assert_int_equal(e.code, ERROR_LIMIT_REACHED);
    must_contain(e.message, "limit");
    assert_true(strstr(e.message, "a, b") != NULL || strstr(e.message, "b, a") != NULL);
}

struct small {
    const struct machine *machine;
    struct scratch scratch;
    const char *options; /* of its file system */
    const char *ipsw;
    const char *needed, *in_all; /* what must be told */
};

static int finds_no_room(void *self)
{
    struct small *small = self;
    struct machine m = *small->machine;
    struct root root = { .dir = -1 };
    struct error e = { 0 };

    if (!scratch_mount_small(&small->scratch, small->options))
        return SCRATCH_SKIP;
    snprintf(root.path, sizeof(root.path), "%s", small->scratch.path);
    root.dir = small->scratch.dir;
    root.sandboxes = file_make_dir(root.dir, "sandboxes", 0700, &e);
    root.locks = file_make_dir(root.dir, "locks", 0700, &e);
    m.root = &root;
    struct sandbox s = machine_open(&m, "base", NULL);

    facts_set(&s.facts, "set.ipsw", small->ipsw);
    CHECK(machine_run(&s, OPERATION_CREATE, &e) == -1);
    if (strstr(e.message, small->needed) == NULL || strstr(e.message, small->in_all) == NULL)
        fprintf(stderr, "%s\n", e.message);
    CHECK(e.code == ERROR_STORE_FULL && strstr(e.message, "are free") != NULL);
    CHECK(strstr(e.message, small->needed) != NULL && strstr(e.message, small->in_all) != NULL);
    CHECK(!machine_has(&s, "vm/disk.img") && !machine_has(&s, "restore.ipsw"));
    /* and with not a byte left it is removed all the same */
    scratch_fill(&small->scratch);
    machine_close(&s);
    CHECK(machine_run(&s, OPERATION_REMOVE, &e) == 0 || e.code == ERROR_STORE_FULL);
    CHECK(!machine_has(&s, "."));
    machine_close(&s);
    return 0;
}

static void must_find_no_room(struct small *small)
{
    void *scratch = NULL;

    assert_int_equal(scratch_setup(&scratch), 0);
    small->scratch = *(struct scratch *)scratch;
    int status = scratch_run(finds_no_room, small);

    assert_int_equal(scratch_teardown(&scratch), 0);
    if (status == SCRATCH_SKIP)
        skip(); /* only root can make the small disk */
    assert_int_equal(status, 0);
}

/* Bug case 3: how much is needed, and nothing is begun. */
static void test_create__says_how_much_room_is_missing(void **state)
{
    const struct machine *m = *state;
    struct small small = { .machine = m,
                           .options = "size=20m",
                           .ipsw = m->image,
                           .needed = "its image has 40.0 MB, and installed it takes about 60.0 MB",
                           .in_all = "60.0 MB are needed besides the image" };

    assert_int_equal(truncate(m->image, 40000000), 0);
    must_find_no_room(&small);
}

/* The server tells the size before anything is downloaded. */
static void test_create__finds_room_for_the_download_and_what_is_installed(void **state)
{
    const struct machine *m = *state;
    pid_t pid = serve(m);
    struct small small = { .machine = m,
                           .options = "size=8m",
                           .ipsw = "latest",
                           .needed = "not enough room for macOS 15.6: its image has 4.0 MB",
                           .in_all = "10.0 MB are needed," };

    publish(m, "15.6", "slow.ipsw", NULL);
    must_find_no_room(&small);
    end_server(pid);
}

/* --- a worker that is killed -------------------------------------------------------------------------- */

struct worker {
    const struct machine *machine;
    const char *ipsw;
    int op_lock;
};

static int work(void *self)
{
    const struct worker *w = self;
    struct sandbox s = machine_open(w->machine, "base", NULL);
    struct error e = { 0 };

    s.place.op_lock = w->op_lock;
    facts_set(&s.facts, "set.ipsw", w->ipsw);
    (void)machine_run(&s, OPERATION_CREATE, &e);
    return 1;
}

/* Ends it as soon as READY says so; what is left is then without an owner, as its lock shows. */
static void end_worker(const struct machine *m, const char *ipsw, bool (*ready)(const struct machine *m),
                       int number)
{
    struct worker w = { .machine = m, .ipsw = ipsw };
    struct error e = { 0 };

    assert_int_equal(lock_take(m->root->locks, "base.op", LOCK_EXCLUSIVE, 0, &w.op_lock, &e), 1);
    pid_t pid = scratch_start(work, &w);

    close(w.op_lock);
    for (int64_t end_ms = clock_mono_ms() + 20000; !ready(m);) {
        assert_true(clock_mono_ms() < end_ms);
        clock_sleep_ms(5);
    }
    kill(pid, number);
    assert_int_equal(scratch_wait(pid), 128 + number);
    if (number == SIGTERM)
        assert_true(scripts_has(m->scripts, "cancelled"));
    assert_int_equal(lock_take(m->root->locks, "base.op", LOCK_EXCLUSIVE, 10000, &w.op_lock, &e), 1);
    close(w.op_lock);
}

static char *explain(const struct machine *m, const struct facts *facts)
{
    AUTO_SANDBOX struct sandbox s = machine_open(m, "base", facts);
    char words[256] = "general words";

    macos_explain_interruption(machine_vm(&s), &s.facts, words, sizeof(words));
    return mem_copy_text(words);
}

static bool is_installing(const struct machine *m)
{
    struct progress p = { .percent = -1 };

    return scripts_has(m->scripts, "installing") && progress_read(m->root, "base", &p) && p.percent == 25;
}

/* vmhost does not outlive whoever wanted the guest, and holds the op lock until it is gone. */
static void test_create__a_killed_worker_takes_its_installer_along(void **state)
{
    const struct machine *m = *state;
    struct facts facts = { .count = 0 };

    setenv("VMHOST", "install-stays", 1);
    end_worker(m, m->image, is_installing, SIGKILL);
    AUTO_FREE char *words = explain(m, &facts);

    assert_string_equal(words, "general words when 25 % of macOS were installed");
}

/* cancelled in order, its installer may let go of what it does before the worker is gone. */
static void test_create__a_cancelled_worker_outlives_its_installer(void **state)
{
    const struct machine *m = *state;

    setenv("VMHOST", "install-stays", 1);
    end_worker(m, m->image, is_installing, SIGTERM);
}

/* What is on the disk counts: the rest of a block was in the killed worker's memory. */
static bool has_a_part(const struct machine *m)
{
    struct progress p = { .total_bytes = -1 };
    struct stat st;

    return progress_read(m->root, "base", &p) && p.total_bytes == 4000000 &&
           fstatat(m->root->sandboxes, "base/restore.ipsw", &st, 0) == 0 && st.st_size > 0;
}

/* Bug case 1. */
static void test_create__a_killed_download_tells_how_far_it_came(void **state)
{
    const struct machine *m = *state;
    struct facts facts = { .count = 0 };
    struct stat st;
    pid_t pid = serve(m);

    publish(m, "15.6", "slow.ipsw", NULL);
    end_worker(m, "latest", has_a_part, SIGKILL);
    end_server(pid);
    AUTO_FREE char *words = explain(m, &facts);

    assert_int_equal(fstatat(m->root->sandboxes, "base/restore.ipsw", &st, 0), 0);
    char size[METER_SIZE];

    meter_print_size(size, st.st_size);
    AUTO_FREE char *expected = mem_print("general words after %s of 4.0 MB were downloaded", size);

    assert_in_range(st.st_size, 1, 1500000);
    assert_string_equal(words, expected);
}

static void test_create__an_interruption_without_traces_has_the_general_words(void **state)
{
    const struct machine *m = *state;
    struct facts clone = { .count = 0 };
    struct facts none = { .count = 0 };

    AUTO_FREE char *missing = explain(m, &none);

    assert_string_equal(missing, "general words");
    machine_close(&(struct sandbox){ .vm = machine_create(m, "base").vm });
    facts_set(&clone, "set.from", "other");
    AUTO_FREE char *words = explain(m, &clone);

    assert_string_equal(words, "general words");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_create__leaves_a_guest_that_was_never_set_up),
        TEST(test_create__makes_files_that_are_nobody_elses),
        TEST(test_create__uses_an_image_in_place_and_keeps_it),
        TEST(test_create__never_fills_what_somebody_put_there),
        TEST(test_create__downloads_checks_installs_and_deletes),
        TEST(test_create__an_image_with_another_sum_is_not_installed),
        TEST(test_create__without_an_image_for_this_mac_names_both_versions),
        TEST(test_create__tells_why_the_installer_failed),
        TEST(test_create__tells_when_the_installer_died),
        TEST(test_create__without_its_vm_host_says_what_to_do),
        TEST(test_create__at_apples_limit_names_who_runs),
        TEST(test_create__says_how_much_room_is_missing),
        TEST(test_create__finds_room_for_the_download_and_what_is_installed),
        TEST(test_create__a_killed_worker_takes_its_installer_along),
        TEST(test_create__a_cancelled_worker_outlives_its_installer),
        TEST(test_create__a_killed_download_tells_how_far_it_came),
        TEST(test_create__an_interruption_without_traces_has_the_general_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

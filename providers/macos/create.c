/* create: an empty directory, a key, an image, and macOS installed from it. Not resumed: what one
 * step has found out, the next one reads from the disk or the facts all the same. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/text.h"
#include "providers/macos/catalog.h"
#include "providers/macos/host.h"
#include "providers/macos/macos.h"
#include "providers/macos/meter.h"
#include "providers/remote/http.h"
#include "providers/remote/keys.h"

#define IMAGE       "restore.ipsw" /* the framework takes no other suffix */
#define INSTALL_LOG "install.log"
#define KEY_COMMENT "agent-desktop-%.*s"

#define CATALOG_VARIABLE "AGENT_DESKTOP_IPSW_CATALOG" /* another address than Apple's */
#define CATALOG_MAX      (16 * 1024 * 1024)           /* it has some 0.5 MB */
#define CATALOG_MS       60000
#define HOST_MS          5000
#define SIZE_MS          30000
#define STALL_MS         60000
#define GIVE_UP_MS       (15 * 60 * 1000)
#define QUIET_MS         (30 * 60 * 1000) /* the installer tells of each percent; all takes 5 to 20 minutes */

/* Sparse: it costs what is written. Growing it later means moving its recovery partition, so it starts large.
 */
#define DISK_BYTES "107374182400"

/* --- the log ------------------------------------------------------------------------------------------ */

/* -1 when it cannot be had: a log is no reason to fail. */
static int open_log(const struct macos_vm *vm)
{
    AUTO_CLOSE int dir = vm->dir < 0 ? -1 : file_open_dir(vm->dir, "vm");
    AUTO_CLOSE int fd =
        dir < 0 ? -1
                : openat(dir, INSTALL_LOG,
                         O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    (void)fchmod(fd, 0600);
    return steal_fd(&fd);
}

PRINTF_LIKE(2, 3)
static void write_log(const struct macos_vm *vm, const char *format, ...)
{
    AUTO_CLOSE int fd = open_log(vm);
    struct text line = { 0 };
    char now[32], said[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(said, sizeof(said), format, arguments);
    va_end(arguments);
    text_format_time(now, clock_wall_ms(), false);
    text_print(&line, "%s %s\n", now, said);
    if (fd >= 0)
        (void)file_write_all(fd, text_get(&line), line.size);
    text_done(&line);
}

/* the reason of a failure is in the log too. */
static enum step_result end_step(const struct macos_vm *vm, int result, const struct error *e)
{
    if (result == 0)
        return STEP_DONE;
    write_log(vm, "failed: %s", e->message);
    if (vm->dir >= 0)
        progress_remove(vm->dir);
    return STEP_FAILED;
}

/* --- prepare ------------------------------------------------------------------------------------------ */

static int write_keys(int dir, const struct keys_pair *pair, struct error *e)
{
    if (file_replace(dir, MACOS_KEY, pair->private_file, strlen(pair->private_file), 0600, e) < 0)
        return -1;
    return file_replace(dir, MACOS_KEY_PUB, pair->public_line, strlen(pair->public_line), 0600, e);
}

static int make_keys(const struct macos_vm *vm, struct error *e)
{
    struct keys_pair pair;
    char comment[64];

    snprintf(comment, sizeof(comment), KEY_COMMENT, NAME_MAX_LENGTH, vm->place->name);
    int r = keys_generate(comment, &pair, e);

    if (r == 0)
        r = write_keys(vm->dir, &pair, e);
    keys_forget(&pair);
    return r;
}

static int prepare(struct macos_vm *vm, struct step_context *c, struct error *e)
{
    macos_sweep(vm->place->root->sandboxes);
    if (macos_make_dirs(vm, c, e) < 0 || make_keys(vm, e) < 0)
        return -1;
    const char *user = facts_get(c->facts, "set.user");

    facts_set(c->outputs, "user", user == NULL ? "" : user);
    return 0;
}

static enum step_result step_prepare(void *self, struct step_context *c, struct error *e)
{
    return end_step(self, prepare(self, c, e), e);
}

/* --- room --------------------------------------------------------------------------------------------- */

/* What an installed system takes, as far as its image tells: our estimate, from images of 12 to 27 GB. */
static int64_t installed_size(int64_t image_size)
{
    return image_size + image_size / 2;
}

static int check_room(const struct macos_vm *vm, const char *what, int64_t to_download, int64_t image_size,
                      struct error *e)
{
    struct statvfs fs;
    char image[METER_SIZE], grown[METER_SIZE], need[METER_SIZE], has[METER_SIZE];

    if (RETRY_EINTR(fstatvfs(vm->dir, &fs)) < 0)
        return 0;
    int64_t available = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    int64_t needed = to_download + installed_size(image_size);

    if (available >= needed)
        return 0;
    meter_print_size(image, image_size);
    meter_print_size(grown, installed_size(image_size));
    meter_print_size(need, needed);
    meter_print_size(has, available);
    return error_set(
        e, ERROR_STORE_FULL, 0,
        "not enough room for %s: its image has %s, and installed it takes about %s; %s are needed%s, "
        "%s are free",
        what, image, grown, need, to_download > 0 ? "" : " besides the image", has);
}

/* --- image -------------------------------------------------------------------------------------------- */

static bool is_download(const struct facts *facts)
{
    const char *ipsw = facts_get(facts, "set.ipsw");

    return ipsw == NULL || strcmp(ipsw, "latest") == 0;
}

static int explain_none(const struct host *host, const struct catalog_image *newest, struct error *e)
{
    if (newest->version[0] == '\0')
        return error_set(e, ERROR_ACTION_FAILED, 0, "Apple's catalog has no image for virtual machines");
    return error_set(
        e, ERROR_ACTION_FAILED, 0,
        "Apple's catalog has macOS %s only, and a guest cannot be newer than its host, which has macOS %s: "
        "update this Mac, or pass an older image with --set ipsw=PATH",
        newest->version, host->version);
}

/* Decided before the download: the installer would refuse a newer one only at its end. */
static int choose_image(struct catalog_image *out, struct error *e)
{
    const char *other = getenv(CATALOG_VARIABLE);
    struct text catalog = { 0 };
    struct host host;

    if (host_read_system(HOST_MS, &host, e) < 0)
        return -1;
    int found = -1;

    if (http_get(other == NULL ? CATALOG_URL : other, CATALOG_MAX, CATALOG_MS, &catalog, e) == 0)
        found = catalog_choose(text_get(&catalog), catalog.size, host.version, out, e);
    text_done(&catalog);
    if (found < 0)
        return -1;
    return found == 1 ? 0 : explain_none(&host, out, e);
}

/* How large is it? Asked before anything is downloaded; -1 when the server does not tell. A download that
 * begins and finds no room in its middle would be an hour lost. */
static int64_t ask_size(const char *url)
{
    const struct http_request request = { .method = "HEAD",
                                          .url = url,
                                          .repeat = HTTP_REPEATABLE,
                                          .tries = 3,
                                          .deadline_ms = SIZE_MS,
                                          .stall_ms = STALL_MS };
    struct http_answer answer = { 0 };
    struct error ignored = { 0 }; /* the download itself has the better words */
    int64_t size = -1;
    struct http *http;

    if (http_open(&http, &ignored) < 0)
        return -1;
    if (http_request(http, &request, &answer, &ignored) == 0 && answer.status == 200)
        size = answer.size;
    http_answer_done(&answer);
    http_close(http);
    return size;
}

static void show_bytes(void *self, int64_t done, int64_t total)
{
    meter_set_bytes(self, done, total);
}

static int download(const struct macos_vm *vm, const struct catalog_image *image, struct meter *meter,
                    struct error *e)
{
    AUTO_CLOSE int file =
        openat(vm->dir, IMAGE, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat st;
    char sum[HTTP_SHA1_SIZE];
    const struct http_download d = { .url = image->url,
                                     .file = file,
                                     .sha1 = image->sha1,
                                     .stall_ms = STALL_MS,
                                     .give_up_ms = GIVE_UP_MS,
                                     .on_bytes = show_bytes,
                                     .self = meter };

    if (file < 0 || fstat(file, &st) < 0 || fchmod(file, 0600) < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot write '%s/" IMAGE "'", vm->path);
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERROR_ACTION_FAILED, 0, "'%s/" IMAGE "' is not a regular file", vm->path);
    return http_download(&d, sum, e);
}

static int get_latest(struct macos_vm *vm, struct step_context *c, struct error *e)
{
    struct meter meter;
    struct catalog_image image;
    char name[FACT_VALUE_SIZE], what[96];

    meter_begin(&meter, vm->dir, "Reading Apple's catalog of images");
    if (choose_image(&image, e) < 0)
        return -1;
    snprintf(name, sizeof(name), "%s (%s)", image.version, image.build);
    snprintf(what, sizeof(what), "macOS %s", image.version);
    write_log(vm, "downloading macOS %s from %s", name, image.url);
    int64_t size = ask_size(image.url);

    if (size > 0 && check_room(vm, what, size, size, e) < 0)
        return -1;
    snprintf(what, sizeof(what), "Downloading macOS %s", image.version);
    meter_begin(&meter, vm->dir, what);
    if (download(vm, &image, &meter, e) < 0)
        return -1;
    write_log(vm, "downloaded, and its SHA-1 is the published one");
    facts_set(c->outputs, "image", name);
    return 0;
}

static enum step_result step_image(void *self, struct step_context *c, struct error *e)
{
    struct macos_vm *vm = self;

    if (!is_download(c->facts))
        return STEP_DONE; /* used in place; whether it still is there shows when it is opened */
    return end_step(vm, get_latest(vm, c, e), e);
}

/* --- install ------------------------------------------------------------------------------------------ */

struct installing {
    struct meter meter;
    int sandbox_dir;
    char image[FACT_VALUE_SIZE]; /* as vmhost read it */
};

static void take_event(void *self, const struct vmhost_event *event)
{
    struct installing *i = self;
    char what[96];

    if (event->kind == VMHOST_IMAGE) {
        snprintf(i->image, sizeof(i->image), "%s (%s)", event->version, event->build);
        snprintf(what, sizeof(what), "Installing macOS %s", event->version);
        meter_begin(&i->meter, i->sandbox_dir, what);
    } else if (event->kind == VMHOST_PROGRESS) {
        meter_set_percent(&i->meter, (int64_t)(event->fraction * 100));
    }
}

/* Without links: the framework does not follow them. */
static char *resolve_image(const struct macos_vm *vm, const struct facts *facts, struct stat *st,
                           struct error *e)
{
    AUTO_FREE char *own = macos_print_path(vm, IMAGE);
    const char *path = is_download(facts) ? own : facts_get(facts, "set.ipsw");
    AUTO_FREE char *real = realpath(path, NULL);

    if (real == NULL || stat(real, st) < 0) {
        error_set(e, ERROR_ACTION_FAILED, errno, "the image '%s' is gone", path);
        return NULL;
    }
    return steal(&real);
}

static int run_installer(struct macos_vm *vm, const char *image, struct installing *installing,
                         struct error *e)
{
    static char verb[] = "install", at[] = "--vm", from[] = "--image", disk[] = "--disk-bytes",
                bytes[] = DISK_BYTES;
    char program[ROOT_PATH_MAX];
    AUTO_FREE char *dir = macos_print_path(vm, "vm");
    AUTO_FREE char *image_word = mem_copy_text(image);
    AUTO_CLOSE int log = open_log(vm);
    char *argv[] = { program, verb, at, dir, from, image_word, disk, bytes, NULL };
    const struct vmhost_job job = { .argv = argv,
                                    .op_lock = vm->place->op_lock,
                                    .log = log,
                                    .quiet_ms = QUIET_MS,
                                    .on_event = take_event,
                                    .self = installing };
    struct vmhost_event failure = { .kind = VMHOST_OTHER };
    struct error cause = { 0 };

    if (macos_find_program(vm, program, e) < 0)
        return -1;
    if (vmhost_run(&job, &failure, &cause) == 0)
        return 0;
    if (failure.kind == VMHOST_ERROR && cause.code != ERROR_TIMEOUT)
        return macos_fail(vm, &failure, e);
    *e = cause;
    return -1;
}

static int finish(struct macos_vm *vm, struct step_context *c, const struct installing *installing,
                  struct error *e)
{
    AUTO_CLOSE int vm_dir = macos_open_vm_dir(vm, e);
    char mac[18];

    if (vm_dir < 0 || macos_read_mac(vm_dir, mac, e) < 0)
        return -1;
    facts_set(c->outputs, "mac", mac);
    if (installing->image[0] != '\0')
        facts_set(c->outputs, "image", installing->image);
    if (is_download(c->facts) && unlinkat(vm->dir, IMAGE, 0) < 0 && errno != ENOENT)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot remove '%s/" IMAGE "'", vm->path);
    progress_remove(vm->dir);
    write_log(vm, "installed");
    return file_sync_dir(vm->dir, e);
}

static int install(struct macos_vm *vm, struct step_context *c, struct error *e)
{
    struct installing installing = { .sandbox_dir = vm->dir };
    struct stat st;
    AUTO_FREE char *image = resolve_image(vm, c->facts, &st, e);

    if (image == NULL || check_room(vm, "macOS", 0, st.st_size, e) < 0)
        return -1;
    meter_begin(&installing.meter, vm->dir, "Opening the image of macOS");
    write_log(vm, "installing %s", image);
    if (run_installer(vm, image, &installing, e) < 0)
        return -1;
    return finish(vm, c, &installing, e);
}

static enum step_result step_install(void *self, struct step_context *c, struct error *e)
{
    return end_step(self, install(self, c, e), e);
}

const struct step macos_create_steps[] = {
    { "prepare", step_prepare, false },
    { "image", step_image, false },
    { "install", step_install, false },
    { 0 },
};

/* --- an interruption ---------------------------------------------------------------------------------- */

static bool has_file(int dir, const char *name, struct stat *st)
{
    return fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st->st_mode);
}

/* In a clone there is nothing to add: its copy is there in one call, or hardly tells how far it came. */
void macos_explain_interruption(void *self, const struct facts *facts, char *out, size_t room)
{
    struct macos_vm *vm = self;
    struct error ignored = { 0 };
    struct progress progress = { .percent = -1, .total_bytes = -1 };
    struct stat st;
    char done[METER_SIZE], total[METER_SIZE];
    size_t said = strlen(out);

    if (facts_get(facts, "set.from") != NULL || macos_open_dir(vm, &ignored) != 1)
        return;
    out += said;
    room -= said;
    (void)progress_read(vm->place->root, vm->place->name, &progress);
    if (has_file(vm->dir, "vm/" MACOS_DISK, &st) && progress.percent >= 0) {
        snprintf(out, room, " when %d %% of macOS were installed", (int)progress.percent);
    } else if (has_file(vm->dir, "vm/" MACOS_DISK, &st)) {
        snprintf(out, room, " while macOS was being installed");
    } else if (has_file(vm->dir, IMAGE, &st)) {
        meter_print_size(done, st.st_size);
        meter_print_size(total, progress.total_bytes);
        snprintf(out, room, " after %s%s%s were downloaded", done, progress.total_bytes > 0 ? " of " : "",
                 progress.total_bytes > 0 ? total : "");
    }
}

#include "providers/macos/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/lock.h"
#include "core/text.h"
#include "providers/macos/files.h"
#include "providers/macos/host.h"
#include "providers/macos/plist.h"
#include "providers/macos/volumes.h"

#define LOCK_NAME    "macos.disk"
#define LOCK_WAIT_MS 30000 /* another one is open for some seconds */
#define TOOL_MS      60000 /* fsck, a slow disk, four tries a second apart: provider.sh */

#define BUSY_MS       5000 /* a VM that has just been stopped */
#define BUSY_PAUSE_NS 250000000

#define MOUNT_NAME "mount" /* below providers/macos/; one disk is open at a time */

struct session {
    const struct root *root;
    struct host_call call; /* its locks: that of the operation and ours */
    int lock;
    int home;                     /* providers/macos/ */
    const char *path;             /* of the disk image */
    char disk[VOLUMES_NAME_SIZE]; /* attached; "" not */
    bool tried;                   /* it may be attached and we do not know as what */
    bool mounted;
    char mount_point[ROOT_PATH_MAX];
};

/* ---- asking ---- */

static int run(const struct session *s, struct error *e, const char *verb, const char *first,
               const char *second)
{
    return host_call(&s->call, (const char *const[]){ verb, first, second, NULL }, NULL, e);
}

/* Asks for a property list; plist_close() it. */
static int ask(const struct session *s, const char *verb, const char *argument, struct plist **out,
               struct error *e)
{
    struct text answer = { 0 };
    int result = host_call(&s->call, (const char *const[]){ verb, argument, NULL }, &answer, e);

    if (result == 0)
        result = plist_open(text_get(&answer), answer.size, "the answer about the attached disks", out, e);
    text_done(&answer);
    return result;
}

/* ---- what others have left ---- */

static bool is_same_file(const char *a, const char *b)
{
    struct stat one, other;

    if (strcmp(a, b) == 0)
        return true;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* Is it a disk of any of our sandboxes? The names that tools give are without links. */
static bool is_below_root(const struct session *s, const char *path)
{
    AUTO_FREE char *real = realpath(s->root->path, NULL);
    size_t length = real == NULL ? 0 : strlen(real);

    return real != NULL && strncmp(path, real, length) == 0 &&
           strncmp(path + length, "/sandboxes/", strlen("/sandboxes/")) == 0;
}

static int release_entity(const struct session *s, struct plist_value entity, struct error *e)
{
    const char *mount_point = plist_text(plist_find(entity, "mount-point"));

    if (mount_point == NULL || mount_point[0] == '\0')
        return 0;
    if (!is_same_file(mount_point, s->mount_point))
        return error_set(e, ERROR_SANDBOX_BUSY, 0,
                         "somebody has mounted the guest's disk at '%s': eject it first", mount_point);
    return run(s, e, "unmount", mount_point, NULL);
}

/* A killed command's, unless it is mounted where people mount: that is somebody's who wants it. */
static int release_image(const struct session *s, struct plist_value image, struct error *e)
{
    struct plist_value entities = plist_find(image, "system-entities");
    char disk[VOLUMES_NAME_SIZE];

    for (size_t i = 0; i < plist_count(entities); i++)
        if (release_entity(s, plist_item(entities, i), e) < 0)
            return -1;
    if (!volumes_find_disk(entities, disk) && !volumes_find_device(entities, disk))
        return 0; /* nothing of it is attached any more */
    return run(s, e, "detach", disk, NULL);
}

/* Under the lock nobody of us has a disk open: whatever is attached was left behind. That of another sandbox
 * may have this one's UUIDs, so it goes too, but is not worth failing for. */
static int release_all(const struct session *s, struct error *e)
{
    struct plist *list = NULL;
    int result = ask(s, "attached", NULL, &list, e);
    struct plist_value images = { 0 };

    if (result < 0)
        return -1;
    images = plist_find(plist_root(list), "images");
    for (size_t i = 0; i < plist_count(images); i++) {
        struct plist_value image = plist_item(images, i);
        const char *path = plist_text(plist_find(image, "image-path"));

        if (path == NULL)
            continue;
        if (is_same_file(path, s->path))
            result = release_image(s, image, e) < 0 ? -1 : result;
        else if (is_below_root(s, path))
            (void)release_image(s, image, &(struct error){ 0 });
    }
    plist_close(list);
    return result;
}

/* ---- opening and closing ---- */

static void close_session(struct session *s)
{
    if (s->home >= 0)
        unlinkat(s->home, MOUNT_NAME, AT_REMOVEDIR);
    util_close_fd(&s->home);
    util_close_fd(&s->lock);
}

static int open_session(const struct root *root, int op_lock, const char *path, struct session *s,
                        struct error *e)
{
    int taken, length;

    *s = (struct session){ .root = root, .path = path, .lock = -1, .home = -1 };
    length = snprintf(s->mount_point, sizeof(s->mount_point), "%s/providers/macos/" MOUNT_NAME, root->path);
    if (length < 0 || length >= (int)sizeof(s->mount_point))
        return error_set(e, ERROR_INVALID_ARGS, 0, "the path of the state root is too long");
    s->home = files_open_home(root, e);
    if (s->home < 0)
        return -1;
    taken = lock_take(root->locks, LOCK_NAME, LOCK_EXCLUSIVE, LOCK_WAIT_MS, &s->lock, e);
    if (taken == 0)
        error_set(e, ERROR_SANDBOX_BUSY, 0, "another command has had a guest's disk open for %d s",
                  LOCK_WAIT_MS / 1000);
    if (taken <= 0) {
        util_close_fd(&s->home);
        return -1;
    }
    s->call = (struct host_call){
        .root = root, .locks = { s->lock, op_lock, -1 }, .timeout_ms = TOOL_MS, .log = -1
    };
    return 0;
}

static int attach_once(struct session *s, struct error *e)
{
    struct plist *answer = NULL;
    int result;

    s->tried = true;
    result = ask(s, "attach", s->path, &answer, e);
    if (result < 0) {
        s->tried = e->code != ERROR_SANDBOX_BUSY;
        return -1;
    }
    if (!volumes_find_disk(plist_find(plist_root(answer), "system-entities"), s->disk))
        result = error_set(e, ERROR_ACTION_FAILED, 0, "'%s' has no partition table", s->path);
    plist_close(answer);
    return result;
}

static int attach(struct session *s, struct error *e)
{
    int64_t end_ms = clock_mono_ms() + BUSY_MS;
    struct error busy = { 0 };

    while (attach_once(s, &busy) < 0) {
        if (busy.code != ERROR_SANDBOX_BUSY || clock_mono_ms() >= end_ms) {
            *e = busy;
            return -1;
        }
        busy = (struct error){ 0 };
        nanosleep(&(struct timespec){ .tv_nsec = BUSY_PAUSE_NS }, NULL);
    }
    return 0;
}

/* At a directory that nobody else may enter. */
static int mount_data(struct session *s, struct error *e)
{
    char volume[VOLUMES_NAME_SIZE];
    AUTO_CLOSE int below = -1;
    struct plist *list = NULL;
    int result = ask(s, "containers", NULL, &list, e);

    if (result < 0)
        return -1;
    result = volumes_find_data(plist_root(list), s->disk, volume, e);
    plist_close(list);
    if (result < 0)
        return -1;
    below = file_make_dir(s->home, MOUNT_NAME, 0700, e);
    if (below >= 0 && fchmod(below, 0700) < 0) /* an old one may be anything */
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot close the mount point to others");
    if (below < 0 || run(s, e, "mount-data", volume, s->mount_point) < 0)
        return -1;
    s->mounted = true;
    return 0;
}

/* As far as it was opened; the first failure counts, but all is tried. */
static int close_disk(const struct session *s, struct error *e)
{
    int result = 0;

    if (s->mounted)
        result = run(s, e, "unmount", s->mount_point, NULL);
    if (s->disk[0] != '\0')
        return run(s, e, "detach", s->disk, NULL) < 0 ? -1 : result;
    return s->tried ? release_all(s, e) : result;
}

/* ---- the host key ---- */

static int open_below(int dir, const char *name, struct error *e)
{
    int fd = file_open_dir(dir, name);

    if (fd < 0)
        return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open '%s' on the guest's Data volume",
                               name);
    return fd;
}

/* private/etc/ssh, never through a link: they would lead into the host. 1, 0 when there is no ssh, -1. */
static int open_ssh_dir(const struct session *s, int *out, struct error *e)
{
    AUTO_CLOSE int top = open_below(s->home, MOUNT_NAME, e);
    AUTO_CLOSE int private_dir = top < 0 ? -1 : open_below(top, "private", e);
    AUTO_CLOSE int etc = private_dir < 0 ? -1 : open_below(private_dir, "etc", e);

    if (etc < 0)
        return -1;
    *out = file_open_dir(etc, "ssh");
    if (*out < 0 && errno == ENOENT)
        return 0;
    return *out < 0
               ? error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot open the guest's private/etc/ssh")
               : 1;
}

static int fail_at_key(int sys, const char *name, struct error *e)
{
    error_set_errno(e, ERROR_ACTION_FAILED, sys, "cannot write the guest's '%s'", name);
    if (sys == EPERM) /* not EACCES: that is the sign of a refusal by the system's privacy settings */
        e->suggestion =
            "Allow this program to use removable volumes in System Settings > Privacy & Security > "
            "Files and Folders.";
    return -1;
}

/* -1 with errno. A file that its owner may not write is made writable: owners are ignored here, modes are
 * not. */
static int open_to_write(int dir, const char *name, int flags)
{
    const int how = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags;
    int fd = RETRY_EINTR(openat(dir, name, how, 0600));

    if (fd >= 0 || errno != EACCES || fchmodat(dir, name, 0600, AT_SYMLINK_NOFOLLOW) < 0)
        return fd;
    return RETRY_EINTR(openat(dir, name, how, 0600));
}

/* In place: that keeps the file's recorded owner, root, whom a new file would not have. */
static int rewrite(int dir, const char *name, int flags, const char *text, mode_t mode, struct error *e)
{
    AUTO_CLOSE int fd = open_to_write(dir, name, flags);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_at_key(errno, name, e);
    if (!S_ISREG(st.st_mode))
        return error_set(e, ERROR_ACTION_FAILED, 0, "the guest's '%s' is not a regular file", name);
    if (ftruncate(fd, 0) < 0 || file_write_all(fd, text, strlen(text)) < 0 || fchmod(fd, mode) < 0)
        return fail_at_key(errno, name, e);
    return file_sync_full(fd, e);
}

/* The guest makes them anew at the next connection. */
static int remove_other_keys(int dir, struct error *e)
{
    static const char *const names[] = { "ssh_host_rsa_key", "ssh_host_rsa_key.pub", "ssh_host_ecdsa_key",
                                         "ssh_host_ecdsa_key.pub" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (unlinkat(dir, names[i], 0) < 0 && errno != ENOENT)
            return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot remove the guest's '%s'", names[i]);
    return file_sync_full(dir, e);
}

static int write_key(const struct session *s, const struct keys_pair *key, bool *written, struct error *e)
{
    static const char name[] = "ssh_host_ed25519_key", public_name[] = "ssh_host_ed25519_key.pub";
    AUTO_CLOSE int dir = -1;
    struct stat st;
    int found = open_ssh_dir(s, &dir, e);

    if (found < 0)
        return -1;
    if (found == 1 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return error_set_errno(e, ERROR_ACTION_FAILED, errno, "cannot look at the guest's '%s'", name);
        found = 0;
    }
    *written = found == 1;
    if (found == 0)
        return 0;
    return rewrite(dir, name, 0, key->private_file, 0600, e) < 0 ||
                   rewrite(dir, public_name, O_CREAT, key->public_line, 0644, e) < 0 ||
                   remove_other_keys(dir, e) < 0
               ? -1
               : 0;
}

/* ---- the interface ---- */

int disk_write_host_key(const struct root *root, int op_lock, const char *disk_path,
                        const struct keys_pair *key, bool *written, struct error *e)
{
    struct session s;
    bool done = false;
    int result;

    if (open_session(root, op_lock, disk_path, &s, e) < 0)
        return -1;
    result = release_all(&s, e);
    if (result == 0)
        result = attach(&s, e);
    if (result == 0)
        result = mount_data(&s, e);
    if (result == 0)
        result = write_key(&s, key, &done, e);
    if (close_disk(&s, e) < 0) /* the first cause stands */
        result = -1;
    close_session(&s);
    if (result == 0)
        *written = done;
    return result;
}

int disk_release(const struct root *root, int op_lock, const char *disk_path, struct error *e)
{
    struct session s;
    int result;

    if (open_session(root, op_lock, disk_path, &s, e) < 0)
        return -1;
    result = release_all(&s, e);
    close_session(&s);
    return result;
}

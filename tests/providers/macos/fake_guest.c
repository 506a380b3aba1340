#include "tests/providers/macos/fake_guest.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "providers/macos/disk.h"
#include "providers/remote/exec.h"

struct fake_guest fake_guest;

struct ssh {
    char unused;
};

static struct ssh connection;

int ssh_open(const struct ssh_target *target, int deadline_ms, struct ssh **out, enum ssh_obstacle *why,
             struct error *e)
{
    struct fake_guest *g = &fake_guest;
    bool there = g->address != NULL && strcmp(g->address, target->address) == 0;

    g->connections++;
    g->pinned = target->known_blob != NULL;
    snprintf(g->user, sizeof(g->user), "%s", target->user);
    *why = there ? g->obstacle : SSH_SILENT;
    if (there && *why == SSH_NO_OBSTACLE && target->known_blob != NULL &&
        strcmp(target->known_blob, g->blob) != 0)
        *why = SSH_HOST_KEY;
    if (g->slow || *why == SSH_SILENT)
        clock_sleep_ms(g->slow ? deadline_ms : 1);
    *out = &connection;
    if (*why == SSH_NO_OBSTACLE && !g->slow)
        return 0;
    return error_set(e, *why == SSH_HOST_KEY ? ERROR_HOST_KEY_CHANGED : ERROR_ACTION_FAILED, 0,
                     "the fake guest has obstacle %d", (int)*why);
}

void ssh_close(struct ssh *s)
{
    (void)s;
}

const char *ssh_host_blob(const struct ssh *s)
{
    (void)s;
    return fake_guest.blob;
}

int ssh_capture(struct ssh *s, const char *command, const void *input, size_t input_size, size_t max,
                int deadline_ms, struct text *out, int *status, struct error *e)
{
    (void)s, (void)command, (void)input, (void)input_size, (void)max, (void)deadline_ms, (void)e;
    text_add_string(out, fake_guest.output);
    *status = fake_guest.status;
    return 0;
}

int remote_exec(struct ssh *s, const struct remote_file *files, size_t count,
                const struct exec_request *request, int64_t began_ms, struct exec_result *out,
                struct error *e)
{
    (void)s, (void)e;
    for (size_t i = 0; i < count && i < 2; i++)
        snprintf(fake_guest.files[i], sizeof(fake_guest.files[i]), "%s=%s", files[i].name, files[i].path);
    fake_guest.request = *request;
    fake_guest.began_ms = began_ms;
    *out = (struct exec_result){ .delivery = EXEC_FINISHED, .status_known = true, .status = 7 };
    return 0;
}

int disk_write_host_key(const struct root *root, int op_lock, const char *disk_path,
                        const struct keys_pair *key, bool *written, struct error *e)
{
    struct fake_guest *g = &fake_guest;

    (void)root, (void)op_lock;
    snprintf(g->disk_path, sizeof(g->disk_path), "%s", disk_path);
    if (g->disk_error != ERROR_NONE)
        return error_set(e, g->disk_error, 0, "the guest's disk is encrypted (FileVault)");
    *written = g->disk_has_key;
    if (*written)
        memcpy(g->disk_key, key->blob, sizeof(g->disk_key));
    return 0;
}

int disk_release(const struct root *root, int op_lock, const char *disk_path, struct error *e)
{
    (void)root, (void)op_lock, (void)disk_path, (void)e;
    fake_guest.releases++;
    return 0;
}

/* exec: a connection to the pinned guest, and the command over it (providers/remote/exec.h). */
#include "core/clock.h"
#include "providers/macos/guest.h"
#include "providers/macos/macos.h"
#include "providers/macos/share.h"

#define CONNECT_MS 10000

static int not_sent(struct exec_result *out, struct error *e)
{
    *out = (struct exec_result){ .delivery = EXEC_NOT_SENT };
    e->delivery = DELIVERY_NOT_DELIVERED;
    e->retry = RETRY_SAFE;
    return -1;
}

static int require_running(const struct macos_vm *vm, struct error *e)
{
    int running = macos_is_running(vm, e);

    if (running == 0)
        return error_set(e, ERROR_INVALID_STATE, 0, "'%s' is not running", vm->place->name);
    return running < 0 ? -1 : 0;
}

int macos_exec(void *self, const struct facts *facts, const struct exec_request *request,
               struct exec_result *out, struct error *e)
{
    struct macos_vm *vm = self;
    const struct ssh_cancel cancel = { request->signal_fd, request->signal, request->suspend };
    struct share_paths paths;
    struct remote_file files[SHARE_PROGRAMS_COUNT];
    struct ssh *s = NULL;
    size_t count;
    int64_t began_ms = clock_mono_ms();
    int connect_ms = request->timeout_ms < CONNECT_MS ? request->timeout_ms : CONNECT_MS;

    if (require_running(vm, e) < 0 || share_find_programs(vm, &paths, files, &count, e) < 0 ||
        guest_connect(vm, facts, connect_ms, &cancel, &s, e) < 0)
        return not_sent(out, e);
    int r = remote_exec(s, files, count, request, began_ms, out, e);

    ssh_close(s);
    return r;
}

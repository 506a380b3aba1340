#include "providers/macos/pin.h"

#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/log.h"
#include "core/mem.h"
#include "providers/macos/disk.h"

#define KNOWN_HOSTS "known_hosts"

void pin_publish(const struct macos_vm *vm, const char *blob)
{
    AUTO_FREE char *line = mem_print("%s ssh-ed25519 %s\n", vm->place->name, blob);
    struct error e = { 0 };

    if (file_replace(vm->dir, KNOWN_HOSTS, line, strlen(line), 0600, &e) < 0)
        log_debug("known_hosts of %s: %s", vm->place->name, e.message);
}

int pin_write(struct macos_vm *vm, struct facts *outputs, bool *written, struct error *e)
{
    AUTO_FREE char *disk = macos_print_path(vm, "vm/" MACOS_DISK);
    struct keys_pair key;
    int r = keys_generate("", &key, e); /* as the guest makes its own: without a comment */

    if (r == 0)
        r = disk_write_host_key(vm->place->root, vm->place->op_lock, disk, &key, written, e);
    if (r == 0 && *written) {
        facts_set(outputs, "hostkey", key.blob);
        pin_publish(vm, key.blob);
    }
    keys_forget(&key);
    return r;
}

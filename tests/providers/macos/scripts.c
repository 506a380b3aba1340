#include "tests/providers/macos/scripts.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"

static const struct {
    const char *tool, *body;
} usual[] = {
    { "uname", "echo Darwin" },
    { "sysctl", "case $2 in hw.optional.arm64) echo 1 ;; kern.hv_vmm_present) echo 0 ;;\n"
                "*) echo \"sysctl: unknown oid '$2'\" >&2; exit 1 ;; esac" },
    { "sw_vers", "echo 15.6.1" },
    { "xcode-select", "echo /Library/Developer/CommandLineTools" },
    { "xcrun", "echo /Library/Developer/CommandLineTools/usr/bin/$2" },
    /* a program that can be run, and answers vmhost's "check" */
    { "swiftc", "while [ $# -gt 1 ]; do case $1 in -o) out=$2 ;; esac; shift; done\n"
                "[ -s \"$1\" ] || { echo \"error: no such file: '$1'\" >&2; exit 1; }\n"
                "echo \"compiling $1\"\n"
                "printf '#!/bin/sh\\necho %s\\n' "
                "\"'{\\\"time\\\":1,\\\"event\\\":\\\"check\\\",\\\"supported\\\":true}'\" >\"$out\"\n"
                "chmod 755 \"$out\"" },
    /* a signature is a last line with the sum of all before it */
    { "codesign",
      "for file; do :; done\n"
      "case $1 in\n"
      "--verify) [ \"$(tail -n 1 \"$file\")\" = \"# signed $(sed '$d' \"$file\" | cksum)\" ] && exit\n"
      "  echo \"$file: code object is not signed at all\" >&2; exit 1 ;;\n"
      "--display) sed -n 's/^# entitlement //p' \"$file\" ;;\n"
      "--force) case $* in *--entitlements*) sed -n 's/.*<key>/# entitlement /p' \"$5\" >>\"$file\" ;; esac\n"
      "  echo \"# signed $(cksum <\"$file\")\" >>\"$file\" ;;\n"
      "esac" },
};

static char *path_of(const struct scripts *s, const char *folder, const char *name)
{
    return mem_print("%s/%s/%s", s->scratch->path, folder, name);
}

static void set_environment(struct scripts *s)
{
    AUTO_FREE char *bin = path_of(s, "bin", ""), *mac = path_of(s, "mac", ""), *root = path_of(s, "root", "");

    s->old_path = mem_copy_text(getenv("PATH"));
    AUTO_FREE char *path = mem_print("%s:%s", bin, s->old_path);

    if (setenv("PATH", path, 1) < 0 || setenv("MAC", mac, 1) < 0 || setenv("ROOT", root, 1) < 0 ||
        setenv("AGENT_DESKTOP_HOME", root, 1) < 0 || unsetenv("AGENT_DESKTOP_DHCPD_LEASES") < 0)
        abort();
}

int scripts_setup(void **state)
{
    struct scripts *s = mem_alloc(sizeof(*s));
    struct error e = { 0 };

    if (scratch_setup((void **)&s->scratch) != 0 || mkdirat(s->scratch->dir, "bin", 0755) < 0 ||
        mkdirat(s->scratch->dir, "mac", 0755) < 0)
        return -1;
    *state = s;
    set_environment(s);
    for (size_t i = 0; i < ARRAY_LEN(usual); i++)
        scripts_set(s, usual[i].tool, usual[i].body);
    return root_open(ROOT_WRITE, &s->root, &e);
}

int scripts_teardown(void **state)
{
    struct scripts *s = *state;
    void *scratch = s->scratch;

    root_close(&s->root);
    setenv("PATH", s->old_path, 1);
    free(s->old_path);
    free(s);
    return scratch_teardown(&scratch);
}

void scripts_set(const struct scripts *s, const char *tool, const char *body)
{
    AUTO_FREE char *name = mem_print("bin/%s", tool), *text = mem_print("#!/bin/sh\n%s\n", body);

    scratch_write(s->scratch, name, text);
    if (fchmodat(s->scratch->dir, name, 0755, 0) < 0)
        abort();
}

void scripts_remove(const struct scripts *s, const char *tool)
{
    AUTO_FREE char *name = mem_print("bin/%s", tool);

    if (unlinkat(s->scratch->dir, name, 0) < 0)
        abort();
}

void scripts_write(const struct scripts *s, const char *name, const char *content)
{
    AUTO_FREE char *path = mem_print("mac/%s", name);

    scratch_write(s->scratch, path, content);
}

char *scripts_read(const struct scripts *s, const char *name)
{
    AUTO_FREE char *path = path_of(s, "mac", name);
    struct error e = { 0 };
    char *bytes = NULL;
    size_t size;

    return file_read(AT_FDCWD, path, 1 << 20, &bytes, &size, &e) == 1 ? bytes : NULL;
}

bool scripts_has(const struct scripts *s, const char *name)
{
    AUTO_FREE char *path = mem_print("mac/%s", name);

    return scratch_exists(s->scratch, path);
}

int scripts_shell(const struct scripts *s, const char *command)
{
    AUTO_FREE char *line = mem_print("cd '%s/mac' && { %s; }", s->scratch->path, command);
    int status = system(line); /* NOLINT(cert-env33-c): a test's own words */

    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int scripts_count_files(const struct scripts *s)
{
    return scripts_shell(s, "exit $(find \"$ROOT\" -mindepth 1 | wc -l)");
}

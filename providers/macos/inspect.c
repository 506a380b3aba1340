#include "providers/macos/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/text.h"
#include "providers/macos/files.h"
#include "providers/macos/host.h"

#define LIMIT_MS  2000 /* provider_ops.inspect_host */
#define SYSTEM_MS 1800 /* of it, for what is always asked; usual are 20 */

#define OLDEST_MACOS 13 /* VZMacKeyboard..., the automount tag: R-401 */

struct inspection {
    const struct root *root;
    int64_t end_ms;
    struct host host;
    bool built[MACOS_BUILT_COUNT]; /* and not proven to be damaged */
    bool unfit;                    /* nothing that a person could install helps */
    const char *fix;
    struct text message;
};

static void add_finding(struct inspection *i, const char *sentence)
{
    text_print(&i->message, "%s%s", i->message.size > 0 ? " " : "", sentence);
}

static void add_obstacle(struct inspection *i, const char *sentence)
{
    i->unfit = true;
    add_finding(i, sentence);
}

static int left_ms(const struct inspection *i)
{
    int64_t left = i->end_ms - clock_mono_ms();

    return left > 1 ? (int)left : 1;
}

/* ---- the machine ---- */

static void look_at_version(struct inspection *i)
{
    char sentence[160];

    if (strtol(i->host.version, NULL, 10) >= OLDEST_MACOS)
        return;
    snprintf(sentence, sizeof(sentence), "This Mac runs macOS %s; macOS guests need macOS %d or later.",
             i->host.version[0] != '\0' ? i->host.version : "of an unknown version", OLDEST_MACOS);
    add_obstacle(i, sentence);
}

static void look_at_machine(struct inspection *i)
{
    char sentence[128];

    if (strcmp(i->host.system, "Darwin") != 0) {
        snprintf(sentence, sizeof(sentence), "macOS guests run only on a Mac with Apple silicon; this is %s.",
                 i->host.system);
        add_obstacle(i, sentence);
        return;
    }
    if (!i->host.apple_silicon)
        add_obstacle(i, "This Mac has an Intel processor; macOS guests need Apple silicon.");
    if (i->host.virtual_machine)
        add_obstacle(i, "This Mac is a virtual machine itself, and those cannot run macOS guests.");
    look_at_version(i);
}

/* ---- what is built ---- */

static bool is_good(const struct inspection *i, enum macos_built which)
{
    char path[ROOT_PATH_MAX];

    if (!files_is_built(i->root, which))
        return false;
    files_built_path(i->root, which, path);
    return !host_is_broken(path, -1, left_ms(i));
}

static const struct {
    const char *sentence;
    const char *fix;
} tools_findings[] = {
    [HOST_TOOLS_READY] = { NULL, NULL },
    [HOST_TOOLS_ABSENT] = { "The Xcode Command Line Tools, which have the compiler, are not installed.",
                            "xcode-select --install" },
    [HOST_TOOLS_STALE] = { "The developer directory is stale, as an upgrade of macOS leaves it: it no longer "
                           "has "
                           "a compiler.",
                           "xcode-select --install" },
    [HOST_TOOLS_LICENCE] = { "Xcode's licence is not accepted, and without that its compiler refuses to "
                             "work.",
                             "sudo xcodebuild -license accept" },
    [HOST_TOOLS_UNKNOWN] = { NULL, NULL }, /* the build will tell */
};
_Static_assert(ARRAY_LEN(tools_findings) == HOST_TOOLS_COUNT, "each has a row");

static void ask_for_tools(struct inspection *i)
{
    if (host_read_tools(left_ms(i), &i->host.tools, &(struct error){ 0 }) < 0)
        i->host.tools = HOST_TOOLS_UNKNOWN;
    if (tools_findings[i->host.tools].sentence == NULL)
        return;
    add_finding(i, tools_findings[i->host.tools].sentence);
    i->fix = tools_findings[i->host.tools].fix;
}

static void describe_ready(struct inspection *i)
{
    char sentence[128];

    snprintf(sentence, sizeof(sentence), "This Mac (macOS %s) can run macOS guests.", i->host.version);
    add_finding(i, sentence);
}

static enum fsm_provider_state look_at_builds(struct inspection *i)
{
    for (enum macos_built which = 0; which < MACOS_BUILT_COUNT; which++)
        i->built[which] = is_good(i, which);
    if (i->built[BUILT_VMHOST] && i->built[BUILT_HELPER]) {
        describe_ready(i);
        return PROVIDER_READY;
    }
    if (!i->built[BUILT_VMHOST])
        add_finding(i, files_is_built(i->root, BUILT_VMHOST) ? "The signature of the VM host is broken."
                                                             : "The VM host is not built yet.");
    else
        add_finding(i, "The guests' helper agent-desktop-macos-helper is not built yet.");
    ask_for_tools(i);
    if (i->fix == NULL)
        return PROVIDER_MISSING;
    /* What is built needs no compiler: guests can be started, cloned and stopped without. */
    return i->built[BUILT_VMHOST] ? PROVIDER_READY : PROVIDER_UNAVAILABLE;
}

/* ---- all of it ---- */

/* PROVIDER_NONE with *e when the host did not answer in time: that proves nothing. */
static enum fsm_provider_state look(struct inspection *i, struct error *e)
{
    struct error cause = { 0 };

    if (host_read_system(SYSTEM_MS, &i->host, &cause) < 0) {
        if (cause.code == ERROR_TIMEOUT) {
            error_set(e, ERROR_TIMEOUT, 0, "this host could not be looked at: %s", cause.message);
            return PROVIDER_NONE;
        }
        text_print(&i->message, "This host could not be looked at: %s.", cause.message);
        return PROVIDER_UNAVAILABLE;
    }
    look_at_machine(i);
    if (i->unfit)
        return PROVIDER_UNAVAILABLE;
    return look_at_builds(i);
}

int macos_inspect_host(const struct root *root, struct provider_host_report *out, struct error *e)
{
    struct inspection i = { .root = root, .end_ms = clock_mono_ms() + LIMIT_MS };

    out->state = look(&i, e);
    snprintf(out->message, sizeof(out->message), "%s", text_get(&i.message));
    snprintf(out->fix, sizeof(out->fix), "%s",
             i.fix != NULL && out->state == PROVIDER_UNAVAILABLE ? i.fix : "");
    text_done(&i.message);
    return out->state == PROVIDER_NONE ? -1 : 0;
}

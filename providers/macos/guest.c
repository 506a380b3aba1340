#include "providers/macos/guest.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "providers/macos/host.h"
#include "providers/macos/leases.h"

#define SSH_PORT     22
#define LEASES_MAX   (4 * 1024 * 1024) /* 256 bytes for each guest that there ever was */
#define ARP_MS       2500
#define OUTPUT_MAX   (64 * 1024)
#define NOT_FOUND    127 /* what shells exit with when there is no such program, and when it cannot be run */
#define NOT_RUNNABLE 126

/* The same to every login shell. */
#define ASK_PERMISSIONS "~/.local/bin/agent-desktop-macos-helper permissions"

/* --- where it is -------------------------------------------------------------------------------------- */

struct place { /* where a guest may be */
    char address[46];
    bool live, shared;
};

static bool read_mac(const struct facts *facts, uint8_t out[6])
{
    const char *mac = facts_get(facts, "mac");

    return mac != NULL && lease_parse_mac(mac, out);
}

static bool find_lease(const struct facts *facts, struct lease *out)
{
    const char *path = facts_get(facts, "leases");
    AUTO_FREE char *bytes = NULL;
    struct error ignored = { 0 };
    uint8_t mac[6];
    size_t size;

    if (path == NULL || !read_mac(facts, mac) ||
        file_read(AT_FDCWD, path, LEASES_MAX, &bytes, &size, &ignored) != 1)
        return false;
    return lease_find(bytes, size, mac, clock_wall_ms() / 1000, out);
}

bool guest_find_neighbour(const char *table, const uint8_t mac[6], char out[46])
{
    for (const char *line = table; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        char address[46], hardware[18];
        unsigned char binary[16];
        uint8_t found[6];
        int end = 0; /* of the whole line: a torn one may lack digits */

        /* arp(8): "? (192.168.64.7) at 6e:5:0:a1:b2:c3 on bridge100 ifscope [bridge]" */
        if (sscanf(line, "%*[^\n (] (%45[^)\n]) at %17[0-9a-fA-F:] on %n", address, hardware, &end) == 2 &&
            end > 0 && lease_parse_mac(hardware, found) && memcmp(found, mac, sizeof(found)) == 0 &&
            inet_pton(AF_INET, address, binary) == 1) {
            memcpy(out, address, sizeof(address));
            return true;
        }
    }
    return false;
}

static bool find_neighbour(const struct macos_vm *vm, const struct facts *facts, int deadline_ms,
                           char out[46])
{
    struct text table = { 0 };
    struct error ignored = { 0 };
    uint8_t mac[6];
    bool found;

    if (!read_mac(facts, mac) || deadline_ms < ARP_MS)
        return false;
    found = host_run(vm->place->root, -1, ARP_MS, &table, &ignored, "arp", NULL) == 0 &&
            guest_find_neighbour(text_get(&table), mac, out);
    text_done(&table);
    return found;
}

/* The live lease counts; then where it was when it last answered; then a lease that has expired, which by now
 * may be somebody else's: the pinned key decides. */
static void find_place(const struct macos_vm *vm, const struct facts *facts, int deadline_ms, bool thorough,
                       struct place *out)
{
    const char *known = facts_get(facts, "address");
    struct lease lease;
    bool leased = find_lease(facts, &lease);

    *out = (struct place){ .live = false };
    if (leased && (lease.live || known == NULL)) {
        memcpy(out->address, lease.address, sizeof(out->address));
        out->live = lease.live && !lease.shared;
        out->shared = lease.shared;
    } else if (known != NULL) {
        snprintf(out->address, sizeof(out->address), "%s", known);
    } else if (thorough) {
        (void)find_neighbour(vm, facts, deadline_ms, out->address);
    }
}

/* --- what it says ------------------------------------------------------------------------------------- */

static enum guest_state read_state(const char *line, size_t size)
{
    static const struct {
        const char *name;
        enum guest_state state;
    } states[] = { { "granted", GUEST_READY }, { "missing", GUEST_NOT_ALLOWED }, { "stale", GUEST_STALE } };
    AUTO_JSON struct json *j = NULL;
    struct error ignored = { 0 };

    if (size == 0 || line[0] != '{' || json_parse(line, size, "line", ERROR_INTERNAL, &j, &ignored) < 0)
        return GUEST_UNTOLD;
    const char *state = json_get_string(j, "state");

    for (size_t i = 0; state != NULL && i < ARRAY_LEN(states); i++)
        if (strcmp(state, states[i].name) == 0)
            return states[i].state;
    return GUEST_UNTOLD;
}

enum guest_state guest_read_permissions(const char *output, size_t size)
{
    enum guest_state found = GUEST_UNTOLD;

    for (size_t at = 0; at < size;) {
        const char *newline = memchr(output + at, '\n', size - at);
        size_t length = newline == NULL ? size - at : (size_t)(newline - output) - at;
        size_t end = length > 0 && output[at + length - 1] == '\r' ? length - 1 : length;
        enum guest_state state = read_state(output + at, end);

        if (state != GUEST_UNTOLD)
            found = state;
        at += length + 1;
    }
    return found;
}

static int time_left(int64_t end_ms)
{
    int64_t left = end_ms - clock_mono_ms();

    return left > 1 ? (int)left : 1;
}

static enum guest_state ask_permissions(struct ssh *s, int64_t end_ms, struct error *trouble)
{
    struct text output = { 0 };
    int status = -1;
    enum guest_state state = GUEST_UNTOLD;

    if (ssh_capture(s, ASK_PERMISSIONS, NULL, 0, OUTPUT_MAX, time_left(end_ms), &output, &status, trouble) ==
        0)
        state = guest_read_permissions(text_get(&output), output.size);
    if (state == GUEST_UNTOLD && (status == NOT_FOUND || status == NOT_RUNNABLE))
        state = GUEST_NO_HELPER;
    text_done(&output);
    return state;
}

/* --- looking ------------------------------------------------------------------------------------------ */

static enum guest_state state_of(enum ssh_obstacle why)
{
    static const enum guest_state states[] = {
        [SSH_NO_OBSTACLE] = GUEST_SILENT, [SSH_SILENT] = GUEST_SILENT,   [SSH_NO_ROUTE] = GUEST_NO_ROUTE,
        [SSH_REFUSED] = GUEST_REFUSED,    [SSH_NOT_SSH] = GUEST_SILENT,  [SSH_HOST_KEY] = GUEST_HOST_KEY,
        [SSH_LOGIN] = GUEST_NO_LOGIN,     [SSH_LOCAL] = GUEST_OUR_FAULT,
    };

    return states[why];
}

/* Trust on first use is for a guest that was never set up. */
static bool find_pin(const struct facts *facts, const char **blob)
{
    *blob = facts_get(facts, "hostkey");
    return *blob != NULL || !macos_is_set_up(facts);
}

static int open_at(struct macos_vm *vm, const struct facts *facts, const char *address, int deadline_ms,
                   const struct ssh_cancel *cancel, struct ssh **out, enum ssh_obstacle *why, struct error *e)
{
    const char *user = facts_get(facts, "user");
    struct ssh_target target = { .address = address, .port = SSH_PORT, .user = user, .key_file = MACOS_KEY };

    *why = SSH_LOCAL;
    if (macos_open_dir(vm, e) != 1)
        return error_set(e, ERROR_ACTION_FAILED, 0, "'%s' is gone", vm->path);
    if (user == NULL)
        return error_set(e, ERROR_ACTION_FAILED, 0, "the guest's account is not recorded");
    target.key_dir = vm->dir;
    target.cancel = cancel;
    if (!find_pin(facts, &target.known_blob)) {
        *why = SSH_HOST_KEY;
        return error_set(e, ERROR_HOST_KEY_CHANGED, 0,
                         "no host key is pinned: stop the sandbox and start it");
    }
    return ssh_open(&target, deadline_ms, out, why, e);
}

void guest_look(struct macos_vm *vm, const struct facts *facts, int deadline_ms, bool thorough,
                struct guest_view *out)
{
    int64_t end_ms = clock_mono_ms() + deadline_ms;
    enum ssh_obstacle why = SSH_NO_OBSTACLE;
    struct ssh *s = NULL;
    struct place place;

    *out = (struct guest_view){ .state = GUEST_NO_ADDRESS };
    find_place(vm, facts, deadline_ms, thorough, &place);
    if (place.address[0] == '\0')
        return;
    memcpy(out->address, place.address, sizeof(out->address));
    out->live = place.live;
    out->shared = place.shared;
    if (open_at(vm, facts, place.address, time_left(end_ms), NULL, &s, &why, &out->trouble) < 0) {
        out->state = state_of(why);
        return;
    }
    snprintf(out->blob, sizeof(out->blob), "%s", ssh_host_blob(s));
    out->state = ask_permissions(s, end_ms, &out->trouble);
    ssh_close(s);
}

int guest_connect(struct macos_vm *vm, const struct facts *facts, int deadline_ms,
                  const struct ssh_cancel *cancel, struct ssh **out, struct error *e)
{
    int64_t end_ms = clock_mono_ms() + deadline_ms;
    const char *known = facts_get(facts, "address");
    enum ssh_obstacle why = SSH_NO_OBSTACLE;
    struct place place;
    struct error first = { 0 }, second = { 0 };

    find_place(vm, facts, deadline_ms, true, &place);
    if (place.address[0] == '\0')
        return error_set(e, ERROR_ACTION_FAILED, 0, "the guest of '%s' has no address", vm->place->name);
    bool elsewhere = known != NULL && strcmp(known, place.address) != 0;

    /* Half of the time is for the other place. */
    if (open_at(vm, facts, place.address, time_left(end_ms) / (elsewhere ? 2 : 1), cancel, out, &why,
                &first) == 0)
        return 0;
    if (elsewhere && why != SSH_LOGIN && why != SSH_LOCAL &&
        open_at(vm, facts, known, time_left(end_ms), cancel, out, &why, &second) == 0)
        return 0;
    *e = second.code != ERROR_NONE && why == SSH_LOCAL ? second : first; /* interrupted, say */
    return -1;
}

/* --- telling ------------------------------------------------------------------------------------------ */

enum step_bit {
    STEP_SCRIPT = 1,
    STEP_LOGIN = 2,
    STEP_ALLOW = 4,
    STEP_ALLOW_AGAIN = 8,
    STEPS_ALL = STEP_SCRIPT | STEP_LOGIN | STEP_ALLOW
};

static const struct row {
    unsigned steps; /* left to the person, as far as this state tells */
    bool lacks;     /* proof, that a part of the setup is missing */
    const char *trouble;
} rows[] = {
    [GUEST_NO_ADDRESS] = { STEPS_ALL, false, "its guest has no address yet" },
    [GUEST_SILENT] = { STEPS_ALL, false, "its guest does not answer over SSH" },
    [GUEST_NO_ROUTE] = { STEPS_ALL, false,
                         "there is no route to its guest; macOS 15 and later want the Local Network "
                         "permission for "
                         "whatever runs agent-desktop (System Settings > Privacy & Security > Local "
                         "Network)" },
    [GUEST_REFUSED] = { STEPS_ALL, true, "Remote Login is off in its guest" },
    [GUEST_HOST_KEY] = { 0, false,
                         "what answers at its guest's address has not the pinned host key, and is not "
                         "trusted" },
    [GUEST_NO_LOGIN] = { STEP_SCRIPT | STEP_ALLOW, true, "its guest does not let the sandbox's key in" },
    [GUEST_OUR_FAULT] = { 0, false, NULL },
    [GUEST_NO_HELPER] = { STEP_SCRIPT | STEP_ALLOW, false,
                          "agent-desktop-macos-helper is missing in its guest" },
    [GUEST_UNTOLD] = { STEP_ALLOW, false, "its guest did not tell whether Accessibility is allowed" },
    [GUEST_NOT_ALLOWED] = { STEP_ALLOW, true,
                            "Accessibility is not allowed for sshd-keygen-wrapper in its guest" },
    [GUEST_STALE] = { STEP_ALLOW_AGAIN, true,
                      "Accessibility is allowed in its guest, but refused all the same" },
    [GUEST_READY] = { 0, false, "" },
};
_Static_assert(ARRAY_LEN(rows) == GUEST_STATE_COUNT, "each state of a guest has its words");

static const struct {
    unsigned step;
    const char *text;
    bool names_account;
} step_texts[] = {
    { STEP_SCRIPT, "run guest-setup.sh from '/Volumes/My Shared Files' in Terminal", true },
    { STEP_LOGIN, "turn on Remote Login (System Settings > General > Sharing)", false },
    { STEP_ALLOW, "allow sshd-keygen-wrapper (Privacy & Security > Accessibility)", false },
    { STEP_ALLOW_AGAIN, "remove sshd-keygen-wrapper from Privacy & Security > Accessibility and add it again",
      false },
};

bool guest_lets_in(const struct guest_view *view)
{
    return view->state >= GUEST_NO_HELPER;
}

/* A closed port proves something only if the address is the guest's. */
bool guest_lacks_setup(const struct guest_view *view)
{
    return rows[view->state].lacks && (view->state != GUEST_REFUSED || view->live);
}

void guest_print_trouble(const struct guest_view *view, const struct facts *facts, char *out, size_t room)
{
    const char *trouble = rows[view->state].trouble;
    const char *user = facts_get(facts, "user");
    int size = snprintf(out, room, "%s", trouble == NULL ? view->trouble.message : trouble);
    size_t used = size < 0 ? 0 : (size_t)size < room ? (size_t)size : room - 1;

    if (view->state == GUEST_NO_LOGIN && user != NULL)
        snprintf(out + used, room - used, " as '%s'", user);
    else if (view->shared)
        snprintf(out + used, room - used, "%s%s is leased to another guest too", used == 0 ? "" : "; ",
                 view->address);
}

static bool has_window(const struct facts *facts)
{
    return facts_get(facts, "set.window") != NULL;
}

static void print_steps(unsigned steps, const char *user, struct text *out)
{
    const char *before = "in its window, ";

    for (size_t i = 0; i < ARRAY_LEN(step_texts); i++) {
        if ((steps & step_texts[i].step) == 0)
            continue;
        steps &= ~step_texts[i].step;
        text_add_string(out, before);
        text_add_string(out, step_texts[i].text);
        if (step_texts[i].names_account && user != NULL)
            text_print(out, " as '%s'", user);
        before = steps == 0 ? "" : (steps & (steps - 1)) == 0 ? ", and " : ", ";
    }
}

void guest_print_steps(const struct guest_view *view, const struct facts *facts, char *out, size_t room)
{
    const char *user = facts_get(facts, "user");
    unsigned steps = rows[view->state].steps;
    struct text said = { 0 };
    char trouble[512];

    guest_print_trouble(view, facts, trouble, sizeof(trouble));
    if (!has_window(facts)) {
        text_print(&said, "%s%sstop it and start it: its window opens then, to repeat the setup", trouble,
                   trouble[0] == '\0' ? "" : "; ");
    } else if (steps == 0) {
        text_add_string(&said, trouble);
    } else {
        print_steps(steps, user, &said);
        if (view->state == GUEST_NO_ROUTE)
            text_print(&said, "; %s", trouble);
    }
    text_clean(out, room, text_get(&said), said.size);
    text_done(&said);
}

/* providers/macos/guest.h - the guest as the host sees it: its address, whether it lets us in, what it may.
 *
 * Nothing here changes anything, on either side. What only time can tell (no answer, no route) proves
 * nothing: see guest_lacks_setup(). */
#ifndef PROVIDERS_MACOS_GUEST_H
#define PROVIDERS_MACOS_GUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "providers/macos/macos.h"
#include "providers/remote/ssh.h"

enum guest_state {
    GUEST_NO_ADDRESS, /* no lease (yet) */
    GUEST_SILENT,
    GUEST_NO_ROUTE,
    GUEST_REFUSED,  /* nothing listens at the port: Remote Login is off, if that is the guest's address */
    GUEST_HOST_KEY, /* another host key than the pinned one, or none is pinned that should be */
    GUEST_NO_LOGIN,
    GUEST_OUR_FAULT, /* see trouble */
    /* From here on it let us in. */
    GUEST_NO_HELPER,
    GUEST_UNTOLD,      /* what it may was not to be found out */
    GUEST_NOT_ALLOWED, /* Accessibility */
    GUEST_STALE,       /* allowed, and refused all the same */
    GUEST_READY,
    GUEST_STATE_COUNT
};

struct guest_view {
    enum guest_state state;
    char address[46];          /* "" none */
    bool live;                 /* it is the address of a live lease that nobody shares */
    bool shared;               /* somebody else has a live lease of the same address */
    char blob[KEYS_BLOB_SIZE]; /* the host key it let us in with */
    struct error trouble;      /* of what was tried */
};

/* Never longer than DEADLINE_MS. THOROUGH: where there is no lease the host's neighbours are asked, which can
 * take two seconds. */
void guest_look(struct macos_vm *vm, const struct facts *facts, int deadline_ms, bool thorough,
                struct guest_view *out);

bool guest_lets_in(const struct guest_view *view);

/* Is it proven that a part of the setup is missing? */
bool guest_lacks_setup(const struct guest_view *view);

/* Clauses for a person: what is wrong, "" for nothing; and what is left to be done in the guest's window, or
 * how to come to one. FACTS: user, setup, set.window. */
void guest_print_trouble(const struct guest_view *view, const struct facts *facts, char *out, size_t room);
void guest_print_steps(const struct guest_view *view, const struct facts *facts, char *out, size_t room);

/* For exec: a connection to the pinned guest; first where its lease says it is, then where it was. */
int guest_connect(struct macos_vm *vm, const struct facts *facts, int deadline_ms,
                  const struct ssh_cancel *cancel, struct ssh **out, struct error *e);

/* The address that `arp -an` shows for MAC; false when there is none. */
bool guest_find_neighbour(const char *table, const uint8_t mac[6], char out[46]);

/* What the helper said, wherever in OUTPUT its line stands; GUEST_UNTOLD when it is not there. */
enum guest_state guest_read_permissions(const char *output, size_t size);

#endif

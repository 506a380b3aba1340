/* tests/providers/vercel/fake_service.h - the service as a test says, in place of api.h, which the linker
 * finds here first. One thread at a time, but for listings. A look tells the session's status, a listing the
 * sandbox's own, which is coarse: running, stopping or stopped, as the service's schema has it. */
#ifndef TESTS_PROVIDERS_VERCEL_FAKE_SERVICE_H
#define TESTS_PROVIDERS_VERCEL_FAKE_SERVICE_H

#include <stdatomic.h>

#include "providers/vercel/api.h"

#define FAKE_MAX        128
#define FAKE_EXPIRES_MS 1796047500000 /* 2026-11-30T14:05:00Z */

enum fake_fate { /* of one create or fork */
                 FATE_OK = 0,
                 FATE_LOST_BEFORE, /* nothing came back, and nothing was done */
                 FATE_LOST_AFTER,  /* nothing came back, but it was done */
                 FATE_LOST_LATE,   /* nothing came back, and it is done two looks later */
                 FATE_NOT_SENT,
                 FATE_REFUSED
};

struct fake_service {
    struct hosted boxes[FAKE_MAX];
    size_t count;
    enum fake_fate fates[8];      /* of the requests to make one, in turn */
    enum fake_fate stop_fates[8]; /* of those to stop one: OK, LOST, NOT_SENT; REFUSED: not for now */
    const char *says;             /* why it refuses; NULL: a reason of its own */
    enum fake_fate delete_fate;   /* as of stop_fates */
    bool vanishes;                /* what is pending is deleted at the second look */
    int unseen;                   /* looks that are answered by somebody who knows of nothing yet */
    int late;                     /* looks until what is under way appears; 0: nothing is */
    struct hosted coming;
    int pending; /* looks for which a new session is pending */
    int ending;  /* looks for which a session that was asked to stop is snapshotting */
    bool has_no_project;
    bool fails_to_boot, has_no_wrapper, snapshot_is_gone;
    int probes_lost;
    enum error_code trouble; /* of every look but the first CALM; ERROR_NONE: none */
    int calm;
    int tags; /* of each sandbox, beside its colour */
    bool lists_untagged_only;
    size_t page; /* sandboxes in one of a listing; 0: all */
    int list_ms; /* how long each half of a listing takes */

    int makings, looks, resumes, stops, deletions, runs; /* requests */
    atomic_int listings, pages;
    int deadline_ms; /* of the last look */
    int sessions;
    char source[HOSTED_NAME_SIZE]; /* of the last fork */
    char *body;                    /* of the last request to make one; freed by fake_reset() */
};

extern struct fake_service fake;

void fake_reset(void);

struct hosted *fake_add(const char *name, const char *tag, enum hosted_status status);
struct hosted *fake_find(const char *name); /* NULL when there is none */

#endif

/* tools/desktop/snapshots.h - what the refs of the last snapshots mean: snapshots/<id>.json in the state
 * root of the machine this runs on. A file is written whole or not at all, and never changed. */
#ifndef TOOLS_DESKTOP_SNAPSHOTS_H
#define TOOLS_DESKTOP_SNAPSHOTS_H

#include "core/error.h"
#include "tools/desktop/ref.h"

struct json;

void snapshots_new_id(char id[REF_SNAPSHOT_SIZE]); /* random */

/* Keeps RECORD, and forgets all but the newest DESKTOP_SNAPSHOTS_MAX. */
int snapshots_save(const char *id, const struct json *record, struct error *e);

/* 1 with *record; 0 when there is none (any more), or what is there is not readable; -1. */
int snapshots_load(const char *id, struct json **record, struct error *e);

#endif

/* tools/desktop/ref.h - the name of one element of one snapshot: "@<snapshot_id>:e<number>". */
#ifndef TOOLS_DESKTOP_REF_H
#define TOOLS_DESKTOP_REF_H

#include <stddef.h>

#include "core/error.h"

#define REF_SNAPSHOT_SIZE 9 /* 8 lowercase hex digits and a NUL */
#define REF_SIZE          32

struct ref {
    char snapshot[REF_SNAPSHOT_SIZE];
    size_t number; /* from 1 */
};

/* INVALID_ARGS unless TEXT is a qualified ref and nothing else. */
int ref_parse(const char *text, struct ref *out, struct error *e);
void ref_format(const struct ref *ref, char out[REF_SIZE]);

#endif

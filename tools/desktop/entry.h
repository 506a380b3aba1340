/* tools/desktop/entry.h - .desktop files, as far as starting an application needs them.
 *
 * Desktop Entry Specification 1.5: the group [Desktop Entry], its Exec line unquoted and with the field
 * codes taken out, since no files or URLs are opened through it. */
#ifndef TOOLS_DESKTOP_ENTRY_H
#define TOOLS_DESKTOP_ENTRY_H

#include <stdbool.h>
#include <stddef.h>

struct entry {   /* entry_done() when done; { 0 } is empty */
    char *name;  /* untranslated */
    char **argv; /* ends with NULL */
    size_t argc; /* at least 1 */
};

/* false when the bytes do not describe an application that can be started: another type, hidden, no or a
 * malformed Exec line. */
bool entry_parse(const char *bytes, struct entry *out);
void entry_done(struct entry *entry);

#endif

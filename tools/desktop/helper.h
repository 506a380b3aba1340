/* tools/desktop/helper.h - the program that drives a Mac's desktop in this program's place.
 *
 * agent-desktop-macos-helper, when it lies beside the file of this program (looked for at each call, on every
 * system). It answers `launch` and `snapshot` with the envelopes of this program and becomes this process, so
 * that its output and exit status are the command's own, and what macOS permits to this process is permitted
 * to it. */
#ifndef TOOLS_DESKTOP_HELPER_H
#define TOOLS_DESKTOP_HELPER_H

#include "core/error.h"

#define HELPER_NAME "agent-desktop-macos-helper"

struct desktop_launch;
struct desktop_snapshot;

/* Both return only when there is no helper (0) or when it is there and cannot be executed (-1). */
int helper_launch(const struct desktop_launch *options, struct error *e);
int helper_snapshot(const struct desktop_snapshot *options, struct error *e);

#endif

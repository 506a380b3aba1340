/* core/log.h - lines for whoever debugs this program, on stderr, when AGENT_DESKTOP_DEBUG is set. */
#ifndef CORE_LOG_H
#define CORE_LOG_H

#include "core/util.h"

void log_debug(const char *format, ...) PRINTF_LIKE(1, 2); /* never a secret */

#endif

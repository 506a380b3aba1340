/* fsm/install.h - provider installs: the second table, run by the same engine.
 *
 * The host is asked each time, and what it shows (SEEN) decides between unavailable, missing and ready; the
 * journal holds what only installs know: that one is under way, or that the last one failed and why. Its
 * record is named "@PROVIDER", its lock locks/@PROVIDER.op. A provider that never builds anything has no
 * record. */
#ifndef FSM_INSTALL_H
#define FSM_INSTALL_H

#include "fsm/engine.h"

struct install_look {
    enum fsm_provider_state state; /* the record's, led on by what the host shows */
    enum fsm_provider_state recorded;
    struct journal_record record;
};

/* SUBJECT's name is "@PROVIDER". An install whose owner is gone is broken, and recorded as that when
 * MAY_RECORD; *wants_record (may be NULL) tells a caller who may not that there would be something to record.
 */
int install_look(const struct engine *engine, const struct engine_subject *subject,
                 enum fsm_provider_event seen, bool may_record, struct install_look *out, bool *wants_record,
                 struct error *e);

/* The whole install, by a caller who holds the op lock and has looked: LOOK is missing or broken. As
 * engine_run(). */
int install_run(const struct engine *engine, const struct engine_subject *subject,
                enum fsm_provider_event seen, const struct engine_request *request, struct install_look *look,
                struct error *e);

#endif

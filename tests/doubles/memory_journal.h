/* tests/doubles/memory_journal.h - a journal in memory: journal_ops over a few records, folded by
 * journal_fold().
 *
 * Fails the n-th commit on demand, before or after it took effect, as a process that died there would see it.
 */
#ifndef TESTS_DOUBLES_MEMORY_JOURNAL_H
#define TESTS_DOUBLES_MEMORY_JOURNAL_H

#include "core/journal.h"

#define MEMORY_RECORDS 4
#define MEMORY_ENTRIES 256

enum memory_fault { FAULT_NONE, FAULT_BEFORE_COMMIT, FAULT_AFTER_COMMIT };

struct memory_entry { /* what tests look at */
    enum journal_kind kind;
    char name[JOURNAL_NAME_SIZE];
    char what[64]; /* op: command; move: "event from>to"; step: "phase step"; end: code; refused: event */
};

struct memory_journal { /* { 0 } is an empty one */
    struct journal_record records[MEMORY_RECORDS];
    size_t record_count;
    struct memory_entry entries[MEMORY_ENTRIES];
    size_t entry_count;
    int commits; /* that took effect */
    int calls;
    int fail_at; /* the number of the commit call that fails; 0: none */
    enum memory_fault fault;
    bool full;       /* only what ends something is taken */
    int64_t boot_ms; /* time the next entries carry; the fake host moves it on */
    const char *boot_id;
    struct process_id self;
};

extern const struct journal_ops memory_journal_ops; /* self: struct memory_journal * */

#endif

/* The decoders against libFuzzer: build with clang and -DAD_FUZZ=ON, run with -rss_limit_mb=256. The check in
 * front is set right, or nothing would get past it. */
#include <stdlib.h>
#include <string.h>

#include "store/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct record_entry entry;
    static struct journal_record fold;
    static struct record_head head;
    uint64_t check = chain_check(data, size);
    uint8_t *stored = malloc(RECORD_CHECK_SIZE + size);

    if (stored == NULL)
        return -1;
    for (int i = RECORD_CHECK_SIZE - 1; i >= 0; i--, check >>= 8)
        stored[i] = (uint8_t)check;
    memcpy(stored + RECORD_CHECK_SIZE, data, size);
    (void)record_unpack_entry(stored, RECORD_CHECK_SIZE + size, &entry);
    (void)record_unpack_fold(stored, RECORD_CHECK_SIZE + size, &fold);
    (void)record_unpack_head(stored, RECORD_CHECK_SIZE + size, &head);
    free(stored);
    return 0;
}

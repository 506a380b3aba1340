/* vmhost's lines against libFuzzer: build with clang and -DAD_FUZZ=ON, run with the corpus in
 * corpus/vmhost_event. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "providers/macos/vmhost.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vmhost_event event;
    char *line = malloc(size > 0 ? size : 1); /* of its size: no byte behind it may be read */

    if (line == NULL)
        return -1;
    memcpy(line, data, size);
    vmhost_parse_event(line, size, &event);
    free(line);
    assert(event.fraction >= 0 && event.fraction <= 1);
    assert(event.pid == 0 || event.pid > 1);
    assert(memchr(event.message, '\0', sizeof(event.message)) != NULL);
    assert(memchr(event.problem, '\0', sizeof(event.problem)) != NULL);
    return 0;
}

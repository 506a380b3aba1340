/* The reader of a command's stream against libFuzzer: build with clang and -DAD_FUZZ=ON, run on corpus/ndjson
 * with -rss_limit_mb=512. The first byte says how the rest is cut into pieces; what comes out must not depend
 * on it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text.h"
#include "providers/vercel/ndjson.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth)
{
    if (!truth)
        abort();
}

static int note_event(void *self, const struct ndjson_event *event, struct error *e)
{
    struct text *seen = self;

    (void)e;
    text_print(seen, "%d %s %d %d %d %s %s ", event->kind, event->id != NULL ? event->id : "-", event->ended,
               event->status, event->stream, event->code, event->message);
    if (event->kind == NDJSON_OUTPUT) {
        check(event->bytes != NULL && text_is_utf8(event->bytes, event->size));
        text_add(seen, event->bytes, event->size);
    }
    check(!event->ended || (event->kind == NDJSON_COMMAND && event->status >= 0 && event->status <= 255));
    check(text_is_utf8(event->message, strlen(event->message)) &&
          text_is_utf8(event->code, strlen(event->code)));
    check(strcasestr(event->code, "secret") == NULL && strcasestr(event->message, "secret") == NULL);
    return 0;
}

static int read_pieces(const char *bytes, size_t size, size_t piece, struct text *seen)
{
    struct ndjson *n = ndjson_new("secret");
    struct error e = { 0 };
    int r = 0;

    for (size_t at = 0; r == 0 && at < size; at += piece)
        r = ndjson_feed(n, bytes + at, size - at < piece ? size - at : piece, note_event, seen, &e);
    if (r == 0)
        r = ndjson_end(n, note_event, seen, &e);
    check((r < 0) == (e.code != ERROR_NONE));
    text_print(seen, "%s", e.message);
    ndjson_free(n);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text whole = { 0 }, cut = { 0 };

    if (size == 0)
        return 0;
    check(read_pieces((const char *)data + 1, size - 1, size, &whole) ==
          read_pieces((const char *)data + 1, size - 1, (size_t)data[0] % 17 + 1, &cut));
    check(whole.size == cut.size && memcmp(text_get(&whole), text_get(&cut), cut.size) == 0);
    text_done(&whole);
    text_done(&cut);
    return 0;
}

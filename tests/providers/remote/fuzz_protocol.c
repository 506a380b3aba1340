/* What the runner reads, what the host reads, and the command line for a copy, against libFuzzer: build with
 * clang and -DAD_FUZZ=ON, run with -max_len=4096 on corpus/protocol. The first byte chooses one of the three.
 */
#include <stdlib.h>
#include <string.h>

#include "providers/remote/protocol.h"
#include "providers/remote/sync.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* What is understood is packed as it came. */
static void unpack(const uint8_t *data, size_t size)
{
    struct protocol_request r;
    struct text again = { 0 };
    unsigned version;
    size_t rest;

    if (size < PROTOCOL_HEAD_SIZE || !protocol_unpack_head(data, &r, &version, &rest))
        return;
    if (protocol_unpack_rest(data + PROTOCOL_HEAD_SIZE, size - PROTOCOL_HEAD_SIZE, &r)) {
        char *word = r.words;

        for (uint32_t i = 0; i < r.word_count; i++)
            word += strlen(word) + 1;
        check(word == r.words + r.words_size);
        protocol_pack(&r, &again);
        /* but for the version, the size in the head, and a true that is not 1 */
        check(again.size == size &&
              memcmp(again.bytes + PROTOCOL_HEAD_SIZE, data + PROTOCOL_HEAD_SIZE, 12) == 0 &&
              memcmp(again.bytes + PROTOCOL_HEAD_SIZE + 13, data + PROTOCOL_HEAD_SIZE + 13,
                     size - PROTOCOL_HEAD_SIZE - 13) == 0);
    }
    protocol_done(&r);
    text_done(&again);
}

/* The text of the stream, and in *MARKS one line for each mark, when it comes in pieces of SIZE. */
static void scan(const struct mark_scanner *s, const uint8_t *stream, size_t size, size_t piece,
                 struct text *text, struct text *marks)
{
    uint8_t left[PROTOCOL_MARK_SIZE] = { 0 };
    size_t left_size = 0;

    for (size_t at = 0; at < size; at += piece) {
        size_t n = piece < size - at ? piece : size - at, done = 0;
        uint8_t *bytes = malloc(left_size + n);
        struct mark m = { .kind = MARK_END };

        check(bytes != NULL);
        memcpy(bytes, left, left_size);
        memcpy(bytes + left_size, stream + at, n);
        n += left_size;
        while (m.kind != MARK_NONE) {
            size_t plain = mark_scanner_look(s, bytes + done, n - done, &m);

            text_add(text, (const char *)bytes + done, plain);
            done += plain;
            if (m.kind == MARK_NONE)
                break;
            text_print(marks, "%d %u\n", (int)m.kind, m.value);
            done += PROTOCOL_MARK_SIZE;
            check(done <= n);
        }
        left_size = n - done;
        check(left_size < PROTOCOL_MARK_SIZE);
        memcpy(left, bytes + done, left_size);
        free(bytes);
    }
    text_add(text, (const char *)left, left_size);
}

/* However it is cut, the same is found. */
static void look_for_marks(const uint8_t *data, size_t size)
{
    struct text whole = { 0 }, whole_marks = { 0 }, pieces = { 0 }, piece_marks = { 0 };
    struct mark_scanner s;

    if (size < PROTOCOL_NONCE_SIZE + 1)
        return;
    mark_scanner_init(&s, data + 1);
    data += PROTOCOL_NONCE_SIZE + 1, size -= PROTOCOL_NONCE_SIZE + 1;
    scan(&s, data, size, size + 1, &whole, &whole_marks);
    scan(&s, data, size, data[-PROTOCOL_NONCE_SIZE - 1] % 97 + 1u, &pieces, &piece_marks);
    check(whole.size == pieces.size && memcmp(text_get(&whole), text_get(&pieces), whole.size) == 0);
    check(strcmp(text_get(&whole_marks), text_get(&piece_marks)) == 0);
    text_done(&whole);
    text_done(&whole_marks);
    text_done(&pieces);
    text_done(&piece_marks);
}

/* One quoted word that no shell takes apart. */
static void print_command(const uint8_t *data, size_t size)
{
    static const char usual[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
    char name[PROTOCOL_NAME_SIZE] = "x";
    struct text command = { 0 };

    for (size_t i = 0; i < size && i < sizeof(name) - 2; i++)
        name[i + 1] = usual[data[i] % (sizeof(usual) - 1)];
    sync_print_command(&command, name, "00112233445566778899aabbccddeeff00112233", "0123456789abcdef");
    const char *begin = strchr(command.bytes, '\'');

    check(begin != NULL && strchr(begin + 1, '\'') == command.bytes + command.size - 1);
    check(strpbrk(command.bytes, "\\!\n\r`") == NULL);
    text_done(&command);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const targets[])(const uint8_t *, size_t) = { unpack, look_for_marks, print_command };

    if (size > 0)
        targets[data[0] % ARRAY_LEN(targets)](data + 1, size - 1);
    return 0;
}

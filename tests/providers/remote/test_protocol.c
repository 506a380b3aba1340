#include "providers/remote/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/mem.h"

/* --- the header ----------------------------------------------------------------------------------------- */

static const char words[] = "a word\0\0-x\0\n";

static struct protocol_request make_request(void)
{
    struct protocol_request r = { .rendezvous = 0x0123456789abcdef,
                                  .timeout_ms = 300000,
                                  .own_binary = true,
                                  .file_count = 2,
                                  .word_count = 4,
                                  .words_size = sizeof(words) };

    memset(r.nonce, 0xa5, sizeof(r.nonce));
    snprintf(r.files[0].name, sizeof(r.files[0].name), "agent-desktop");
    snprintf(r.files[1].name, sizeof(r.files[1].name), "helper-1.2");
    memset(r.files[1].sha1, 7, sizeof(r.files[1].sha1));
    r.words = (char *)(uintptr_t)words;
    return r;
}

static bool unpack(const struct text *packed, struct protocol_request *out)
{
    unsigned version = 0;
    size_t rest = 0;

    return packed->size >= PROTOCOL_HEAD_SIZE &&
           protocol_unpack_head((const uint8_t *)packed->bytes, out, &version, &rest) &&
           version == PROTOCOL_VERSION && rest == packed->size - PROTOCOL_HEAD_SIZE &&
           protocol_unpack_rest((const uint8_t *)packed->bytes + PROTOCOL_HEAD_SIZE, rest, out);
}

static void test_protocol__a_request_arrives_as_it_was(void **state)
{
    struct protocol_request r = make_request(), got = { .words = NULL };
    struct text packed = { 0 };

    (void)state;
    protocol_pack(&r, &packed);
    assert_true(unpack(&packed, &got));
    assert_memory_equal(got.nonce, r.nonce, sizeof(r.nonce));
    assert_true(got.rendezvous == r.rendezvous && got.timeout_ms == r.timeout_ms && got.own_binary);
    assert_int_equal(got.file_count, 2);
    assert_string_equal(got.files[1].name, "helper-1.2");
    assert_memory_equal(got.files[1].sha1, r.files[1].sha1, HASH_SHA1_SIZE);
    assert_int_equal(got.word_count, 4);
    assert_int_equal(got.words_size, sizeof(words));
    assert_memory_equal(got.words, words, sizeof(words));
    protocol_done(&got);
    text_done(&packed);
}

static void test_protocol__a_request_that_is_cut_anywhere_is_none(void **state)
{
    struct protocol_request r = make_request(), got = { .words = NULL };
    struct text packed = { 0 };

    (void)state;
    protocol_pack(&r, &packed);
    for (size_t size = 0; size < packed.size - PROTOCOL_HEAD_SIZE; size++) {
        uint8_t *rest = mem_alloc(size + 1); /* of its own, so that the sanitizer sees a look behind it */

        memcpy(rest, packed.bytes + PROTOCOL_HEAD_SIZE, size);
        if (protocol_unpack_rest(rest, size, &got))
            fail_msg("%zu bytes were enough", size);
        protocol_done(&got);
        free(rest);
    }
    text_done(&packed);
}

/* The word count is checked against the words, and names cannot leave the runner's directory. */
static void test_protocol__a_request_that_makes_no_sense_is_none(void **state)
{
    static const char *const names[] = { "", "..", ".hidden", "-x", "a/b", "a b", "a;b", "a'b", "\xff" };
    struct protocol_request r, got = { .words = NULL };
    struct text packed = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        r = make_request();
        snprintf(r.files[1].name, sizeof(r.files[1].name), "%s", names[i]);
        packed.size = 0;
        protocol_pack(&r, &packed);
        assert_false(unpack(&packed, &got));
        protocol_done(&got);
    }
    for (uint32_t count = 0; count < 10; count++) {
        r = make_request();
        r.word_count = count;
        packed.size = 0;
        protocol_pack(&r, &packed);
        assert_int_equal(unpack(&packed, &got), count == 4);
        protocol_done(&got);
    }
    r = make_request();
    r.words_size--; /* without the last NUL */
    packed.size = 0;
    protocol_pack(&r, &packed);
    assert_false(unpack(&packed, &got));
    protocol_done(&got);
    packed.bytes[0] ^= 1;
    assert_false(unpack(&packed, &got));
    text_done(&packed);
}

/* an old runner in the guest must be able to say that it is old. */
static void test_protocol__every_version_finds_the_nonce(void **state)
{
    struct protocol_request r = make_request(), got = { .words = NULL };
    struct text packed = { 0 };
    unsigned version;
    size_t rest;

    (void)state;
    protocol_pack(&r, &packed);
    packed.bytes[9] = 77;
    assert_true(protocol_unpack_head((const uint8_t *)packed.bytes, &got, &version, &rest));
    assert_int_equal(version, 77);
    assert_memory_equal(got.nonce, r.nonce, sizeof(r.nonce));
    assert_int_equal(rest, packed.size - PROTOCOL_HEAD_SIZE);
    text_done(&packed);
}

static void test_protocol__a_status_is_an_exit_status_or_a_signal(void **state)
{
    (void)state;
    for (int i = 0; i < 256; i++) {
        assert_int_equal(protocol_exit_status(protocol_status(i, 0)), i);
        assert_int_equal(protocol_signal(protocol_status(i, 0)), 0);
    }
    for (int i = 1; i < 65; i++) {
        assert_int_equal(protocol_signal(protocol_status(0, i)), i);
        assert_int_equal(protocol_exit_status(protocol_status(0, i)), 0);
    }
}

/* --- marks ---------------------------------------------------------------------------------------------- */

/* What came out of a stream: its text, and for each mark its kind and value. */
struct found {
    struct text text, marks;
    uint8_t left[PROTOCOL_MARK_SIZE];
    size_t left_size;
};

/* As exec.c does it, but each piece lies in memory of just its size. */
static void take_piece(const struct mark_scanner *s, const uint8_t *bytes, size_t size, struct found *f)
{
    size_t left = f->left_size + size, at = 0;
    uint8_t *piece = mem_alloc(left + 1);

    memcpy(piece, f->left, f->left_size);
    memcpy(piece + f->left_size, bytes, size);
    for (;;) {
        struct mark m;
        size_t text = mark_scanner_look(s, piece + at, left - at, &m);

        text_add(&f->text, (const char *)piece + at, text);
        at += text;
        if (m.kind == MARK_NONE)
            break;
        text_print(&f->marks, "%d:%u@%zu ", (int)m.kind, m.value, f->text.size);
        at += PROTOCOL_MARK_SIZE;
    }
    assert_true(left - at < PROTOCOL_MARK_SIZE);
    f->left_size = left - at;
    memcpy(f->left, piece + at, f->left_size);
    free(piece);
}

static void take_all(const struct mark_scanner *s, const struct text *stream, size_t piece, struct found *f)
{
    for (size_t at = 0; at < stream->size; at += piece)
        take_piece(s, (const uint8_t *)stream->bytes + at,
                   piece < stream->size - at ? piece : stream->size - at, f);
    text_add(&f->text, (const char *)f->left, f->left_size);
}

static void add_mark(struct text *stream, const uint8_t *nonce, enum mark_kind kind, uint32_t value)
{
    uint8_t bytes[PROTOCOL_MARK_SIZE];

    protocol_print_mark(bytes, nonce, (struct mark){ kind, value });
    text_add(stream, (const char *)bytes, sizeof(bytes));
}

/* With beginnings of marks in front of marks, and whole ones side by side. */
static void check_stream(const uint8_t nonce[PROTOCOL_NONCE_SIZE])
{
    struct text stream = { 0 }, text = { 0 };
    struct mark_scanner s;

    mark_scanner_init(&s, nonce);
    text_add(&stream, "noise", 5);
    add_mark(&stream, nonce, MARK_BEGIN, 1);
    text_add(&stream, (const char *)nonce, PROTOCOL_NONCE_SIZE - 1);
    add_mark(&stream, nonce, MARK_DONE, 0xfedcba98);
    add_mark(&stream, nonce, MARK_END, 0);
    text_add(&stream, (const char *)nonce, 1);
    text_add(&stream, (const char *)nonce, PROTOCOL_NONCE_SIZE / 2);
    text_add(&text, "noise", 5);
    text_add(&text, (const char *)nonce, PROTOCOL_NONCE_SIZE - 1);
    text_add(&text, (const char *)nonce, 1);
    text_add(&text, (const char *)nonce, PROTOCOL_NONCE_SIZE / 2);
    for (size_t piece = 1; piece <= stream.size; piece++) {
        struct found f = { .left_size = 0 };

        take_all(&s, &stream, piece, &f);
        assert_string_equal(text_get(&f.marks), "1:1@5 4:4275878552@68 3:0@68 ");
        assert_int_equal(f.text.size, text.size);
        assert_memory_equal(f.text.bytes, text.bytes, text.size);
        text_done(&f.text);
        text_done(&f.marks);
    }
    text_done(&stream);
    text_done(&text);
}

static void test_protocol__marks_are_found_however_the_stream_is_cut(void **state)
{
    uint8_t nonce[PROTOCOL_NONCE_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(nonce); i++)
        nonce[i] = (uint8_t)(i * 37 + 11);
    check_stream(nonce);
    for (size_t i = 0; i < sizeof(nonce); i++)
        nonce[i] = (uint8_t)("abab"[i % 4] + (i == 40));
    check_stream(nonce);
}

static void test_protocol__a_stream_of_anything_is_text(void **state)
{
    struct text stream = { 0 };
    struct found f = { .left_size = 0 };
    uint8_t nonce[PROTOCOL_NONCE_SIZE];
    struct mark_scanner s;

    (void)state;
    memset(nonce, 0, sizeof(nonce));
    nonce[PROTOCOL_NONCE_SIZE - 1] = 1;
    mark_scanner_init(&s, nonce);
    for (int i = 0; i < 100000; i++)
        text_add(&stream, &(char){ (char)(i % 251 == 0) }, 1);
    for (size_t i = 250; i < stream.size; i += 251)
        stream.bytes[i] = 2; /* or the nonce would be in it */
    take_all(&s, &stream, 999, &f);
    assert_int_equal(f.text.size, stream.size);
    text_done(&stream);
    text_done(&f.text);
    text_done(&f.marks);
}

/* A terminal shows each prompt at once, although a mark could begin with any byte. */
static void test_protocol__text_is_held_back_only_when_a_mark_may_have_begun(void **state)
{
    uint8_t nonce[PROTOCOL_NONCE_SIZE] = "prompt> and so on, but other bytes than what is asked for";
    struct mark_scanner s;
    struct mark m;

    (void)state;
    mark_scanner_init(&s, nonce);
    assert_int_equal(mark_scanner_look(&s, (const uint8_t *)"$ ", 2, &m), 2);
    assert_int_equal(mark_scanner_look(&s, (const uint8_t *)"your name: ", 11, &m), 11);
    assert_int_equal(mark_scanner_look(&s, (const uint8_t *)"the prompt", 10, &m), 4);
    assert_int_equal(m.kind, MARK_NONE);
    assert_int_equal(mark_scanner_look(&s, (const uint8_t *)"", 0, &m), 0);
}

static void test_protocol__the_socket_has_a_place_of_its_own(void **state)
{
    char path[PROTOCOL_PATH_SIZE];

    (void)state;
    protocol_print_path(path, 0xabc);
    assert_string_equal(path, "/tmp/agent-desktop-0000000000000abc");
    protocol_print_path(path, UINT64_MAX);
    assert_string_equal(path, "/tmp/agent-desktop-ffffffffffffffff");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_protocol__a_request_arrives_as_it_was),
        cmocka_unit_test(test_protocol__a_request_that_is_cut_anywhere_is_none),
        cmocka_unit_test(test_protocol__a_request_that_makes_no_sense_is_none),
        cmocka_unit_test(test_protocol__every_version_finds_the_nonce),
        cmocka_unit_test(test_protocol__a_status_is_an_exit_status_or_a_signal),
        cmocka_unit_test(test_protocol__marks_are_found_however_the_stream_is_cut),
        cmocka_unit_test(test_protocol__a_stream_of_anything_is_text),
        cmocka_unit_test(test_protocol__text_is_held_back_only_when_a_mark_may_have_begun),
        cmocka_unit_test(test_protocol__the_socket_has_a_place_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Stored bytes: what is packed is read back, and nothing else is accepted. */
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/mem.h"
#include "core/util.h"
#include "store/record.h"

/* Every member set to something of its own. */
static void fill_entry(struct record_entry *r)
{
    struct journal_entry *e = &r->entry;

    memset(r, 0, offsetof(struct record_entry, facts));
    r->facts.count = 0;
    facts_set(&r->facts, "address", "10.0.0.7");
    facts_set(&r->facts, "gone", "");
    r->version = RECORD_VERSION;
    for (int i = 0; i < CHAIN_HASH_SIZE; i++)
        r->prev[i] = (uint8_t)(i * 7);
    *e = (struct journal_entry){
        .seq = 12345678901,
        .time_ms = 1790000000123,
        .boot = "b0071d00-0000-4000-8000-000000000001",
        .mono_ms = 86400000,
        .kind = JOURNAL_EXEC,
        .name = "demo",
        .id = "00112233445566aa",
        .provider = "linux",
        .op = "8899aabbccddeeff",
        .actor_pid = 4321,
        .actor_uid = 1000,
        .actor_start = 987654,
        .actor_version = "0.1.0",
        .command = "start",
        .options = "--window",
        .token = "0f0f0f0f0f0f0f0f",
        .event = "guest_ready",
        .from = "working",
        .to = "running",
        .activity = "starting",
        .reason = "it answers, \xc3\xbc\n",
        .step = "boot",
        .phase = "done",
        .attempt = 2,
        .code = "TIMEOUT",
        .message = "too slow",
        .word = "sh",
        .argc = 3,
        .bytes = 70000,
        .status = 0,
        .signal = 15,
        .unknown = true,
        .duration_ms = -5,
        .state = "stopped",
        .facts = &r->facts,
    };
}

static void fill_fold(struct journal_record *r)
{
    journal_record_init(r, "demo");
    strcpy(r->id, "00112233445566aa");
    strcpy(r->provider, "linux");
    strcpy(r->state, "working");
    strcpy(r->activity, "starting");
    strcpy(r->reason, "asked");
    strcpy(r->token, "0f0f0f0f0f0f0f0f");
    strcpy(r->op, "8899aabbccddeeff");
    strcpy(r->command, "start");
    r->owner.pid = 4321;
    r->owner.start = UINT64_MAX;
    strcpy(r->owner.boot, "b0071d00-0000-4000-8000-000000000001");
    strcpy(r->refused, "remove");
    r->seq = 77;
    r->created_ms = 1790000000000;
    r->moved_ms = 1790000000123;
    r->moved_boot_ms = 86400000;
    strcpy(r->moved_boot, "b0071d00-0000-4000-8000-000000000002");
    facts_set(&r->facts, "address", "10.0.0.7");
    facts_set(&r->facts, "user", "me");
}

static void fill_head(struct record_head *h)
{
    *h = (struct record_head){ .version = 1,
                               .seq = 77,
                               .transaction = 40,
                               .sandbox_count = 3,
                               .sandbox_seqs = 200,
                               .created_ms = 1790000000000 };
    memset(h->hash, 0xa5, sizeof(h->hash));
}

static void pack_entry(const struct record_entry *r, struct text *out)
{
    struct error e = { 0 };

    assert_int_equal(record_pack_entry(r, out, &e), 0);
}

/* --- there and back ------------------------------------------------------------------------------------ */

static void check_member(const struct record_member *m, const void *a, const void *b)
{
    const char *fa = (const char *)a + m->offset, *fb = (const char *)b + m->offset;

    switch (m->type) {
    case RECORD_UINT:
    case RECORD_INT:
    case RECORD_STATUS:
        assert_memory_equal(fa, fb, sizeof(int64_t));
        break;
    case RECORD_KIND:
        assert_int_equal(*(const enum journal_kind *)fa, *(const enum journal_kind *)fb);
        break;
    case RECORD_BOOL:
        assert_int_equal(*(const bool *)fa, *(const bool *)fb);
        break;
    case RECORD_TEXT:
        assert_string_equal(*(const char *const *)fa, *(const char *const *)fb);
        break;
    case RECORD_FACTS_LENT:
        assert_int_equal((*(const struct facts *const *)fa)->count,
                         (*(const struct facts *const *)fb)->count);
        break;
    case RECORD_GROUP:
        for (size_t i = 0; i < m->group_count; i++)
            check_member(&m->group[i], a, b);
        break;
    case RECORD_VERSION_MARK:
    case RECORD_PID:
    case RECORD_CHARS:
    case RECORD_HASH:
    case RECORD_FACTS:
    case RECORD_TYPE_COUNT:
        fail_msg("'%s' is of a type that no entry has", m->key);
    }
}

static void test_record__every_member_of_an_entry_comes_back(void **state)
{
    AUTO_FREE struct record_entry *in = mem_alloc(sizeof(*in));
    AUTO_FREE struct record_entry *out = mem_alloc(sizeof(*out));
    struct text bytes = { 0 };

    (void)state;
    fill_entry(in);
    pack_entry(in, &bytes);
    assert_true(record_unpack_entry(bytes.bytes, bytes.size, out));
    for (size_t i = 0; i < record_entry_member_count; i++)
        check_member(&record_entry_members[i], in, out);
    assert_memory_equal(in->prev, out->prev, CHAIN_HASH_SIZE);
    assert_string_equal(facts_get(out->entry.facts, "address"), "10.0.0.7");
    assert_string_equal(facts_get(out->entry.facts, "gone"), ""); /* "remove it" must survive */
    text_done(&bytes);
}

static void test_record__what_is_not_set_is_not_stored(void **state)
{
    AUTO_FREE struct record_entry *in = mem_alloc(sizeof(*in));
    AUTO_FREE struct record_entry *out = mem_alloc(sizeof(*out));
    struct text bytes = { 0 };

    (void)state;
    in->version = 1;
    in->entry = (struct journal_entry){
        .seq = 1, .kind = JOURNAL_END, .name = "demo", .status = -1, .activity = "", .facts = NULL
    };
    pack_entry(in, &bytes);
    assert_true(bytes.size < 120);
    assert_true(record_unpack_entry(bytes.bytes, bytes.size, out));
    assert_null(out->entry.activity);
    assert_null(out->entry.facts);
    assert_null(out->entry.boot);
    assert_int_equal(out->entry.status, -1);
    text_done(&bytes);
}

static void test_record__a_fold_and_a_head_come_back(void **state)
{
    struct journal_record in, out;
    struct record_head head_in, head_out;
    struct text bytes = { 0 }, again = { 0 };

    (void)state;
    fill_fold(&in);
    record_pack_fold(&in, &bytes);
    assert_true(record_unpack_fold(bytes.bytes, bytes.size, &out));
    assert_memory_equal(&in, &out, offsetof(struct journal_record, facts));
    record_pack_fold(&out, &again);
    assert_int_equal(again.size, bytes.size);
    assert_memory_equal(again.bytes, bytes.bytes, bytes.size);
    fill_head(&head_in);
    record_pack_head(&head_in, &bytes);
    assert_true(record_unpack_head(bytes.bytes, bytes.size, &head_out));
    assert_memory_equal(&head_in, &head_out, sizeof(head_in));
    text_done(&bytes);
    text_done(&again);
}

static void test_record__refuses_an_entry_that_is_too_long(void **state)
{
    AUTO_FREE struct record_entry *in = mem_alloc(sizeof(*in));
    AUTO_FREE char *options = mem_alloc(JOURNAL_ENTRY_MAX + 1);
    struct text bytes = { 0 };
    struct error e = { 0 };

    (void)state;
    memset(options, 'x', JOURNAL_ENTRY_MAX);
    fill_entry(in);
    in->entry.options = options;
    assert_int_equal(record_pack_entry(in, &bytes, &e), -1);
    assert_int_equal(e.code, ERROR_INVALID_ARGS);
    text_done(&bytes);
}

/* --- strictness ---------------------------------------------------------------------------------------- */

static void seal(struct text *t)
{
    uint64_t check = chain_check(t->bytes + RECORD_CHECK_SIZE, t->size - RECORD_CHECK_SIZE);

    for (int i = RECORD_CHECK_SIZE - 1; i >= 0; i--, check >>= 8)
        t->bytes[i] = (char)check;
}

static bool accepts(struct text *t)
{
    AUTO_FREE struct record_entry *out = mem_alloc(sizeof(*out));

    seal(t);
    return record_unpack_entry(t->bytes, t->size, out);
}

#define MUST                                                                                                 \
    "\xa1v\x01\xa4prev\xc4\x20" HASH "\xa3seq\x07\xa4time\x05\xa4kind\xa3"                                   \
    "end\xa4name\xa4"                                                                                        \
    "demo"
#define HASH "0123456789abcdef0123456789abcdef"
#define ACTOR                                                                                                \
    "\xa5"                                                                                                   \
    "actor\x81\xa3uid\x00"
#define BYTES(literal) literal, sizeof(literal) - 1

static const struct {
    const char *what;
    const char *bytes;
    size_t size;
    bool good;
} maps[] = {
    { "all that must be there", BYTES("\x87" MUST ACTOR), true },
    { "no actor", BYTES("\x86" MUST), true },
    { "a key of tomorrow",
      BYTES("\x88" MUST ACTOR "\xa3new\x93\x01\x82\xa1"
            "a\xc0\xa1"
            "b\xca"
            "abcd\xc3"),
      true },
    { "an actor without its user",
      BYTES("\x87" MUST "\xa5"
            "actor\x80"),
      false },
    { "a key twice", BYTES("\x88" MUST ACTOR "\xa3seq\x07"), false },
    { "a number as text", BYTES("\x87" MUST "\xa6reason\x05"), false },
    { "a text as bytes", BYTES("\x87" MUST "\xa6reason\xc4\x01x"), false },
    { "nil", BYTES("\x87" MUST "\xa6reason\xc0"), false },
    { "a float",
      BYTES("\x87" MUST "\xa7"
            "attempt\xca"
            "abcd"),
      false },
    { "a NUL in a text",
      BYTES("\x87" MUST "\xa6reason\xa3"
            "a\0b"),
      false },
    { "a number that is no int64",
      BYTES("\x87" MUST "\xa7"
            "attempt\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
      false },
    { "a negative number",
      BYTES("\x87" MUST "\xa7"
            "attempt\xd1\xff\xfe"),
      true },
    { "a wide small number",
      BYTES("\x87" MUST "\xa7"
            "attempt\xcf\0\0\0\0\0\0\0\x02"),
      true },
    { "a member missing", BYTES("\x87" MUST), false },
    { "a byte too many", BYTES("\x86" MUST "x"), false },
    { "a key that is no text", BYTES("\x87" MUST "\x01\x02"), false },
    { "the unused byte", BYTES("\x87" MUST "\xa3new\xc1"), false },
    { "not a map", BYTES("\x91\x01"), false },
    { "a map that claims 4 G members", BYTES("\xdf\xff\xff\xff\xff" MUST), false },
    { "an array of tomorrow that claims 4 G members", BYTES("\x87" MUST "\xa3new\xdd\xff\xff\xff\xff"),
      false },
    { "a text that claims 4 GiB", BYTES("\x87" MUST "\xa6reason\xdb\xff\xff\xff\xff"), false },
    { "facts twice",
      BYTES("\x87" MUST "\xa5"
            "facts\x82\xa1k\xa1"
            "1\xa1k\xa1"
            "2"),
      false },
    { "a fact without a key",
      BYTES("\x87" MUST "\xa5"
            "facts\x81\xa0\xa1"
            "1"),
      false },
    { "a fact that is a number",
      BYTES("\x87" MUST "\xa5"
            "facts\x81\xa1k\x01"),
      false },
    { "more facts than there is room for",
      BYTES("\x87" MUST "\xa5"
            "facts\xde\x00\x19"),
      false },
};

static void test_record__is_strict(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(maps); i++) {
        struct text t = { 0 };

        text_add(&t, "checksum", RECORD_CHECK_SIZE);
        text_add(&t, maps[i].bytes, maps[i].size);
        if (accepts(&t) != maps[i].good)
            fail_msg("%s: %s", maps[i].what, maps[i].good ? "refused" : "accepted");
        text_done(&t);
    }
}

static void test_record__a_newer_version_is_read_as_far_as_possible(void **state)
{
    static const char newer[] = "\x87\xa1v\x02\xa4prev\xc4\x20" HASH "\xa3seq\x07\xa4time\x05\xa4kind\xa5"
                                "leap!\xa4"
                                "name\xa4"
                                "demo\xa3new\x01";
    AUTO_FREE struct record_entry *out = mem_alloc(sizeof(*out));
    struct text t = { 0 };

    (void)state;
    text_add(&t, "checksum", RECORD_CHECK_SIZE);
    text_add(&t, newer, sizeof(newer) - 1);
    seal(&t);
    assert_true(record_unpack_entry(t.bytes, t.size, out));
    assert_int_equal(out->entry.kind, JOURNAL_KIND_COUNT);
    assert_int_equal(out->entry.seq, 7);
    t.bytes[RECORD_CHECK_SIZE + 3] = 1; /* a kind that version 1 does not have */
    assert_false(accepts(&t));
    t.bytes[RECORD_CHECK_SIZE + 3] = 0;
    assert_false(accepts(&t));
    text_done(&t);
}

static void test_record__every_changed_bit_is_noticed(void **state)
{
    AUTO_FREE struct record_entry *r = mem_alloc(sizeof(*r));
    struct text bytes = { 0 };

    (void)state;
    fill_entry(r);
    pack_entry(r, &bytes);
    for (size_t bit = 0; bit < bytes.size * 8; bit++) {
        bytes.bytes[bit / 8] = (char)(bytes.bytes[bit / 8] ^ 1 << bit % 8);
        assert_false(record_unpack_entry(bytes.bytes, bytes.size, r));
        bytes.bytes[bit / 8] = (char)(bytes.bytes[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t size = 0; size < bytes.size; size++)
        assert_false(record_unpack_entry(bytes.bytes, size, r));
    text_done(&bytes);
}

/* --- arbitrary bytes ----------------------------------------------------------------------------------- */

/* Flips some bits, now and then cuts or copies a piece: most results stay near to valid. */
static void mutate(struct text *t, unsigned *seed)
{
    size_t body = t->size - RECORD_CHECK_SIZE;

    for (int n = rand_r(seed) % 4; n >= 0; n--)
        t->bytes[RECORD_CHECK_SIZE + (size_t)rand_r(seed) % body] ^= (char)(1 << rand_r(seed) % 8);
    if (rand_r(seed) % 4 == 0)
        t->size -= (size_t)rand_r(seed) % body;
    if (rand_r(seed) % 4 == 0) {
        size_t from = (size_t)rand_r(seed) % (t->size - RECORD_CHECK_SIZE);

        memmove(t->bytes + RECORD_CHECK_SIZE, t->bytes + RECORD_CHECK_SIZE + from,
                t->size - RECORD_CHECK_SIZE - from);
    }
}

/* What we accept is msgpack by msgpack-c's judgement, too. */
static void check_is_msgpack(const struct text *t)
{
    size_t size = t->size - RECORD_CHECK_SIZE, at = 0;
    msgpack_unpacked u;

    msgpack_unpacked_init(&u);
    assert_int_equal(msgpack_unpack_next(&u, t->bytes + RECORD_CHECK_SIZE, size, &at),
                     MSGPACK_UNPACK_SUCCESS);
    assert_int_equal(at, size);
    assert_int_equal(u.data.type, MSGPACK_OBJECT_MAP);
    msgpack_unpacked_destroy(&u);
}

static void test_record__arbitrary_bytes_never_hurt(void **state)
{
    AUTO_FREE struct record_entry *r = mem_alloc(sizeof(*r));
    struct text good = { 0 }, t = { 0 };
    struct journal_record fold;
    struct record_head head;
    unsigned seed = 20261129, accepted = 0;

    (void)state;
    fill_entry(r);
    pack_entry(r, &good);
    for (int i = 0; i < 200000; i++) {
        t.size = 0;
        text_add(&t, good.bytes, good.size);
        mutate(&t, &seed);
        if (t.size <= RECORD_CHECK_SIZE)
            continue;
        seal(&t);
        AUTO_FREE char *exact = mem_alloc(t.size); /* so that a sanitizer sees the end */

        memcpy(exact, t.bytes, t.size);
        if (record_unpack_entry(exact, t.size, r)) {
            check_is_msgpack(&t);
            accepted++;
        }
        (void)record_unpack_fold(exact, t.size, &fold);
        (void)record_unpack_head(exact, t.size, &head);
    }
    assert_true(accepted > 1000); /* the loop reaches deep */
    text_done(&good);
    text_done(&t);
}

/* --- golden bytes -------------------------------------------------------------------------------------- */

/* AD_GOLDEN_WRITE=1 writes them anew: only for a version that was never released. */
static void check_golden(const char *name, const struct text *bytes)
{
    char path[512], found[4096];

    snprintf(path, sizeof(path), "%s/%s", AD_GOLDEN_DIR, name);
    if (getenv("AD_GOLDEN_WRITE") != NULL) {
        FILE *out = fopen(path, "wb");

        assert_non_null(out);
        assert_int_equal(fwrite(bytes->bytes, 1, bytes->size, out), bytes->size);
        fclose(out);
    }
    FILE *in = fopen(path, "rb");

    assert_non_null(in);
    assert_int_equal(fread(found, 1, sizeof(found), in), bytes->size);
    fclose(in);
    assert_memory_equal(found, bytes->bytes, bytes->size);
}

static void test_record__version_1_stays_what_it_is(void **state)
{
    AUTO_FREE struct record_entry *r = mem_alloc(sizeof(*r));
    struct text bytes = { 0 };
    struct journal_record fold;
    struct record_head head;

    (void)state;
    fill_entry(r);
    pack_entry(r, &bytes);
    check_golden("entry-v1.bin", &bytes);
    fill_fold(&fold);
    record_pack_fold(&fold, &bytes);
    check_golden("record-v1.bin", &bytes);
    fill_head(&head);
    record_pack_head(&head, &bytes);
    check_golden("head-v1.bin", &bytes);
    text_done(&bytes);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record__every_member_of_an_entry_comes_back),
        cmocka_unit_test(test_record__what_is_not_set_is_not_stored),
        cmocka_unit_test(test_record__a_fold_and_a_head_come_back),
        cmocka_unit_test(test_record__refuses_an_entry_that_is_too_long),
        cmocka_unit_test(test_record__is_strict),
        cmocka_unit_test(test_record__a_newer_version_is_read_as_far_as_possible),
        cmocka_unit_test(test_record__every_changed_bit_is_noticed),
        cmocka_unit_test(test_record__arbitrary_bytes_never_hurt),
        cmocka_unit_test(test_record__version_1_stays_what_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

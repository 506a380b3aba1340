#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "providers/macos/plist.h"

#define PLIST(content) "<?xml version=\"1.0\"?>\n<plist version=\"1.0\">" content "</plist>\n"

static struct plist *open_text(const char *text)
{
    struct error e = { 0 };
    struct plist *p = NULL;

    if (plist_open(text, strlen(text), "the answer", &p, &e) < 0)
        fail_msg("%s", e.message);
    return p;
}

static void test_plist__reads_values_of_each_kind(void **state)
{
    struct plist *p =
        open_text(PLIST("<dict><key>text</key><string>a &amp; b</string><key>no</key><false/>"
                        "<key>yes</key><true/><key>number</key><integer>17</integer>"
                        "<key>list</key><array><string>x</string><string>y</string></array></dict>"));
    struct plist_value top = plist_root(p);
    uint64_t number = 0;

    (void)state;
    assert_string_equal(plist_text(plist_find(top, "text")), "a & b");
    assert_true(plist_is_true(plist_find(top, "yes")));
    assert_false(plist_is_true(plist_find(top, "no")));
    assert_true(plist_number(plist_find(top, "number"), &number));
    assert_int_equal(number, 17);
    assert_int_equal(plist_count(plist_find(top, "list")), 2);
    assert_string_equal(plist_text(plist_item(plist_find(top, "list"), 1)), "y");
    plist_close(p);
}

static void test_plist__what_is_asked_of_something_else_is_not_there(void **state)
{
    struct plist *p = open_text(PLIST("<dict><key>text</key><string>a</string></dict>"));
    struct plist_value top = plist_root(p), missing = plist_find(plist_find(plist_find(top, "a"), "b"), "c");
    uint64_t number;

    (void)state;
    assert_null(plist_text(missing));
    assert_int_equal(plist_count(missing), 0);
    assert_null(plist_text(plist_item(missing, 0)));
    assert_null(plist_text(plist_find(plist_find(top, "text"), "a")));
    assert_int_equal(plist_count(plist_find(top, "text")), 0);
    assert_null(plist_text(top));
    assert_false(plist_is_true(plist_find(top, "text")));
    assert_false(plist_number(plist_find(top, "text"), &number));
    plist_close(p);
}

struct walk {
    size_t calls;
    size_t end_at;
    char last[16];
};

static bool count_entry(void *self, const char *key, struct plist_value value)
{
    struct walk *w = self;

    assert_string_equal(plist_text(value), key); /* each value is its own key below */
    snprintf(w->last, sizeof(w->last), "%s", key);
    return ++w->calls != w->end_at;
}

static void test_plist__visits_each_entry_until_told_to_end(void **state)
{
    struct plist *p = open_text(PLIST("<dict><key>a</key><string>a</string><key>b</key><string>b</string>"
                                      "<key>c</key><string>c</string></dict>"));
    struct walk all = { 0 }, some = { .end_at = 2 }, none = { 0 };

    (void)state;
    plist_each(plist_root(p), count_entry, &all);
    plist_each(plist_root(p), count_entry, &some);
    plist_each(plist_find(plist_root(p), "a"), count_entry, &none);
    assert_int_equal(all.calls, 3);
    assert_int_equal(some.calls, 2);
    assert_int_equal(none.calls, 0);
    plist_close(p);
}

static void test_plist__refuses_what_is_no_property_list(void **state)
{
    static const char *const texts[] = { "", "{\"json\": true}", "<html><body>504</body></html>", "<plist",
                                         "\n\n" };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct plist *p = NULL;
        struct error e = { 0 };

        assert_int_equal(plist_open(texts[i], strlen(texts[i]), "Apple's catalog", &p, &e), -1);
        assert_null(p);
        assert_int_equal(e.code, ERROR_ACTION_FAILED);
        assert_string_equal(e.message, "Apple's catalog is not a property list");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plist__reads_values_of_each_kind),
        cmocka_unit_test(test_plist__what_is_asked_of_something_else_is_not_there),
        cmocka_unit_test(test_plist__visits_each_entry_until_told_to_end),
        cmocka_unit_test(test_plist__refuses_what_is_no_property_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

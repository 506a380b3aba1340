#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/mem.h"
#include "core/util.h"
#include "tools/desktop/entry.h"

#define ARGUMENTS_MAX 5

static void test_entry__splits_exec_and_drops_field_codes(void **state)
{
    static const struct {
        const char *exec;
        const char *argv[ARGUMENTS_MAX];
    } cases[] = {
        { "gnome-calculator", { "gnome-calculator" } },
        { "/usr/bin/app %U", { "/usr/bin/app" } },
        { "app %f --new-window %F", { "app", "--new-window" } },
        { "app --title=%c", { "app", "--title=" } },
        { "app 100%%", { "app", "100%" } },
        { "  app \t one  two ", { "app", "one", "two" } },
        { "\"/opt/My App/run\" \"two words\"", { "/opt/My App/run", "two words" } },
        { "app \"\"", { "app", "" } },
        { "app \"a \\\\\"b\\\\\" \\\\$c\"", { "app", "a \"b\" $c" } }, /* escaped twice: by file, by quote */
        { "sh -c \"echo \\\\`x\\\\`\"", { "sh", "-c", "echo `x`" } },
        { "app %", { "app", "%" } },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *bytes =
            mem_print("[Desktop Entry]\nType=Application\nName=An App\nExec=%s\n", cases[i].exec);
        struct entry entry = { 0 };
        size_t expected = 0;

        assert_true(entry_parse(bytes, &entry));
        assert_string_equal(entry.name, "An App");
        for (; expected < ARGUMENTS_MAX && cases[i].argv[expected] != NULL; expected++) {
            assert_true(expected < entry.argc);
            assert_string_equal(entry.argv[expected], cases[i].argv[expected]);
        }
        assert_int_equal(entry.argc, expected);
        assert_null(entry.argv[entry.argc]);
        entry_done(&entry);
    }
}

static void test_entry__reads_only_its_group_and_untranslated_keys(void **state)
{
    static const char bytes[] = "# a comment\n[Desktop Action New]\nName=Wrong\nExec=wrong\n\n"
                                "[Desktop Entry]\nName[de]=Rechner\nName = Calculator\nType=Application\n"
                                "Exec[de]=falsch\nExec=right\n[Other]\nExec=wrong";
    struct entry entry;

    (void)state;
    assert_true(entry_parse(bytes, &entry));
    assert_string_equal(entry.name, "Calculator");
    assert_int_equal(entry.argc, 1);
    assert_string_equal(entry.argv[0], "right");
    entry_done(&entry);
}

static void test_entry__that_starts_nothing_is_refused(void **state)
{
    static const struct {
        const char *bytes, *why;
    } cases[] = {
        { "", "empty" },
        { "[Desktop Entry]\nType=Application\nName=A\n", "no Exec" },
        { "[Desktop Entry]\nType=Application\nExec=a\n", "no Name" },
        { "[Desktop Entry]\nType=Link\nName=A\nExec=a\n", "a link" },
        { "[Desktop Entry]\nType=Application\nName=A\nExec=a\nHidden=true\n", "deleted by the user" },
        { "[Desktop Entry]\nType=Application\nName=A\nExec=\n", "nothing to execute" },
        { "[Desktop Entry]\nType=Application\nName=A\nExec=%U\n", "field codes only" },
        { "[Desktop Entry]\nType=Application\nName=A\nExec=\"a\n", "an open quote" },
        { "Type=Application\nName=A\nExec=a\n", "no group" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct entry entry = { 0 };

        if (entry_parse(cases[i].bytes, &entry))
            fail_msg("accepted: %s", cases[i].why);
        assert_null(entry.argv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entry__splits_exec_and_drops_field_codes),
        cmocka_unit_test(test_entry__reads_only_its_group_and_untranslated_keys),
        cmocka_unit_test(test_entry__that_starts_nothing_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "core/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/core/scratch.h"

static void test_mem__gives_zeroed_memory_even_for_size_0(void **state)
{
    AUTO_FREE unsigned char *p = mem_alloc(64);
    AUTO_FREE unsigned char *none = mem_alloc(0);

    (void)state;
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(p[i], 0);
    assert_non_null(none);
}

static void test_mem__keeps_the_content_when_it_grows(void **state)
{
    AUTO_FREE int *numbers = mem_grow(NULL, 1, sizeof(int));

    (void)state;
    numbers[0] = 42;
    numbers = mem_grow(numbers, 1000, sizeof(int));
    assert_int_equal(numbers[0], 42);
}

static void test_mem__copies_and_prints_text(void **state)
{
    AUTO_FREE char *copy = mem_copy_text("as it is");
    AUTO_FREE char *printed = mem_print("%s-%d", "n", 7);

    (void)state;
    assert_string_equal(copy, "as it is");
    assert_string_equal(printed, "n-7");
}

static int exhaust(void *arg)
{
    const int *to = arg;

    dup2(*to, STDERR_FILENO);
    free(mem_grow(NULL, SIZE_MAX, 2)); /* the product does not fit */
    return 0;
}

static void test_mem__ends_the_process_with_one_line_when_there_is_none(void **state)
{
    char line[256] = "";
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(scratch_run(exhaust, &ends[1]), 1);
    assert_true(read(ends[0], line, sizeof(line) - 1) > 0);
    assert_string_equal(line, "agent-desktop: out of memory\n");
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mem__gives_zeroed_memory_even_for_size_0),
        cmocka_unit_test(test_mem__keeps_the_content_when_it_grows),
        cmocka_unit_test(test_mem__copies_and_prints_text),
        cmocka_unit_test(test_mem__ends_the_process_with_one_line_when_there_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

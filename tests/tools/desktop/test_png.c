#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <png.h>

#include "core/mem.h"
#include "core/util.h"
#include "tools/desktop/png.h"

static void check_round_trip(uint32_t width, uint32_t height)
{
    const size_t size = (size_t)width * height * 3;
    AUTO_FREE uint8_t *pixels = mem_alloc(size), *back = mem_alloc(size);
    AUTO_FREE char *bytes = NULL;
    png_image image = { .version = PNG_IMAGE_VERSION };
    struct error e = { 0 };
    size_t written;

    for (size_t i = 0; i < size; i++)
        pixels[i] = (uint8_t)(i * 37 + i / 251);
    assert_int_equal(png_encode(&(struct image){ width, height, pixels }, &bytes, &written, &e), 0);
    assert_true(png_image_begin_read_from_memory(&image, bytes, written));
    assert_int_equal(image.width, width);
    assert_int_equal(image.height, height);
    image.format = PNG_FORMAT_RGB;
    assert_true(png_image_finish_read(&image, NULL, back, 0, NULL));
    assert_memory_equal(back, pixels, size);
}

static void test_png__holds_every_pixel(void **state)
{
    (void)state;
    check_round_trip(1, 1);
    check_round_trip(3, 2);
    check_round_trip(1280, 800);
}

static void test_png__without_pixels_is_an_error(void **state)
{
    struct error e = { 0 };
    char *bytes = NULL;
    size_t size;

    (void)state;
    assert_int_equal(png_encode(&(struct image){ 0, 5, (uint8_t[1]){ 0 } }, &bytes, &size, &e), -1);
    assert_int_equal(e.code, ERROR_ACTION_FAILED);
    assert_null(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png__holds_every_pixel),
        cmocka_unit_test(test_png__without_pixels_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

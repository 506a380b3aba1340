#include "providers/linux/options.h"

#include <stdio.h>
#include <string.h>

#include "core/text.h"

/* Below, no window of a toolkit fits; above, one frame is more than 130 MB. */
#define WIDTH_MIN  320
#define WIDTH_MAX  7680
#define HEIGHT_MIN 240
#define HEIGHT_MAX 4320

static int check_screen(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    const char *x = strchr(value, 'x');
    char width_text[16] = "";
    struct error reason = { 0 };
    int64_t width, height;

    if (x != NULL && (size_t)(x - value) < sizeof(width_text))
        memcpy(width_text, value, (size_t)(x - value));
    if (x == NULL || text_parse_int(width_text, "width", WIDTH_MIN, WIDTH_MAX, &width, &reason) < 0 ||
        text_parse_int(x + 1, "height", HEIGHT_MIN, HEIGHT_MAX, &height, &reason) < 0)
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "screen is WIDTHxHEIGHT in pixels, from %dx%d to %dx%d, not '%s'", WIDTH_MIN,
                         HEIGHT_MIN, WIDTH_MAX, HEIGHT_MAX, value);
    snprintf(out, FACT_VALUE_SIZE, "%dx%d", (int)width, (int)height);
    return 0;
}

static int check_net(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (strcmp(value, "host") != 0 && strcmp(value, "none") != 0)
        return error_set(e, ERROR_INVALID_ARGS, 0, "net is 'host' or 'none', not '%s'", value);
    snprintf(out, FACT_VALUE_SIZE, "%s", value);
    return 0;
}

const struct provider_option linux_create_options[] = {
    { .key = "screen",
      .value = "WIDTHxHEIGHT",
      .help = "size of the desktop (default 1280x800)",
      .check = check_screen },
    { .key = "net",
      .value = "host|none",
      .help = "the host's network, or only a loopback of its own (default host)",
      .check = check_net },
    { 0 },
};

const struct provider_option linux_start_options[] = { { 0 } };

int linux_check_create(void *self, struct facts *facts, struct error *e)
{
    static const struct {
        const char *key, *value;
    } defaults[] = { { "set.screen", "1280x800" }, { "set.net", "host" } };

    (void)self;
    for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
        if (facts_get(facts, defaults[i].key) == NULL &&
            !facts_set(facts, defaults[i].key, defaults[i].value))
            return error_set(e, ERROR_INVALID_ARGS, 0, "too many options");
    return 0;
}

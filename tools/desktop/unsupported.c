/* The desktop commands where there is no X11 and no AT-SPI. */
#include "tools/desktop/desktop.h"

static int refuse(struct error *e)
{
    return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0, "this command acts on a Linux desktop only");
}

int desktop_launch(const struct desktop_launch *options, struct json **data, struct error *e)
{
    (void)options, (void)data;
    return refuse(e);
}

int desktop_snapshot(const struct desktop_snapshot *options, struct json **data, struct error *e)
{
    (void)options, (void)data;
    return refuse(e);
}

int desktop_click(const struct desktop_click *options, struct json **data, struct error *e)
{
    (void)options, (void)data;
    return refuse(e);
}

int desktop_type(const struct desktop_type *options, struct json **data, struct error *e)
{
    (void)options, (void)data;
    return refuse(e);
}

int desktop_screenshot(const struct desktop_screenshot *options, struct json **data, struct error *e)
{
    (void)options, (void)data;
    return refuse(e);
}

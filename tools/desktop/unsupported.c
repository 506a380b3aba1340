/* The desktop commands where there is no X11 and no AT-SPI: on a Mac, the helper has two of them. */
#include "tools/desktop/desktop.h"

#include "tools/desktop/helper.h"

static int refuse(struct error *e)
{
    return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0, "this command acts on a Linux desktop only");
}

static int refuse_without_helper(struct error *e)
{
    e->suggestion = "In the guest of a macos sandbox, run guest-setup.sh again: it installs the helper.";
    return error_set(e, ERROR_PLATFORM_NOT_SUPPORTED, 0,
                     "this command needs " HELPER_NAME " beside this program, and it is not there");
}

int desktop_launch(const struct desktop_launch *options, struct json **data, struct error *e)
{
    (void)data;
    return helper_launch(options, e) < 0 ? -1 : refuse_without_helper(e);
}

int desktop_snapshot(const struct desktop_snapshot *options, struct json **data, struct error *e)
{
    (void)data;
    return helper_snapshot(options, e) < 0 ? -1 : refuse_without_helper(e);
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

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"
#include "tools/desktop/desktop.h"
#include "tools/desktop/png.h"
#include "tools/desktop/x11.h"

struct target {      /* where the picture goes */
    char *directory; /* absolute; free() */
    const char *name;
    int dir; /* -1: not open */
};

/* Looked at before the screen is: a FILE that cannot be written should not cost a picture. Replacing a
 * device or a directory is never what was meant. */
static int open_target(const char *out, struct target *target, struct error *e)
{
    const char *slash = strrchr(out, '/');
    AUTO_FREE char *parent = slash == NULL ? mem_copy_text(".") : strndup(out, (size_t)(slash - out) + 1);
    struct stat s;

    target->name = slash == NULL ? out : slash + 1;
    if (target->name[0] == '\0')
        return error_set(e, ERROR_INVALID_ARGS, 0, "'%s' does not name a file", out);
    target->directory = realpath(parent, NULL);
    if (target->directory != NULL)
        target->dir = open(target->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (target->dir < 0)
        return error_set_errno(e, ERROR_INVALID_ARGS, errno, "cannot write '%s'", out);
    if (fstatat(target->dir, target->name, &s, 0) == 0 && !S_ISREG(s.st_mode))
        return error_set(e, ERROR_INVALID_ARGS, 0, "cannot write '%s': it is not a regular file", out);
    return 0;
}

static int write_screen(const struct target *target, struct image *image, struct error *e)
{
    AUTO_X11 struct x11 *x = NULL;
    AUTO_FREE char *png = NULL;
    size_t size;

    if (x11_open(&x, e) < 0 || x11_read_screen(x, image, e) < 0 || png_encode(image, &png, &size, e) < 0)
        return -1;
    return file_replace(target->dir, target->name, png, size, 0600, e);
}

static struct json *new_data(const struct target *target, const struct image *image)
{
    const char *between = strcmp(target->directory, "/") == 0 ? "" : "/";
    AUTO_FREE char *path = mem_print("%s%s%s", target->directory, between, target->name);
    struct json *data = json_new_object();

    json_put_string(data, "path", path);
    json_put_int(data, "width", image->width);
    json_put_int(data, "height", image->height);
    return data;
}

int desktop_screenshot(const struct desktop_screenshot *options, struct json **data, struct error *e)
{
    struct target target = { .dir = -1 };
    struct image image = { 0 };
    int result = open_target(options->out, &target, e);

    if (result == 0)
        result = write_screen(&target, &image, e);
    if (result == 0) {
        *data = new_data(&target, &image);
    } else {
        e->delivery = DELIVERY_NOT_DELIVERED; /* the old file stands */
        e->retry = RETRY_SAFE;
    }
    free(image.rgb);
    free(target.directory);
    util_close_fd(&target.dir);
    return result;
}

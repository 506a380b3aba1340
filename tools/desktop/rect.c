#include "tools/desktop/rect.h"

#include "core/json.h"

void rect_put(struct json *object, const char *key, const struct rect *rect)
{
    struct json *j = json_new_object();

    json_put_int(j, "x", rect->x);
    json_put_int(j, "y", rect->y);
    json_put_int(j, "width", rect->width);
    json_put_int(j, "height", rect->height);
    json_put(object, key, j);
}

#include "providers/provider.h"
#include "providers/vercel/image.h"

static enum step_result write_files(void *self, struct step_context *c, struct error *e)
{
    const struct provider_place *place = self;

    (void)c;
    return image_write(place->root, e) < 0 ? STEP_FAILED : STEP_DONE;
}

const struct step vercel_install_steps[] = {
    { "write-files", write_files, false },
    { 0 },
};

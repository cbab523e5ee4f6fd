#include "outer/codecs/codec.h"

#include <string.h>

const struct dlc_codec *const *dlc_codecs(void)
{
    static const struct dlc_codec *const all[] = { &dlc_codec_f32, &dlc_codec_bf16, NULL };

    return all;
}

const struct dlc_codec *dlc_codec_find(const char *name)
{
    for (const struct dlc_codec *const *c = dlc_codecs(); *c; c++) {
        if (strcmp((*c)->name, name) == 0)
            return *c;
    }
    return NULL;
}

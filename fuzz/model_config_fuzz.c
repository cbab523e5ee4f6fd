/* config.json: refused with a text, or a configuration that the model accepts. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "ckpt/model_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dlc_model_config config;
    dlc_err err = dlc_model_folder_config_parse(&config, (const char *)data, size, "fuzz");

    if (err == DLC_OK ? dlc_model_config_check(&config) != DLC_OK : dlc_err_text()[0] == '\0')
        abort();
    return 0;
}

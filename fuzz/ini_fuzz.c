/* run.ini: whatever the bytes, an error or a configuration that writes and reads back as the same one. */
#include <stdint.h>
#include <stdlib.h>

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dlc_config config, back;
    struct dlc_buf ini = { 0 };

    dlc_config_default(&config);
    if (dlc_config_parse_ini(&config, (const char *)data, size, "fuzz") == DLC_OK) {
        dlc_config_default(&back);
        if (dlc_config_write_ini(&ini, &config) != DLC_OK ||
            dlc_config_parse_ini(&back, ini.data, ini.len, "written") != DLC_OK)
            abort();
        memcpy(back.given, config.given, sizeof back.given);
        if (memcmp(&config, &back, sizeof config) != 0)
            abort();
    }
    dlc_buf_fini(&ini);
    return 0;
}

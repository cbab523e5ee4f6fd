/* The first line of a server that may be anything. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dlc_nats_info info;

    if (dlc_nats_info_parse(&info, (const char *)data, size) == DLC_OK &&
        (info.max_payload == 0 || strlen(info.version) >= sizeof info.version ||
         strlen(info.server_name) >= sizeof info.server_name))
        abort();
    return 0;
}

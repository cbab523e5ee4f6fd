/* Any text is safe; what is accepted comes back as the same after formatting. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/join_url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dlc_buf text = { 0 }, first = { 0 }, again = { 0 };
    struct dlc_join_url url;

    if (dlc_buf_append(&text, data, size) != DLC_OK || dlc_buf_append(&text, "", 1) != DLC_OK)
        abort();
    if (dlc_join_url_parse(&url, text.data) == DLC_OK) {
        if (dlc_join_url_format(&first, &url) != DLC_OK || dlc_join_url_parse(&url, first.data) != DLC_OK ||
            dlc_join_url_format(&again, &url) != DLC_OK || strcmp(first.data, again.data) != 0)
            abort();
    }
    dlc_buf_fini(&text);
    dlc_buf_fini(&first);
    dlc_buf_fini(&again);
    return 0;
}

/* Messages of the exchange: whatever the bytes, an error or a message that is written and read back as the same one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "exchange/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_and_read(const struct dlc_message *m)
{
    struct dlc_buf first = { 0 }, second = { 0 };
    struct dlc_message back;

    if (dlc_message_encode(&first, m) != DLC_OK || dlc_message_decode(&back, first.data, first.len) != DLC_OK ||
        dlc_message_encode(&second, &back) != DLC_OK || first.len != second.len ||
        memcmp(first.data, second.data, first.len) != 0)
        abort();
    dlc_message_fini(&back);
    dlc_buf_fini(&first);
    dlc_buf_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dlc_message m;
    size_t length;

    if (size >= DLC_MESSAGE_HEADER_BYTES)
        (void)dlc_message_length(&length, data);
    if (dlc_message_decode(&m, data, size) == DLC_OK) {
        write_and_read(&m);
        dlc_message_fini(&m);
    }
    return 0;
}

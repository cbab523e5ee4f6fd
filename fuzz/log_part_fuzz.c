/* Messages of the LOG stream: whatever the bytes, an error or what says the same when it is written again. The checksums are
 * made to fit, otherwise nothing behind them would be reached. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "net/log_part.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fix_checksums(uint8_t *bytes, size_t size)
{
    struct dlc_cursor c;

    if (size < DLC_LOG_PART_HEADER_BYTES)
        return;
    c = dlc_cursor(bytes + 64, 16);
    dlc_put_u64(&c, dlc_xxh64(bytes + DLC_LOG_PART_HEADER_BYTES, size - DLC_LOG_PART_HEADER_BYTES));
    dlc_put_u64(&c, dlc_xxh64(bytes, 72));
}

static void one(const uint8_t *data, size_t size)
{
    struct dlc_log_assembly a = { .entry = { 0 } };
    struct dlc_buf again = { 0 };
    struct dlc_log_part p;
    int whole = 0;

    if (dlc_log_part_decode(&p, data, size) != DLC_OK)
        return;
    if (dlc_log_part_encode(&again, &p) != DLC_OK || again.len != size || memcmp(again.data, data, size) != 0)
        abort();
    if (dlc_log_assembly_add(&a, &p, &whole) != DLC_OK || (whole && a.entry.len != p.total_bytes))
        abort();
    dlc_log_assembly_fini(&a);
    dlc_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    one(data, size);
    fix_checksums(copy, size);
    one(copy, size);
    free(copy);
    return 0;
}

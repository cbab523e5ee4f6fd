/* Questions for chunks and their answers: whatever the bytes, an error or what says the same when it is written again.
 * The checksums are made to fit, otherwise nothing behind them would be reached. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "exchange/fetch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fix_checksums(uint8_t *bytes, size_t size)
{
    struct dlc_cursor c;

    if (size < DLC_CHUNK_HEADER_BYTES)
        return;
    c = dlc_cursor(bytes + 56, 16);
    dlc_put_u64(&c, dlc_xxh64(bytes + DLC_CHUNK_HEADER_BYTES, size - DLC_CHUNK_HEADER_BYTES));
    dlc_put_u64(&c, dlc_xxh64(bytes, 64));
}

static void question(const uint8_t *data, size_t size)
{
    static const char blob[3000];
    uint8_t again[DLC_CHUNK_ASK_BYTES];
    struct dlc_buf b = { 0 };
    struct dlc_chunk_ask ask;
    struct dlc_chunk answer;
    const void *chunk;
    bool sound;

    if (dlc_chunk_ask_decode(&ask, data, size) != DLC_OK)
        return;
    dlc_chunk_ask_encode(again, &ask);
    if (memcmp(again, data, sizeof again) != 0)
        abort();
    if (dlc_chunk_answer(&b, &ask, blob, sizeof blob) == DLC_OK &&
        (dlc_chunk_decode(&answer, &chunk, &sound, b.data, b.len) != DLC_OK || answer.index != ask.index))
        abort();
    dlc_buf_fini(&b);
}

static void answer(const uint8_t *data, size_t size)
{
    struct dlc_chunk a;
    const void *chunk;
    bool sound;

    if (dlc_chunk_decode(&a, &chunk, &sound, data, size) != DLC_OK)
        return;
    if (!sound || chunk != data + DLC_CHUNK_HEADER_BYTES || a.length_bytes != size - DLC_CHUNK_HEADER_BYTES)
        abort();
    if (a.gone ? a.length_bytes != 0
               : a.length_bytes == 0 || (uint64_t)a.index * DLC_CHUNK_BYTES + a.length_bytes > a.size_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    question(data, size);
    answer(data, size);
    fix_checksums(copy, size);
    answer(copy, size);
    free(copy);
    return 0;
}

/* tokenizer.json from anybody, then a round trip of anything. Input: the file, a zero byte, a text. Whatever parses
 * must give any text back exactly. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(dlc_tokenizer *t, const char *text, size_t n)
{
    struct dlc_buf ids = { 0 }, back = { 0 };

    if (dlc_tokenizer_encode(&ids, t, text, n) != DLC_OK ||
        dlc_tokenizer_decode(&back, t, (const int32_t *)(const void *)ids.data, ids.len / sizeof(int32_t)) != DLC_OK)
        abort();
    if (back.len != n || (n > 0 && memcmp(back.data, text, n) != 0))
        abort();
    dlc_buf_fini(&ids);
    dlc_buf_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n_json = zero ? (size_t)(zero - data) : size;
    dlc_tokenizer *t;

    if (dlc_tokenizer_parse(&t, (const char *)data, n_json, "fuzz") != DLC_OK)
        return 0;
    if (zero)
        round_trip(t, (const char *)zero + 1, size - n_json - 1);
    round_trip(t, (const char *)data, size); /* the file itself is a text too */
    dlc_tokenizer_destroy(t);
    return 0;
}

/* f32: n little-endian IEEE singles, the island's parameters. */
#include "outer/codecs/codec.h"

#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "payloads are little-endian and read in place");

static size_t size_bytes(size_t n)
{
    return 4 * n;
}

static void encode(void *payload, const float *base, const float *params, size_t n)
{
    (void)base;
    memcpy(payload, params, 4 * n);
}

static void decode_add(double *sums, double weight, const void *payload, const float *base, size_t begin, size_t end)
{
    const unsigned char *bytes = payload;

    for (size_t i = begin; i < end; i++) {
        float x;

        memcpy(&x, bytes + 4 * i, 4);
        sums[i - begin] += weight * ((double)base[i] - (double)x);
    }
}

static void params(float *out, const void *payload, size_t begin, size_t end)
{
    memcpy(out, (const unsigned char *)payload + 4 * begin, 4 * (end - begin));
}

static void encode_block(void *payload, const float *base, const double *delta, size_t begin, size_t end)
{
    unsigned char *bytes = payload;

    for (size_t i = begin; i < end; i++) {
        float x = (float)((double)base[i] - delta[i - begin]);

        memcpy(bytes + 4 * i, &x, 4);
    }
}

const struct dlc_codec dlc_codec_f32 = { "f32", size_bytes, encode, decode_add, encode_block, params };

/* bf16: n little-endian bfloat16 values, base - params computed in f32 and rounded to nearest even. */
#include "outer/codecs/codec.h"

#include "tensor/dtype.h"

static size_t size_bytes(size_t n)
{
    return 2 * n;
}

static void encode(void *payload, const float *base, const float *params, size_t n)
{
    unsigned char *bytes = payload;

    for (size_t i = 0; i < n; i++) {
        dlc_bf16 h = dlc_f32_to_bf16(base[i] - params[i]);

        memcpy(bytes + 2 * i, &h, 2);
    }
}

static void decode_add(double *sums, double weight, const void *payload, const float *base, size_t begin, size_t end)
{
    const unsigned char *bytes = payload;

    (void)base;
    for (size_t i = begin; i < end; i++) {
        dlc_bf16 h;

        memcpy(&h, bytes + 2 * i, 2);
        sums[i - begin] += weight * (double)dlc_bf16_to_f32(h);
    }
}

static void encode_block(void *payload, const float *base, const double *delta, size_t begin, size_t end)
{
    unsigned char *bytes = payload;

    (void)base;
    for (size_t i = begin; i < end; i++) {
        dlc_bf16 h = dlc_f32_to_bf16((float)delta[i - begin]);

        memcpy(bytes + 2 * i, &h, 2);
    }
}

const struct dlc_codec dlc_codec_bf16 = { "bf16", size_bytes, encode, decode_add, encode_block, NULL };

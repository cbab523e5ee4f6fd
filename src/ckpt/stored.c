#include "ckpt/stored.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define Q8_0_MAX 127

static const struct {
    const char *name;
    size_t values, bytes; /* of a block */
} types[] = {
    [DLC_STORED_F32] = { "f32", 1, 4 },
    [DLC_STORED_BF16] = { "bf16", 1, 2 },
    [DLC_STORED_F16] = { "f16", 1, 2 },
    [DLC_STORED_Q8_0] = { "q8_0", DLC_Q8_0_VALUES, DLC_Q8_0_BYTES },
};

const char *dlc_stored_name(dlc_stored type)
{
    return types[type].name;
}

size_t dlc_stored_block_values(dlc_stored type)
{
    return types[type].values;
}

size_t dlc_stored_block_bytes(dlc_stored type)
{
    return types[type].bytes;
}

static dlc_err refuse(const char *tensor, float value, dlc_stored type)
{
    return dlc_fail(DLC_EINPUT, "tensor \"%s\" has the value %g, which %s cannot hold; f32 can", tensor, (double)value,
                    dlc_stored_name(type));
}

static dlc_err encode_halves(unsigned char *out, dlc_stored type, const float *values, size_t n, const char *tensor)
{
    for (size_t i = 0; i < n; i++) {
        bool bf16 = type == DLC_STORED_BF16;
        uint16_t h = bf16 ? dlc_f32_to_bf16(values[i]) : dlc_f32_to_f16(values[i]);

        if ((h & 0x7fff) == (bf16 ? 0x7f80 : 0x7c00) && isfinite(values[i]))
            return refuse(tensor, values[i], type);
        memcpy(out + 2 * i, &h, sizeof h);
    }
    return DLC_OK;
}

static dlc_err encode_block(unsigned char *out, const float *values, const char *tensor)
{
    float largest = 0, scale, inverse;
    uint16_t half;

    for (int i = 0; i < DLC_Q8_0_VALUES; i++) {
        if (!isfinite(values[i]))
            return refuse(tensor, values[i], DLC_STORED_Q8_0);
        largest = fmaxf(largest, fabsf(values[i]));
    }
    scale = largest / Q8_0_MAX;
    inverse = scale > 0 ? 1 / scale : 0;
    if (!isfinite(inverse)) /* the scale is so small that it is zero as a half */
        inverse = 0;
    half = dlc_f32_to_f16(scale);
    if (half == 0x7c00)
        return refuse(tensor, largest, DLC_STORED_Q8_0);
    memcpy(out, &half, sizeof half);
    for (int i = 0; i < DLC_Q8_0_VALUES; i++)
        out[2 + i] = (unsigned char)(int8_t)roundf(values[i] * inverse);
    return DLC_OK;
}

dlc_err dlc_stored_encode(void *out, dlc_stored type, const float *values, size_t n, const char *tensor)
{
    unsigned char *to = out;

    assert(n % dlc_stored_block_values(type) == 0);
    switch (type) {
    case DLC_STORED_F32: memcpy(out, values, n * sizeof *values); return DLC_OK;
    case DLC_STORED_BF16:
    case DLC_STORED_F16: return encode_halves(out, type, values, n, tensor);
    case DLC_STORED_Q8_0: break;
    }
    for (size_t i = 0; i < n; i += DLC_Q8_0_VALUES, to += DLC_Q8_0_BYTES)
        DLC_TRY(encode_block(to, values + i, tensor));
    return DLC_OK;
}

static void decode_block(float *out, const unsigned char *block)
{
    uint16_t half;
    float scale;

    memcpy(&half, block, sizeof half);
    scale = dlc_f16_to_f32(half);
    for (int i = 0; i < DLC_Q8_0_VALUES; i++)
        out[i] = (float)(int8_t)block[2 + i] * scale;
}

void dlc_stored_decode(float *out, dlc_stored type, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;

    if (type == DLC_STORED_F32) {
        if (n > 0)
            memcpy(out, bytes, n * sizeof *out);
    } else if (type == DLC_STORED_Q8_0) {
        for (size_t i = 0; i < n; i += DLC_Q8_0_VALUES, from += DLC_Q8_0_BYTES)
            decode_block(out + i, from);
    } else {
        for (size_t i = 0; i < n; i++) {
            uint16_t h;

            memcpy(&h, from + 2 * i, sizeof h);
            out[i] = type == DLC_STORED_BF16 ? dlc_bf16_to_f32(h) : dlc_f16_to_f32(h);
        }
    }
}

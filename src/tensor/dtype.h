/* Number formats and the conversions between them. */
#ifndef DLC_TENSOR_DTYPE_H
#define DLC_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum { DLC_F32, DLC_BF16, DLC_F16 } dlc_dtype;

typedef uint16_t dlc_bf16; /* the upper half of an f32 */

static inline size_t dlc_dtype_size(dlc_dtype t)
{
    return t == DLC_F32 ? 4 : 2;
}

static inline float dlc_bf16_to_f32(dlc_bf16 h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Round to nearest, ties to even; NaN stays NaN (quiet). */
static inline dlc_bf16 dlc_f32_to_bf16(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (dlc_bf16)((bits >> 16) | 0x40);
    return (dlc_bf16)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

/* IEEE half to f32, exact. */
static inline float dlc_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ffu, bits;
    float f;

    if (exponent == 31) {
        bits = sign | 0x7f800000u | fraction << 13;
    } else if (exponent == 0) { /* zero and subnormals: fraction x 2^-24 */
        f = (float)fraction * 0x1p-24f;
        memcpy(&bits, &f, sizeof bits);
        bits |= sign;
    } else {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Round to nearest, ties to even; from 65520 on infinite; NaN stays NaN (quiet). */
static inline uint16_t dlc_f32_to_f16(float f)
{
    uint32_t bits, sign, magnitude;

    memcpy(&bits, &f, sizeof bits);
    sign = bits >> 16 & 0x8000u;
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477ff000u) /* 65520 lies between 65504 and what would be 65536; the tie is even upwards */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: beside 0.5 an f32 has steps of 2^-24, as a subnormal half has */
        float shifted;

        memcpy(&shifted, &magnitude, sizeof shifted);
        shifted += 0.5f;
        memcpy(&magnitude, &shifted, sizeof magnitude);
        return (uint16_t)(sign | (magnitude - 0x3f000000u));
    }
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13);
}

#endif

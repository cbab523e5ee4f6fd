/* vdpbf16ps: 32 products of bf16 a vector, added in pairs to 16 sums in f32. */
#include <immintrin.h>

#include "bench/kernels/peak.h"

enum { N_SUMS = 24, ROUNDS = 1 << 20 };

double dlc_peak_dot_avx512bf16(float *sink)
{
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = (__m512bh)_mm512_set1_epi16(0x3780); /* 1 and 2^-16 */
    __m512 sums[N_SUMS];

    for (int i = 0; i < N_SUMS; i++)
        sums[i] = _mm512_set1_ps((float)i + *sink);
    for (long r = 0; r < ROUNDS; r++)
#pragma GCC unroll 24
        for (int i = 0; i < N_SUMS; i++)
            sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
    for (int i = 0; i < N_SUMS; i++)
        *sink += _mm512_reduce_add_ps(sums[i]);
    return 2.0 * ROUNDS * N_SUMS * 32;
}

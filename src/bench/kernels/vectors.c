/* f32 multiply-adds and memory streams, in vectors of the set's width.
 *
 * Plain expressions on compiler vectors. This file is compiled with -ffp-contract=fast, so x * a + b is one instruction
 * where the set has it. */
#include "bench/kernels/peak.h"

#if defined(__AVX512F__)
enum { BYTES = 64, N_SUMS = 24 };
#elif defined(__AVX2__)
enum { BYTES = 32, N_SUMS = 12 };
#elif defined(__aarch64__)
enum { BYTES = 16, N_SUMS = 24 };
#else
enum { BYTES = 16, N_SUMS = 12 };
#endif
enum { W = BYTES / (int)sizeof(float), N_READ_SUMS = 8 };

typedef float vf __attribute__((vector_size(BYTES), may_alias));

/* The sums do not depend on each other: a multiply-add takes 4 or 5 cycles and two begin in each, so at least 10 have
 * to be under way; together with the two factors they fill the registers but do not overflow them. They begin at
 * different values, so that no two are the same to the compiler, and tend to 2: nothing overflows or fades. */
static double fma_loop(float *sink)
{
    vf sums[N_SUMS], factor, term;

    for (int l = 0; l < W; l++) {
        factor[l] = 0.5f + *sink;
        term[l] = 1;
        for (int i = 0; i < N_SUMS; i++)
            sums[i][l] = (float)(i * W + l);
    }
    for (long r = 0; r < DLC_PEAK_FMA_ROUNDS; r++)
#pragma GCC unroll 24
        for (int i = 0; i < N_SUMS; i++)
            sums[i] = sums[i] * factor + term;
    for (int i = 0; i < N_SUMS; i++)
        for (int l = 0; l < W; l++)
            *sink += sums[i][l];
    return 2.0 * DLC_PEAK_FMA_ROUNDS * N_SUMS * W;
}

static float read_loop(const float *a, size_t n)
{
    vf sums[N_READ_SUMS] = { 0 };
    float sum = 0;

    for (size_t i = 0; i < n; i += (size_t)(N_READ_SUMS * W))
#pragma GCC unroll 8
        for (int k = 0; k < N_READ_SUMS; k++)
            sums[k] += *(const vf *)(a + i + (size_t)(k * W));
    for (int k = 0; k < N_READ_SUMS; k++)
        for (int l = 0; l < W; l++)
            sum += sums[k][l];
    return sum;
}

static void triad_loop(float *a, const float *b, const float *c, float s, size_t n)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < n; i += (size_t)W)
        *(vf *)(a + i) = *(const vf *)(b + i) + s * *(const vf *)(c + i);
}

static void in_place_loop(float *a, float s, size_t n)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < n; i += (size_t)W)
        *(vf *)(a + i) = s - *(const vf *)(a + i);
}

const struct dlc_peak_vectors DLC_PEAK(vectors) = { fma_loop, read_loop, triad_loop, in_place_loop };

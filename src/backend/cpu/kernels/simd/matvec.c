/* y[r] = w x[r] for few rows: a stream over w at the speed of memory.
 *
 * One row of w after the other, so that what is read is one unbroken stream, fetched ahead of its use at the distance
 * that was best of 0 to 4096 bytes; four rows of w at once are up to a third slower. Up to four rows of x share each
 * value of w. Sums: W lanes times two (four with one row of x), then pairwise; a value of y depends neither on where w
 * is cut nor on how many rows there are beside it but for that. */
#include "backend/cpu/kernels/simd/simd.h"

enum { ROWS = 4 };

/* `rows` and `type` are constants at every call: the loops over them disappear. */
static inline __attribute__((always_inline)) void dot_rows(float *y, size_t ldy, const float *x, const char *w,
                                                           const int rows, size_t K, const dlc_dtype type,
                                                           int accumulate)
{
    const int n_sums = rows == 1 ? 4 : 2;
    const size_t element = type == DLC_BF16 ? 2 : 4, step = (size_t)n_sums * W, ahead = type == DLC_BF16 ? 1024 : 512;
    vf sum[ROWS][4];
    size_t k = 0;

#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < n_sums; i++)
            sum[r][i] = v_set(0);
    for (; k + step <= K; k += step) {
#pragma GCC unroll 4
        for (size_t line = 0; line < step * element; line += 64)
            __builtin_prefetch(w + k * element + ahead + line);
#pragma GCC unroll 4
        for (int i = 0; i < n_sums; i++) {
            vf v = v_load_as(w, k + (size_t)i * W, type);

#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                sum[r][i] = v_fma(v, v_load(x + (size_t)r * K + k + (size_t)i * W), sum[r][i]);
        }
    }
    for (; k < K; k += W) {
        size_t n = K - k < W ? K - k : W;
        vf v = n == W ? v_load_as(w, k, type) : v_load_as_n(w, k, n, type);

#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            sum[r][0] = v_fma(v, v_load_upto(x + (size_t)r * K + k, n), sum[r][0]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float s = rows == 1 ? v_sum((sum[r][0] + sum[r][1]) + (sum[r][2] + sum[r][3])) : v_sum(sum[r][0] + sum[r][1]);

        y[(size_t)r * ldy] = accumulate ? y[(size_t)r * ldy] + s : s;
    }
}

static inline __attribute__((always_inline)) void all_of_w(float *y, size_t ldy, const float *x, const char *w,
                                                           const int rows, size_t N, size_t K, const dlc_dtype type,
                                                           int accumulate)
{
    const size_t row_bytes = K * (type == DLC_BF16 ? 2 : 4);

    for (size_t n = 0; n < N; n++)
        dot_rows(y + n, ldy, x, w + n * row_bytes, rows, K, type, accumulate);
}

static void few_rows(float *y, size_t ldy, const float *x, const void *w, size_t R, size_t N, size_t K, dlc_dtype type,
                     int accumulate)
{
    switch (R + (type == DLC_BF16 ? ROWS : 0)) {
    case 1: all_of_w(y, ldy, x, w, 1, N, K, DLC_F32, accumulate); break;
    case 2: all_of_w(y, ldy, x, w, 2, N, K, DLC_F32, accumulate); break;
    case 3: all_of_w(y, ldy, x, w, 3, N, K, DLC_F32, accumulate); break;
    case 4: all_of_w(y, ldy, x, w, 4, N, K, DLC_F32, accumulate); break;
    case ROWS + 1: all_of_w(y, ldy, x, w, 1, N, K, DLC_BF16, accumulate); break;
    case ROWS + 2: all_of_w(y, ldy, x, w, 2, N, K, DLC_BF16, accumulate); break;
    case ROWS + 3: all_of_w(y, ldy, x, w, 3, N, K, DLC_BF16, accumulate); break;
    case ROWS + 4: all_of_w(y, ldy, x, w, 4, N, K, DLC_BF16, accumulate); break;
    default: break;
    }
}

void DLC_KERNEL(matvec)(float *y, size_t ldy, const float *x, const void *w, size_t R, size_t N, size_t K,
                        dlc_dtype type, int accumulate)
{
    for (size_t r = 0; r < R; r += ROWS)
        few_rows(y + r * ldy, ldy, x + r * K, w, R - r < ROWS ? R - r : ROWS, N, K, type, accumulate);
}

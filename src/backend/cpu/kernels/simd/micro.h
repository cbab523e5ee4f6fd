/* A small matrix product in registers: 6 rows by 2 vectors of c, the shape that keeps both FMA units busy with 16
 * vector registers. Attention calls it on its tiles, matmul.c on packed panels. */
#ifndef DLC_BACKEND_CPU_MICRO_H
#define DLC_BACKEND_CPU_MICRO_H

#include "backend/cpu/kernels/simd/simd.h"

enum { MICRO_ROWS = 6, MICRO_COLUMNS = 2 * W };

/* a's element (i, k) at a[i*a_row + k*a_k]; b row-major. */
struct micro_operands {
    float *c;
    size_t ldc;
    const float *a;
    size_t a_row, a_k;
    const float *b;
    size_t ldb, K;
    int accumulate;
};

/* `rows`, `vectors` and `masked` are constants at every call: the loops over them disappear. `tail` is the number of
 * columns in the last vector when masked. The pragmas keep `sum` in registers with gcc, which otherwise unrolls too
 * late. */
static inline __attribute__((always_inline)) void micro_block(const struct micro_operands *o, const int rows,
                                                              const int vectors, const int masked, size_t tail)
{
    vf sum[MICRO_ROWS][2];
    const float *a = o->a, *b = o->b;
    size_t a_row = o->a_row, a_k = o->a_k, ldb = o->ldb, ldc = o->ldc;

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        sum[i][0] = v_set(0);
        sum[i][1] = v_set(0);
    }
    for (size_t k = 0; k < o->K; k++, a += a_k, b += ldb) {
        vf b0 = vectors == 1 && masked ? v_load_n(b, tail) : v_load(b), b1 = v_set(0);

        if (vectors == 2)
            b1 = masked ? v_load_n(b + W, tail) : v_load(b + W);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            vf x = v_set(a[(size_t)i * a_row]);

            sum[i][0] = v_fma(x, b0, sum[i][0]);
            if (vectors == 2)
                sum[i][1] = v_fma(x, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        float *c = o->c + (size_t)i * ldc;

#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++, c += W) {
            size_t n = masked && j == vectors - 1 ? tail : (size_t)W;
            vf v = sum[i][j];

            if (o->accumulate)
                v = v + v_load_upto(c, n);
            v_store_upto(c, v, n);
        }
    }
}

static inline __attribute__((always_inline)) void micro_columns(const struct micro_operands *o, const int rows,
                                                                size_t n)
{
    if (n == 2 * W)
        micro_block(o, rows, 2, 0, 0);
    else if (n > W)
        micro_block(o, rows, 2, 1, n - W);
    else if (n == W)
        micro_block(o, rows, 1, 0, 0);
    else
        micro_block(o, rows, 1, 1, n);
}

/* c[m][n] = a b or += a b, with m <= 6 and n <= 2 W. */
static inline void micro_edge(const struct micro_operands *o, size_t m, size_t n)
{
    switch (m) {
    case 6: micro_columns(o, 6, n); break;
    case 5: micro_columns(o, 5, n); break;
    case 4: micro_columns(o, 4, n); break;
    case 3: micro_columns(o, 3, n); break;
    case 2: micro_columns(o, 2, n); break;
    case 1: micro_columns(o, 1, n); break;
    default: break;
    }
}

/* What causality leaves of a product on the diagonal; the rest of c keeps what it was. */
enum micro_shape {
    MICRO_WHOLE,
    MICRO_K_UPTO_ROW, /* a[i][k] is 0 for k > i */
    MICRO_K_FROM_ROW, /* a[i][k] is 0 for k < i */
    MICRO_C_UPPER,    /* c[i][j] is wanted for j >= i */
    MICRO_C_LOWER,    /* c[i][j] is wanted for j <= i */
};

/* c[m][n] = or += a[m][K] b[K][n] for any m and n that stay in the nearest caches. */
static inline void micro_product(struct micro_operands o, size_t m, size_t n, enum micro_shape shape)
{
    for (size_t j = 0; j < n; j += MICRO_COLUMNS) {
        size_t width = n - j < MICRO_COLUMNS ? n - j : MICRO_COLUMNS;

        for (size_t i = 0; i < m; i += MICRO_ROWS) {
            size_t rows = m - i < MICRO_ROWS ? m - i : MICRO_ROWS;
            struct micro_operands block = o;

            if ((shape == MICRO_C_UPPER && i >= j + width) || (shape == MICRO_C_LOWER && j >= i + rows))
                continue;
            block.c += i * o.ldc + j;
            block.a += i * o.a_row;
            block.b += j;
            if (shape == MICRO_K_UPTO_ROW && i + rows < o.K)
                block.K = i + rows;
            if (shape == MICRO_K_FROM_ROW && i < o.K) {
                block.a += i * o.a_k;
                block.b += i * o.ldb;
                block.K -= i;
            }
            micro_edge(&block, rows, width);
        }
    }
}

#endif

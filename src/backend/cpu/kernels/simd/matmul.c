/* c = a b by blocks: panels of a and b are copied into the order in which micro.h reads them (and from bf16 to f32 on
 * the way), sized so that b's panel stays in the second cache and a's block in the first two. Blocks of the inner
 * dimension are added in order, so a value's bits do not depend on where c is cut, nor on alignment. */
#include "backend/cpu/kernels/simd/micro.h"

enum { BLOCK_M = 16 * MICRO_ROWS, BLOCK_K = 256, BLOCK_N = 512 };

static inline float element(const struct dlc_matrix *m, size_t at)
{
    return m->dtype == DLC_F32 ? ((const float *)m->values)[at] : dlc_bf16_to_f32(((const dlc_bf16 *)m->values)[at]);
}

/* to[i][w] = m[i0 + w][k0 + i] for w < width: `width` rows of m side by side; rows of `to` are `width` apart. `turned`
 * swaps the roles of rows and columns. */
static void pack_strip(float *to, const struct dlc_matrix *m, size_t i0, size_t k0, size_t width, size_t n_k,
                       int turned)
{
    int along = m->transposed != turned; /* the `width` values lie side by side in memory */

    for (size_t w = 0; w < width && !along; w++) {
        size_t from = (i0 + w) * m->ld + k0;

        for (size_t k = 0; k < n_k; k++)
            to[k * width + w] = element(m, from + k);
    }
    for (size_t k = 0; k < n_k && along; k++) {
        size_t from = (k0 + k) * m->ld + i0;

        for (size_t w = 0; w < width; w++)
            to[k * width + w] = element(m, from + w);
    }
}

static void multiply_block(const struct dlc_product *p, const float *a, const float *b, size_t i0, size_t j0, size_t m,
                           size_t n, size_t n_k, int accumulate)
{
    for (size_t j = 0; j < n; j += MICRO_COLUMNS) {
        size_t width = n - j < MICRO_COLUMNS ? n - j : MICRO_COLUMNS;

        for (size_t i = 0; i < m; i += MICRO_ROWS) {
            size_t rows = m - i < MICRO_ROWS ? m - i : MICRO_ROWS;
            struct micro_operands o = {
                p->c + (i0 + i) * p->ldc + j0 + j, p->ldc, a + i * n_k, 1, rows, b + j * n_k, width, n_k, accumulate
            };

            micro_edge(&o, rows, width);
        }
    }
}

static void add_panel(const struct dlc_product *p, float *scratch, size_t j0, size_t k0, size_t n, size_t n_k,
                      int accumulate)
{
    float *b = scratch, *a = scratch + (size_t)BLOCK_K * BLOCK_N;

    for (size_t j = 0; j < n; j += MICRO_COLUMNS)
        pack_strip(b + j * n_k, &p->b, j0 + j, k0, n - j < MICRO_COLUMNS ? n - j : MICRO_COLUMNS, n_k, 1);
    for (size_t i0 = 0; i0 < p->M; i0 += BLOCK_M) {
        size_t m = p->M - i0 < BLOCK_M ? p->M - i0 : BLOCK_M;

        for (size_t i = 0; i < m; i += MICRO_ROWS)
            pack_strip(a + i * n_k, &p->a, i0 + i, k0, m - i < MICRO_ROWS ? m - i : MICRO_ROWS, n_k, 0);
        multiply_block(p, a, b, i0, j0, m, n, n_k, accumulate);
    }
}

void DLC_KERNEL(matmul)(const struct dlc_product *p, float *scratch)
{
    for (size_t j0 = 0; j0 < p->N; j0 += BLOCK_N) {
        size_t n = p->N - j0 < BLOCK_N ? p->N - j0 : BLOCK_N;

        for (size_t k0 = 0; k0 < p->K; k0 += BLOCK_K)
            add_panel(p, scratch, j0, k0, n, p->K - k0 < BLOCK_K ? p->K - k0 : BLOCK_K, p->accumulate || k0 > 0);
    }
}

/* The kernels of the CPU device: the arithmetic of one operation on one part, in one thread.
 *
 * ops_*.c divides an operation into parts and calls these from the pool's workers. `ref` has every kernel in plain C
 * and is the test of the others; a set of instructions (avx2, avx512) overwrites the entries it does better. Letters
 * and formulas are those of backend.h. Kernels cannot fail and allocate nothing.
 *
 * A kernel file is compiled once per set, with DLC_SET naming it: DLC_KERNEL(add) is dlc_add_ref, dlc_add_avx2 ...
 */
#ifndef DLC_BACKEND_CPU_KERNELS_H
#define DLC_BACKEND_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

#ifndef DLC_SET
#define DLC_SET ref
#endif
#define DLC_KERNEL_PASTE(name, set) dlc_##name##_##set
#define DLC_KERNEL_NAME(name, set) DLC_KERNEL_PASTE(name, set)
#define DLC_KERNEL(name) DLC_KERNEL_NAME(name, DLC_SET)

/* A matrix as a library sees it: element (i, j) at i*ld + j, or at j*ld + i when transposed. */
struct dlc_matrix {
    const void *values;
    size_t ld;
    int transposed;
    dlc_dtype dtype; /* DLC_F32 or DLC_BF16 */
};

/* c[M][N] = a[M][K] b[K][N], rows of c ldc apart; added to c when accumulate. No size is 0. */
struct dlc_product {
    float *c;
    size_t ldc;
    struct dlc_matrix a, b;
    size_t M, N, K;
    int accumulate;
};

/* Attention is divided into items (b, k, tile of queries) forward and (b, k) backward, k a key/value head: no two items
 * write the same array element, so results do not depend on the number of threads. */
enum { DLC_ATTENTION_TILE = 64 };

static inline size_t dlc_attention_n_tiles(const struct dlc_attention *s)
{
    return (s->T + DLC_ATTENTION_TILE - 1) / DLC_ATTENTION_TILE;
}

/* Attention over a cache: R rows of the G query heads that share one key/value head against positions [begin, end) of
 * it, row r only against those below `seen` + r. q and o: rows H*D values apart, heads D; max and sum: rows H apart.
 * o = sum_j exp(s_j - max) v_j, sum = sum_j exp(s_j - max): parts over different positions can be merged. A row that
 * sees nothing has max -infinity and zeros. */
struct dlc_cached_part {
    size_t R, G, H, D, seen, begin, end;
    dlc_dtype type;
};

typedef void dlc_matmul_fn(const struct dlc_product *p, float *scratch);
typedef void dlc_embed_fwd_fn(float *y, const int32_t *tokens, const float *table, size_t R, size_t C);
/* Columns [c_begin, c_end) of dtable. */
typedef void dlc_embed_bwd_fn(float *dtable, const int32_t *tokens, const float *dy, size_t R, size_t C, size_t c_begin,
                              size_t c_end);
typedef void dlc_rmsnorm_fwd_fn(float *y, float *inv_rms, const float *x, const float *g, size_t R, size_t C,
                                float eps);
typedef void dlc_rmsnorm_bwd_fn(float *dx, float *dg, const float *dy, const float *x, const float *inv_rms,
                                const float *g, size_t R, size_t C);
/* Rows [r_begin, r_end) of x. */
typedef void dlc_rope_fn(float *x, const float *table, size_t r_begin, size_t r_end, size_t T, size_t pos0,
                         size_t heads, size_t D, size_t row, int inverse);
typedef void dlc_attention_fwd_fn(void *y, float *lse, const float *q, const float *k, const float *v,
                                  const struct dlc_attention *shape, size_t item_begin, size_t item_end,
                                  float *scratch);
typedef void dlc_attention_bwd_fn(float *dq, float *dk, float *dv, const float *dy, const float *q, const float *k,
                                  const float *v, const void *y, const float *lse,
                                  const struct dlc_attention *shape, size_t item_begin, size_t item_end,
                                  float *scratch);
typedef void dlc_swiglu_fwd_fn(float *y, const float *gate, const float *up, size_t n);
typedef void dlc_swiglu_bwd_fn(float *dgate, float *dup, float *y, const float *dy, const float *gate, const float *up,
                               size_t n);
typedef void dlc_cross_entropy_fn(float *loss, float *logits, const int32_t *targets, size_t R, size_t V, float dscale);
typedef void dlc_add_fn(float *y, const float *x, size_t n);
typedef void dlc_to_bf16_fn(dlc_bf16 *y, const float *x, size_t n);
typedef double dlc_sum_squares_fn(const float *x, size_t n);
typedef void dlc_adamw_fn(float *p, float *m, float *v, const float *grad, size_t n, const struct dlc_adamw *a);
/* Rows of y are ldy apart; w has N rows. */
typedef void dlc_matvec_fn(float *y, size_t ldy, const float *x, const void *w, size_t R, size_t N, size_t K,
                           dlc_dtype type, int accumulate);
typedef void dlc_attention_cached_fn(float *o, float *max, float *sum, const float *q, const void *keys,
                                     const void *values, const struct dlc_cached_part *part);
typedef void dlc_from_bf16_fn(float *y, const dlc_bf16 *x, size_t n);
typedef void dlc_exp_fn(float *y, const float *x, size_t n); /* not an operation: lets a test measure its error */

struct dlc_kernels {
    dlc_matmul_fn *matmul;
    dlc_embed_fwd_fn *embed_fwd;
    dlc_embed_bwd_fn *embed_bwd;
    dlc_rmsnorm_fwd_fn *rmsnorm_fwd;
    dlc_rmsnorm_bwd_fn *rmsnorm_bwd;
    dlc_rope_fn *rope;
    dlc_attention_fwd_fn *attention_fwd;
    dlc_attention_bwd_fn *attention_bwd;
    dlc_swiglu_fwd_fn *swiglu_fwd;
    dlc_swiglu_bwd_fn *swiglu_bwd;
    dlc_cross_entropy_fn *cross_entropy;
    dlc_add_fn *add;
    dlc_to_bf16_fn *to_bf16;
    dlc_sum_squares_fn *sum_squares;
    dlc_adamw_fn *adamw;
    dlc_matvec_fn *matvec;
    dlc_attention_cached_fn *attention_cached;
    dlc_from_bf16_fn *from_bf16;
    dlc_exp_fn *exp;
};

/* Overwrite the entries that this set has. */
void dlc_kernels_ref(struct dlc_kernels *k);
void dlc_kernels_avx2(struct dlc_kernels *k);
void dlc_kernels_avx512(struct dlc_kernels *k);

dlc_matmul_fn DLC_KERNEL(matmul);
dlc_embed_fwd_fn DLC_KERNEL(embed_fwd);
dlc_embed_bwd_fn DLC_KERNEL(embed_bwd);
dlc_rmsnorm_fwd_fn DLC_KERNEL(rmsnorm_fwd);
dlc_rmsnorm_bwd_fn DLC_KERNEL(rmsnorm_bwd);
dlc_rope_fn DLC_KERNEL(rope);
dlc_attention_fwd_fn DLC_KERNEL(attention_fwd);
dlc_attention_bwd_fn DLC_KERNEL(attention_bwd);
dlc_swiglu_fwd_fn DLC_KERNEL(swiglu_fwd);
dlc_swiglu_bwd_fn DLC_KERNEL(swiglu_bwd);
dlc_cross_entropy_fn DLC_KERNEL(cross_entropy);
dlc_add_fn DLC_KERNEL(add);
dlc_to_bf16_fn DLC_KERNEL(to_bf16);
dlc_sum_squares_fn DLC_KERNEL(sum_squares);
dlc_adamw_fn DLC_KERNEL(adamw);
dlc_matvec_fn DLC_KERNEL(matvec);
dlc_attention_cached_fn DLC_KERNEL(attention_cached);
dlc_from_bf16_fn DLC_KERNEL(from_bf16);
dlc_exp_fn DLC_KERNEL(exp);

#endif

/* Compute: one device and the operations on it, behind a table of function pointers.
 *
 * The CPU is the reference and always there. Another device fills the same table and passes the same conformance suite
 * (backend/conformance_test.c). Nothing above this folder knows which device it runs on.
 *
 * Letters: R rows (= B*T positions), C columns, V vocabulary, B sequences, T positions, H heads, K key/value heads,
 * D head_dim. Arrays are dense, row-major, in the device's memory; outputs come first; unless a line says otherwise
 * outputs do not overlap inputs, are overwritten, and the operation cannot fail. `d` before a name: gradient of the
 * loss by it. Operations are queued in order from one thread; the CPU finishes each before it returns.
 */
#ifndef DLC_BACKEND_BACKEND_H
#define DLC_BACKEND_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/dtype.h"

typedef struct dlc_backend dlc_backend;

/* Instruction sets of the CPU device, from weak to strong; system.isa forces one, "auto" takes the best there is. */
typedef enum { DLC_ISA_REF, DLC_ISA_AVX2, DLC_ISA_AVX512, DLC_ISA_AVX512BF16, DLC_ISA_AMX } dlc_isa;

#define DLC_BACKEND_ABI 4

struct dlc_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float bias1, bias2; /* 1 - beta1^step, 1 - beta2^step, computed in double from the *float* values of beta: the
                         * rounding of beta2 = 0.999f alone moves 1 - beta2 by 1e-5, and must cancel */
    float grad_scale;   /* the gradient is multiplied by this first: clipping */
};

/* What only products read can be written as they read it: a `void *` output is f32 or, where its type says so, bf16, each
 * value the f32 one rounded to nearest even. It then overlaps no input.
 *
 * Rows of one array may be parts of longer ones, as q, k and v are of one product's output: `row` counts the values from
 * a row to the next. What lies between is neither read nor written. */

/* R rows of `heads` vectors of C values, each normed on its own; a row's vectors are neighbours. */
struct dlc_norm {
    size_t R, heads, C;
    size_t x_row; /* of x and dx */
    size_t y_row; /* of y and dy */
    float eps;    /* this and the next: forward only */
    dlc_dtype y_type;
};

static inline struct dlc_norm dlc_norm_rows(size_t R, size_t C, float eps)
{
    return (struct dlc_norm){ .R = R, .heads = 1, .C = C, .x_row = C, .y_row = C, .eps = eps };
}

struct dlc_attention {
    size_t B, T, H, K, D;
    size_t q_row, k_row, v_row; /* of q, k, v and of dq, dk, dv */
    dlc_dtype y_type;
};

struct dlc_cached {
    size_t R, past, P, H, K, D;
    dlc_dtype type; /* of the cache: DLC_F32 or DLC_BF16 */
};

struct dlc_ops {
    unsigned abi; /* DLC_BACKEND_ABI */

    /* Matrix products. dtype of x, w, dy as named in `in`; accumulation and output f32.
     *   nt: y[R][N]  = x[R][K] w[N][K]^T            (forward)
     *   nn: dx[R][K] = dy[R][N] w[N][K]             (input gradient)
     *   tn: dw[N][K] += dy[R][N]^T x[R][K]          (weight gradient)
     * `accumulate` nonzero adds to the output instead of overwriting it. Same bits for the same shapes, dtype, thread
     * count and instruction set. */
    void (*matmul_nt)(dlc_backend *be, float *y, const void *x, const void *w, size_t R, size_t N, size_t K,
                      dlc_dtype in, int accumulate);
    void (*matmul_nn)(dlc_backend *be, float *dx, const void *dy, const void *w, size_t R, size_t N, size_t K,
                      dlc_dtype in, int accumulate);
    void (*matmul_tn)(dlc_backend *be, float *dw, const void *dy, const void *x, size_t R, size_t N, size_t K,
                      dlc_dtype in, int accumulate);

    /* y[r] = table[token[r]];  dtable[token[r]] += dy[r], rows in order. */
    void (*embed_fwd)(dlc_backend *be, float *y, const int32_t *tokens, const float *table, size_t R, size_t C);
    void (*embed_bwd)(dlc_backend *be, float *dtable, const int32_t *tokens, const float *dy, size_t R, size_t C);

    /* y[r][h][c] = x[r][h][c] * inv_rms[r][h] * g[c], inv_rms[r][h] = 1/sqrt(mean_c x^2 + eps) (arXiv:1910.07467, eps
     * inside). inv_rms [R][heads] is written for the backward pass; NULL when evaluating. bwd: dx ADDS, dg ADDS; dx16,
     * unless NULL, gets the new dx in bf16. */
    void (*rmsnorm_fwd)(dlc_backend *be, void *y, float *inv_rms, const float *x, const float *g,
                        const struct dlc_norm *shape);
    void (*rmsnorm_bwd)(dlc_backend *be, float *dx, dlc_bf16 *dx16, float *dg, const float *dy, const float *x,
                        const float *inv_rms, const float *g, const struct dlc_norm *shape);

    /* Rotary positions in place on x [R][heads][D], rows `row` apart; row r stands at position pos0 + r % T.
     * Half-rotation layout: pairs (i, i + D/2), angle pos * theta^(-2i/D). inverse = 1 rotates back (the backward
     * pass). `table` holds cos and sin: [positions][D/2][2]. */
    void (*rope)(dlc_backend *be, float *x, const float *table, size_t R, size_t T, size_t pos0, size_t heads, size_t D,
                 size_t row, int inverse);

    /* Causal grouped-query attention, no T x T storage. q [B][T][H][D], k and v [B][T][K][D]; y and dy [B][T][H][D]
     * dense; lse [B][H][T] log-sum-exp of each row's scores, kept for the backward pass (NULL when evaluating).
     * scores = q.k / sqrt(D), head h uses key/value head h / (H/K). bwd: dq, dk, dv overwritten. */
    void (*attention_fwd)(dlc_backend *be, void *y, float *lse, const float *q, const float *k, const float *v,
                          const struct dlc_attention *shape);
    void (*attention_bwd)(dlc_backend *be, float *dq, float *dk, float *dv, const float *dy, const float *q,
                          const float *k, const float *v, const void *y, const float *lse,
                          const struct dlc_attention *shape);

    /* y = silu(gate) * up; y and dy [R][F] dense, gate and up (and their gradients) [R][F] with rows `row` apart.  bwd:
     * dgate, dup overwritten (may be the arrays of gate and up), and y made again, which costs nothing there (may be
     * the array of dy). `out` is the type of y, dgate and dup. */
    void (*swiglu_fwd)(dlc_backend *be, void *y, const float *gate, const float *up, size_t R, size_t F, size_t row,
                       dlc_dtype out);
    void (*swiglu_bwd)(dlc_backend *be, void *dgate, void *dup, void *y, const float *dy, const float *gate,
                       const float *up, size_t R, size_t F, size_t row, dlc_dtype out);

    /* loss[r] = logsumexp(logits[r]) - logits[r][target[r]]; when dscale != 0 the logits are replaced by
     * (softmax - onehot) * dscale, and dlogits16, unless NULL, gets that in bf16. */
    void (*cross_entropy)(dlc_backend *be, float *loss, float *logits, dlc_bf16 *dlogits16, const int32_t *targets,
                          size_t R, size_t V, float dscale);

    void (*add)(dlc_backend *be, float *y, const float *x, size_t n);        /* y += x */
    void (*to_bf16)(dlc_backend *be, dlc_bf16 *y, const float *x, size_t n); /* nearest even */

    /* Sum of squares in double, the same for every thread count (fixed blocks, summed in order). */
    double (*sum_squares)(dlc_backend *be, const float *x, size_t n);

    /* AdamW (Loshchilov and Hutter, arXiv:1711.05101; torch form) on n values, in place on p, m, v:
     *   g = grad*grad_scale; p -= lr*weight_decay*p; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
     *   p -= lr * (m/bias1) / (sqrt(v/bias2) + eps) */
    void (*adamw)(dlc_backend *be, float *p, float *m, float *v, const float *grad, size_t n,
                  const struct dlc_adamw *a);

    /* For generation, where a step reads every weight once for one row.
     *
     * matvec: y[r] = w x[r] for few rows: y[R][N] = x[R][K] w[N][K]^T. x is f32 and not rounded, w as named in `type`;
     * accumulation f32. w is read once for every four rows. `accumulate` nonzero adds to y.
     *
     * attention_cached: R rows stand at positions past .. past + R - 1 and every row attends to all positions up to its
     * own. k, v [R][K][D] are first put into the cache (values of `type`, bf16 rounded to nearest even); then
     * y[R][H][D] = attention of q[R][H][D] over keys and values [K][P][D], of which positions below past + R are read.
     * scores = q.k / sqrt(D), head h uses key/value head h / (H/K). past + R <= P.
     *
     * from_bf16: y = x, exact. */
    void (*matvec)(dlc_backend *be, float *y, const float *x, const void *w, size_t R, size_t N, size_t K,
                   dlc_dtype type, int accumulate);
    void (*attention_cached)(dlc_backend *be, float *y, void *keys, void *values, const float *q, const float *k,
                             const float *v, const struct dlc_cached *shape);
    void (*from_bf16)(dlc_backend *be, float *y, const dlc_bf16 *x, size_t n);
};

/* Fields are read-only for callers. */
struct dlc_backend {
    const char *device; /* "cpu" */
    const char *isa;    /* "ref", "avx2", "avx512", "avx512bf16", "amx" */
    const char *matmul; /* which library multiplies matrices: "onednn", "openblas", "ref" */
    const struct dlc_ops *ops;
    struct dlc_pool *pool;
    const struct dlc_device *driver; /* the kind of device, see device.h */
    void *impl;                      /* the implementation's own */
};

/* isa: "auto" or one of the names; DLC_EUSAGE when the machine lacks it. n_threads >= 1; 0: all cores this process may
 * use. */
dlc_err dlc_backend_create(dlc_backend **out, const char *isa, int n_threads);
void dlc_backend_destroy(dlc_backend *be); /* accepts NULL */

/* Device memory, zeroed, 64-byte aligned. */
dlc_err dlc_backend_alloc(dlc_backend *be, void **out, size_t size_bytes, const char *purpose);
void dlc_backend_free(dlc_backend *be, void *p, size_t size_bytes);

#endif

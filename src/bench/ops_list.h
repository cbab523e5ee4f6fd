/* The operations of dlc_ops as data: what each costs. A new operation is one row here; timed_test.c fails without it.
 *
 *   ROW(name, returns, (parameters), (arguments), roof, amount, sizes...)
 *
 * Parameters and arguments are those of backend.h behind `be`; the compiler compares them with it. `roof` is what
 * bounds the operation: DLC_ROOF_F32 or DLC_ROOF_BF16 when it computes, and then `amount` is FLOPs of one call (a
 * multiply-add is 2); otherwise one of the three streams it resembles most, and `amount` is the bytes it has to read
 * and write even if every value were touched once only. `sizes` tell one shape from another. */
#ifndef DLC_BENCH_OPS_LIST_H
#define DLC_BENCH_OPS_LIST_H

#define DLC_PRODUCT_ROOF(in) ((in) == DLC_BF16 ? DLC_ROOF_BF16 : DLC_ROOF_F32)
/* Half of each T x T product lies above the diagonal. Forward 2 products, backward 5. */
#define DLC_CAUSAL_FLOPS(n_products, s) ((n_products)*2.0 * (double)((s)->B * (s)->H * (s)->T * (s)->T * (s)->D) / 2)
#define DLC_FLOATS(n) (4.0 * (double)(n))
#define DLC_VALUES(n, type) ((double)(n) * (double)dlc_dtype_size(type))
#define DLC_NORMED(s) ((s)->R * (s)->heads * (s)->C)

/* clang-format off */
#define DLC_OPS_LIST(ROW)                                                                                              \
    ROW(matmul_nt, void,                                                                                               \
        (float *y, const void *x, const void *w, size_t R, size_t N, size_t K, dlc_dtype in, int accumulate),          \
        (y, x, w, R, N, K, in, accumulate), DLC_PRODUCT_ROOF(in), 2.0 * (double)(R * N * K), R, N, K)                  \
    ROW(matmul_nn, void,                                                                                               \
        (float *dx, const void *dy, const void *w, size_t R, size_t N, size_t K, dlc_dtype in, int accumulate),        \
        (dx, dy, w, R, N, K, in, accumulate), DLC_PRODUCT_ROOF(in), 2.0 * (double)(R * N * K), R, N, K)                \
    ROW(matmul_tn, void,                                                                                               \
        (float *dw, const void *dy, const void *x, size_t R, size_t N, size_t K, dlc_dtype in, int accumulate),        \
        (dw, dy, x, R, N, K, in, accumulate), DLC_PRODUCT_ROOF(in), 2.0 * (double)(R * N * K), R, N, K)                \
    ROW(embed_fwd, void, (float *y, const int32_t *tokens, const float *table, size_t R, size_t C),                    \
        (y, tokens, table, R, C), DLC_ROOF_TRIAD, DLC_FLOATS(2 * R * C), R, C)                                         \
    ROW(embed_bwd, void, (float *dtable, const int32_t *tokens, const float *dy, size_t R, size_t C),                  \
        (dtable, tokens, dy, R, C), DLC_ROOF_IN_PLACE, DLC_FLOATS(3 * R * C), R, C)                                    \
    ROW(rmsnorm_fwd, void,                                                                                             \
        (void *y, float *inv_rms, const float *x, const float *g, const struct dlc_norm *shape),                       \
        (y, inv_rms, x, g, shape), DLC_ROOF_TRIAD,                                                                     \
        DLC_FLOATS(DLC_NORMED(shape)) + DLC_VALUES(DLC_NORMED(shape), shape->y_type), shape->R, shape->heads,          \
        shape->C)                                                                                                      \
    ROW(rmsnorm_bwd, void,                                                                                             \
        (float *dx, dlc_bf16 *dx16, float *dg, const float *dy, const float *x, const float *inv_rms, const float *g,  \
         const struct dlc_norm *shape),                                                                                \
        (dx, dx16, dg, dy, x, inv_rms, g, shape), DLC_ROOF_IN_PLACE,                                                   \
        DLC_FLOATS(4 * DLC_NORMED(shape)) + (dx16 ? DLC_VALUES(DLC_NORMED(shape), DLC_BF16) : 0), shape->R,            \
        shape->heads, shape->C)                                                                                        \
    ROW(rope, void,                                                                                                    \
        (float *x, const float *table, size_t R, size_t T, size_t pos0, size_t heads, size_t D, size_t row,            \
         int inverse),                                                                                                 \
        (x, table, R, T, pos0, heads, D, row, inverse), DLC_ROOF_IN_PLACE, DLC_FLOATS(2 * R * heads * D), R, heads,    \
        D, row)                                                                                                        \
    ROW(attention_fwd, void,                                                                                           \
        (void *y, float *lse, const float *q, const float *k, const float *v, const struct dlc_attention *shape),      \
        (y, lse, q, k, v, shape), DLC_ROOF_F32, DLC_CAUSAL_FLOPS(2, shape), shape->B, shape->T, shape->H, shape->K,    \
        shape->D)                                                                                                      \
    ROW(attention_bwd, void,                                                                                           \
        (float *dq, float *dk, float *dv, const float *dy, const float *q, const float *k, const float *v,             \
         const void *y, const float *lse, const struct dlc_attention *shape),                                          \
        (dq, dk, dv, dy, q, k, v, y, lse, shape), DLC_ROOF_F32, DLC_CAUSAL_FLOPS(5, shape), shape->B, shape->T,        \
        shape->H, shape->K, shape->D)                                                                                  \
    ROW(swiglu_fwd, void,                                                                                              \
        (void *y, const float *gate, const float *up, size_t R, size_t F, size_t row, dlc_dtype out),                  \
        (y, gate, up, R, F, row, out), DLC_ROOF_TRIAD, DLC_FLOATS(2 * R * F) + DLC_VALUES(R * F, out), R, F)           \
    ROW(swiglu_bwd, void,                                                                                              \
        (void *dgate, void *dup, void *y, const float *dy, const float *gate, const float *up, size_t R, size_t F,     \
         size_t row, dlc_dtype out),                                                                                   \
        (dgate, dup, y, dy, gate, up, R, F, row, out), DLC_ROOF_IN_PLACE,                                              \
        DLC_FLOATS(3 * R * F) + DLC_VALUES(3 * R * F, out), R, F)                                                      \
    ROW(cross_entropy, void,                                                                                           \
        (float *loss, float *logits, dlc_bf16 *dlogits16, const int32_t *targets, size_t R, size_t V, float dscale),   \
        (loss, logits, dlogits16, targets, R, V, dscale), dscale != 0 ? DLC_ROOF_IN_PLACE : DLC_ROOF_READ,             \
        DLC_FLOATS(R * V * (dscale != 0 ? 2 : 1)) + (dscale != 0 && dlogits16 ? DLC_VALUES(R * V, DLC_BF16) : 0), R,   \
        V)                                                                                                             \
    ROW(add, void, (float *y, const float *x, size_t n), (y, x, n), DLC_ROOF_IN_PLACE, DLC_FLOATS(3 * n), n)           \
    ROW(to_bf16, void, (dlc_bf16 *y, const float *x, size_t n), (y, x, n), DLC_ROOF_TRIAD, 6.0 * (double)n, n)         \
    ROW(sum_squares, double, (const float *x, size_t n), (x, n), DLC_ROOF_READ, DLC_FLOATS(n), n)                      \
    ROW(adamw, void, (float *p, float *m, float *v, const float *grad, size_t n, const struct dlc_adamw *a),           \
        (p, m, v, grad, n, a), DLC_ROOF_IN_PLACE, DLC_FLOATS(7 * n), n)                                                \
    ROW(matvec, void,                                                                                                  \
        (float *y, const float *x, const void *w, size_t R, size_t N, size_t K, dlc_dtype type, int accumulate),       \
        (y, x, w, R, N, K, type, accumulate), DLC_ROOF_READ, (double)(N * K * dlc_dtype_size(type)), R, N, K)          \
    ROW(attention_cached, void,                                                                                        \
        (float *y, void *keys, void *values, const float *q, const float *k, const float *v,                           \
         const struct dlc_cached *shape),                                                                              \
        (y, keys, values, q, k, v, shape), DLC_ROOF_READ,                                                              \
        2.0 * (double)(shape->K * shape->D * (shape->past + shape->R) * dlc_dtype_size(shape->type)), shape->R,        \
        shape->past, shape->H, shape->K, shape->D)                                                                     \
    ROW(from_bf16, void, (float *y, const dlc_bf16 *x, size_t n), (y, x, n), DLC_ROOF_TRIAD, 6.0 * (double)n, n)
/* clang-format on */

#endif

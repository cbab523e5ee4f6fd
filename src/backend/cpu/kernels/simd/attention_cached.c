/* Attention of query rows over cached keys and values; what a part gives is in kernels.h.
 *
 * Blocks of positions are met by all rows and heads that share them while they are in the nearest caches; the running
 * maximum and sum are the streaming softmax of Milakov and Gimelshein (arXiv:1805.02867). Keys and values are read as
 * they lie, in f32 or widened from bf16. */
#include "backend/cpu/kernels/simd/simd.h"

enum { BLOCK = 64, KEYS = 4, VECTORS = 8 };

/* Scores of `keys` keys, a constant, from k on. */
static inline __attribute__((always_inline)) void dot_keys(float *s, const float *q, const void *k, size_t at, size_t D,
                                                           const int keys, const dlc_dtype type)
{
    vf sum[KEYS];
    size_t d = 0;

#pragma GCC unroll 4
    for (int i = 0; i < keys; i++)
        sum[i] = v_set(0);
    for (; d + W <= D; d += W) {
        vf u = v_load(q + d);

#pragma GCC unroll 4
        for (int i = 0; i < keys; i++)
            sum[i] = v_fma(u, v_load_as(k, at + (size_t)i * D + d, type), sum[i]);
    }
    if (d < D) {
        vf u = v_load_n(q + d, D - d);

#pragma GCC unroll 4
        for (int i = 0; i < keys; i++)
            sum[i] = v_fma(u, v_load_as_n(k, at + (size_t)i * D + d, D - d, type), sum[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < keys; i++)
        s[i] = v_sum(sum[i]);
}

static inline __attribute__((always_inline)) void scores(float *s, const float *q, const void *k, size_t begin,
                                                         size_t n, size_t D, const dlc_dtype type)
{
    vf scale = v_set(1 / sqrtf((float)D));
    size_t j = 0;

    for (; j + KEYS <= n; j += KEYS)
        dot_keys(s + j, q, k, (begin + j) * D, D, KEYS, type);
    for (; j < n; j++)
        dot_keys(s + j, q, k, (begin + j) * D, D, 1, type);
    for (; j % W != 0; j++)
        s[j] = -INFINITY;
    for (size_t i = 0; i < j; i += W)
        v_store(s + i, v_load(s + i) * scale);
}

/* Turns the scores into exp(score - max) with maximum and sum brought up to date; gives what older sums shrink by. */
static float softmax(float *s, float *max, float *sum, size_t n)
{
    vf largest = v_set(*max), total = v_set(0), shrink;
    float factor[W];

    for (size_t i = 0; i < n; i += W)
        largest = v_max(largest, v_load(s + i));
    largest = v_set(v_largest(largest));
    for (size_t i = 0; i < n; i += W) {
        vf e = v_exp(v_load(s + i) - largest);

        v_store(s + i, e);
        total = total + e;
    }
    shrink = v_exp(v_set(*max) - largest);
    v_store(factor, shrink);
    v_store_n(max, largest, 1);
    *sum = *sum * factor[0] + v_sum(total);
    return factor[0];
}

/* o = o shrink + sum_j p_j v_j for `vectors` vectors of columns, a constant. */
static inline __attribute__((always_inline)) void add_columns(float *o, const float *p, const void *v, size_t at,
                                                              size_t n, size_t D, float shrink, const int vectors,
                                                              const dlc_dtype type)
{
    vf sum[VECTORS];

#pragma GCC unroll 8
    for (int i = 0; i < vectors; i++)
        sum[i] = v_load(o + i * W) * v_set(shrink);
    for (size_t j = 0; j < n; j++, at += D) {
        vf e = v_set(p[j]);

#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++)
            sum[i] = v_fma(e, v_load_as(v, at + (size_t)(i * W), type), sum[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < vectors; i++)
        v_store(o + i * W, sum[i]);
}

static void add_tail(float *o, const float *p, const void *v, size_t at, size_t n, size_t D, float shrink, size_t width,
                     dlc_dtype type)
{
    vf sum = v_load_n(o, width) * v_set(shrink);

    for (size_t j = 0; j < n; j++, at += D)
        sum = v_fma(v_set(p[j]), v_load_as_n(v, at, width, type), sum);
    v_store_n(o, sum, width);
}

static inline __attribute__((always_inline)) void add_values(float *o, const float *p, const void *v, size_t begin,
                                                             size_t n, size_t D, float shrink, const dlc_dtype type)
{
    size_t d = 0, at = begin * D;

    for (; d + VECTORS * W <= D; d += VECTORS * W)
        add_columns(o + d, p, v, at + d, n, D, shrink, VECTORS, type);
    for (; d + 4 * W <= D; d += 4 * W)
        add_columns(o + d, p, v, at + d, n, D, shrink, 4, type);
    for (; d + W <= D; d += W)
        add_columns(o + d, p, v, at + d, n, D, shrink, 1, type);
    if (d < D)
        add_tail(o + d, p, v, at + d, n, D, shrink, D - d, type);
}

static inline __attribute__((always_inline)) void all_blocks(float *o, float *max, float *sum, const float *q,
                                                             const void *keys, const void *values,
                                                             const struct dlc_cached_part *p, const dlc_dtype type)
{
    float s[BLOCK];

    for (size_t begin = p->begin; begin < p->end; begin += BLOCK) {
        size_t block_end = p->end - begin < BLOCK ? p->end : begin + BLOCK;

        for (size_t r = 0; r < p->R; r++) {
            size_t end = p->seen + r < block_end ? p->seen + r : block_end;

            for (size_t g = 0; g < p->G && begin < end; g++) {
                size_t at = r * p->H + g, n = end - begin;
                float shrink;

                scores(s, q + at * p->D, keys, begin, n, p->D, type);
                shrink = softmax(s, max + at, sum + at, n);
                add_values(o + at * p->D, s, values, begin, n, p->D, shrink, type);
            }
        }
    }
}

void DLC_KERNEL(attention_cached)(float *o, float *max, float *sum, const float *q, const void *keys,
                                  const void *values, const struct dlc_cached_part *p)
{
    for (size_t r = 0; r < p->R; r++) {
        for (size_t g = 0; g < p->G; g++) {
            size_t at = r * p->H + g;

            max[at] = -INFINITY;
            sum[at] = 0;
            memset(o + at * p->D, 0, p->D * sizeof *o);
        }
    }
    if (p->type == DLC_BF16)
        all_blocks(o, max, sum, q, keys, values, p, DLC_BF16);
    else
        all_blocks(o, max, sum, q, keys, values, p, DLC_F32);
}

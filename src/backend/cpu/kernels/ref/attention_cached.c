/* Attention of query rows over cached keys and values; what a part gives is in kernels.h. */
#include <math.h>

#include "backend/cpu/kernels.h"

static double value(const void *p, size_t at, dlc_dtype type)
{
    return type == DLC_BF16 ? dlc_bf16_to_f32(((const dlc_bf16 *)p)[at]) : ((const float *)p)[at];
}

static double score(const float *q, const void *keys, size_t j, const struct dlc_cached_part *p)
{
    double sum = 0;

    for (size_t d = 0; d < p->D; d++)
        sum += q[d] * value(keys, j * p->D + d, p->type);
    return sum / sqrt((double)p->D);
}

static void row(float *o, float *max, float *sum, const float *q, const void *keys, const void *values, size_t end,
                const struct dlc_cached_part *p)
{
    double largest = -INFINITY, total = 0;

    for (size_t j = p->begin; j < end; j++)
        largest = fmax(largest, score(q, keys, j, p));
    for (size_t d = 0; d < p->D; d++)
        o[d] = 0;
    *max = (float)largest;
    for (size_t j = p->begin; j < end; j++) {
        double e = exp(score(q, keys, j, p) - *max);

        total += e;
        for (size_t d = 0; d < p->D; d++)
            o[d] += (float)(e * value(values, j * p->D + d, p->type));
    }
    *sum = (float)total;
}

void dlc_attention_cached_ref(float *o, float *max, float *sum, const float *q, const void *keys, const void *values,
                              const struct dlc_cached_part *p)
{
    for (size_t r = 0; r < p->R; r++) {
        size_t end = p->seen + r < p->end ? p->seen + r : p->end;

        for (size_t g = 0; g < p->G; g++) {
            size_t at = r * p->H + g;

            row(o + at * p->D, max + at, sum + at, q + at * p->D, keys, values, end, p);
        }
    }
}

/* Cross-entropy; formulas in ref/cross_entropy.c. Exponentials are summed W lanes wide in f32 over pieces of 1024
 * values, and over pieces in double. A NaN among the logits may escape the maximum but not the sum. */
#include "backend/cpu/kernels/simd/simd.h"

enum { PIECE = 1024 };

static float largest(const float *x, size_t V)
{
    vf max = v_set(-INFINITY);
    size_t v = 0;
    float tail = -INFINITY;

    for (; v + W <= V; v += W)
        max = v_max(v_load(x + v), max);
    for (; v < V; v++)
        tail = x[v] > tail ? x[v] : tail;
    return fmaxf(v_largest(max), tail);
}

/* Sum of exp(x - max); with `keep`, x becomes these exponentials. */
static double sum_exp(float *x, size_t V, float max, int keep)
{
    double total = 0;
    vf m = v_set(max);

    for (size_t begin = 0; begin < V; begin += PIECE) {
        size_t end = V - begin < PIECE ? V : begin + PIECE, v = begin;
        vf sum = v_set(0);
        float tail = 0;

        for (; v + W <= end; v += W) {
            vf e = v_exp(v_load(x + v) - m);

            sum = sum + e;
            if (keep)
                v_store(x + v, e);
        }
        if (v < end) {
            float lanes[W];

            v_store(lanes, v_exp(v_load_n(x + v, end - v) - m));
            for (size_t i = 0; i < end - v; i++)
                tail += lanes[i];
            if (keep)
                memcpy(x + v, lanes, (end - v) * sizeof *x);
        }
        total += (double)v_sum(sum) + tail;
    }
    return total;
}

void DLC_KERNEL(cross_entropy)(float *loss, float *logits, const int32_t *targets, size_t R, size_t V, float dscale)
{
    for (size_t r = 0; r < R; r++) {
        float *x = logits + r * V, max = largest(x, V), target = x[targets[r]];
        double sum = sum_exp(x, V, max, dscale != 0);

        loss[r] = (float)(max + log(sum) - target);
        if (dscale == 0)
            continue;
        for (size_t v = 0; v < V; v += W)
            v_store_upto(x + v, v_load_upto(x + v, V - v) * v_set((float)(dscale / sum)), V - v);
        x[targets[r]] -= dscale;
    }
}

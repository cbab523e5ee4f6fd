/* RMSNorm; formulas in ref/rmsnorm.c. Sums: 2 W lanes in f32, then pairwise. */
#include "backend/cpu/kernels/simd/simd.h"

static float sum_of_squares(const float *x, size_t C)
{
    vf a = v_set(0), b = v_set(0);
    size_t c = 0;

    for (; c + 2 * W <= C; c += 2 * W) {
        vf u = v_load(x + c), v = v_load(x + c + W);

        a = v_fma(u, u, a);
        b = v_fma(v, v, b);
    }
    for (; c < C; c += W) {
        vf u = v_load_upto(x + c, C - c);

        a = v_fma(u, u, a);
    }
    return v_sum(a + b);
}

void DLC_KERNEL(rmsnorm_fwd)(float *y, float *inv_rms, const float *x, const float *g, size_t R, size_t C, float eps)
{
    for (size_t r = 0; r < R; r++, x += C, y += C) {
        float s = 1 / sqrtf(sum_of_squares(x, C) / (float)C + eps);

        for (size_t c = 0; c < C; c += W)
            v_store_upto(y + c, v_load_upto(x + c, C - c) * v_set(s) * v_load_upto(g + c, C - c), C - c);
        if (inv_rms)
            inv_rms[r] = s;
    }
}

static float sum_of_products(const float *dy, const float *g, const float *x, size_t C)
{
    vf sum = v_set(0);

    for (size_t c = 0; c < C; c += W) {
        size_t n = C - c;

        sum = v_fma(v_load_upto(dy + c, n) * v_load_upto(g + c, n), v_load_upto(x + c, n), sum);
    }
    return v_sum(sum);
}

void DLC_KERNEL(rmsnorm_bwd)(float *dx, float *dg, const float *dy, const float *x, const float *inv_rms,
                             const float *g, size_t R, size_t C)
{
    for (size_t r = 0; r < R; r++, x += C, dx += C, dy += C) {
        vf s = v_set(inv_rms[r]);
        vf mean = v_set(sum_of_products(dy, g, x, C) / (float)C) * s * s;

        for (size_t c = 0; c < C; c += W) {
            size_t n = C - c;
            vf u = v_load_upto(x + c, n), d = v_load_upto(dy + c, n);

            v_store_upto(dx + c, v_load_upto(dx + c, n) + s * (d * v_load_upto(g + c, n) - u * mean), n);
            v_store_upto(dg + c, v_load_upto(dg + c, n) + d * u * s, n);
        }
    }
}

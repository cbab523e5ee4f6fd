/* RMSNorm (Zhang and Sennrich 2019, arXiv:1910.07467; eps inside the root as in Llama).
 *   y[c] = x[c] s g[c],  s = 1/sqrt(mean_c x^2 + eps)
 *   dx[c] += s (dy[c] g[c] - x[c] s^2 mean_c(dy g x)),  dg[c] += dy[c] x[c] s */
#include <math.h>

#include "backend/cpu/kernels.h"

void dlc_rmsnorm_fwd_ref(float *y, float *inv_rms, const float *x, const float *g, size_t R, size_t C, float eps)
{
    for (size_t r = 0; r < R; r++, x += C, y += C) {
        double sum = 0;
        float s;

        for (size_t c = 0; c < C; c++)
            sum += (double)x[c] * x[c];
        s = (float)(1 / sqrt(sum / (double)C + eps));
        for (size_t c = 0; c < C; c++)
            y[c] = x[c] * s * g[c];
        if (inv_rms)
            inv_rms[r] = s;
    }
}

void dlc_rmsnorm_bwd_ref(float *dx, float *dg, const float *dy, const float *x, const float *inv_rms, const float *g,
                         size_t R, size_t C)
{
    for (size_t r = 0; r < R; r++, x += C, dx += C, dy += C) {
        double s = inv_rms[r], sum = 0;

        for (size_t c = 0; c < C; c++)
            sum += (double)dy[c] * g[c] * x[c];
        for (size_t c = 0; c < C; c++) {
            dx[c] += (float)(s * ((double)dy[c] * g[c] - x[c] * s * s * sum / (double)C));
            dg[c] += (float)(dy[c] * s * x[c]);
        }
    }
}

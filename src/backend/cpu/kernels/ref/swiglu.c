/* y = silu(gate) up,  silu(x) = x sigma(x),  silu'(x) = sigma(x) (1 + x (1 - sigma(x))). */
#include <math.h>

#include "backend/cpu/kernels.h"

void dlc_swiglu_fwd_ref(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

void dlc_swiglu_bwd_ref(float *dgate, float *dup, const float *dy, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = gate[i], u = up[i], sigma = 1 / (1 + expf(-x));

        dgate[i] = dy[i] * u * sigma * (1 + x * (1 - sigma));
        dup[i] = dy[i] * x * sigma;
    }
}

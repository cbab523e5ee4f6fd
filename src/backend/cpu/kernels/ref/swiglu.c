/* y = silu(gate) up,  silu(x) = x sigma(x),  silu'(x) = sigma(x) (1 + x (1 - sigma(x))). */
#include <math.h>

#include "backend/cpu/kernels.h"

void dlc_swiglu_fwd_ref(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

void dlc_swiglu_bwd_ref(float *dgate, float *dup, float *y, const float *dy, const float *gate, const float *up,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = gate[i], u = up[i], d = dy[i], e = 1 + expf(-x), sigma = 1 / e;

        dgate[i] = d * u * sigma * (1 + x * (1 - sigma));
        dup[i] = d * x * sigma;
        y[i] = x / e * u; /* the bits of swiglu_fwd */
    }
}

/* SwiGLU; formulas in ref/swiglu.c. */
#include "backend/cpu/kernels/simd/simd.h"

static inline vf sigmoid(vf x)
{
    return v_set(1) / (v_set(1) + v_exp(v_set(0) - x));
}

void DLC_KERNEL(swiglu_fwd)(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += W) {
        vf x = v_load_upto(gate + i, n - i);

        v_store_upto(y + i, x * sigmoid(x) * v_load_upto(up + i, n - i), n - i);
    }
}

void DLC_KERNEL(swiglu_bwd)(float *dgate, float *dup, float *y, const float *dy, const float *gate, const float *up,
                            size_t n)
{
    for (size_t i = 0; i < n; i += W) {
        vf x = v_load_upto(gate + i, n - i), u = v_load_upto(up + i, n - i), d = v_load_upto(dy + i, n - i);
        vf sigma = sigmoid(x), one = v_set(1);

        v_store_upto(dgate + i, d * u * sigma * (one + x * (one - sigma)), n - i);
        v_store_upto(dup + i, d * x * sigma, n - i);
        v_store_upto(y + i, x * sigma * u, n - i);
    }
}

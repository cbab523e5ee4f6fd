/* The exponential of simd.h over an array, for its test. */
#include "backend/cpu/kernels/simd/simd.h"

void DLC_KERNEL(exp)(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += W)
        v_store_upto(y + i, v_exp(v_load_upto(x + i, n - i)), n - i);
}

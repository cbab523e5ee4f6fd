/* Exact widening, value by value. */
#include "backend/cpu/kernels.h"

void DLC_KERNEL(from_bf16)(float *y, const dlc_bf16 *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = dlc_bf16_to_f32(x[i]);
}

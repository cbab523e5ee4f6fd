#include "backend/cpu/kernels.h"

void DLC_KERNEL(to_bf16)(dlc_bf16 *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = dlc_f32_to_bf16(x[i]);
}

#include "backend/cpu/kernels.h"

void DLC_KERNEL(add)(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

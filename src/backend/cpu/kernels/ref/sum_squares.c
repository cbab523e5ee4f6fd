/* In double: the square of an f32 is exact there and cannot overflow; NaN and infinity stay visible in the sum. */
#include "backend/cpu/kernels.h"

double dlc_sum_squares_ref(const float *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* Sum of squares in double, W lanes wide. */
#include "backend/cpu/kernels/simd/simd.h"

double DLC_KERNEL(sum_squares)(const float *x, size_t n)
{
    vd a = v_zero_d(), b = v_zero_d();
    size_t i = 0;

    for (; i + 2 * W <= n; i += 2 * W) {
        a = v_add_squares(a, v_load(x + i));
        b = v_add_squares(b, v_load(x + i + W));
    }
    for (; i < n; i += W)
        a = v_add_squares(a, v_load_upto(x + i, n - i));
    return v_sum_d(a) + v_sum_d(b);
}

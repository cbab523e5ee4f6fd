/* y[r] = w x[r], each element one dot product accumulated in double. */
#include "backend/cpu/kernels.h"

void dlc_matvec_ref(float *y, size_t ldy, const float *x, const void *w, size_t R, size_t N, size_t K, dlc_dtype type,
                    int accumulate)
{
    for (size_t r = 0; r < R; r++) {
        for (size_t n = 0; n < N; n++) {
            double sum = accumulate ? y[r * ldy + n] : 0;

            for (size_t k = 0; k < K; k++)
                sum += (double)x[r * K + k] * (type == DLC_BF16 ? dlc_bf16_to_f32(((const dlc_bf16 *)w)[n * K + k])
                                                                : ((const float *)w)[n * K + k]);
            y[r * ldy + n] = (float)sum;
        }
    }
}

/* AdamW (Loshchilov and Hutter, arXiv:1711.05101) in the form of torch, formula in backend.h. One pass, no reduction:
 * the same bits from every instruction set. */
#include <math.h>

#include "backend/cpu/kernels.h"

void DLC_KERNEL(adamw)(float *p, float *m, float *v, const float *grad, size_t n, const struct dlc_adamw *a)
{
    float b1 = a->beta1, b2 = a->beta2, c1 = 1 - b1, c2 = 1 - b2, scale = a->grad_scale, eps = a->eps;
    float decay = a->lr * a->weight_decay, step = a->lr / a->bias1, inv_root2 = 1 / sqrtf(a->bias2);

    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * scale;

        m[i] = b1 * m[i] + c1 * g;
        v[i] = b2 * v[i] + c2 * g * g;
        p[i] -= decay * p[i];
        p[i] -= step * m[i] / (sqrtf(v[i]) * inv_root2 + eps);
    }
}

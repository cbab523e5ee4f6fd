/* c = a b, each element one dot product accumulated in double. */
#include "backend/cpu/kernels.h"

static double element(const struct dlc_matrix *m, size_t i, size_t j)
{
    size_t at = m->transposed ? j * m->ld + i : i * m->ld + j;

    return m->dtype == DLC_F32 ? ((const float *)m->values)[at] : dlc_bf16_to_f32(((const dlc_bf16 *)m->values)[at]);
}

void dlc_matmul_ref(const struct dlc_product *p, float *scratch)
{
    (void)scratch;
    for (size_t i = 0; i < p->M; i++) {
        for (size_t j = 0; j < p->N; j++) {
            float *c = p->c + i * p->ldc + j;
            double sum = p->accumulate ? *c : 0;

            for (size_t k = 0; k < p->K; k++)
                sum += element(&p->a, i, k) * element(&p->b, k, j);
            *c = (float)sum;
        }
    }
}

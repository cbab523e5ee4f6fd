/* OpenBLAS: f32 by cblas_sgemm; bf16 by the builtin product, which converts while it packs. */
#include <assert.h>
#include <cblas.h>
#include <limits.h>

#include "backend/cpu/cpu.h"

static dlc_err open_openblas(struct dlc_cpu *cpu)
{
    if (cpu->plain_only)
        return DLC_ENOTFOUND;
    openblas_set_num_threads(1); /* a thread that calls it does the work alone; for the whole process */
    return DLC_OK;
}

static void close_openblas(struct dlc_cpu *cpu)
{
    (void)cpu;
}

static void multiply(struct dlc_cpu *cpu, int worker, const struct dlc_product *p)
{
    if (p->a.dtype != DLC_F32 || p->b.dtype != DLC_F32) {
        dlc_matmul_builtin(cpu, worker, p);
        return;
    }
    assert(p->M <= INT_MAX && p->N <= INT_MAX && p->K <= INT_MAX && p->a.ld <= INT_MAX && p->b.ld <= INT_MAX);
    cblas_sgemm(CblasRowMajor, p->a.transposed ? CblasTrans : CblasNoTrans, p->b.transposed ? CblasTrans : CblasNoTrans,
                (int)p->M, (int)p->N, (int)p->K, 1, p->a.values, (int)p->a.ld, p->b.values, (int)p->b.ld,
                p->accumulate ? 1 : 0, p->c, (int)p->ldc);
}

const struct dlc_matmul_lib dlc_matmul_openblas = { "openblas", open_openblas, close_openblas, multiply };

/* Attention: items (see kernels.h) are divided into contiguous runs. */
#include <assert.h>

#include "backend/cpu/cpu.h"

struct job {
    struct dlc_cpu *cpu;
    struct dlc_attention_shape shape;
    float *y, *lse, *dq, *dk, *dv;
    const float *q, *k, *v, *dy, *y_in, *lse_in;
};

static void forward(void *arg, struct dlc_part part)
{
    const struct job *j = arg;

    j->cpu->kernels.attention_fwd(j->y, j->lse, j->q, j->k, j->v, &j->shape, part.begin, part.end,
                                  dlc_cpu_scratch(j->cpu, part.worker));
}

static void attention_fwd(dlc_backend *be, float *y, float *lse, const float *q, const float *k, const float *v,
                          size_t B, size_t T, size_t H, size_t K, size_t D)
{
    struct job job = { .cpu = dlc_cpu_of(be), .shape = { B, T, H, K, D }, .y = y, .lse = lse, .q = q, .k = k, .v = v };

    assert(H % K == 0 && D <= DLC_MAX_HEAD_DIM);
    dlc_cpu_each(job.cpu, forward, &job, B * K * dlc_attention_n_tiles(&job.shape), 1, B * T * T * H * D);
}

static void backward(void *arg, struct dlc_part part)
{
    const struct job *j = arg;

    j->cpu->kernels.attention_bwd(j->dq, j->dk, j->dv, j->dy, j->q, j->k, j->v, j->y_in, j->lse_in, &j->shape,
                                  part.begin, part.end, dlc_cpu_scratch(j->cpu, part.worker));
}

static void attention_bwd(dlc_backend *be, float *dq, float *dk, float *dv, const float *dy, const float *q,
                          const float *k, const float *v, const float *y, const float *lse, size_t B, size_t T,
                          size_t H, size_t K, size_t D)
{
    struct job job = { .cpu = dlc_cpu_of(be),
                       .shape = { B, T, H, K, D },
                       .dq = dq,
                       .dk = dk,
                       .dv = dv,
                       .q = q,
                       .k = k,
                       .v = v,
                       .dy = dy,
                       .y_in = y,
                       .lse_in = lse };

    assert(H % K == 0 && D <= DLC_MAX_HEAD_DIM);
    dlc_cpu_each(job.cpu, backward, &job, B * K, 1, B * T * T * H * D);
}

void dlc_cpu_ops_attention(struct dlc_ops *ops)
{
    ops->attention_fwd = attention_fwd;
    ops->attention_bwd = attention_bwd;
}

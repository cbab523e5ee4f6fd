/* Attention: items (see kernels.h) are divided into contiguous runs. */
#include <assert.h>

#include "backend/cpu/cpu.h"

struct job {
    struct dlc_cpu *cpu;
    struct dlc_attention shape;
    void *y;
    float *lse, *dq, *dk, *dv;
    const float *q, *k, *v, *dy, *lse_in;
    const void *y_in;
};

static void forward(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    const struct dlc_attention *s = &j->shape;
    size_t begin = part.begin, end = part.end;

    if (begin < end)
        j->cpu->kernels.attention_fwd(j->y, j->lse, j->q, j->k, j->v, s, part.begin, part.end, dlc_cpu_scratch(j->cpu, part.worker));
}

static void check(const struct dlc_attention *s)
{
    assert(s->H % s->K == 0 && s->D <= DLC_MAX_HEAD_DIM);
    assert(s->q_row >= s->H * s->D && s->k_row >= s->K * s->D && s->v_row >= s->K * s->D);
}

static void attention_fwd(dlc_backend *be, void *y, float *lse, const float *q, const float *k, const float *v,
                          const struct dlc_attention *s)
{
    struct job job = { .cpu = dlc_cpu_of(be), .shape = *s, .y = y, .lse = lse, .q = q, .k = k, .v = v };

    check(s);
    dlc_cpu_each(job.cpu, forward, &job, s->B * s->K * dlc_attention_n_tiles(s), 1,
                 s->B * s->T * s->T * s->H * s->D);
}

static void backward(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    const struct dlc_attention *s = &j->shape;
    size_t begin = part.begin, end = part.end;

    if (begin < end)
        j->cpu->kernels.attention_bwd(j->dq, j->dk, j->dv, j->dy, j->q, j->k, j->v, j->y_in, j->lse_in, s, part.begin, part.end,
                                      dlc_cpu_scratch(j->cpu, part.worker));
}

static void attention_bwd(dlc_backend *be, float *dq, float *dk, float *dv, const float *dy, const float *q,
                          const float *k, const float *v, const void *y, const float *lse,
                          const struct dlc_attention *s)
{
    struct job job = { .cpu = dlc_cpu_of(be),
                       .shape = *s,
                       .dq = dq,
                       .dk = dk,
                       .dv = dv,
                       .q = q,
                       .k = k,
                       .v = v,
                       .dy = dy,
                       .y_in = y,
                       .lse_in = lse };

    check(s);
    dlc_cpu_each(job.cpu, backward, &job, s->B * s->K, 1, s->B * s->T * s->T * s->H * s->D);
}

void dlc_cpu_ops_attention(struct dlc_ops *ops)
{
    ops->attention_fwd = attention_fwd;
    ops->attention_bwd = attention_bwd;
}

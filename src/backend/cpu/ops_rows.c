/* Operations over rows. A row's result does not depend on who computes it. Two sums go over rows: the gradient of an
 * embedding table is divided by columns, so each value takes its rows in order; the gradient of a norm's gain is summed
 * in fixed blocks of rows, then over blocks in order. Both are the same bits for every number of threads. */
#include <assert.h>

#include "backend/cpu/cpu.h"

enum { COLUMN_GRAIN = 16, MIN_BLOCK_ROWS = 32 };

struct job {
    struct dlc_cpu *cpu;
    size_t R, C, T, pos0, D, block_rows;
    float eps, dscale;
    int inverse;
    float *y, *inv_rms, *dx, *dg, *loss;
    const float *x, *g, *dy, *inv_rms_in, *table;
    const int32_t *tokens;
};

static void do_embed_fwd(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t r = part.begin, end = part.end;

    j->cpu->kernels.embed_fwd(j->y + r * j->C, j->tokens + r, j->table, end - r, j->C);
}

static void embed_fwd(dlc_backend *be, float *y, const int32_t *tokens, const float *table, size_t R, size_t C)
{
    struct job job = { .cpu = dlc_cpu_of(be), .R = R, .C = C, .y = y, .tokens = tokens, .table = table };

    dlc_cpu_each(job.cpu, do_embed_fwd, &job, R, 1, R * C);
}

static void do_embed_bwd(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t c = part.begin, end = part.end;

    j->cpu->kernels.embed_bwd(j->y, j->tokens, j->dy, j->R, j->C, c, end);
}

static void embed_bwd(dlc_backend *be, float *dtable, const int32_t *tokens, const float *dy, size_t R, size_t C)
{
    struct job job = { .cpu = dlc_cpu_of(be), .R = R, .C = C, .y = dtable, .tokens = tokens, .dy = dy };

    dlc_cpu_each(job.cpu, do_embed_bwd, &job, C, COLUMN_GRAIN, R * C);
}

static void do_rmsnorm_fwd(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t r = part.begin, end = part.end;

    j->cpu->kernels.rmsnorm_fwd(j->y + r * j->C, j->inv_rms ? j->inv_rms + r : NULL, j->x + r * j->C, j->g, end - r,
                                j->C, j->eps);
}

static void rmsnorm_fwd(dlc_backend *be, float *y, float *inv_rms, const float *x, const float *g, size_t R, size_t C,
                        float eps)
{
    struct job job = { .cpu = dlc_cpu_of(be), .R = R, .C = C, .y = y, .inv_rms = inv_rms, .x = x, .g = g, .eps = eps };

    dlc_cpu_each(job.cpu, do_rmsnorm_fwd, &job, R, 1, R * C);
}

static void do_rmsnorm_bwd(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t b = part.begin, end = part.end;

    for (; b < end; b++) {
        size_t r = b * j->block_rows, n = j->R - r < j->block_rows ? j->R - r : j->block_rows, at = r * j->C;
        float *dg = j->cpu->dg_blocks + b * j->C;

        memset(dg, 0, j->C * sizeof *dg);
        j->cpu->kernels.rmsnorm_bwd(j->dx + at, dg, j->dy + at, j->x + at, j->inv_rms_in + r, j->g, n, j->C);
    }
}

static void rmsnorm_bwd(dlc_backend *be, float *dx, float *dg, const float *dy, const float *x, const float *inv_rms,
                        const float *g, size_t R, size_t C)
{
    struct dlc_cpu *cpu = dlc_cpu_of(be);
    size_t max_blocks = cpu->dg_floats / C, n_blocks;
    struct job job = { .cpu = cpu, .R = R, .C = C, .dx = dx, .dy = dy, .x = x, .inv_rms_in = inv_rms, .g = g };

    max_blocks = max_blocks > DLC_MAX_BLOCKS ? DLC_MAX_BLOCKS : max_blocks;
    assert(max_blocks > 0);
    job.block_rows = (R + max_blocks - 1) / max_blocks;
    if (job.block_rows < MIN_BLOCK_ROWS)
        job.block_rows = MIN_BLOCK_ROWS;
    n_blocks = (R + job.block_rows - 1) / job.block_rows;
    dlc_cpu_each(cpu, do_rmsnorm_bwd, &job, n_blocks, 1, R * C);
    for (size_t b = 0; b < n_blocks; b++)
        cpu->kernels.add(dg, cpu->dg_blocks + b * C, C);
}

static void do_rope(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t r = part.begin, end = part.end;

    j->cpu->kernels.rope(j->y, j->table, r, end, j->T, j->pos0, j->C, j->D, j->inverse);
}

static void rope(dlc_backend *be, float *x, const float *table, size_t R, size_t T, size_t pos0, size_t heads, size_t D,
                 int inverse)
{
    struct job job = { .cpu = dlc_cpu_of(be),
                       .R = R,
                       .C = heads,
                       .T = T,
                       .pos0 = pos0,
                       .D = D,
                       .inverse = inverse,
                       .y = x,
                       .table = table };

    dlc_cpu_each(job.cpu, do_rope, &job, R, 1, R * heads * D);
}

static void do_cross_entropy(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t r = part.begin, end = part.end;

    j->cpu->kernels.cross_entropy(j->loss + r, j->y + r * j->C, j->tokens + r, end - r, j->C, j->dscale);
}

static void cross_entropy(dlc_backend *be, float *loss, float *logits, const int32_t *targets, size_t R, size_t V,
                          float dscale)
{
    struct job job = {
        .cpu = dlc_cpu_of(be), .R = R, .C = V, .loss = loss, .y = logits, .tokens = targets, .dscale = dscale
    };

    dlc_cpu_each(job.cpu, do_cross_entropy, &job, R, 1, R * V);
}

void dlc_cpu_ops_rows(struct dlc_ops *ops)
{
    ops->embed_fwd = embed_fwd;
    ops->embed_bwd = embed_bwd;
    ops->rmsnorm_fwd = rmsnorm_fwd;
    ops->rmsnorm_bwd = rmsnorm_bwd;
    ops->rope = rope;
    ops->cross_entropy = cross_entropy;
}

/* Operations over rows. A row's result does not depend on who computes it. Two sums go over rows: the gradient of an
 * embedding table is divided by columns, so each value takes its rows in order; the gradient of a norm's gain is summed
 * in fixed blocks of rows, then over blocks in order. Both are the same bits for every number of threads. */
#include <assert.h>

#include "backend/cpu/cpu.h"

enum { COLUMN_GRAIN = 16, GRAIN = 64, MIN_BLOCK_ROWS = 32, PIECE = 2048 };

struct job {
    struct dlc_cpu *cpu;
    struct dlc_norm norm;
    size_t R, C, T, pos0, D, row, block_rows;
    float dscale;
    int inverse;
    dlc_dtype out;
    dlc_bf16 *y16; /* y or dx in bf16, beside it or instead */
    void *out_y, *dgate, *dup;
    float *y, *inv_rms, *dx, *dg, *loss;
    const float *x, *g, *dy, *inv_rms_in, *table, *gate, *up;
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

/* Vectors that follow each other without a gap are rows of one head. */
static struct dlc_norm closed_up(const struct dlc_norm *s)
{
    if (s->x_row == s->heads * s->C && s->y_row == s->heads * s->C)
        return (struct dlc_norm){ s->R * s->heads, 1, s->C, s->C, s->C, s->eps, s->y_type };
    return *s;
}

/* Where a worker makes what is written in bf16: few enough values to stay in the first cache, or one vector. */
static float *piece_to_round(const struct job *j, int worker, size_t n)
{
    assert(n <= j->cpu->worker_floats);
    return dlc_cpu_scratch(j->cpu, worker);
}

/* n rows without gaps or one row. */
static void norm_rows(const struct job *j, int worker, size_t r, size_t n)
{
    const struct dlc_norm *s = &j->norm;
    size_t n_vectors = n * s->heads, step = s->y_type == DLC_BF16 ? (PIECE + s->C - 1) / s->C : n_vectors;

    for (size_t i = 0; i < n_vectors; i += step) {
        size_t now = n_vectors - i < step ? n_vectors - i : step, at = r * s->y_row + i * s->C;
        float *y = s->y_type == DLC_BF16 ? piece_to_round(j, worker, now * s->C) : (float *)j->out_y + at;

        j->cpu->kernels.rmsnorm_fwd(y, j->inv_rms ? j->inv_rms + r * s->heads + i : NULL,
                                    j->x + r * s->x_row + i * s->C, j->g, now, s->C, s->eps);
        if (s->y_type == DLC_BF16)
            j->cpu->kernels.to_bf16((dlc_bf16 *)j->out_y + at, y, now * s->C);
    }
}

static void do_rmsnorm_fwd(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t r = part.begin, end = part.end;

    if (j->norm.x_row == j->norm.C && j->norm.y_row == j->norm.C)
        norm_rows(j, part.worker, r, end - r);
    else
        for (; r < end; r++)
            norm_rows(j, part.worker, r, 1);
}

static void rmsnorm_fwd(dlc_backend *be, void *y, float *inv_rms, const float *x, const float *g,
                        const struct dlc_norm *s)
{
    struct job job = {
        .cpu = dlc_cpu_of(be), .norm = closed_up(s), .out_y = y, .inv_rms = inv_rms, .x = x, .g = g
    };

    dlc_cpu_each(job.cpu, do_rmsnorm_fwd, &job, job.norm.R, 1, s->R * s->heads * s->C);
}

static void norm_rows_back(const struct job *j, float *dg, size_t r, size_t n)
{
    const struct dlc_norm *s = &j->norm;

    j->cpu->kernels.rmsnorm_bwd(j->dx + r * s->x_row, dg, j->dy + r * s->y_row, j->x + r * s->x_row,
                                j->inv_rms_in + r * s->heads, j->g, n * s->heads, s->C);
    if (j->y16)
        j->cpu->kernels.to_bf16(j->y16 + r * s->x_row, j->dx + r * s->x_row, n * s->heads * s->C);
}

static void do_rmsnorm_bwd(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    const struct dlc_norm *s = &j->norm;
    size_t b = part.begin, end = part.end;

    for (; b < end; b++) {
        size_t r = b * j->block_rows, n = s->R - r < j->block_rows ? s->R - r : j->block_rows;
        float *dg = j->cpu->dg_blocks + b * s->C;

        memset(dg, 0, s->C * sizeof *dg);
        if (s->x_row == s->C && s->y_row == s->C && !j->y16)
            norm_rows_back(j, dg, r, n);
        else
            for (size_t i = r; i < r + n; i++)
                norm_rows_back(j, dg, i, 1);
    }
}

static void rmsnorm_bwd(dlc_backend *be, float *dx, dlc_bf16 *dx16, float *dg, const float *dy, const float *x,
                        const float *inv_rms, const float *g, const struct dlc_norm *shape)
{
    struct dlc_cpu *cpu = dlc_cpu_of(be);
    struct dlc_norm s = closed_up(shape);
    size_t max_blocks = cpu->dg_floats / s.C, n_blocks;
    struct job job = { .cpu = cpu, .norm = s, .dx = dx, .y16 = dx16, .dy = dy, .x = x, .inv_rms_in = inv_rms, .g = g };

    max_blocks = max_blocks > DLC_MAX_BLOCKS ? DLC_MAX_BLOCKS : max_blocks;
    assert(max_blocks > 0);
    job.block_rows = (s.R + max_blocks - 1) / max_blocks;
    if (job.block_rows < MIN_BLOCK_ROWS)
        job.block_rows = MIN_BLOCK_ROWS;
    n_blocks = (s.R + job.block_rows - 1) / job.block_rows;
    dlc_cpu_each(cpu, do_rmsnorm_bwd, &job, n_blocks, 1, s.R * s.heads * s.C);
    for (size_t b = 0; b < n_blocks; b++)
        cpu->kernels.add(dg, cpu->dg_blocks + b * s.C, s.C);
}

static void do_rope(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t r = part.begin, end = part.end;

    j->cpu->kernels.rope(j->y, j->table, r, end, j->T, j->pos0, j->C, j->D, j->row, j->inverse);
}

static void rope(dlc_backend *be, float *x, const float *table, size_t R, size_t T, size_t pos0, size_t heads, size_t D,
                 size_t row, int inverse)
{
    struct job job = { .cpu = dlc_cpu_of(be),
                       .R = R,
                       .C = heads,
                       .T = T,
                       .pos0 = pos0,
                       .D = D,
                       .row = row,
                       .inverse = inverse,
                       .y = x,
                       .table = table };

    assert(row >= heads * D);
    dlc_cpu_each(job.cpu, do_rope, &job, R, 1, R * heads * D);
}

/* Rows that follow each other without a gap are one row; that is cut by values, a gap makes it cut by rows. */
static void close_up(struct job *j)
{
    if (j->row == j->C) {
        j->row = j->C = j->R * j->C;
        j->R = 1;
    }
}

/* Calls fn for each piece of a row that is this worker's; where the outputs are bf16 it is as long as stays in the first
 * cache. */
static void swiglu_pieces(const struct job *j, struct dlc_part part,
                          void (*fn)(const struct job *j, int worker, size_t at, size_t dense_at, size_t n))
{
    size_t r = 0, r_end = j->R, c_begin = 0, c_end = j->C;

    if (j->R == 1) {
        c_begin = part.begin;
        c_end = part.end;
    } else {
        r = part.begin;
        r_end = part.end;
    }
    for (; r < r_end; r++) {
        size_t step = j->out == DLC_BF16 ? PIECE : c_end - c_begin;

        for (size_t c = c_begin; c < c_end; c += step)
            fn(j, part.worker, r * j->row + c, r * j->C + c, c_end - c < step ? c_end - c : step);
    }
}

static void run_swiglu(struct job *j, dlc_part_fn *fn)
{
    close_up(j);
    if (j->R == 1)
        dlc_cpu_each(j->cpu, fn, j, j->C, GRAIN, j->C);
    else
        dlc_cpu_each(j->cpu, fn, j, j->R, 1, j->R * j->C);
}

static void swiglu_fwd_piece(const struct job *j, int worker, size_t at, size_t dense_at, size_t n)
{
    const struct dlc_kernels *k = &j->cpu->kernels;

    if (j->out == DLC_BF16) {
        float *y = piece_to_round(j, worker, n);

        k->swiglu_fwd(y, j->gate + at, j->up + at, n);
        k->to_bf16((dlc_bf16 *)j->out_y + dense_at, y, n);
    } else {
        k->swiglu_fwd((float *)j->out_y + dense_at, j->gate + at, j->up + at, n);
    }
}

static void do_swiglu_fwd(void *arg, struct dlc_part part)
{
    swiglu_pieces(arg, part, swiglu_fwd_piece);
}

static void swiglu_fwd(dlc_backend *be, void *y, const float *gate, const float *up, size_t R, size_t F, size_t row,
                       dlc_dtype out)
{
    struct job job = {
        .cpu = dlc_cpu_of(be), .R = R, .C = F, .row = row, .out = out, .out_y = y, .gate = gate, .up = up
    };

    run_swiglu(&job, do_swiglu_fwd);
}

static void swiglu_bwd_piece(const struct job *j, int worker, size_t at, size_t dense_at, size_t n)
{
    const struct dlc_kernels *k = &j->cpu->kernels;
    const float *gate = j->gate + at, *up = j->up + at, *dy = j->dy + dense_at;

    if (j->out == DLC_BF16) {
        float *dgate = piece_to_round(j, worker, 3 * PIECE), *dup = dgate + PIECE, *y = dup + PIECE;

        k->swiglu_bwd(dgate, dup, y, dy, gate, up, n);
        k->to_bf16((dlc_bf16 *)j->dgate + at, dgate, n);
        k->to_bf16((dlc_bf16 *)j->dup + at, dup, n);
        k->to_bf16((dlc_bf16 *)j->out_y + dense_at, y, n);
    } else {
        k->swiglu_bwd((float *)j->dgate + at, (float *)j->dup + at, (float *)j->out_y + dense_at, dy, gate, up, n);
    }
}

static void do_swiglu_bwd(void *arg, struct dlc_part part)
{
    swiglu_pieces(arg, part, swiglu_bwd_piece);
}

static void swiglu_bwd(dlc_backend *be, void *dgate, void *dup, void *y, const float *dy, const float *gate,
                       const float *up, size_t R, size_t F, size_t row, dlc_dtype out)
{
    struct job job = { .cpu = dlc_cpu_of(be),
                       .R = R,
                       .C = F,
                       .row = row,
                       .out = out,
                       .dgate = dgate,
                       .dup = dup,
                       .out_y = y,
                       .dy = dy,
                       .gate = gate,
                       .up = up };

    run_swiglu(&job, do_swiglu_bwd);
}

static void do_cross_entropy(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    const struct dlc_kernels *k = &j->cpu->kernels;
    size_t r = part.begin, end = part.end, step;

    for (step = j->y16 ? 1 : end - r; r < end; r += step) {
        k->cross_entropy(j->loss + r, j->y + r * j->C, j->tokens + r, step, j->C, j->dscale);
        if (j->y16)
            k->to_bf16(j->y16 + r * j->C, j->y + r * j->C, j->C);
    }
}

static void cross_entropy(dlc_backend *be, float *loss, float *logits, dlc_bf16 *dlogits16, const int32_t *targets,
                          size_t R, size_t V, float dscale)
{
    struct job job = { .cpu = dlc_cpu_of(be),
                       .R = R,
                       .C = V,
                       .loss = loss,
                       .y = logits,
                       .y16 = dscale != 0 ? dlogits16 : NULL,
                       .tokens = targets,
                       .dscale = dscale };

    dlc_cpu_each(job.cpu, do_cross_entropy, &job, R, 1, R * V);
}

void dlc_cpu_ops_rows(struct dlc_ops *ops)
{
    ops->embed_fwd = embed_fwd;
    ops->embed_bwd = embed_bwd;
    ops->rmsnorm_fwd = rmsnorm_fwd;
    ops->rmsnorm_bwd = rmsnorm_bwd;
    ops->rope = rope;
    ops->swiglu_fwd = swiglu_fwd;
    ops->swiglu_bwd = swiglu_bwd;
    ops->cross_entropy = cross_entropy;
}

/* Operations over a flat array: parts are multiples of GRAIN values, which keeps cache lines of different workers
 * apart. Elementwise kernels give the same bits wherever an array is cut. */
#include "backend/cpu/cpu.h"

enum { GRAIN = 64 };

struct job {
    const struct dlc_kernels *kernels;
    size_t n;
    float *y, *p, *m, *v;
    dlc_bf16 *y_bf16;
    const float *x, *grad;
    const struct dlc_adamw *adamw;
    double *blocks;
    size_t block;
};

static void do_add(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t i = part.begin, end = part.end;

    j->kernels->add(j->y + i, j->x + i, end - i);
}

static void add(dlc_backend *be, float *y, const float *x, size_t n)
{
    struct dlc_cpu *cpu = dlc_cpu_of(be);
    struct job job = { .kernels = &cpu->kernels, .y = y, .x = x };

    dlc_cpu_each(cpu, do_add, &job, n, GRAIN, n);
}

static void do_to_bf16(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t i = part.begin, end = part.end;

    j->kernels->to_bf16(j->y_bf16 + i, j->x + i, end - i);
}

static void to_bf16(dlc_backend *be, dlc_bf16 *y, const float *x, size_t n)
{
    struct dlc_cpu *cpu = dlc_cpu_of(be);
    struct job job = { .kernels = &cpu->kernels, .y_bf16 = y, .x = x };

    dlc_cpu_each(cpu, do_to_bf16, &job, n, GRAIN, n);
}

static void do_adamw(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t i = part.begin, end = part.end;

    j->kernels->adamw(j->p + i, j->m + i, j->v + i, j->grad + i, end - i, j->adamw);
}

static void adamw(dlc_backend *be, float *p, float *m, float *v, const float *grad, size_t n, const struct dlc_adamw *a)
{
    struct dlc_cpu *cpu = dlc_cpu_of(be);
    struct job job = { .kernels = &cpu->kernels, .p = p, .m = m, .v = v, .grad = grad, .adamw = a };

    dlc_cpu_each(cpu, do_adamw, &job, n, GRAIN, n);
}

static void do_sum_squares(void *arg, struct dlc_part part)
{
    const struct job *j = arg;
    size_t i = part.begin, end = part.end;

    for (; i < end; i++) {
        size_t at = i * j->block, n = j->n - at < j->block ? j->n - at : j->block;

        j->blocks[i] = j->kernels->sum_squares(j->x + at, n);
    }
}

/* Blocks depend on n alone and are summed in order. */
static double sum_squares(dlc_backend *be, const float *x, size_t n)
{
    struct dlc_cpu *cpu = dlc_cpu_of(be);
    size_t grains = (n + GRAIN - 1) / GRAIN, block = (grains + DLC_MAX_BLOCKS - 1) / DLC_MAX_BLOCKS * GRAIN;
    struct job job = { .kernels = &cpu->kernels, .n = n, .x = x, .blocks = cpu->sum_blocks, .block = block };
    double sum = 0;

    if (n == 0)
        return 0;
    dlc_cpu_each(cpu, do_sum_squares, &job, (n + block - 1) / block, 1, n);
    for (size_t i = 0; i < (n + block - 1) / block; i++)
        sum += cpu->sum_blocks[i];
    return sum;
}

void dlc_cpu_ops_flat(struct dlc_ops *ops)
{
    ops->add = add;
    ops->to_bf16 = to_bf16;
    ops->adamw = adamw;
    ops->sum_squares = sum_squares;
}

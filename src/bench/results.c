/* Reading a result: roofs, shares, where the time of a step went. */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

static const struct {
    const char *name;
    size_t offset; /* in struct dlc_peaks */
} roofs[] = {
    [DLC_ROOF_F32] = { "f32", offsetof(struct dlc_peaks, f32_flops) },
    [DLC_ROOF_BF16] = { "bf16", offsetof(struct dlc_peaks, bf16_flops) },
    [DLC_ROOF_READ] = { "read", offsetof(struct dlc_peaks, memory.read) },
    [DLC_ROOF_TRIAD] = { "triad", offsetof(struct dlc_peaks, memory.triad) },
    [DLC_ROOF_IN_PLACE] = { "in_place", offsetof(struct dlc_peaks, memory.in_place) },
};

const char *dlc_bench_roof_name(dlc_roof roof)
{
    return roofs[roof].name;
}

double dlc_bench_roof(const struct dlc_peaks *peaks, dlc_roof *roof)
{
    if (*roof == DLC_ROOF_BF16 && peaks->bf16_flops == 0)
        *roof = DLC_ROOF_F32;
    return *(const double *)((const char *)peaks + roofs[*roof].offset);
}

double dlc_bench_mfu(const struct dlc_bench_step *s, double tokens_per_s, dlc_roof *roof)
{
    *roof = s->c.precision == DLC_PRECISION_BF16 ? DLC_ROOF_BF16 : DLC_ROOF_F32;
    return 6.0 * (double)s->c.n_params * tokens_per_s / dlc_bench_roof(&s->peaks, roof);
}

const char *dlc_bench_precision_name(dlc_precision precision)
{
    return precision == DLC_PRECISION_BF16 ? "bf16" : "f32";
}

static int longest_first(const void *a, const void *b)
{
    const struct dlc_bench_op_time *x = a, *y = b;

    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static void add_time(struct dlc_bench_op_time *out, size_t *n, const char *op, int n_calls, double seconds)
{
    size_t i = 0;

    while (i < *n && strcmp(out[i].op, op) != 0)
        i++;
    if (i == *n)
        out[(*n)++] = (struct dlc_bench_op_time){ .op = op };
    out[i].n_calls += n_calls;
    out[i].seconds += seconds;
}

double dlc_bench_profile(struct dlc_bench_op_time out[DLC_BENCH_MAX_OPS], size_t *n, const struct dlc_bench_step *s)
{
    double rest = s->profile_s;

    *n = 0;
    for (size_t i = 0; i < s->n_rows; i++)
        add_time(out, n, dlc_timed_op_name(s->rows[i].op), s->rows[i].n_calls, s->rows[i].seconds);
    add_time(out, n, "zero_grads", 1, s->zero_s);
    for (size_t i = 0; i < *n; i++)
        rest -= out[i].seconds;
    qsort(out, *n, sizeof *out, longest_first);
    return rest;
}
